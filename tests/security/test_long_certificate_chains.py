"""Attack: a client without a certificate of the authority shows a chain of hundreds of certificates of its own making.

OpenSSL looks through all of them for the issuer of each.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary, cpu
from tests.security.support.secure_site import secure_site

MANY, FEW = 250, 40
HANDSHAKES = 20
MOST_TIMES_THE_CPU_OF_USUAL = 8
"""Of one handshake on average."""
MEMBER_PORTS = ("memberPort", "bridgePort")


def chain(folder: Path, length: int) -> ssl.SSLContext:
    """A client's context with certificates of which each is issued by the next, and the issuer is found last."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificates = []
    for number in range(length):
        builder = (
            x509.CertificateBuilder(name, name, key.public_key(), number + 1)
            .not_valid_before(start)
            .not_valid_after(start.replace(year=2050))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=False)
            .add_extension(x509.SubjectKeyIdentifier(number.to_bytes(4)), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier((number + 1).to_bytes(4), None, None), critical=False)
        )
        certificates.append(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    chain_file, key_file = folder / "chain.pem", folder / "invented.pem"
    chain_file.write_bytes(b"".join([certificates[0], *reversed(certificates[1:])]))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(chain_file, key_file)
    return context


def show(port: int, context: ssl.SSLContext) -> None:
    """Make a handshake until the other end ends the connection."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("localhost", port), 60) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as session,
    ):
        assert session.recv(100) == b"", "the certificate is refused"


def cost(router: Router, port: int, context: ssl.SSLContext) -> float:
    """CPU seconds of the router for a handshake."""
    show(port, context)
    before = cpu(router.pid)
    for _ in range(HANDSHAKES):
        show(port, context)
    return (cpu(router.pid) - before) / HANDSHAKES


def attack(router: Router, port: int, folder: Path, length: int) -> None:
    usual = cost(router, port, chain(folder, 1))
    with Canary(router, rate=20) as canary:
        long = cost(router, port, chain(folder, length))
    canary.report.check()
    assert long < MOST_TIMES_THE_CPU_OF_USUAL * usual


@pytest.mark.parametrize("length", [FEW, MANY])
def test_listener_that_demands_certificates(routers: Routers, tmp_path: Path, length: int) -> None:
    identity = Authority(tmp_path, "bank").issue("localhost")
    port = free_port()
    secured = listener(
        port,
        "inter-router",
        name="secure",
        sslProfile="tls",
        requireClientCertificate=True,
        saslMechanisms="EXTERNAL",
    )
    router = routers.add("A", identity.profile(), secured, mode="interior").start()
    attack(router, port, tmp_path, length)


@pytest.mark.parametrize("port", MEMBER_PORTS)
def test_member_of_a_site(routers: Routers, tmp_path: Path, port: str) -> None:
    member, ports = secure_site(routers, Authority(tmp_path, "own"))
    attack(member, ports[port], tmp_path, MANY)
