"""TLS between members, between sites and with gossip routers: what certificate files hold.

TLS is mutual: each end shows a certificate that the authority has signed. Names are not compared with hosts, as pods'
addresses are in no certificate; who needs a name is told those of the peer (`certificate_names`).
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

from isthmus_router import pem, regular_files
from isthmus_router.ciphers import DEFAULT_PROTOCOLS, cipher_list
from isthmus_router.config.model import SslProfileConfig
from isthmus_router.openssl import OpenSslError, Revocations, forbid_resumption, limit_peers, made_contexts
from isthmus_router.tls_records import SteppedObject


class CredentialsError(Exception):
    """The files or settings cannot be used; the text says which."""


_REASONS = {
    "KEY_VALUES_MISMATCH": "the key does not belong to the certificate",
    "NO_START_LINE": "not a PEM file",
    "BAD_DECRYPT": "the password does not open the key",
    "BAD_PASSWORD_READ": "the key needs a password",
    "NO_CERTIFICATE_OR_CRL_FOUND": "no certificate or certificate revocation list in it",
}
LONGEST_IDENTITY = 256
"""Characters of the names of a certificate that say who a peer is."""
_NAMED = 4
"""Authorities that a sentence names."""
_DER = 2
"""`ENCODING_DER` of Python's module `_ssl`."""
_NO_PEM = "not a PEM file, or not what it should hold"
"""The error for which Python has no name."""


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").upper().replace(" ", "_")
        return _REASONS.get(reason, error.reason or _NO_PEM)
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class TlsFiles(NamedTuple):
    """Paths of PEM files; None: there is no such file."""

    certificate: str | None
    """With `key`, both or none."""
    key: str | None
    authority: str | None
    """Peers have to show a certificate that it has signed; None: they need not show any."""
    password: str = ""
    """Of the key."""
    revocations: str | None = None
    """Certificate revocation lists of all authorities of a chain: peers with a revoked certificate in theirs are
    refused."""
    oldest_protocol: str = DEFAULT_PROTOCOLS[0]

    @classmethod
    def of(cls, profile: SslProfileConfig) -> TlsFiles:
        """Those of an sslProfile."""
        certificate = profile.cert_file or None
        key = (profile.private_key_file or certificate) if certificate is not None else None
        authority, lists = profile.ca_cert_file or None, profile.crl_file or None
        return cls(certificate, key, authority, profile.password or "", lists)

    def read(self) -> TlsContents:
        """Read each file once. Raises CredentialsError."""
        return TlsContents(
            self,
            _content("certFile", self.certificate, pem.chain),
            _content("privateKeyFile", self.key, bytes),
            _content("caCertFile", self.authority, pem.authorities),
            _content("crlFile", self.revocations, pem.lists, pem.MOST_LIST_BYTES),
        )


def _content(
    attribute: str, path: str | None, encoded: Callable[[bytes], bytes], most: int = pem.MOST_BYTES
) -> bytes | None:
    if path is None:
        return None
    try:
        return encoded(regular_files.read(path, most))
    except (OSError, ValueError) as error:
        raise CredentialsError(f"{attribute} {path!r}: {_reason(error)}") from error


