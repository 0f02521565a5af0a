"""Whether the certificates and the key of a Secret can be used. Nothing of them is in any message, nor on a disk."""

from __future__ import annotations

import base64
import contextlib
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from isthmus_router.pem import CERTIFICATE, LIST, has_others, in_memory

from .names import digest
from .remembering import Memory

_MEMORY_BYTES = 16 * 1024 * 1024
remembered = Memory(_MEMORY_BYTES)

_IDENTITY = re.compile(r"(\*\.)?[A-Za-z0-9_][-A-Za-z0-9_.]*")
"""What the `peerNames` of a router's configuration may contain."""

MOST_BUNDLE_BYTES = 512 * 1024
"""Of certificates in one key of a Secret, in PEM."""
MOST_CERTIFICATES = 512
"""In one key of a Secret. Bundles of public authorities have about 150."""
_MOST_NAMES = 256
"""Of one certificate, as many as routers read. A ledger has those of all its generations."""
MOST_REVOCATIONS = 256 * 1024
"""Bytes of certificate revocation lists; a Secret has at most 1 MiB."""
_BEGIN_LIST = b"-----BEGIN %b-----" % LIST

MOST_KEY_BYTES = 32 * 1024
"""Of a private key in PEM; one of RSA with 16,384 bits has 13 KiB."""
_MOST_SIGNATURES = 32
"""Verified to find out whether a certificate is signed by one of the authorities beside it. Each takes up to 5 ms."""
_PRIVATE_KEY = re.compile(
    rb"^-----BEGIN ((?:RSA |EC )?PRIVATE KEY)-----[ \t\r]*\n([A-Za-z0-9+/=\s]*)^-----END \1-----",
    re.MULTILINE,
)
_LABEL = re.compile(rb"PRIVATE[ \t]+KEY", re.IGNORECASE)
_BLOCK = re.compile(rb"-----BEGIN ([^-\n]*)-----")
_HARMLESS = {b"EC PARAMETERS", b"CERTIFICATE"}
"""Blocks that may be beside that of a private key."""
_ALGORITHM = re.compile(
    rb"\x30(?:[\x00-\x7f]|\x81.|\x82..)\x02\x01[\x00\x01]\x30(?:[\x00-\x7f]|\x81.|\x82..)"
    rb"\x06(?:"
    rb"\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01[\x01\x0a]"  # RSA, and RSA-PSS
    rb"|\x07\x2a\x86\x48\xce\x3d\x02\x01"  # ECDSA
    rb"|\x03\x2b\x65[\x70\x71]"  # Ed25519, Ed448
    rb")",
    re.DOTALL,
)
"""The beginning of a key in PKCS #8, up to its algorithm."""


@dataclass(frozen=True)
class Examined:
    """What was found out about the key material of one Secret."""

    problem: str | None = None
    """Why it can never be used: which key of the Secret, and what is wrong with it."""
    not_before: datetime | None = None
    """Of the certificate in `tls.crt`."""
    not_after: datetime | None = None
    authorities_not_after: datetime | None = None
    """When the last one of the authorities in `ca.crt` expires."""

    @property
    def ends(self) -> tuple[datetime, ...]:
        """When something of it expires."""
        return tuple(item for item in (self.not_after, self.authorities_not_after) if item is not None)

    def problem_at(self, now: datetime | None) -> str | None:
        """Why it cannot be used at `now`; None leaves the periods of validity out of account."""
        if self.problem is not None or now is None:
            return self.problem
        if self.not_before is not None and now < self.not_before:
            return f"the certificate in tls.crt is not valid before {_text(self.not_before)}"
        return self.expired_at(now)

    def expired_at(self, now: datetime) -> str | None:
        """What of it has expired at `now`."""
        if self.not_after is not None and now > self.not_after:
            return f"the certificate in tls.crt expired at {_text(self.not_after)}"
        if self.authorities_not_after is not None and now > self.authorities_not_after:
            return f"the certificates in ca.crt expired, the last one at {_text(self.authorities_not_after)}"
        return None


@dataclass(frozen=True)
class Certificate:
    """What is told of a certificate, and by what it is recognised."""

    fingerprint: str
    """SHA-256 in hexadecimal."""
    identity: str
    """Equal when it is the same certificate with the same chain, however written."""
    issuer: str
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True)
class Fitness:
    """What a certificate can be used for."""

    server: bool
    """It may be presented by listeners."""
    client: bool
    """It may be presented by connectors."""
    names: tuple[str, ...] | None
    """Host names in it; None when that is not known."""

    def names_host(self, host: str) -> bool:
        """Whether `host` is one of the names; a wildcard stands for one label."""
        parent = host.partition(".")[2]
        return self.names is None or any(
            name.lower() in {host.lower(), f"*.{parent}".lower()} for name in self.names
        )


