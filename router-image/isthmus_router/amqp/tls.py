"""TLS domains from sslProfiles, and what a connection's TLS session says of its peer."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import weakref
from collections.abc import Mapping
from functools import cache
from typing import Any

from cproton_ffi import ffi, lib

from isthmus_router import openssl, pem, regular_files
from isthmus_router.amqp.engine import Pointer, cstring, text
from isthmus_router.ciphers import DEFAULT_PROTOCOLS, cipher_list
from isthmus_router.config.model import SslProfileConfig
from isthmus_router.credentials import CredentialsError, TlsContents, TlsFiles

_NO_AUTHORITIES = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": ""}
"""Proton has OpenSSL load the system's authorities into every domain. That would trust them beside the configured
ones, take a megabyte, and hold up the event loop for tens of milliseconds."""


class TlsError(Exception):
    """A profile's files or settings cannot be used; the text says which."""


class TlsDomain:
    """A `pn_ssl_domain_t` for one generation of one profile."""

    def __init__(self, profile: SslProfileConfig, *, server: bool, verify_peer: int) -> None:
        self.profile = profile.name
        self.ordinal = profile.ordinal
        self.ca_cert_file = profile.ca_cert_file
        self.revocations: openssl.Revocations | None = None
        """What peers are checked against."""
        os.environ.update(_NO_AUTHORITIES)
        mode = lib.PN_SSL_MODE_SERVER if server else lib.PN_SSL_MODE_CLIENT
        contexts: list[int] = []
        try:
            with openssl.made_contexts() as contexts:
                self.pn: Pointer = lib.pn_ssl_domain(mode)
        except openssl.OpenSslError as error:
            if profile.crl_file:
                raise TlsError(f"sslProfile {profile.name}: crlFile cannot be used: {error}") from error
            self.pn = lib.pn_ssl_domain(mode)
        for context in contexts:
            try:
                openssl.limit_peers(context)
            except openssl.OpenSslError as error:
                raise TlsError(f"sslProfile {profile.name}: {error}") from error
            if server and verify_peer == lib.PN_SSL_VERIFY_PEER:
                openssl.forbid_resumption(context)
        if not self.pn:
            raise TlsError(f"sslProfile {profile.name}: TLS is not available in this build of proton")
        weakref.finalize(self, lib.pn_ssl_domain_free, self.pn)
        name = profile.name
        try:
            contents = TlsFiles.of(profile).read()
            # Proton only reports that something is wrong with the contents; this states what.
            contents.context(ssl.PROTOCOL_TLS_SERVER)
        except CredentialsError as error:
            raise TlsError(f"sslProfile {name}: {error}") from error
        try:
            self._configure(profile, contents, server=server, verify_peer=verify_peer)
            self.revocations = contents.lists()
        except CredentialsError as error:
            raise TlsError(f"sslProfile {name}: {error}") from error
        except OSError as error:  # no descriptor for a file in memory
            raise TlsError(f"sslProfile {name}: {error.strerror}") from error
        if self.revocations is not None:
            revoking = len(contexts) == 1 and self.revocations.check(contexts[0])
            self._check(0 if revoking else -1, "crlFile", profile.crl_file)

    def _check(self, code: int, attribute: str, value: str | None) -> None:
        if code != 0:
            raise TlsError(f"sslProfile {self.profile}: {attribute} {value!r} cannot be used")

    def _configure(
        self, profile: SslProfileConfig, contents: TlsContents, *, server: bool, verify_peer: int
    ) -> None:
        """Raises TlsError and OSError."""
        check = self._check

        if contents.chain is not None and contents.key is not None:
            password = cstring(profile.password) if profile.password else ffi.NULL
            with pem.in_memory(contents.chain) as chain, pem.in_memory(contents.key) as key:
                names = cstring(chain), cstring(key)
                code = lib.pn_ssl_domain_set_credentials(self.pn, *names, password)
            check(code, "certFile or privateKeyFile", profile.cert_file)
        elif server:
            raise TlsError(f"sslProfile {self.profile}: certFile is needed on a listener")
        protocols = " ".join(profile.protocols or DEFAULT_PROTOCOLS)
        check(lib.pn_ssl_domain_set_protocols(self.pn, cstring(protocols)), "protocols", protocols)
        with contextlib.ExitStack() as files:
            trusted: Any = ffi.NULL
            if contents.authorities is not None:
                trusted = cstring(files.enter_context(pem.in_memory(contents.authorities)))
                code = lib.pn_ssl_domain_set_trusted_ca_db(self.pn, trusted)
                check(code, "caCertFile", profile.ca_cert_file)
            code = lib.pn_ssl_domain_set_peer_authentication(
                self.pn, verify_peer, trusted if server else ffi.NULL
            )
            check(code, "caCertFile", profile.ca_cert_file)
        # After the line above, where proton adds anonymous ciphers and lowers the level if no certificate is demanded.
        ciphers = cipher_list(profile.ciphers, profile.protocols)
        check(lib.pn_ssl_domain_set_ciphers(self.pn, cstring(ciphers)), "ciphers", profile.ciphers or ciphers)


def server_domain(profile: SslProfileConfig, *, demand_certificate: bool, allow_clear: bool) -> TlsDomain:
    """The domain of a listener. `demand_certificate`: the peer has to present one that the CA signed."""
    verify = lib.PN_SSL_VERIFY_PEER if demand_certificate else lib.PN_SSL_ANONYMOUS_PEER
    domain = TlsDomain(profile, server=True, verify_peer=verify)
    if allow_clear:
        lib.pn_ssl_domain_allow_unsecured_client(domain.pn)
    return domain


