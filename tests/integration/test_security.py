"""TLS and SASL: who may connect, and how refusals read in the log and in the connector's state."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from tests.integration.support.certificates import Authority, Identity
from tests.integration.support.client import Clients
from tests.integration.support.passwords import use_database, user_database
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, connector, eventually, listener


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that everyone trusts."""
    return Authority(tmp_path_factory.mktemp("pki"), "good")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority nobody has asked."""
    return Authority(tmp_path_factory.mktemp("pki"), "other")


def assert_refused(clients: Clients, port: int, **options: object) -> str:
    """Connecting fails; why, as the client sees it."""
    client = clients.connect(port, wait=False, **options)
    clients.until(lambda: client.finished, "the connection is refused")
    assert not client.opened
    return str(client.failure)


# TLS on a listener


def secured(routers: Routers, identity: Identity, **attributes: object) -> tuple[Router, int]:
    """A router with a second listener that speaks TLS, and the port of that."""
    port = free_port()
    tls = listener(port, name="secured", sslProfile="tls", **attributes)
    return routers.start("A", identity.profile(), tls), port


def test_messages_over_tls(clients: Clients, routers: Routers, authority: Authority) -> None:
    router, port = secured(routers, authority.issue("router"), requireSsl=True)
    domain = authority.issue("client").client_domain(present=False)
    receiver = clients.connect(port, tls=domain).receiver("x", credit=5, accept=True)
    sender = clients.connect(router.port).sender("x")
    assert sender.deliver(Message(body=b"x" * 2_000_000)) == "accepted"
    assert len(receiver.next().body) == 2_000_000
    assert "TLSv1" in router.await_log('"tls":"TLS')


def test_clear_connection_where_tls_is_required(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    router, port = secured(routers, authority.issue("router"), requireSsl=True)
    assert_refused(clients, port)
    router.await_log("connection failed")


def test_clear_connection_where_tls_is_optional(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    _, port = secured(routers, authority.issue("router"))
    clients.connect(port)
    clients.connect(port, tls=authority.issue("client").client_domain(present=False))


def test_protocol_versions_are_kept(routers: Routers, authority: Authority) -> None:
    identity = authority.issue("router")
    port = free_port()
    router = routers.start(
        "A",
        identity.profile(protocols="TLSv1.3"),
        listener(port, name="secured", sslProfile="tls", requireSsl=True),
    )
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection(("localhost", port), 5) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as secure,
    ):
        assert secure.version() == "TLSv1.3"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("localhost", port), 5) as sock, pytest.raises(ssl.SSLError):
        context.wrap_socket(sock, server_hostname="localhost")
    router.await_log("connection failed")


# Client certificates


def external(routers: Routers, identity: Identity, **attributes: object) -> tuple[Router, int]:
    """A router whose second listener demands a client certificate."""
    return secured(
        routers, identity, requireSsl=True, authenticatePeer=True, saslMechanisms="EXTERNAL", **attributes
    )


def test_external_takes_the_user_from_the_certificate(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    router, port = external(routers, authority.issue("router"))
    client = clients.connect(
        port,
        tls=authority.issue("alice").client_domain(),
        mechanisms="EXTERNAL",
        container="alices-container",
    )
    client.receiver("x", credit=1, accept=True)
    assert clients.connect(router.port).sender("x").deliver("y") == "accepted"
    line = router.await_log("alices-container")
    assert "CN=alice" in line


def test_external_without_a_client_certificate(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    router, port = external(routers, authority.issue("router"))
    domain = authority.issue("nobody").client_domain(present=False)
    assert_refused(clients, port, tls=domain, mechanisms="EXTERNAL ANONYMOUS")
    assert "the peer presented no certificate" in router.await_log("connection failed")


@pytest.mark.parametrize("kind", ["other-authority", "expired"])
def test_external_with_a_certificate_that_is_not_valid(
    clients: Clients, routers: Routers, authority: Authority, other_authority: Authority, kind: str
) -> None:
    router, port = external(routers, authority.issue("router"))
    if kind == "expired":
        identity = authority.issue("late", expired=True)
    else:
        identity = other_authority.issue("mallory", trusted=authority.file)
    assert_refused(clients, port, tls=identity.client_domain(), mechanisms="EXTERNAL")
    assert "certificate" in router.await_log("connection failed")


def test_anonymous_where_external_is_demanded(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    _, port = external(routers, authority.issue("router"))
    assert_refused(clients, port, tls=authority.issue("alice").client_domain(), mechanisms="ANONYMOUS")


# Connectors


Profile = Callable[[], Section]


def joined(
    routers: Routers,
    server: Identity,
    client: Identity,
    *,
    role: str = "inter-router",
    environment: Mapping[str, str] | None = None,
    **attributes: object,
) -> Router:
    """Router B whose connector goes to a listener of router A that demands a certificate; both run."""
    port = free_port()
    routers.add(
        "A",
        server.profile(),
        listener(
            port,
            role,
            name="routers",
            sslProfile="tls",
            requireSsl=True,
            authenticatePeer=True,
            saslMechanisms="EXTERNAL",
        ),
        mode="interior",
    )
    b = routers.add(
        "B",
        client.profile(),
        connector(
            port,
            name="to-a",
            sslProfile="tls",
            saslMechanisms="EXTERNAL",
            **{"role": "inter-router", **attributes},
        ),
        mode="interior",
    )
    b.environment.update(environment or {})
    routers.start_all()
    return b


def test_routers_join_over_mutual_tls(clients: Clients, routers: Routers, authority: Authority) -> None:
    b = joined(routers, authority.issue("a"), authority.issue("b"))
    a = routers.all["A"]
    receiver = clients.connect(a.port).receiver("x", credit=5, accept=True)
    sender = clients.connect(b.port).sender("x").await_credit()
    assert sender.deliver("over TLS") == "accepted"
    assert receiver.bodies() == ["over TLS"]
    assert "CN=b" in a.await_log('"container":"B"')


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("server-from-other-authority", "unable to get local issuer certificate"),
        ("server-expired", "certificate has expired"),
        ("server-other-host", "no dNSName in it is 'localhost'"),
        ("client-from-other-authority", "the peer refused this router's certificate: it does not know"),
        ("client-expired", "the peer refused this router's certificate: it has expired"),
    ],
)
def test_connector_refusals_name_the_reason(
    routers: Routers, authority: Authority, other_authority: Authority, fault: str, words: str
) -> None:
    server, client = authority.issue("a"), authority.issue("b")
    if fault == "server-from-other-authority":
        server = other_authority.issue("a", trusted=authority.file)
    elif fault == "server-expired":
        server = authority.issue("a-old", expired=True)
    elif fault == "server-other-host":
        server = authority.issue("elsewhere", "elsewhere.example")
    elif fault == "client-from-other-authority":
        client = other_authority.issue("b", trusted=authority.file)
    else:
        client = authority.issue("b-old", expired=True)
    b = joined(routers, server, client)
    b.await_log("connector failed", '"connector":"to-a"', words)
    state, message = b.connector_state("to-a")
    assert state in {"failed", "connecting"}
    assert words in message
    # The side that refused says why, too.
    refusing = b if fault.startswith("server") else routers.all["A"]
    refusing.await_log("connection failed", "verify failed")


def test_the_authorities_of_the_system_are_not_trusted(
    routers: Routers, authority: Authority, other_authority: Authority
) -> None:
    """What is in `caCertFile` is trusted, not what the machine trusts beside it."""
    server = other_authority.issue("a", trusted=authority.file)
    environment = {"SSL_CERT_FILE": str(other_authority.file)}
    b = joined(routers, server, authority.issue("b"), environment=environment)
    b.await_log("connector failed", '"connector":"to-a"', "unable to get local issuer certificate")


def test_host_name_check_can_be_turned_off(clients: Clients, routers: Routers, authority: Authority) -> None:
    b = joined(routers, authority.issue("a", "elsewhere.example"), authority.issue("b"), verifyHostname=False)
    b.await_log("connection opened")


@pytest.mark.parametrize(
    ("listening", "connecting", "mode", "condition"),
    [
        ("normal", "inter-router", "interior", "qd:forbidden"),
        ("edge", "inter-router", "interior", "qd:forbidden"),
        ("inter-router", "edge", "edge", "qd:connection-role"),
    ],
)
def test_wrong_role(routers: Routers, listening: str, connecting: str, mode: str, condition: str) -> None:
    """The connection as such is healthy; the refused links and the reason are in the log."""
    port = free_port()
    a = routers.add("A", listener(port, listening, name="routers"), mode="interior")
    b = routers.add("B", connector(port, connecting, name="to-a"), mode=mode)
    routers.start_all()
    assert condition in a.await_log("link refused")
    b.await_status(
        lambda status: condition in status["connectors"][0]["message"], "the connector tells of the refusal"
    )


def test_unusable_certificate_file_is_named(routers: Routers, authority: Authority, tmp_path: Path) -> None:
    """A listener whose key does not belong to its certificate fails alone, with the profile's name."""
    one, two = authority.issue("one"), authority.issue("two")
    broken = Identity(one.certificate, two.key, authority.file)
    router = routers.start(
        "A", broken.profile("mixed"), listener(free_port(), name="tls", sslProfile="mixed")
    )
    line = router.await_log("credentials not usable")
    assert "sslProfile mixed" in line
    assert str(two.key) in line
    assert "the key does not belong to the certificate" in line


