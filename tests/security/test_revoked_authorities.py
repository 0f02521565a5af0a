"""Attack: a peer presents a certificate of an intermediate authority that the root has revoked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, connector, eventually, listener

from isthmus_router.credentials import REVOKED

SECURED = {"sslProfile": "tls", "requireClientCertificate": True, "saslMechanisms": "EXTERNAL"}


@pytest.fixture
def root(tmp_path: Path) -> Authority:
    """The authority that routers trust."""
    return Authority(tmp_path, "root")


def test_clients_of_a_revoked_intermediate_authority_are_refused(
    clients: Clients, routers: Routers, root: Authority
) -> None:
    lost, good = root.subordinate("lost"), root.subordinate("good")
    mallory, alice = lost.issue("mallory"), good.issue("alice")
    port = free_port()
    router = routers.start(
        "A",
        root.issue("router").profile(crlFile=str(root.revoke())),
        listener(port, name="secured", **SECURED),
    )
    canary = clients.connect(port, tls=alice.client_domain(), mechanisms="EXTERNAL")
    receiver = canary.receiver("canary", credit=5, accept=True)
    assert clients.admitted(port, mallory.client_domain())
    before = router.metric("config_reloads_total")
    root.revoke(lost)
    eventually(lambda: router.metric("config_reloads_total") > before, "the lists are read again")
    assert not clients.admitted(port, mallory.client_domain())
    assert "not accepted" in router.await_log("connection failed", "certificate revoked")
    assert clients.admitted(port, alice.client_domain())
    assert clients.connect(router.port).sender("canary").deliver("alive") == "accepted"
    assert receiver.bodies() == ["alive"]


def test_open_connections_of_peers_of_a_revoked_intermediate_authority_end(
    clients: Clients, routers: Routers, root: Authority
) -> None:
    """Those of a client and of a connector; others stay."""
    lost, good = root.subordinate("lost"), root.subordinate("good")
    alice, mallory, server = good.issue("alice"), lost.issue("mallory"), lost.issue("server")
    port, far = free_port(), free_port()
    routers.start("B", server.profile(), listener(far, name="secured", sslProfile="tls"))
    router = routers.start(
        "A",
        root.issue("router").profile(crlFile=str(root.revoke())),
        listener(port, name="secured", **SECURED),
        connector(far, "normal", name="out", sslProfile="tls"),
    )
    canary = clients.connect(port, tls=alice.client_domain(), mechanisms="EXTERNAL").await_open()
    bad = clients.connect(port, tls=mallory.client_domain(), mechanisms="EXTERNAL").await_open()
    eventually(lambda: router.status()["connectors"][0]["state"] == "open", "the connector is open")
    root.revoke(lost)
    condition = bad.await_end()
    assert (condition.name, condition.description) == ("amqp:unauthorized-access", REVOKED)
    eventually(lambda: router.status()["connectors"][0]["state"] != "open", "the connector is not open")
    assert "not accepted" in router.await_log("connector failed", "certificate revoked")
    receiver = canary.receiver("canary", credit=5, accept=True)
    assert clients.connect(router.port).sender("canary").deliver("alive") == "accepted"
    assert receiver.bodies() == ["alive"]


def test_an_expired_list_of_the_root_refuses_new_connections_of_its_intermediate_authorities(
    clients: Clients, routers: Routers, root: Authority
) -> None:
    """Open ones stay: nothing says that they are revoked."""
    intermediate = root.subordinate("intermediate")
    alice, port = intermediate.issue("alice"), free_port()
    router = routers.start(
        "A",
        root.issue("router").profile(crlFile=str(root.revoke())),
        listener(port, name="secured", **SECURED),
    )
    canary = clients.connect(port, tls=alice.client_domain(), mechanisms="EXTERNAL")
    receiver = canary.receiver("canary", credit=5, accept=True)
    before = router.metric("config_reloads_total")
    root.revoke(expired=True)
    eventually(lambda: router.metric("config_reloads_total") > before, "the lists are read again")
    assert not clients.admitted(port, alice.client_domain())
    assert "not accepted" in router.await_log("connection failed", "CRL has expired")
    assert clients.connect(router.port).sender("canary").deliver("alive") == "accepted"
    assert receiver.bodies() == ["alive"]


def test_an_intermediate_authority_needs_a_list_of_its_issuer(
    clients: Clients, routers: Routers, root: Authority
) -> None:
    intermediate = root.subordinate("intermediate")
    alice, port = intermediate.issue("alice"), free_port()
    router = routers.start(
        "A",
        root.issue("router").profile(crlFile=str(intermediate.revoke())),
        listener(port, name="secured", **SECURED),
    )
    assert not clients.admitted(port, alice.client_domain())
    assert "no list of the authority /O=" in router.await_log(
        "connection failed", "unable to get certificate CRL"
    )


def test_an_authority_needs_no_list_of_another_one(
    clients: Clients, routers: Routers, root: Authority, tmp_path: Path
) -> None:
    """A self-signed authority has one list, for itself and what it signs; another one in the file has none."""
    other, both = Authority(tmp_path, "other"), tmp_path / "both.pem"
    both.write_bytes(root.file.read_bytes() + other.file.read_bytes())
    alice, bob, port = root.issue("alice"), other.issue("bob", trusted=root.file), free_port()
    router = routers.start(
        "A",
        root.issue("router", trusted=both).profile(crlFile=str(root.revoke())),
        listener(port, name="secured", **SECURED),
    )
    router.await_log("revocation lists incomplete", "no list of these authorities")
    assert clients.admitted(port, alice.client_domain())
    assert not clients.admitted(port, bob.client_domain())