def client_domain(profile: SslProfileConfig, *, verify_hostname: bool) -> TlsDomain:
    """The domain of a connector; without a CA the peer is not verified."""
    verify = lib.PN_SSL_VERIFY_PEER_NAME if verify_hostname else lib.PN_SSL_VERIFY_PEER
    if not profile.ca_cert_file:
        verify = lib.PN_SSL_ANONYMOUS_PEER
    return TlsDomain(profile, server=False, verify_peer=verify)


def protocol_and_cipher(transport: Pointer) -> tuple[str | None, str | None]:
    """Names of the negotiated protocol and cipher, None on a clear connection."""
    session = lib.pn_ssl(transport)
    buffer: Any = ffi.new("char[]", 128)
    protocol = text(buffer) if lib.pn_ssl_get_protocol_name(session, buffer, 128) else None
    cipher = text(buffer) if lib.pn_ssl_get_cipher_name(session, buffer, 128) else None
    return protocol, cipher


@cache
def _strengths() -> dict[str, int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return {cipher["name"]: cipher["strength_bits"] for cipher in context.get_ciphers()}


def cipher_strength(cipher: str | None) -> int:
    """Bits of the key of a cipher that OpenSSL names so; 0 on a clear connection."""
    return 0 if cipher is None else _strengths().get(cipher, 0)


_SUBJECT_FIELDS = {
    "c": "PN_SSL_CERT_SUBJECT_COUNTRY_NAME",
    "s": "PN_SSL_CERT_SUBJECT_STATE_OR_PROVINCE",
    "l": "PN_SSL_CERT_SUBJECT_CITY_OR_LOCALITY",
    "o": "PN_SSL_CERT_SUBJECT_ORGANIZATION_NAME",
    "u": "PN_SSL_CERT_SUBJECT_ORGANIZATION_UNIT",
    "n": "PN_SSL_CERT_SUBJECT_COMMON_NAME",
}
_FINGERPRINTS = {"1": ("PN_SSL_SHA1", 41), "2": ("PN_SSL_SHA256", 65), "5": ("PN_SSL_SHA512", 129)}


def user_from_certificate(transport: Pointer, uid_format: str) -> str | None:
    """The user named by `uidFormat`: subject fields or a fingerprint, joined by `;`; None without a certificate."""
    session = lib.pn_ssl(transport)
    parts = []
    for letter in uid_format:
        if letter in _FINGERPRINTS:
            kind, size = _FINGERPRINTS[letter]
            buffer: Any = ffi.new("char[]", size)
            if lib.pn_ssl_get_cert_fingerprint(session, buffer, size, getattr(lib, kind)) != 0:
                return None
            parts.append(text(buffer) or "")
        elif letter in _SUBJECT_FIELDS:
            value = text(
                lib.pn_ssl_get_remote_subject_subfield(session, getattr(lib, _SUBJECT_FIELDS[letter]))
            )
            parts.append(value or "")
    return ";".join(parts) if any(parts) else None


def names_of_users(profile: SslProfileConfig) -> Mapping[str, str]:
    """What `uidNameMappingFile` calls the users that `uidFormat` makes; TlsError when it cannot be used."""
    path = profile.uid_name_mapping_file
    if path is None:
        return {}
    where = f"sslProfile {profile.name}: uidNameMappingFile {path!r}"
    try:
        names = json.loads(regular_files.read(path, pem.MOST_BYTES))
    except OSError as error:
        raise TlsError(f"{where}: {error.strerror}") from error
    except ValueError as error:
        raise TlsError(f"{where}: no JSON: {error}") from error
    if not isinstance(names, dict) or not all(isinstance(name, str) and name for name in names.values()):
        raise TlsError(f"{where}: not a JSON object that gives each user a name")
    return names


_TLS_FAILURE = "SSL Failure: "
UNTRUSTED = "the peer's certificate is not accepted"
_EXPLANATIONS = {
    "certificate verify failed": UNTRUSTED,
    "alert unknown ca": "the peer refused this router's certificate: it does not know the authority",
    "alert certificate expired": "the peer refused this router's certificate: it has expired",
    "alert certificate revoked": "the peer refused this router's certificate: it is revoked",
    "alert bad certificate": "the peer refused this router's certificate",
    "callback failed": "the ClientHello has too long lists of groups, key shares, signature algorithms or ciphers",
    "alert handshake failure": "the peer refused the handshake; its log says why",
    "alert certificate required": "the peer demands a certificate",
    "did not return a certificate": "the peer presented no certificate",
    "wrong version number": "the peer does not speak TLS on this port",
    "http request": "the peer does not speak TLS",
    "unsupported protocol": "no TLS version that both sides allow",
    "alert protocol version": "no TLS version that both sides allow",
    "no shared cipher": "no cipher that both sides allow",
    "no suitable key share": "no group for the exchange of keys that both sides allow",
    "no shared group": "no group for the exchange of keys that both sides allow",
}


def explain_failure(name: str, description: str) -> str:
    """The error condition of a failed transport as a sentence; OpenSSL's own words stay in it."""
    if not description.startswith(_TLS_FAILURE):
        hint = "the peer does not speak AMQP: " if "protocol header" in description else ""
        return f"{hint}{name}: {description}"
    words = description.rpartition("::")[2] or description
    for known, explanation in _EXPLANATIONS.items():
        if known in words:
            return f"TLS handshake failed: {explanation} ({words})"
    return f"TLS failed: {words}"