# PLAIN with Cyrus SASL


@pytest.fixture(scope="module")
def sasl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Cyrus SASL configuration with one user, `alice@isthmus` with the password `secret`."""
    return user_database(tmp_path_factory.mktemp("sasl"), "alice")


def with_passwords(routers: Routers, folder: Path, mechanisms: str = "PLAIN SCRAM-SHA-256") -> Router:
    """A router whose listener for clients demands a user."""
    router = routers.add("A", authenticatePeer=True, saslMechanisms=mechanisms)
    use_database(router, folder)
    return router.start()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_right_password(clients: Clients, routers: Routers, sasl_folder: Path, mechanism: str) -> None:
    router = with_passwords(routers, sasl_folder)
    client = clients.connect(router.port, user="alice@isthmus", password="secret", mechanisms=mechanism)
    client.receiver("x", credit=1, accept=True)
    assert client.sender("x").deliver("y") == "accepted"
    assert '"user":"alice@isthmus"' in router.await_log("connection opened")


@pytest.mark.parametrize(
    ("user", "password", "mechanism"),
    [("alice@isthmus", "wrong", "PLAIN"), ("bob@isthmus", "secret", "PLAIN"), (None, None, "ANONYMOUS")],
)
def test_wrong_password(
    clients: Clients,
    routers: Routers,
    sasl_folder: Path,
    user: str | None,
    password: str | None,
    mechanism: str,
) -> None:
    router = with_passwords(routers, sasl_folder)
    reason = assert_refused(clients, router.port, user=user, password=password, mechanisms=mechanism)
    assert "unauthorized-access" in reason or "Authentication failed" in reason
    line = router.await_log("connection failed")
    assert "Failed to authenticate client" in line or mechanism == "ANONYMOUS"
    assert password is None or f"{password!r}" not in router.log


def test_only_the_configured_mechanisms_are_offered(routers: Routers, sasl_folder: Path) -> None:
    router = with_passwords(routers, sasl_folder, "SCRAM-SHA-256")
    with socket.create_connection(("localhost", router.port), 10) as sock:
        sock.sendall(b"AMQP\x03\x01\x00\x00")
        received = sock.recv(4096)
        while len(received) < 12 or len(received) < 8 + int.from_bytes(received[8:12], "big"):
            received += sock.recv(4096)
    assert b"SCRAM-SHA-256" in received
    assert b"PLAIN" not in received


def test_a_peer_that_leaves_out_sasl(routers: Routers, sasl_folder: Path) -> None:
    """Whoever goes straight to the open frame is not authenticated either."""
    router = with_passwords(routers, sasl_folder)
    with socket.create_connection(("localhost", router.port), 10) as sock:
        sock.sendall(
            b"AMQP\x00\x01\x00\x00\x00\x00\x00\x15\x02\x00\x00\x00\x00S\x10\xc0\x08\x01\xa1\x05naked"
        )
        received = b""
        while part := sock.recv(4096):
            received += part
    assert b"S\x10" not in received, "no open frame in answer"
    router.await_log("connection failed", "Client skipped authentication")


def test_connector_with_a_password(clients: Clients, routers: Routers, sasl_folder: Path) -> None:
    a = with_passwords(routers, sasl_folder)
    for number, password in enumerate(("secret", "wrong")):
        attributes = {"saslUsername": "alice@isthmus", "saslPassword": password, "saslMechanisms": "PLAIN"}
        b = routers.start(
            f"B{number}", connector(a.port, "normal", name="to-a", **attributes), mode="interior"
        )
        if password == "secret":
            b.await_log("connection opened")
        else:
            assert "uthenticat" in b.await_log("connector failed")
        assert password not in b.log


def test_another_user_and_password_count_from_the_next_connection_on(
    routers: Routers, tmp_path: Path
) -> None:
    a = with_passwords(routers, user_database(tmp_path, "alice", "bob"))
    password = tmp_path / "password"
    password.write_text("secret\n")
    login = {"saslUsername": "alice@isthmus", "saslPassword": f"file:{password}", "saslMechanisms": "PLAIN"}
    b = routers.start("B", connector(a.port, "normal", name="to-a", **login))

    def users(status: dict[str, Any]) -> list[tuple[int, str]]:
        opened = [json.loads(line) for line in a.log.splitlines() if "connection opened" in line]
        logged_in = {line["connection"]: line["user"] for line in opened}  # the latest start comes last
        return [(item["id"], logged_in.get(item["id"], "")) for item in status["connections"]]

    def reload() -> None:
        before = b.metric("config_reloads_total")
        b.configure()
        eventually(lambda: b.metric("config_reloads_total") > before, "the change is taken over")

    open_as_alice = users(a.await_status(users, "B is connected"))
    assert [user for _, user in open_as_alice] == ["alice@isthmus"]
    next(settings for name, settings in b.sections if name == "connector")["saslUsername"] = "bob@isthmus"
    reload()
    assert users(a.status()) == open_as_alice, "what is open stays"
    a.stop()
    a.start()
    a.await_status(
        lambda status: [user for _, user in users(status)] == ["bob@isthmus"], "B is connected anew"
    )
    password.write_text("wrong")
    reload()
    a.stop()
    a.start()
    assert "uthenticat" in b.await_log("connector failed", "uthenticat")
    password.write_text("secret")
    b.await_status(lambda status: status["connectors"][0]["state"] == "open", "the right password is tried")
    assert len(users(a.status())) == 1


def test_credentials_are_renewed_without_a_restart(
    clients: Clients, routers: Routers, authority: Authority, other_authority: Authority
) -> None:
    """A changed sslProfile serves new connections; those in place go on."""
    router, port = secured(routers, authority.issue("router"), requireSsl=True)
    before = clients.connect(port, tls=authority.issue("client").client_domain(present=False))
    receiver = before.receiver("x", credit=10, accept=True)
    renewed = other_authority.issue("router")
    router.sections = [
        renewed.profile() if name == "sslProfile" else (name, a) for name, a in router.sections
    ]
    router.configure()

    def served_by_new() -> bool:
        context = ssl.create_default_context(cafile=str(other_authority.file))
        try:
            with socket.create_connection(("localhost", port), 5) as sock:
                context.wrap_socket(sock, server_hostname="localhost").close()
        except ssl.SSLError:
            return False
        return True

    eventually(served_by_new, "new connections see the new certificate")
    after = clients.connect(port, tls=other_authority.issue("client").client_domain(present=False))
    assert after.sender("x").deliver("y") == "accepted"
    assert receiver.bodies() == ["y"]
