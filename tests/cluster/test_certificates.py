"""Broken certificates on a real cluster: told, never delivered; and which changes become Events."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.network import OPERATOR, USABLE, Network, operator_metrics
from tests.integration.support.raw import AMQP_HEADER, HEARTBEAT, OPEN, SASL_HEADER, SASL_INIT, frame
from tests.unit.operator.support import connector, router

from isthmus_router.message.types import Symbol

MADE_BY_OPERATOR = "app.kubernetes.io/managed-by=isthmus-operator"
EXPIRY = "isthmus_operator_certificate_expiry_timestamp_seconds"
OPENING = frame(OPEN, [""])[8:11]
"""How every open frame begins, after its header."""


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    with (
        installation.schemas(cluster),
        cluster.namespace("certificates") as name,
        installation.operator(cluster, name),
    ):
        yield Network(cluster, name)


def issue(ca: trustme.CA, network: Network) -> dict[str, bytes]:
    issued = ca.issue_cert(f"west.{network.namespace}.svc")
    return {
        "ca.crt": ca.cert_pem.bytes(),
        "tls.crt": issued.cert_chain_pems[0].bytes(),
        "tls.key": issued.private_key_pem.bytes(),
    }


def weak() -> dict[str, bytes]:
    """A certificate that is in order, for a key so short that OpenSSL does not use it."""
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    return {
        "tls.crt": builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM),
        "tls.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }


def apply_secret(network: Network, name: str, data: Mapping[str, bytes]) -> None:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": USABLE},
        "data": encoded,
    }
    network.cluster.apply(manifest, namespace=network.namespace)


def served(network: Network, pod: str = "west-0") -> str:
    """The certificate that a pod presents to clients."""
    with network.cluster.port_forward(f"pod/{pod}", 5671, namespace=network.namespace) as port:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


def events(network: Network) -> list[tuple[str, str, str]]:
    """The resource, type and reason of all Events of the operator."""
    found = [
        item
        for item in network.get("events.events.k8s.io")["items"]
        if item["reportingController"] == "isthmus.dev/isthmus-operator"
    ]
    return sorted((item["regarding"]["name"], item["type"], item["reason"]) for item in found)


def test_a_broken_rotation_is_told_and_survives_a_restart(network: Network) -> None:
    ca = trustme.CA()
    good, other = issue(ca, network), issue(ca, network)
    apply_secret(network, "server", good)
    listeners = [
        {"name": "amqps", "port": 5671, "tls": {"secretName": "server"}},
        {"name": "edge", "role": "edge", "port": 45671, "tls": {"secretName": "server"}},
    ]
    network.apply(
        router("west", listeners=listeners),
        router("shop", mode="edge"),
        connector("up", "shop", "west", "edge", tls={"secretName": "server"}),
    )
    network.ready("rtr/west", "rtr/shop", "conn/up")
    network.cluster.eventually(
        "one Event each",
        lambda: events(network) == [(name, "Normal", "Ready") for name in ("shop", "up", "west")],
    )
    (metrics,) = operator_metrics(network.cluster, network.namespace).values()
    assert metrics[EXPIRY] > 0

    apply_secret(network, "server", {**good, "tls.key": other["tls.key"]})
    for resource in ("rtr/west", "conn/up"):
        message = network.becomes(resource, "False", "SecretInvalid")
        assert 'Secret "server": tls.key is not the private key' in message
    network.cluster.eventually(
        "Events say so",
        lambda: (
            {("west", "Warning", "SecretInvalid"), ("up", "Warning", "SecretInvalid")} <= set(events(network))
        ),
    )
    assert network.condition("conn/up", "Operational")["status"] == "True"

    network.kubectl("delete", "pod", "west-0")
    network.becomes("rtr/west", "True", "AllReplicasReady", "Available")
    network.cluster.eventually(
        "the certificate of before", lambda: served(network) in good["tls.crt"].decode()
    )
    assert network.status("west-0")["lastConfigError"] is None

    apply_secret(network, "server", other)
    network.ready("rtr/west", "rtr/shop", "conn/up")
    network.cluster.eventually("the new certificate", lambda: served(network) in other["tls.crt"].decode())


def test_a_deleted_secret_takes_nothing_down(network: Network) -> None:
    ca = trustme.CA()
    good, other = issue(ca, network), issue(ca, network)
    apply_secret(network, "fleeting", good)
    listeners = [
        {"name": "amqps", "port": 5671, "tls": {"secretName": "fleeting"}},
        {"name": "edge", "role": "edge", "port": 45671, "tls": {"secretName": "fleeting"}},
    ]
    tls = {"secretName": "fleeting", "verifyHostname": False}
    network.apply(
        router("kept", listeners=listeners),
        router("leaf", mode="edge"),
        connector("leaf-up", "leaf", "kept", "edge", tls=tls),
    )
    resources = ("rtr/kept", "rtr/leaf", "conn/leaf-up")
    network.ready(*resources)
    config = network.status("kept-0")["router"]["configHash"]

    network.kubectl("delete", "secret/fleeting")
    for resource in ("rtr/kept", "conn/leaf-up"):
        message = network.becomes(resource, "False", "SecretNotFound")
        assert 'Secret "fleeting" does not exist; the routers keep the earlier certificates' in message
    assert network.condition("conn/leaf-up", "Operational")["status"] == "True"
    assert network.status("kept-0")["router"]["configHash"] == config
    network.kubectl("delete", "pod", "kept-0")
    network.becomes("rtr/kept", "True", "AllReplicasReady", "Available")
    network.cluster.eventually(
        "the certificate of before", lambda: served(network, "kept-0") in good["tls.crt"].decode()
    )

    apply_secret(network, "fleeting", other)
    network.ready(*resources)
    network.cluster.eventually(
        "the new certificate", lambda: served(network, "kept-0") in other["tls.crt"].decode()
    )
    network.kubectl("delete", *resources)


def test_a_certificate_that_never_was_good_leaves_out_its_listener_only(network: Network) -> None:
    apply_secret(network, "never", {"tls.crt": b"garbage", "tls.key": b"garbage"})
    listeners = [
        {"name": "amqp", "port": 5672},
        {"name": "amqps", "port": 5671, "tls": {"secretName": "never"}},
    ]
    network.apply(router("first", listeners=listeners))
    message = network.becomes("rtr/first", "False", "SecretInvalid")
    assert 'listener "amqps": Secret "never": tls.crt is not a certificate' in message
    network.becomes("rtr/first", "True", "AllReplicasReady", "Available")
    assert {item["name"] for item in network.status("first-0")["listeners"]} == {"health", "amqp"}
    apply_secret(network, "never", issue(trustme.CA(), network))
    network.ready("rtr/first")
    network.kubectl("delete", "rtr/first")


def test_a_certificate_that_openssl_refuses_does_not_reach_the_routers(network: Network) -> None:
    """It is in order but for the strength of its key; routers could not load it."""
    ca = trustme.CA()
    good, other = issue(ca, network), issue(ca, network)
    apply_secret(network, "strength", good)
    listeners = [{"name": "amqps", "port": 5671, "tls": {"secretName": "strength"}}]
    network.apply(router("strict", listeners=listeners))
    network.ready("rtr/strict")
    config = network.status("strict-0")["router"]["configHash"]

    apply_secret(network, "strength", weak())
    message = network.becomes("rtr/strict", "False", "SecretInvalid")
    assert 'Secret "strength": the key of the certificate in tls.crt is too short for TLS' in message
    assert network.condition("rtr/strict", "Available")["status"] == "True"
    found = network.status("strict-0")
    assert (found["lastConfigError"], found["router"]["configHash"]) == (None, config)
    assert served(network, "strict-0") in good["tls.crt"].decode()
    network.cluster.eventually(
        "an Event says so", lambda: ("strict", "Warning", "SecretInvalid") in events(network)
    )

    apply_secret(network, "strength", other)
    network.ready("rtr/strict")
    network.cluster.eventually(
        "the new certificate", lambda: served(network, "strict-0") in other["tls.crt"].decode()
    )
    network.kubectl("delete", "rtr/strict")


def in_service(network: Network, secret: str) -> bytes:
    """The certificate of the newest ordinal and its key."""
    data = network.get(f"secret/{secret}")["data"]
    newest = max(int(key.partition(".")[0]) for key in data if key.endswith(".tls.crt"))
    return b"".join(base64.b64decode(data[f"{newest}.{key}"]) for key in ("tls.crt", "tls.key"))


def admits(network: Network, certificate: Path) -> bool:
    """Whether the port for routers of `vault` takes a certificate, in a file with its key."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate)
    with (
        network.cluster.port_forward("pod/vault-0", 45672, namespace=network.namespace) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
    ):
        try:
            with context.wrap_socket(plain) as secure:
                secure.settimeout(10)
                secure.sendall(b"AMQP\x03\x01\x00\x00")
                return bool(secure.recv(8))  # TLS 1.3 refuses a certificate after the handshake of the client
        except (ssl.SSLError, ConnectionError):
            return False