@dataclass(frozen=True)
class TlsContents:
    """What files hold at one moment, as OpenSSL is to read it."""

    files: TlsFiles
    chain: bytes | None
    key: bytes | None = field(repr=False)
    authorities: bytes | None
    revocations: bytes | None

    def context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        """For one end of connections. Raises CredentialsError."""
        files = self.files
        context = _limited(protocol)
        context.sslobject_class = SteppedObject
        context.check_hostname = False
        context.minimum_version = _version(files.oldest_protocol)
        what = f"certFile {files.certificate!r} with privateKeyFile {files.key!r}"
        try:
            if self.chain is not None and self.key is not None:
                with pem.in_memory(self.chain) as chain, pem.in_memory(self.key) as key:
                    # Without a password of its own OpenSSL would ask for one on the terminal.
                    context.load_cert_chain(chain, key, lambda: files.password)
            if self.authorities is not None:
                what = f"caCertFile {files.authority!r}"
                trust(context, self.authorities)
                context.verify_mode = ssl.CERT_REQUIRED
            if self.revocations is not None:
                what = f"crlFile {files.revocations!r}"
                trust(context, self.revocations)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        except (OSError, ValueError) as error:
            raise CredentialsError(f"{what}: {_reason(error)}") from error
        return context

    @cached_property
    def digest(self) -> bytes:
        """Differs for other contents."""
        found = hashlib.sha256()
        for content in (self.chain, self.key, self.authorities, self.revocations):
            found.update(len(content or b"").to_bytes(8, "big") + (content or b""))
        return found.digest()

    def lists(self) -> Revocations | None:
        """The certificate revocation lists, if there are to be any. Raises CredentialsError.

        OpenSSL also finds those beside the authorities.
        """
        if self.revocations is None:
            return None
        try:
            return Revocations(self.revocations + (self.authorities or b""))
        except OpenSslError as error:
            raise CredentialsError(f"crlFile {self.files.revocations!r}: {error}") from error

    def remark(self) -> str:
        """What is probably not as it was meant: authorities without a list. Else empty. Raises CredentialsError."""
        lists = self.lists()
        names = lists.unlisted(self.authorities) if lists is not None and self.authorities is not None else ()
        if not names:
            return ""
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return (
            f"crlFile {self.files.revocations!r} has no list of these authorities in caCertFile, and peers whose chain "
            f"has one of them are refused: {', '.join(names[:_NAMED])}{more}"
        )


def trust(context: ssl.SSLContext, content: bytes) -> None:
    """Give a context authorities or certificate revocation lists that `pem.authorities` has encoded. Raises OSError."""
    with pem.in_memory(content) as file:
        context.load_verify_locations(file)


def _version(protocol: str) -> ssl.TLSVersion:
    return ssl.TLSVersion[protocol.replace(".", "_")]


def _limited(protocol: ssl._SSLMethod) -> ssl.SSLContext:
    """A context that bounds what peers can make its sessions do. A server resumes none of them: a resumed session has
    no verified chain, whose authorities may be revoked later.

    That is possible where Python and proton use the same library, as in the images.
    """
    try:
        with made_contexts() as contexts:
            context = ssl.SSLContext(protocol)
        for made in contexts:
            limit_peers(made)
            if protocol is ssl.PROTOCOL_TLS_SERVER:
                forbid_resumption(made)
    except OpenSslError:
        context = ssl.SSLContext(protocol)
    return context


REVOKED = "the certificate of the peer or of one of its authorities is revoked"


def revocations(profile: SslProfileConfig) -> tuple[Revocations | None, str]:
    """The lists of a profile, if it has any, and what is to be remarked. Reads them; raises CredentialsError."""
    files = TlsFiles(None, None, profile.ca_cert_file or None, revocations=profile.crl_file or None)
    contents = files.read()
    return contents.lists(), contents.remark()


def _is_in(chain: Sequence[bytes] | None, lists: Revocations | None) -> bool:
    """Also true for a peer with a certificate whose chain is not known."""
    return lists is not None and chain is not None and (not chain or any(map(lists.include, chain)))