class _UnusableError(Exception):
    pass


@remembered
def described(certificate: bytes) -> Certificate:
    """The first certificate of a chain in PEM, which must be one that `examine` finds no problem with."""
    chain = x509.load_pem_x509_certificates(certificate)
    leaf = chain[0]
    return Certificate(
        fingerprint=_fingerprint(leaf),
        identity=digest("".join(_fingerprint(item) for item in chain)),
        issuer=leaf.issuer.rfc4514_string(),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
    )


def fingerprint_of(certificate: bytes) -> str:
    """Of the first certificate of a chain in PEM; empty when it cannot be read."""
    try:
        return described(certificate).fingerprint
    except Exception:
        return ""


@remembered
def fitness(certificate: bytes) -> Fitness:
    """Of the first certificate of a chain in PEM, which must be one that `examine` finds no problem with."""
    leaf = x509.load_pem_x509_certificates(certificate)[0]
    extensions = _extensions(leaf)
    usages = _usages(extensions)
    anything = usages is None or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages
    return Fitness(
        server=anything or ExtendedKeyUsageOID.SERVER_AUTH in (usages or ()),
        client=anything or ExtendedKeyUsageOID.CLIENT_AUTH in (usages or ()),
        names=_names(leaf, extensions),
    )


def _extensions(leaf: x509.Certificate) -> x509.Extensions | None:
    """None when they cannot be read. OpenSSL may all the same, so nothing can be said of them."""
    try:
        return leaf.extensions
    except Exception:
        return None


def _usages(extensions: x509.Extensions | None) -> x509.ExtendedKeyUsage | None:
    try:
        return (
            extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
            if extensions is not None
            else None
        )
    except x509.ExtensionNotFound:
        return None


def _names(leaf: x509.Certificate, extensions: x509.Extensions | None) -> tuple[str, ...] | None:
    if extensions is None:
        return None
    common = [str(item.value) for item in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    try:
        alternative = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return tuple(common)
    return (*alternative.get_values_for_type(x509.DNSName), *common)


@remembered
def identities(certificate: bytes) -> tuple[str, ...]:
    """The names by which the first certificate of a chain in PEM is recognised: its common names, or where it has none
    its DNS names without wildcards, or else all of them. Empty when it cannot be read."""
    try:
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        names = _names(leaf, _extensions(leaf)) or ()
    except Exception:
        return ()
    common = {str(item.value) for item in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)}
    usable = [name for name in names if _IDENTITY.fullmatch(name)]
    exact = [name for name in usable if not name.startswith("*.")]
    return tuple([name for name in usable if name in common] or exact or usable)[:_MOST_NAMES]


@remembered
def is_signed(certificate: bytes, authorities: bytes | None) -> bool:
    """Return whether a certificate of a chain in PEM is signed by, or is, one of the authorities beside it.

    True also where there are no authorities, and where more than a few dozen signatures would have to be verified to
    find out. `examine` must find no problem with either argument.
    """
    trusted: dict[x509.Name, list[x509.Certificate]] = {}
    for item in x509.load_pem_x509_certificates(authorities) if authorities is not None else ():
        trusted.setdefault(item.subject, []).append(item)
    chain = x509.load_pem_x509_certificates(certificate)
    if not trusted or any(item in trusted.get(item.subject, ()) for item in chain[:_MOST_SIGNATURES]):
        return True
    # Anybody may write the Secret: certificates with equal names would cost a signature for each pair.
    pairs = ((item, issuer) for item in chain for issuer in trusted.get(item.issuer, ()))
    for number, (item, issuer) in enumerate(pairs):
        if number == _MOST_SIGNATURES:
            return True
        with contextlib.suppress(Exception):
            item.verify_directly_issued_by(issuer)
            return True
    return False


@remembered
def merged(*bundles: bytes) -> bytes:
    """All certificates of several bundles in PEM, each once, in the order of their first appearance."""
    found = {item: None for bundle in bundles for item in x509.load_pem_x509_certificates(bundle)}
    return b"".join(item.public_bytes(Encoding.PEM) for item in found)


@remembered
def chained(certificate: bytes) -> bytes:
    """The certificates of a chain in PEM, in their order, without anything between them."""
    found = x509.load_pem_x509_certificates(certificate)
    return b"".join(item.public_bytes(Encoding.PEM) for item in found)


@remembered
def listed(lists: bytes) -> bytes:
    """The certificate revocation lists in PEM, in their order, without anything between them."""
    return b"".join(item.public_bytes(Encoding.PEM) for item in _lists(lists))


