"""Whether the certificates and the key of a Secret can be used. Pure; nothing of them is in any message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from .names import digest


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

    def problem_at(self, now: datetime | None) -> str | None:
        """Why it cannot be used at `now`; None leaves the periods of validity out of account."""
        if self.problem is not None or now is None:
            return self.problem
        if self.not_after is not None and now > self.not_after:
            return f"the certificate in tls.crt expired at {_text(self.not_after)}"
        if self.not_before is not None and now < self.not_before:
            return f"the certificate in tls.crt is not valid before {_text(self.not_before)}"
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


class _UnusableError(Exception):
    pass


@lru_cache(maxsize=512)
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


@lru_cache(maxsize=256)
def merged(*bundles: bytes) -> bytes:
    """All certificates of several bundles in PEM, each once, in the order of their first appearance."""
    found = {item: None for bundle in bundles for item in x509.load_pem_x509_certificates(bundle)}
    return b"".join(item.public_bytes(Encoding.PEM) for item in found)


def count(bundle: bytes) -> int:
    """Number of certificates in a bundle in PEM."""
    return bundle.count(b"-----BEGIN CERTIFICATE-----")


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(SHA256()).hex()


@lru_cache(maxsize=512)
def examine(authorities: bytes | None, certificate: bytes | None, key: bytes | None) -> Examined:
    """Looks at `ca.crt`, `tls.crt` and `tls.key`, each in PEM; what is absent is not judged."""
    try:
        return _examine(authorities, certificate, key)
    except _UnusableError as error:
        return Examined(str(error))


def _examine(authorities: bytes | None, certificate: bytes | None, key: bytes | None) -> Examined:
    if (certificate is None) != (key is None):
        present, absent = ("tls.crt", "tls.key") if key is None else ("tls.key", "tls.crt")
        raise _UnusableError(f'"{present}" is of no use, as there is no key "{absent}"')
    not_before = not_after = authorities_not_after = None
    if certificate is not None and key is not None:
        leaf = _certificates(certificate, "tls.crt")[0]
        if not _belongs(key, leaf):
            raise _UnusableError("tls.key is not the private key of the certificate in tls.crt")
        not_before, not_after = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if authorities is not None:
        found = _certificates(authorities, "ca.crt")
        authorities_not_after = max(item.not_valid_after_utc for item in found)
    return Examined(None, not_before, not_after, authorities_not_after)


def _certificates(pem: bytes, name: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise _UnusableError(f"{name} is not a certificate in PEM format") from None


def _belongs(pem: bytes, certificate: x509.Certificate) -> bool:
    try:
        # Checking the primes of an RSA key takes half a second, and nobody gains by a bad one of his own.
        key = load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)
        return key.public_key() == certificate.public_key()
    except TypeError:
        raise _UnusableError("tls.key is encrypted") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _UnusableError("tls.key is not a private key in PEM format") from None


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
