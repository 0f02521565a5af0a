"""Certificate authorities and the certificates that they sign. No I/O, no clock; keys are random.

All keys are ECDSA P-256. Nothing that is secret appears in a representation or a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ..certificates import described, examine, merged, private_key, remembered
from ..names import digest

AUTHORITY_LIFETIME = timedelta(days=3650)
_AUTHORITY_RENEWAL = timedelta(days=730)
"""Time before its end at which an authority is replaced."""
LEAF_LIFETIME = timedelta(days=30)
_RENEWAL = 0.5
"""Part of the lifetime after which a certificate is renewed, and how much later at most: Routers take turns."""
_RENEWAL_SPREAD = 0.1
_BACKDATED = timedelta(hours=1)
"""Clocks of nodes differ."""

_SIGNERS = (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)
"""Keys that an authority of somebody else may have."""
_MOST_RSA_BITS = 4096
"""Of an authority's key: a signature with 8,192 bits takes ten times as long, and there may be thousands of Routers."""
_MOST_EXPONENT_BITS = 64
"""Of the public exponent of an authority's RSA key."""

AUTHORITY_KEYS = ("tls.crt", "tls.key", "ca.crt")
"""Keys of an authority's Secret, as cert-manager writes them for a `Certificate` with `isCA`."""


class UnusableAuthorityError(Exception):
    """The content of an authority's Secret cannot sign certificates."""


@dataclass(frozen=True)
class Names:
    """The names in a certificate."""

    common: str
    """The identity, at most 64 characters; it is also a DNS name in the certificate."""
    hosts: tuple[str, ...] = ()
    """Further DNS names; `*` stands for one label."""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Authority:
    """A certificate authority."""

    certificate: bytes
    """In PEM."""
    key: bytes = field(repr=False)
    trusted: bytes
    """In PEM: this authority, and earlier ones while their certificates may be in service."""

    @classmethod
    def of(cls, data: Mapping[str, bytes]) -> Authority:
        """The authority in the data of a Secret. Raises UnusableAuthorityError."""
        certificate, key = data.get("tls.crt"), data.get("tls.key")
        if not certificate or not key:
            raise UnusableAuthorityError("it needs the keys tls.crt and tls.key")
        problem = examine(data.get("ca.crt") or None, certificate, key).problem
        if problem is not None:
            raise UnusableAuthorityError(problem)
        leaf = x509.load_pem_x509_certificates(certificate)[0]
        if not _may_sign(leaf):
            raise UnusableAuthorityError("the certificate in tls.crt is not that of a certificate authority")
        _check_signer(key)
        own = leaf.public_bytes(Encoding.PEM)
        given = data.get("ca.crt")
        return cls(certificate, key, merged(own, given) if given else own)

    def data(self) -> Mapping[str, bytes]:
        """What the Secret holds."""
        return {"tls.crt": self.certificate, "tls.key": self.key, "ca.crt": self.trusted}


def _signer(key: bytes) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Raises UnusableAuthorityError."""
    found = private_key(key)
    if not isinstance(found, _SIGNERS):
        raise UnusableAuthorityError("its key is neither an ECDSA nor an RSA key")
    return found


def _check_signer(key: bytes) -> None:
    """Raises UnusableAuthorityError for a key with which signatures fail or take long: OpenSSL uses exponents of any
    length."""
    found = _signer(key)
    if not isinstance(found, rsa.RSAPrivateKey):
        return
    if found.key_size > _MOST_RSA_BITS:
        raise UnusableAuthorityError(
            f"its RSA key has {found.key_size} bits, and at most {_MOST_RSA_BITS} are supported; use a shorter one, or "
            "an ECDSA key"
        )
    numbers = found.private_numbers()
    modulus, exponent = numbers.public_numbers.n, numbers.public_numbers.e
    factors = numbers.p % 2 and numbers.q % 2 and numbers.p * numbers.q == modulus
    exponents = 0 < numbers.d < modulus and numbers.dmp1 < numbers.p and numbers.dmq1 < numbers.q
    if not factors or not exponents or not 0 <= numbers.iqmp < modulus:
        raise UnusableAuthorityError("its RSA key is not consistent")
    if exponent.bit_length() > _MOST_EXPONENT_BITS:
        raise UnusableAuthorityError(
            f"the public exponent of its RSA key has more than {_MOST_EXPONENT_BITS} bits"
        )


def new_authority(name: str, now: datetime) -> Authority:
    """An authority called `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _builder(subject, subject, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    return Authority(pem, _pem(key), pem)


def renewed(authority: Authority, name: str, now: datetime) -> Authority:
    """`authority`, or a new one beside which it is trusted until it expires: near its end, and if it is not valid yet
    because a clock was ahead when it was made."""
    about = described(authority.certificate)
    if about.not_before <= now and now + _AUTHORITY_RENEWAL < about.not_after:
        return authority
    successor = new_authority(name, now)
    earlier = [
        item.public_bytes(Encoding.PEM)
        for item in x509.load_pem_x509_certificates(authority.trusted)
        if item.not_valid_after_utc > now
    ]
    return Authority(successor.certificate, successor.key, merged(successor.certificate, *earlier))


def issue(authority: Authority, names: Names, now: datetime) -> Mapping[str, bytes]:
    """A new certificate with these names for servers and clients, with its key and the trusted authorities, by key of
    a Secret. It ends no later than its authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, signer = _certificate(authority.certificate), _signer(authority.key)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.common)])
    end = min(now + LEAF_LIFETIME, issuer.not_valid_after_utc)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, SHA256())
    )
    chain = certificate.public_bytes(Encoding.PEM)
    if issuer.subject != issuer.issuer:
        chain += authority.certificate
    return {"tls.crt": chain, "tls.key": _pem(key), "ca.crt": authority.trusted}


def renewal(certificate: bytes, authority: Authority, names: Names) -> datetime | None:
    """When a certificate in PEM is to be replaced; None for one that does not fit `authority` and `names`. One that
    ends with its authority is replaced no sooner, as the next one would end at the same moment."""
    return _renewal_of(certificate, authority.certificate, names)


@remembered
def _renewal_of(certificate: bytes, authority: bytes, names: Names) -> datetime | None:
    leaf = _certificate(certificate)
    issuer = _certificate(authority)
    if not _fits(leaf, issuer, names):
        return None
    if leaf.not_valid_after_utc >= issuer.not_valid_after_utc:
        return leaf.not_valid_after_utc
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    turn = int(digest(names.common)[:8], 16) / 0xFFFFFFFF
    return leaf.not_valid_before_utc + life * (_RENEWAL + _RENEWAL_SPREAD * turn)


def _fits(leaf: x509.Certificate, authority: x509.Certificate, names: Names) -> bool:
    """Whether it is signed by the authority and has exactly these names."""
    try:
        leaf.verify_directly_issued_by(authority)
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False
    common = [item.value for item in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return common == [names.common] and list(found) == _alternatives(names)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(end)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(names: Names) -> list[x509.GeneralName]:
    hosts = dict.fromkeys((names.common, *names.hosts))
    return [
        *(x509.DNSName(item) for item in hosts),
        *(x509.IPAddress(ip_address(item)) for item in names.addresses),
    ]


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except Exception:
        return False


def _certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificates(pem)[0]


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
