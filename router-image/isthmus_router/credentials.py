"""TLS between members, between sites and with gossip routers: what certificate files hold.

TLS is mutual: each end shows a certificate that the authority has signed. Names are not compared with hosts, as pods'
addresses are in no certificate; who needs a name is told those of the peer (`certificate_names`).
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from isthmus_router.config.model import SslProfileConfig
from isthmus_router.openssl import OpenSslError, Revocations, check_bundle, limit_steps, made_contexts

DEFAULT_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
"""Versions of TLS where a profile names none."""
_LEGACY_PROTOCOLS = frozenset({"TLSv1", "TLSv1.1"})
_CIPHERS = "HIGH:!PSK:!SRP:!MD5:!RC4:!3DES"
_NEVER = "!aNULL:!eNULL:!EXPORT"
"""Ciphers without authentication (anonymous Diffie-Hellman), without encryption, or with weakened keys."""


def cipher_list(stated: str | None, protocols: Sequence[str] | None) -> str:
    """The OpenSSL cipher list of a profile whose `ciphers` and `protocols` are these.

    Ciphers without authentication or encryption are never in it. The security level is 2 (keys of at least 112 bits)
    unless `stated` has another one, or `protocols` names versions whose signatures need level 0.
    """
    level = 0 if _LEGACY_PROTOCOLS.intersection(protocols or ()) else 2
    parts = [stated or _CIPHERS, _NEVER]
    if stated is None or "@SECLEVEL" not in stated:
        parts.append(f"@SECLEVEL={level}")
    return ":".join(parts)


class CredentialsError(Exception):
    """The files or settings cannot be used; the text says which."""


class TlsFiles(NamedTuple):
    """Paths of PEM files."""

    certificate: str
    key: str
    authority: str | None
    """Peers have to show a certificate that it has signed; None: they need not show any."""
    password: str = ""
    """Of the key."""
    revocations: str | None = None
    """Certificate revocation lists of the authority: peers with revoked certificates are refused."""
    oldest_protocol: str = DEFAULT_PROTOCOLS[0]

    def context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        """For one end of connections. Reads the files; raises CredentialsError."""
        context = _limited(protocol)
        context.check_hostname = False
        context.minimum_version = _version(self.oldest_protocol)
        what = f"certFile {self.certificate!r} with privateKeyFile {self.key!r}"
        try:
            # Without a password of its own OpenSSL would ask for one on the terminal.
            context.load_cert_chain(self.certificate, self.key, lambda: self.password)
            if self.authority is not None:
                what = f"caCertFile {self.authority!r}"
                check_bundle(self.authority)
                context.load_verify_locations(self.authority)
                context.verify_mode = ssl.CERT_REQUIRED
            if self.revocations is not None:
                what = f"crlFile {self.revocations!r}"
                check_bundle(self.revocations)
                context.load_verify_locations(self.revocations)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        except (OSError, ValueError) as error:
            raise CredentialsError(f"{what}: {error}") from error
        return context


def _version(protocol: str) -> ssl.TLSVersion:
    return ssl.TLSVersion[protocol.replace(".", "_")]


def _limited(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    """A context whose sessions end when their peers send key updates without pause.

    That is possible where Python and proton use the same library, as in the images.
    """
    try:
        with made_contexts() as contexts:
            context = ssl.SSLContext(protocol)
        for made in contexts:
            limit_steps(made)
    except OpenSslError:
        context = ssl.SSLContext(protocol)
    return context


REVOKED = "the certificate of the peer is revoked"


def revocations(path: str | None) -> Revocations | None:
    """The lists of a file, if there is to be one. Reads it; raises CredentialsError."""
    if not path:
        return None
    try:
        return Revocations(path)
    except (OSError, OpenSslError) as error:
        raise CredentialsError(f"crlFile {path!r}: {error}") from error


def _is_in(certificate: bytes | None, lists: Revocations | None) -> bool:
    return certificate is not None and lists is not None and lists.include(certificate)


class Credentials:
    """Contexts for both ends of connections, of one generation of a profile; made anew when files change."""

    def __init__(self, profile: SslProfileConfig) -> None:
        """Reads the files. Raises CredentialsError."""
        self.profile = profile
        try:
            self.server = _context(profile, ssl.PROTOCOL_TLS_SERVER)
            self.client = _context(profile, ssl.PROTOCOL_TLS_CLIENT)
            self._revocations = revocations(profile.crl_file)
        except CredentialsError as error:
            raise CredentialsError(f"sslProfile {profile.name}: {error}") from error

    def renewed(self, profile: SslProfileConfig) -> Credentials | None:
        """Of the changed profile; None: only which generations are valid has changed. Raises CredentialsError."""
        before = replace(self.profile, oldest_valid_ordinal=profile.oldest_valid_ordinal)
        return None if profile == before else Credentials(profile)

    def is_revoked(self, certificate: bytes | None) -> bool:
        """Whether a peer's certificate, in DER, is revoked, though it may have been accepted before."""
        return _is_in(certificate, self._revocations)

    @property
    def ordinal(self) -> int:
        """The generation."""
        return self.profile.ordinal


