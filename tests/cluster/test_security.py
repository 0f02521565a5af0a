"""TLS and passwords on a real cluster: mesh, connectors, clients, and how refusals are told."""

from __future__ import annotations

import base64
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme
from proton import ConnectionException, LinkException, Message
from proton.utils import BlockingConnection
from tests.cluster import installation
from tests.cluster.harness.cluster import Cluster
from tests.cluster.support.network import USABLE, Network
from tests.unit.operator.support import connector, router


@pytest.fixture(scope="module")
def network(cluster: Cluster) -> Iterator[Network]:
    with (
        installation.schemas(cluster),
        cluster.namespace("security") as name,
        installation.operator(cluster, name),
    ):
        yield Network(cluster, name)


def apply_secret(network: Network, name: str, data: Mapping[str, bytes]) -> None:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": USABLE},
        "data": encoded,
    }
    network.cluster.apply(manifest, namespace=network.namespace)


def secret(network: Network, name: str, ca: trustme.CA, *hosts: str) -> str:
    """A Secret as cert-manager makes it, or with the authority alone when there are no hosts. Returns the
    certificate as PEM."""
    data = {"ca.crt": ca.cert_pem.bytes()}
    pem = b""
    if hosts:
        issued = ca.issue_cert(*hosts)
        pem = issued.cert_chain_pems[0].bytes()
        data |= {"tls.crt": pem, "tls.key": issued.private_key_pem.bytes()}
    apply_secret(network, name, data)
    return pem.decode()


def served_certificate(network: Network) -> str:
    """The certificate that the listener `amqps` of the Router `west` presents."""
    with network.cluster.port_forward("pod/west-0", 5671, namespace=network.namespace) as port:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=10)


def test_mesh_connectors_refusals_and_a_new_certificate(network: Network) -> None:
    ca, stranger = trustme.CA(), trustme.CA()
    hosts = (f"*.west-mesh.{network.namespace}.svc", f"west.{network.namespace}.svc")
    first = secret(network, "server", ca, *hosts)
    secret(network, "trust", ca)
    secret(network, "wrong-trust", stranger)
    listeners = [
        {"name": "amqps", "port": 5671, "tls": {"secretName": "server"}},
        {"name": "edge", "role": "edge", "port": 45671, "tls": {"secretName": "server"}},
        {
            "name": "mesh",
            "role": "inter-router",
            "port": 55671,
            "tls": {"secretName": "server", "requireClientCertificate": True},
        },
    ]
    network.apply(
        router("west", replicas=2, listeners=listeners),
        router("shop", mode="edge"),
        connector("good", "shop", "west", "edge", tls={"secretName": "trust"}),
        router("lost", mode="edge"),
        connector("bad", "lost", "west", "edge", tls={"secretName": "wrong-trust"}),
        router("east"),
        connector("clear", "east", "west", "inter-router"),
    )
    network.ready("rtr/west", "rtr/shop", "conn/good")
    links = [item for item in network.status("west-1")["connections"] if item["role"] == "inter-router"]
    assert links
    assert all(item["tls"] for item in links)

    network.becomes("conn/bad", "False", "NoConnection")
    network.cluster.eventually(
        "the reason is in the message",
        lambda: "certificate" in str(network.condition("conn/bad")["message"]),
    )
    network.cluster.eventually(
        "the Router has no uplink", lambda: "UplinkMissing" in str(network.condition("rtr/lost"))
    )
    assert "the listener uses TLS" in network.becomes("conn/clear", "False", "TlsMismatch")

    # The client's certificate is of another authority; then it is of the right one.
    secret(network, "client", stranger, "client")
    network.apply(connector("clear", "east", "west", "inter-router", tls={"secretName": "client"}))
    network.becomes("conn/clear", "False", "NoConnection")
    secret(network, "client", ca, "client")
    network.ready("conn/clear")

    before = network.pods("west")
    network.cluster.eventually("the first certificate", lambda: served_certificate(network) in first)
    second = secret(network, "server", ca, *hosts)
    assert second != first
    network.cluster.eventually("the new certificate", lambda: served_certificate(network) in second)
    network.ready("rtr/west", "conn/good", "conn/clear")
    assert network.pods("west") == before


def add_user(database: Path, name: str, password: str) -> bytes:
    """The database of users with one more in the realm `example`."""
    command = ["saslpasswd2", "-c", "-p", "-f", str(database), "-u", "example", name]
    path = {"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/bin"}
    subprocess.run(command, input=password.encode(), check=True, capture_output=True, timeout=30, env=path)
    return database.read_bytes()


