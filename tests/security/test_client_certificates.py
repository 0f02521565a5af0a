"""Attack: a client without a certificate, or with another one's, goes to a listener that demands certificates."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Client, Clients
from tests.integration.support.passwords import PASSWORD, use_database, user_database
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, connector, eventually, listener

ROLES = ("normal", "inter-router", "edge", "route-container")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "ANONYMOUS", "EXTERNAL")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of routers and clients."""
    return Authority(tmp_path_factory.mktemp("pki"), "good")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that the routers do not trust."""
    return Authority(tmp_path_factory.mktemp("pki"), "other")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user database with `alice@isthmus`."""
    return user_database(tmp_path_factory.mktemp("sasl"), "alice")


def options(mechanism: str) -> dict[str, Any]:
    """How a client authenticates by `mechanism`."""
    login = {"user": "alice@isthmus", "password": PASSWORD} if mechanism in {"PLAIN", "SCRAM-SHA-256"} else {}
    return {"mechanisms": mechanism, **login}


def opens(clients: Clients, port: int, **how: Any) -> bool:
    """Whether the router opens the connection."""
    client = clients.connect(port, wait=False, **how)
    clients.until(lambda: client.finished or client.opened, "the connection is opened or refused")
    opened = client.opened
    if opened:
        client.connection.close()
    return opened


def assert_closed(clients: Clients, client: Client) -> None:
    """The router closes the connection for its certificate."""
    clients.until(lambda: client.connection.remote_condition, "the connection is closed")
    assert client.connection.remote_condition.name == "amqp:unauthorized-access"
    client.connection.close()