def _context(profile: SslProfileConfig, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    if not profile.cert_file or not profile.ca_cert_file:
        raise CredentialsError("certFile and caCertFile are needed")
    key = profile.private_key_file or profile.cert_file
    password = profile.password or ""
    files = TlsFiles(profile.cert_file, key, profile.ca_cert_file, password, profile.crl_file or None)
    context = files.context(protocol)
    what = f"ciphers {profile.ciphers!r}"
    try:
        if profile.ciphers or profile.protocols:
            context.set_ciphers(cipher_list(profile.ciphers, profile.protocols))
        what = f"protocols {profile.protocols!r}"
        if profile.protocols:
            versions = list(map(_version, profile.protocols))
            context.minimum_version, context.maximum_version = min(versions), max(versions)
    except (OSError, ValueError, KeyError) as error:
        raise CredentialsError(f"{what}: {error}") from error
    return context


class WatchedFiles:
    """Files of a server without profiles: loaded when their contents change, as whole sets only."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._loaded: bytes | None = None
        self._revocations: Revocations | None = None

    def load(self) -> ssl.SSLContext | None:
        """A context for new connections if the contents have changed since the last call, else None.

        Blocks. Raises CredentialsError, once for the same contents.
        """
        contents = self._digest()
        if contents == self._loaded:
            return None
        try:
            context = self._files.context(ssl.PROTOCOL_TLS_SERVER)
            lists = revocations(self._files.revocations)
        except CredentialsError:
            self._loaded = contents
            raise
        if self._digest() != contents:
            return None  # in the middle of a replacement; the next call sees all of it
        self._loaded, self._revocations = contents, lists
        return context

    def is_revoked(self, certificate: bytes | None) -> bool:
        """Whether a peer's certificate, in DER, is revoked by what was loaded last."""
        return _is_in(certificate, self._revocations)

    def _digest(self) -> bytes:
        found = hashlib.sha256()
        files = self._files
        for path in filter(None, (files.certificate, files.key, files.authority, files.revocations)):
            try:
                contents = Path(path).read_bytes()
            except OSError:
                contents = b""
            found.update(len(contents).to_bytes(8, "big") + contents)
        return found.digest()


def peer_certificate(transport: asyncio.BaseTransport | None) -> bytes | None:
    """The certificate of the peer, in DER; None without TLS or without one."""
    session = transport.get_extra_info("ssl_object") if transport is not None else None
    return session.getpeercert(True) if session is not None else None


def certificate_names(certificate: dict[str, Any] | None) -> tuple[str, ...]:
    """The names a verified certificate is for: its dNSNames, then its common name; of None there are none."""
    if not certificate:
        return ()
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(dict.fromkeys(names))