@contextmanager
def logged_in(network: Network, name: str, user: str, password: str) -> Iterator[BlockingConnection]:
    """A connection to the Router `name` through a port forward."""
    with network.cluster.port_forward(f"pod/{name}-0", 5672, namespace=network.namespace) as port:
        connection = BlockingConnection(
            f"amqp://127.0.0.1:{port}",
            user=user,
            password=password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            timeout=10,
        )
        yield connection
        connection.close()


def log_in(network: Network, user: str, password: str) -> None:
    """Connects to the Router `vault`."""
    with logged_in(network, "vault", user, password):
        pass


def test_users_with_passwords_and_one_added_later(network: Network, tmp_path: Path) -> None:
    database = tmp_path / "users"
    apply_secret(network, "users", {"sasldb": add_user(database, "alice", "wonder")})
    sasl = {"mechanisms": ["PLAIN"], "usersSecretRef": {"name": "users"}, "allowPlainWithoutTls": True}
    network.apply(router("vault", listeners=[{"name": "amqp", "port": 5672, "sasl": sasl}]))
    network.ready("rtr/vault")
    log_in(network, "alice@example", "wonder")
    for user, password in (("alice@example", "wrong"), ("bob@example", "builder")):
        with pytest.raises(ConnectionException):
            log_in(network, user, password)

    before = network.pods("vault")
    apply_secret(network, "users", {"sasldb": add_user(database, "bob", "builder")})

    def bob_gets_in() -> bool:
        try:
            log_in(network, "bob@example", "builder")
        except ConnectionException:
            return False
        return True

    network.cluster.eventually("the new user gets in", bob_gets_in)
    assert network.pods("vault") == before


def refusal(act: Callable[[], object]) -> str:
    """What a client is told when it does what it may not do."""
    with pytest.raises((ConnectionException, LinkException)) as refused:
        act()
    return str(refused.value)


def test_users_may_do_what_the_policy_allows(network: Network, tmp_path: Path) -> None:
    database = tmp_path / "users"
    for user in ("seller", "auditor", "stranger"):
        data = add_user(database, user, "word")
    apply_secret(network, "shop-users", {"sasldb": data})
    sasl = {"mechanisms": ["PLAIN"], "usersSecretRef": {"name": "shop-users"}, "allowPlainWithoutTls": True}
    listeners = [{"name": "amqp", "port": 5672, "sasl": sasl}]
    sellers = {"name": "sellers", "users": ["seller@example"], "targets": ["orders/${user}"]}
    auditors = {"name": "auditors", "users": ["auditor@example"], "sources": ["orders/#"]}
    shop = router("till", listeners=listeners, policy={"groups": [sellers, auditors]})
    network.apply(shop)
    network.ready("rtr/till")
    before = network.pods("till")

    with (
        logged_in(network, "till", "auditor@example", "word") as auditor,
        logged_in(network, "till", "seller@example", "word") as seller,
    ):
        orders = auditor.create_receiver("orders/seller@example", credit=10)
        sender = seller.create_sender("orders/seller@example")
        sending = threading.Thread(target=sender.send, args=(Message(body="one"),))
        sending.start()
        assert orders.receive(10).body == "one"
        orders.accept()
        orders.close()
        sending.join(10)
        assert not sending.is_alive()
        told = refusal(lambda: auditor.create_sender("orders/seller@example"))
        assert "amqp:unauthorized-access" in told
        assert "may not send to 'orders/seller@example'" in told
        assert "may not receive from 'orders/x'" in refusal(lambda: seller.create_receiver("orders/x"))

        def stranger() -> None:
            with logged_in(network, "till", "stranger@example", "word"):
                pass

        assert "this user may not connect" in refusal(stranger)
        network.cluster.eventually(
            "the status counts what was refused",
            lambda: network.get("rtr/till")["status"]["instances"][0]["policyDenials"] == 3,
        )

        network.apply(
            router(
                "till", listeners=listeners, policy={"groups": [sellers], "defaultGroup": {"sources": ["#"]}}
            )
        )
        network.ready("rtr/till")
        stranger()
        with logged_in(network, "till", "auditor@example", "word") as other:
            other.create_receiver("anything")
    assert network.pods("till") == before

    no_users = [{"name": "amqp", "port": 5672}]
    network.apply(router("till", listeners=no_users, policy={"groups": [sellers]}))
    assert "no listener of role normal" in network.becomes("rtr/till", "False", "PolicyUnusable")