def assert_alive(clients: Clients, router: Router) -> None:
    """Another client still sends and receives."""
    receiver = clients.connect(router.port).receiver("canary", credit=5, accept=True)
    assert clients.connect(router.port).sender("canary").deliver("alive") == "accepted"
    assert receiver.bodies() == ["alive"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_certificates_are_demanded_with_every_mechanism(
    clients: Clients,
    routers: Routers,
    authority: Authority,
    other_authority: Authority,
    users: Path,
    mechanism: str,
) -> None:
    ports = {role: free_port() for role in ROLES}
    demanding: dict[str, Any] = {
        "sslProfile": "tls",
        "requireClientCertificate": True,
        "saslMechanisms": mechanism,
        "authenticatePeer": mechanism != "ANONYMOUS",
    }
    router = routers.add(
        "A",
        authority.issue("router").profile(),
        *(listener(port, role, name=role, **demanding) for role, port in ports.items()),
        mode="interior",
    )
    use_database(router, users)
    router.start()
    good = authority.issue("alice")
    forged = other_authority.issue("alice", trusted=authority.file)
    for port in ports.values():
        assert opens(clients, port, tls=good.client_domain(), **options(mechanism))
        assert not opens(clients, port, tls=good.client_domain(present=False), **options(mechanism))
        assert not opens(clients, port, tls=forged.client_domain(), **options(mechanism))
        assert not opens(clients, port, **options(mechanism)), "clear text"
    assert_alive(clients, router)


# Names


def named(routers: Routers, authority: Authority, *names: str, port: int | None = None) -> dict[str, int]:
    """Router A with a listener of each role between routers that accepts peers with these names; their ports."""
    ports = {role: free_port() for role in ROLES[1:]}
    demanding = {"sslProfile": "tls", "peerNames": ", ".join(names), "saslMechanisms": "EXTERNAL"}
    routers.start(
        "A",
        authority.issue("router").profile(),
        *(listener(port, role, name=role, **demanding) for role, port in ports.items()),
        mode="interior",
    )
    return ports


NAMES = (
    ("west-0", "elsewhere", True),
    ("payments-app", "WEST.routers.example", True),
    ("payments-app", "a.edges.example", True),
    ("payments-app", "elsewhere", False),
    ("payments-app", "a.b.edges.example", False),
    ("payments-app", "edges.example", False),
    ("west-0.example", "west-00", False),
)
"""Common name and DNS name of a certificate, and whether it is admitted."""


def test_a_certificate_of_the_authority_needs_an_expected_name(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    ports = named(routers, authority, "west-0", "west.routers.example", "*.edges.example")
    router = routers.all["A"]
    refused = 0
    for common_name, host_name, admitted in NAMES:
        domain = authority.issue(common_name, host_name).client_domain()
        for port in ports.values():
            client = clients.connect(port, wait=False, tls=domain, mechanisms="EXTERNAL")
            if admitted:
                clients.until(lambda client=client: client.opened, f"{common_name}, {host_name} is admitted")
                continue
            assert_closed(clients, client)
            refused += 1
    line = router.await_log("peer refused", '"event":"peer.refused"', '"listener":"inter-router"')
    assert "the certificate is for elsewhere, payments-app" in line
    assert router.metric("peers_refused_total") == refused
    assert_alive(clients, router)


def test_a_client_certificate_does_not_make_a_router(routers: Routers, authority: Authority) -> None:
    """A router whose certificate has another name does not become a neighbor, whatever it calls itself."""
    port = named(routers, authority, "west")["inter-router"]
    for router_id, common_name in (("B", "payments-app"), ("C", "west")):
        routers.start(
            router_id,
            authority.issue(common_name, "elsewhere").profile(caCertFile=str(authority.file)),
            connector(port, name="to-a", sslProfile="tls", saslMechanisms="EXTERNAL"),
            mode="interior",
        )
    routers.all["C"].await_log("connection opened")
    reason = routers.all["B"].await_log("connector failed")
    assert "amqp:unauthorized-access" in reason
    assert "payments-app" in reason
    a = routers.all["A"]
    a.await_status(lambda status: [node["id"] for node in status["nodes"]] == ["C"], "C has joined alone")


def test_changed_names_count_for_open_connections(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    port = named(routers, authority, "east", "west")["edge"]
    router = routers.all["A"]
    found = {
        name: clients.connect(
            port, tls=authority.issue(name, "elsewhere").client_domain(), mechanisms="EXTERNAL"
        )
        for name in ("east", "west")
    }
    for section, attributes in router.sections:
        if section == "listener" and "peerNames" in attributes:
            attributes["peerNames"] = "west, north"
    router.configure()
    assert_closed(clients, found["east"])
    assert opens(
        clients, port, tls=authority.issue("north", "elsewhere").client_domain(), mechanisms="EXTERNAL"
    )
    assert not found["west"].finished
    eventually(lambda: router.metric("peers_refused_total") == 1, "one peer is refused")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_of_a_client_with_a_certificate_is_resumed(
    routers: Routers, authority: Authority, version: ssl.TLSVersion
) -> None:
    """The certificate is verified each time, and a client that would resume its session is not refused."""
    port = free_port()
    section = listener(port, sslProfile="tls", requireClientCertificate=True, saslMechanisms="EXTERNAL")
    routers.start("A", authority.issue("router").profile(), section)
    client = authority.issue("client")
    context = ssl.create_default_context(cafile=str(client.trusted))
    context.check_hostname = False
    context.load_cert_chain(client.certificate, client.key)
    context.minimum_version = context.maximum_version = version
    session = None
    for _ in range(2):
        plain = socket.create_connection(("localhost", port), timeout=30)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as secure:
            secure.sendall(b"AMQP\3\1\0\0")
            assert secure.recv(8) == b"AMQP\3\1\0\0"
            assert not secure.session_reused
            session = secure.session


@pytest.mark.parametrize("uid_format", ["n", "on", "2"])
def test_a_user_without_a_certificate_is_the_one_that_logged_in(
    clients: Clients, routers: Routers, authority: Authority, users: Path, uid_format: str
) -> None:
    port = free_port()
    section = listener(port, sslProfile="tls", authenticatePeer=True, saslMechanisms="PLAIN")
    router = routers.add("A", authority.issue("router").profile(uidFormat=uid_format), section)
    use_database(router, users)
    router.start()
    client = authority.issue("nobody").client_domain(present=False)
    clients.connect(port, tls=client, **options("PLAIN"))
    assert '"user":"alice@isthmus"' in router.log