@contextlib.contextmanager
def connected(network: Network, certificate: Path) -> Iterator[threading.Event]:
    """An AMQP connection to the port for edge routers of `vault`; the event is set when it has ended."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificate)
    login = SASL_HEADER + frame(SASL_INIT, [Symbol("EXTERNAL"), b""])
    ended, leaving = threading.Event(), threading.Event()
    with (
        network.cluster.port_forward("pod/vault-0", 45672, namespace=network.namespace) as port,
        context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10)) as secure,
    ):
        secure.sendall(login + AMQP_HEADER + frame(OPEN, ["thief"]))
        seen = b""
        while OPENING not in seen:
            received = secure.recv(4096)
            assert received, f"not opened: {seen!r}"
            seen += received

        def beat() -> None:
            secure.settimeout(1)
            while not leaving.is_set():
                try:
                    secure.sendall(HEARTBEAT)
                    if not secure.recv(4096):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
            ended.set()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        yield ended
        leaving.set()
        thread.join()


def test_a_lost_authority_is_trusted_no_more(network: Network, tmp_path: Path) -> None:
    """The steps of docs/hardening.md, "When a key is lost"."""
    network.apply(router("vault"), router("cell", mode="edge"), connector("cell-up", "cell", "vault", "edge"))
    network.ready("rtr/vault", "rtr/cell", "conn/cell-up")
    stolen = tmp_path / "stolen.pem"
    stolen.write_bytes(in_service(network, "cell-certificates"))
    assert admits(network, stolen)

    with connected(network, stolen) as ended:
        network.kubectl("scale", "deploy/isthmus-operator", "--replicas=0")
        network.kubectl("wait", "--for=delete", "pod", f"--selector={OPERATOR}", "--timeout=60s")
        names = ("isthmus-authority", "vault-certificates", "cell-certificates")
        network.kubectl("delete", "secret", *names)
        network.kubectl("scale", "deploy/isthmus-operator", "--replicas=1")
        network.cluster.eventually(
            "the stolen certificate is refused", lambda: not admits(network, stolen), 180
        )
        network.ready("rtr/vault", "rtr/cell", "conn/cell-up")
        network.kubectl("rollout", "restart", "statefulset,deployment", f"--selector={MADE_BY_OPERATOR}")
        network.cluster.eventually("the connection of the thief has ended", ended.is_set, 180)
    network.ready("rtr/vault", "rtr/cell", "conn/cell-up")
    again = tmp_path / "again.pem"
    again.write_bytes(in_service(network, "cell-certificates"))
    network.cluster.eventually("the new one is admitted", lambda: admits(network, again), 60)
    network.kubectl("delete", "rtr/vault", "rtr/cell", "conn/cell-up")


def test_changes_and_deletion_are_no_events(network: Network) -> None:
    network.apply(router("a"), router("b"), connector("ab", "a", "b", "inter-router"))
    network.ready("rtr/a", "rtr/b", "conn/ab")
    wanted = [(name, "Normal", "Ready") for name in ("a", "ab", "b")]

    def ours() -> list[tuple[str, str, str]]:
        return [item for item in events(network) if item[0] in {"a", "b", "ab"}]

    network.cluster.eventually("one Event each", lambda: ours() == wanted)
    network.apply(
        connector("ab", "a", "b", "inter-router", cost=7),
        connector("unrelated", "a", ("nowhere.example", 5672), "normal"),
    )
    network.ready("conn/ab", "rtr/a")
    network.kubectl("delete", "rtr/a", "rtr/b", "conn/ab", "conn/unrelated")
    network.cluster.eventually("no pods are left", lambda: not network.pods("a") and not network.pods("b"))
    assert ours() == wanted


def test_the_operators_log_has_the_routers_keys(network: Network) -> None:
    lines = network.kubectl("logs", f"--selector={OPERATOR}", "--tail=-1").splitlines()
    assert lines
    for line in lines:
        assert {"ts", "level", "module", "message"} <= json.loads(line).keys()
        assert "PRIVATE KEY" not in line
