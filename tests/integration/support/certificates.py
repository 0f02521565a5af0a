"""Certificate authorities and certificates, made for one test run."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from proton import SSLDomain
from tests.integration.support.routers import Section


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, and the authority that its owner trusts."""

    certificate: Path
    key: Path
    trusted: Path

    def profile(self, name: str = "tls", **attributes: Any) -> Section:
        """The identity as an `sslProfile` section."""
        files = {
            "certFile": str(self.certificate),
            "privateKeyFile": str(self.key),
            "caCertFile": str(self.trusted),
        }
        return ("sslProfile", {"name": name, **files, **attributes})

    def client_domain(self, *, present: bool = True, verify: bool = True) -> SSLDomain:
        """The identity for a test client; without `present` the client shows no certificate."""
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        if present:
            domain.set_credentials(str(self.certificate), str(self.key), None)
        domain.set_trusted_ca_db(str(self.trusted))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME if verify else SSLDomain.ANONYMOUS_PEER)
        return domain


class Authority:
    """A certificate authority. Host names are `localhost` by default, as proton ignores IP addresses."""

    def __init__(self, folder: Path, name: str, superior: Authority | None = None) -> None:
        """Makes it, signed by `superior`, which those who rely on it trust in its place; or self-signed."""
        self.folder = folder
        self.name = name
        self._ca = superior._ca.create_child_ca() if superior else trustme.CA(organization_name=name)
        self._subordinates: list[Authority] = []
        self._revoked: tuple[Identity | Authority, ...] = ()
        self._expired = self._delta = False
        """The list is."""
        self.certificate = folder / f"{name}-ca.pem"
        self.file = superior.file if superior else self.certificate
        """What peers trust."""
        self._ca.cert_pem.write_to_path(str(self.certificate))

    def subordinate(self, name: str) -> Authority:
        """An intermediate authority that this one has signed."""
        made = Authority(self.folder, name, self)
        self._subordinates.append(made)
        return made

    def revoke(self, *revoked: Identity | Authority, expired: bool = False, delta: bool = False) -> Path:
        """A file with the list of what is revoked, in place of the one before, and with those of subordinates.

        `delta`: the list only has what was revoked since list 1.
        """
        self._revoked, self._expired, self._delta = revoked, expired, delta
        path = self.folder / f"{self.name}.crl"
        temporary = path.with_suffix(".new")
        temporary.write_bytes(self._lists())
        return temporary.replace(path)

    def _lists(self) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        issuer = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        key = load_pem_private_key(self._ca.private_key_pem.bytes(), password=None)
        assert isinstance(key, EllipticCurvePrivateKey)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(now - datetime.timedelta(days=1 if self._delta else 2))
            .next_update(now + datetime.timedelta(hours=-1 if self._expired else 24))
        )
        if self._delta:
            builder = builder.add_extension(x509.CRLNumber(2), critical=False)
            builder = builder.add_extension(x509.DeltaCRLIndicator(1), critical=True)
        for item in self._revoked:
            serial = x509.load_pem_x509_certificate(item.certificate.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            builder = builder.add_revoked_certificate(entry)
        own = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
        return own + b"".join(subordinate._lists() for subordinate in self._subordinates)

    def issue(
        self,
        name: str,
        *host_names: str,
        trusted: Path | None = None,
        expired: bool = False,
        key_type: trustme.KeyType = trustme.KeyType.ECDSA,
    ) -> Identity:
        """A certificate with common name `name`; `trusted` is another authority's file to trust instead."""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        leaf = self._ca.issue_cert(
            *(host_names or ("localhost",)),
            common_name=name,
            organization_name="Isthmus tests",
            not_before=now - 3 * day,
            not_after=now - day if expired else now + day,
            key_type=key_type,
        )
        certificate, key = self.folder / f"{self.name}-{name}.pem", self.folder / f"{self.name}-{name}.key"
        certificate.write_bytes(b"".join(item.bytes() for item in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(key))
        return Identity(certificate, key, trusted or self.file)