def _lists(pem: bytes) -> list[x509.CertificateRevocationList]:
    _, *found = pem.split(_BEGIN_LIST)
    return [x509.load_pem_x509_crl(_BEGIN_LIST + item) for item in found]


def count(bundle: bytes) -> int:
    """Number of certificates in a bundle in PEM."""
    return bundle.count(b"-----BEGIN CERTIFICATE-----")


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(SHA256()).hex()


@remembered
def revocations_problem(lists: bytes) -> str | None:
    """Why a bundle of certificate revocation lists in PEM cannot be used; None if it can."""
    if len(lists) > MOST_REVOCATIONS:
        return f"has more than {MOST_REVOCATIONS} bytes"
    if has_others(lists, LIST):
        return "has a PEM block other than X509 CRL; remove it"
    try:
        made = _lists(lists)
    except x509.InvalidVersion:
        return "has a certificate revocation list of an unknown version; issue it again as version 2"
    except Exception:
        made = []
    try:
        _ = [item.next_update_utc for item in made]
    except Exception:
        return "has a certificate revocation list whose nextUpdate cannot be read; issue it again"
    return None if made else "has no certificate revocation list in PEM format"


@remembered
def revocations_expiry(lists: bytes) -> datetime | None:
    """When the first of the certificate revocation lists in PEM expires; None if none states it."""
    try:
        moments = [item.next_update_utc for item in _lists(lists)]
    except Exception:
        return None
    return min((moment for moment in moments if moment is not None), default=None)


@remembered
def unlisted(authorities: bytes, certificate: bytes | None, lists: bytes) -> tuple[str, ...]:
    """The names of authorities that none of the lists is from: of those in a bundle, and of those that have signed the
    certificates of a chain. All are in PEM. Empty where the lists cannot be read."""
    needed = [item.subject for item in x509.load_pem_x509_certificates(authorities)]
    if certificate is not None:
        needed += [item.issuer for item in x509.load_pem_x509_certificates(certificate)]
    try:
        present = {item.issuer for item in _lists(lists)}
        return tuple(item.rfc4514_string() for item in dict.fromkeys(needed) if item not in present)
    except Exception:
        return ()


@remembered
def examine(authorities: bytes | None, certificate: bytes | None, key: bytes | None) -> Examined:
    """Looks at `ca.crt`, `tls.crt` and `tls.key`, each in PEM; what is absent is not judged."""
    try:
        return _examine(authorities, certificate, key)
    except _UnusableError as error:
        return Examined(str(error))
    except Exception as error:  # an exception that no check expects must not reach other resources
        return Examined(f"{', '.join(_KEYS)} cannot be examined ({type(error).__name__}); issue them again")


def _examine(authorities: bytes | None, certificate: bytes | None, key: bytes | None) -> Examined:
    if (certificate is None) != (key is None):
        present, absent = ("tls.crt", "tls.key") if key is None else ("tls.key", "tls.crt")
        raise _UnusableError(f'"{present}" is of no use, as there is no key "{absent}"; put both into it')
    not_before = not_after = authorities_not_after = None
    if certificate is not None and key is not None:
        leaf = _certificates(certificate, "tls.crt")[0]
        if not _belongs(key, leaf):
            raise _UnusableError("tls.key is not the private key of the certificate in tls.crt")
        not_before, not_after = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        _check_chain(chained(certificate), key)
    if authorities is not None:
        found = _certificates(authorities, "ca.crt")
        _check_authorities(merged(authorities))
        authorities_not_after = max(item.not_valid_after_utc for item in found)
    return Examined(None, not_before, not_after, authorities_not_after)


def _certificates(pem: bytes, name: str) -> list[x509.Certificate]:
    if len(pem) > MOST_BUNDLE_BYTES:
        raise _UnusableError(f"{name} has more than {MOST_BUNDLE_BYTES} bytes; use fewer certificates")
    if count(pem) > MOST_CERTIFICATES:
        raise _UnusableError(f"{name} has more than {MOST_CERTIFICATES} certificates; use fewer")
    if has_others(pem, CERTIFICATE):
        raise _UnusableError(f"{name} has a PEM block other than CERTIFICATE; remove it")
    try:
        found = x509.load_pem_x509_certificates(pem)
    except x509.InvalidVersion:
        raise _UnusableError(
            f"{name} has a certificate of an unknown version; issue it as version 3"
        ) from None
    except Exception:
        raise _UnusableError(f"{name} is not a certificate in PEM format") from None
    for number, item in enumerate(found, 1):
        for field, read in _FIELDS.items():
            try:
                read(item)
            except Exception:
                text = f"{name}: {field} of certificate {number} cannot be read; issue the certificate again"
                raise _UnusableError(text) from None
    return found


