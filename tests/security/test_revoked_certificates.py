"""Attack: a client or a server presents a certificate that its authority has revoked."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER, OPEN, SASL_HEADER, SASL_INIT, frame
from tests.integration.support.routers import Routers, connector, eventually, listener

from isthmus_router.credentials import REVOKED
from isthmus_router.message.types import Symbol


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """The authority of routers and clients."""
    return Authority(tmp_path, "good")


def test_a_revoked_client_is_refused_from_the_next_connection_on(
    clients: Clients, routers: Routers, authority: Authority
) -> None:
    alice, mallory = authority.issue("alice"), authority.issue("mallory")
    port = free_port()
    router = routers.start(
        "A",
        authority.issue("router").profile(crlFile=str(authority.revoke())),
        listener(
            port, name="secured", sslProfile="tls", requireClientCertificate=True, saslMechanisms="EXTERNAL"
        ),
    )
    canary = clients.connect(port, tls=alice.client_domain(), mechanisms="EXTERNAL")
    receiver = canary.receiver("canary", credit=5, accept=True)
    assert clients.admitted(port, mallory.client_domain())
    before = router.metric("config_reloads_total")
    authority.revoke(mallory)
    eventually(lambda: router.metric("config_reloads_total") > before, "the list is read again")
    assert not clients.admitted(port, mallory.client_domain())
    assert "not accepted" in router.await_log("connection failed")
    assert clients.admitted(port, alice.client_domain())
    assert clients.connect(router.port).sender("canary").deliver("alive") == "accepted"
    assert receiver.bodies() == ["alive"]


@pytest.mark.parametrize("lists_before", [True, False])
def test_connections_that_are_open_end_when_their_certificates_are_revoked(
    clients: Clients, routers: Routers, authority: Authority, lists_before: bool
) -> None:
    """Those of a client and of a connector, also if there were no lists before; others stay."""
    alice, mallory, server = (authority.issue(name) for name in ("alice", "mallory", "server"))
    port, far = free_port(), free_port()
    routers.start("B", server.profile(), listener(far, name="secured", sslProfile="tls"))
    lists = {"crlFile": str(authority.revoke())} if lists_before else {}
    secured = {"sslProfile": "tls", "requireClientCertificate": True, "saslMechanisms": "EXTERNAL"}
    profile = authority.issue("router").profile(**lists)
    router = routers.start(
        "A",
        profile,
        listener(port, name="secured", **secured),
        connector(far, "normal", name="out", sslProfile="tls"),
    )
    canary = clients.connect(port, tls=alice.client_domain(), mechanisms="EXTERNAL").await_open()
    bad = clients.connect(port, tls=mallory.client_domain(), mechanisms="EXTERNAL").await_open()
    eventually(lambda: router.status()["connectors"][0]["state"] == "open", "the connector is open")
    profile[1]["crlFile"] = str(authority.revoke(mallory, server))
    router.configure()
    condition = bad.await_end()
    assert (condition.name, condition.description) == ("amqp:unauthorized-access", REVOKED)
    eventually(lambda: router.status()["connectors"][0]["state"] != "open", "the connector is not open")
    assert canary.receiver("canary", credit=5, accept=True)
    assert clients.connect(router.port).sender("canary").deliver("alive") == "accepted"


def test_a_handshake_that_began_before_the_revocation_opens_no_connection(
    routers: Routers, authority: Authority
) -> None:
    """The listener still checks the certificate against the list from before."""
    mallory, port = authority.issue("mallory"), free_port()
    secured = {"sslProfile": "tls", "requireClientCertificate": True, "saslMechanisms": "EXTERNAL"}
    router = routers.start(
        "A",
        authority.issue("router").profile(crlFile=str(authority.revoke())),
        listener(port, name="secured", **secured),
    )
    context = ssl.create_default_context(cafile=str(mallory.trusted))
    context.load_cert_chain(mallory.certificate, mallory.key)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(received, sent, server_hostname="localhost")
    with socket.create_connection(("localhost", port), 30) as peer:
        with pytest.raises(ssl.SSLWantReadError):
            session.do_handshake()
        peer.sendall(sent.read())
        while True:
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                received.write(peer.recv(1 << 16))
        before = router.metric("config_reloads_total")
        authority.revoke(mallory)
        eventually(lambda: router.metric("config_reloads_total") > before, "the list is read again")
        # Only now the router gets the certificate.
        session.write(SASL_HEADER + frame(SASL_INIT, [Symbol("EXTERNAL"), b"", "localhost"]))
        session.write(AMQP_HEADER + frame(OPEN, ["mallory", "localhost"]))
        peer.sendall(sent.read())
        router.await_log("peer refused", REVOKED)


def test_a_connector_refuses_a_revoked_server(routers: Routers, authority: Authority) -> None:
    port = free_port()
    server = authority.issue("server")
    routers.start("A", server.profile(), listener(port, name="secured", sslProfile="tls"))
    b = routers.start(
        "B",
        authority.issue("client").profile(crlFile=str(authority.revoke(server))),
        connector(port, "normal", name="out", sslProfile="tls"),
    )
    assert "not accepted" in b.await_log("connector failed")


def test_a_file_without_lists_is_not_used(routers: Routers, authority: Authority, tmp_path: Path) -> None:
    """The listener is not opened: it could not refuse revoked certificates."""
    empty = tmp_path / "empty.crl"
    empty.write_text("")
    router = routers.start(
        "A",
        authority.issue("router").profile(crlFile=str(empty)),
        listener(free_port(), name="secured", sslProfile="tls", requireClientCertificate=True),
    )
    assert "crlFile" in router.await_log("credentials not usable")
