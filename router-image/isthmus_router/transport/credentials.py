"""TLS between members, between sites and with gossip routers: what the files of an sslProfile hold.

TLS is mutual: each end shows a certificate that the profile's authority has signed. Names are not compared with
hosts, as pods' addresses are in no certificate; who needs a name (the bridge) is told those of the peer.
"""

from __future__ import annotations

import ssl
from typing import Any

from isthmus_router.config.model import SslProfileConfig


class CredentialsError(Exception):
    """The profile's files or settings cannot be used; the text says which."""


class Credentials:
    """Contexts for both ends of connections, of one generation of a profile; made anew when files change."""

    def __init__(self, profile: SslProfileConfig) -> None:
        """Reads the files. Raises CredentialsError."""
        self.ordinal = profile.ordinal
        self.server = _context(profile, ssl.PROTOCOL_TLS_SERVER)
        self.client = _context(profile, ssl.PROTOCOL_TLS_CLIENT)


def _context(profile: SslProfileConfig, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    if not profile.cert_file or not profile.ca_cert_file:
        raise CredentialsError(f"sslProfile {profile.name}: certFile and caCertFile are needed")
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    key = profile.private_key_file or profile.cert_file
    what = f"certFile {profile.cert_file!r} with privateKeyFile {key!r}"
    try:
        # Without a password of its own OpenSSL would ask for one on the terminal.
        context.load_cert_chain(profile.cert_file, key, lambda: profile.password or "")
        what = f"caCertFile {profile.ca_cert_file!r}"
        context.load_verify_locations(profile.ca_cert_file)
        what = f"ciphers {profile.ciphers!r}"
        if profile.ciphers:
            context.set_ciphers(profile.ciphers)
        what = f"protocols {profile.protocols!r}"
        if profile.protocols:
            versions = [ssl.TLSVersion[name.replace(".", "_")] for name in profile.protocols]
            context.minimum_version, context.maximum_version = min(versions), max(versions)
    except (OSError, ValueError, KeyError) as error:
        raise CredentialsError(f"sslProfile {profile.name}: {what}: {error}") from error
    return context


def certificate_names(certificate: dict[str, Any] | None) -> tuple[str, ...]:
    """The names a verified certificate is for: its dNSNames, then its common name; of None there are none."""
    if not certificate:
        return ()
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(dict.fromkeys(names))