_KEYS = ("ca.crt", "tls.crt", "tls.key")
_FIELDS: Mapping[str, Callable[[x509.Certificate], object]] = {
    "the version": lambda item: item.version,
    "the issuer": lambda item: item.issuer.rfc4514_string(),
    "the subject": lambda item: item.subject.rfc4514_string(),
    "notBefore": lambda item: item.not_valid_before_utc,
    "notAfter": lambda item: item.not_valid_after_utc,
    "an extension": lambda item: (_names(item, _extensions(item)), _usages(_extensions(item))),
}
"""Of a certificate, all that this module reads later: `cryptography` decodes each field when it is first read."""


def _belongs(pem: bytes, certificate: x509.Certificate) -> bool:
    if len(pem) > MOST_KEY_BYTES:
        raise _UnusableError(f"tls.key has more than {MOST_KEY_BYTES} bytes")
    try:
        return private_key(pem).public_key() == certificate.public_key()
    except TypeError:
        raise _UnusableError("tls.key is encrypted") from None
    except (ValueError, UnsupportedAlgorithm, InternalError):
        raise _UnusableError(_NO_KEY) from None


def private_key(pem: bytes) -> PrivateKeyTypes:
    """The private key in `pem`, which must be one that `examine` finds no problem with.

    OpenSSL would check the primes of an RSA key for half a second with 4,096 bits, and for 10 s with 8,192. Whoever
    wrote a key that is not consistent gains nothing by it.
    """
    return load_pem_private_key(_only_key(pem), password=None, unsafe_skip_rsa_key_validation=True)


def _only_key(pem: bytes) -> bytes:
    """The block of the private key in `pem`, as all parsers read it alike. Raises _UnusableError.

    Parsers differ in where a block begins, and in its headers, so a check could read another key than OpenSSL does.
    OpenSSL derives keys of encrypted blocks with as many iterations as the block states, and computes the public key of
    one for DSA or Diffie-Hellman, whose parameters have any length, for minutes.
    """
    if b"ENCRYPTED" in pem.upper():
        raise _UnusableError("tls.key is encrypted")
    others = [label.upper() for label in _BLOCK.findall(pem) if not _LABEL.search(label)]
    found = _PRIVATE_KEY.search(pem)
    if len(_LABEL.findall(pem)) != 2 or not _HARMLESS.issuperset(others):
        labels = {label.upper() for label in _BLOCK.findall(pem) if _LABEL.search(label)}
        other_kinds = labels - {b"PRIVATE KEY", b"RSA PRIVATE KEY", b"EC PRIVATE KEY"}
        raise _UnusableError(_OTHER_KEY if other_kinds else _NO_KEY)
    if found is None:
        raise _UnusableError(_NO_KEY)
    label, text = found.groups()
    try:
        content = base64.b64decode(b"".join(text.split()), validate=True)
    except ValueError:
        raise _UnusableError(_NO_KEY) from None
    if label == b"PRIVATE KEY" and _ALGORITHM.match(content) is None:
        raise _UnusableError(_OTHER_KEY)
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, base64.encodebytes(content), label)


_NO_KEY = "tls.key is not a private key in PEM format"
_OTHER_KEY = "tls.key is not an RSA, ECDSA or EdDSA key; use one of these"


def _no_password() -> str:
    raise _UnusableError("tls.key is encrypted")


_REFUSALS = {
    "EE_KEY_TOO_SMALL": "the key of the certificate in tls.crt is too short for TLS",
    "CA_KEY_TOO_SMALL": "the key of an authority in tls.crt is too short for TLS",
    "CA_MD_TOO_WEAK": "a certificate in tls.crt is signed with a hash that is too weak for TLS",
}


def _check_chain(chain: bytes, key: bytes) -> None:
    """Routers have OpenSSL load the files, which refuses some that are well-formed. Raises _UnusableError."""
    with in_memory(chain) as chain_file, in_memory(_only_key(key)) as key_file:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain_file, key_file, _no_password)
        except ssl.SSLError as error:
            text = f"OpenSSL does not take tls.crt with tls.key: {_reason(error)}"
            raise _UnusableError(_REFUSALS.get(error.reason or "", text)) from None


def _check_authorities(bundle: bytes) -> None:
    """The same for authorities, as `merged` encodes them."""
    with in_memory(bundle) as name:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(name)
        except ssl.SSLError as error:
            raise _UnusableError(f"OpenSSL does not take ca.crt: {_reason(error)}") from None


def _reason(error: ssl.SSLError) -> str:
    return error.reason or "it is not the PEM format that it reads"


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
