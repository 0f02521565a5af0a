"""Certificates and kubeconfig files of a cluster."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Sequence
from ipaddress import IPv4Address
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)
# Clocks of containers and virtual machines may be behind.
BACKDATED = datetime.timedelta(hours=1)


class Pki:
    """One certificate authority and what it signed, as `<name>.crt` and `<name>.key` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if self.key("ca").exists():
            self._ca_key = serialization.load_pem_private_key(self.key("ca").read_bytes(), password=None)
            self._ca = x509.load_pem_x509_certificate(self.certificate("ca").read_bytes())
            return
        key = ec.generate_private_key(ec.SECP256R1())
        self._ca_key = key
        name = _subject("isthmus test cluster", "")
        self._ca = (
            _builder(name, name, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self._write("ca", key, self._ca)

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def issue(self, name: str, common_name: str, organization: str = "", hosts: Sequence[str] = ()) -> None:
        """Issues a certificate for a client and, for the DNS names and addresses in `hosts`, a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = (
            _builder(_subject(common_name, organization), self._ca.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        assert isinstance(self._ca_key, ec.EllipticCurvePrivateKey)
        self._write(name, key, builder.sign(self._ca_key, hashes.SHA256()))

    def kubeconfig(self, path: Path, cluster: str, server: str, name: str) -> None:
        """Writes a kubeconfig for the certificate `name`."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": server, "certificate-authority-data": self._data("ca.crt")},
                }
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate-data": self._data(f"{name}.crt"),
                        "client-key-data": self._data(f"{name}.key"),
                    },
                }
            ],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": name}}],
            "current-context": cluster,
        }
        _write_private(path, yaml.safe_dump(config, sort_keys=False).encode())

    def _data(self, file: str) -> str:
        return base64.b64encode((self.folder / file).read_bytes()).decode()

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.certificate(name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_private(self.key(name), pem)


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _subject(common_name: str, organization: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(IPv4Address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
