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

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self._ca = trustme.CA(organization_name=name)
        self.file = folder / f"{name}-ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def revoke(self, *identities: Identity) -> Path:
        """A file with the list of the revoked certificates, in place of the one before."""
        now = datetime.datetime.now(datetime.UTC)
        issuer = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        key = load_pem_private_key(self._ca.private_key_pem.bytes(), password=None)
        assert isinstance(key, EllipticCurvePrivateKey)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(now - datetime.timedelta(days=1))
            .next_update(now + datetime.timedelta(days=1))
        )
        for identity in identities:
            serial = x509.load_pem_x509_certificate(identity.certificate.read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            builder = builder.add_revoked_certificate(revoked)
        path = self.folder / f"{self.name}.crl"
        temporary = path.with_suffix(".new")
        temporary.write_bytes(builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
        return temporary.replace(path)

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
        leaf.cert_chain_pems[0].write_to_path(str(certificate))
        leaf.private_key_pem.write_to_path(str(key))
        return Identity(certificate, key, trusted or self.file)