class Credentials:
    """Contexts for both ends of connections, of one generation of a profile; made anew when files change."""

    def __init__(self, profile: SslProfileConfig) -> None:
        """Reads the files. Raises CredentialsError."""
        self.profile = profile
        try:
            if not profile.cert_file or not profile.ca_cert_file:
                raise CredentialsError("certFile and caCertFile are needed")
            contents = TlsFiles.of(profile).read()
            self.server = _context(profile, contents, ssl.PROTOCOL_TLS_SERVER)
            self.client = _context(profile, contents, ssl.PROTOCOL_TLS_CLIENT)
            self._revocations = contents.lists()
        except CredentialsError as error:
            raise CredentialsError(f"sslProfile {profile.name}: {error}") from error

    def renewed(self, profile: SslProfileConfig) -> Credentials | None:
        """Of the changed profile; None: only which generations are valid has changed. Raises CredentialsError."""
        before = replace(self.profile, oldest_valid_ordinal=profile.oldest_valid_ordinal)
        return None if profile == before else Credentials(profile)

    def is_revoked(self, chain: Sequence[bytes] | None) -> bool:
        """Whether a certificate of a peer's chain (`peer_chain`) is revoked, though it was accepted before."""
        return _is_in(chain, self._revocations)

    @property
    def ordinal(self) -> int:
        """The generation."""
        return self.profile.ordinal


def _context(profile: SslProfileConfig, contents: TlsContents, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = contents.context(protocol)
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
        self._loaded: bytes | str | None = None
        """The digest of the contents, or why they cannot be read."""
        self._revocations: Revocations | None = None
        self.remark = ""
        """What is probably not as it was meant with what was loaded last."""
        self.digest = ""
        """Of what was loaded last, as `pem.digest` has it."""

    def load(self) -> ssl.SSLContext | None:
        """A context for new connections if the contents have changed since the last call, else None.

        Blocks. Raises CredentialsError, once for the same contents.
        """
        contents = self._read()
        if _mark(contents) == self._loaded:
            return None
        try:
            if isinstance(contents, CredentialsError):
                raise contents
            context = contents.context(ssl.PROTOCOL_TLS_SERVER)
            lists, remark = contents.lists(), contents.remark()
        except CredentialsError:
            self._loaded = _mark(contents)
            raise
        if _mark(self._read()) != _mark(contents):
            return None  # in the middle of a replacement; the next call sees all of it
        self._loaded, self._revocations, self.remark = _mark(contents), lists, remark
        self.digest = pem.digest(contents.authorities, contents.chain, contents.revocations)
        return context

    def is_revoked(self, chain: Sequence[bytes] | None) -> bool:
        """Whether a certificate of a peer's chain (`peer_chain`) is revoked by what was loaded last."""
        return _is_in(chain, self._revocations)

    def _read(self) -> TlsContents | CredentialsError:
        try:
            return self._files.read()
        except CredentialsError as error:
            return error


def _mark(contents: TlsContents | CredentialsError) -> bytes | str:
    return str(contents) if isinstance(contents, CredentialsError) else contents.digest


def peer_chain(transport: asyncio.BaseTransport | None) -> Sequence[bytes] | None:
    """The chain that the handshake has verified, in DER: the certificate of the peer, then its authorities up to a
    trusted one. None without TLS or without a certificate; empty in a resumed session, which has verified none."""
    session = transport.get_extra_info("ssl_object") if transport is not None else None
    if session is None or session.getpeercert(True) is None:
        return None
    if sys.version_info >= (3, 13):
        return cast(list[bytes], session.get_verified_chain())
    # Without a public name before.
    return [item.public_bytes(_DER) for item in session._sslobj.get_verified_chain() or ()]


def certificate_names(certificate: dict[str, Any] | None) -> tuple[str, ...]:
    """The names a verified certificate is for: its dNSNames, then its common name; of None there are none."""
    if not certificate:
        return ()
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(dict.fromkeys(names))


def identity_of(certificate: dict[str, Any] | None, remote: str) -> str:
    """Who a peer is: the names of its verified certificate, or without one the address that it comes from.

    A digest stands for the end of many names, as each connection, and what is remembered of it, has this text.
    """
    names = ", ".join(sorted(certificate_names(certificate)))
    if len(names) > LONGEST_IDENTITY:
        digest = hashlib.sha256(names.encode(errors="surrogatepass")).hexdigest()
        names = f"{names[:LONGEST_IDENTITY]}... (SHA-256 of all names: {digest})"
    return f"certificate {names}" if names else f"address {remote}"
