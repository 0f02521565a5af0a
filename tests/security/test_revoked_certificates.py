"""Attack: a client or a server presents a certificate that its authority has revoked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, connector, eventually, listener


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
