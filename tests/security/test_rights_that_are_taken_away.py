"""A client goes on with what it has after a changed policy has taken the right to it away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from proton import Endpoint
from tests.integration.support.by_hand import ByHand, send_to, transfer_frame
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Client, Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import LOST, NO_ROUTE
from tests.integration.support.management import Manager
from tests.integration.support.passwords import PASSWORD, use_database
from tests.integration.support.policies import ALICE, BOB, UNAUTHORIZED, group, login, refusal, vhost
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DETACH
from tests.integration.support.routers import Router, Routers, connector, eventually, listener
from tests.security.support.canary import Canary

from isthmus_router.message.types import Described, ULong, encode

MADE = "router.connection.linkRoute"
EVERYTHING = {"allowAnonymousSender": True, "allowDynamicSource": True}
PIECE, PIECES = 16_000, 160_000
"""Bytes of a message in a frame, and altogether."""
ENOUGH = {"sources": "own*", "targets": ["own*", "$management"], **EVERYTHING}
"""For the own addresses of the client, and nothing else."""


def create(client: Client, pattern: str, direction: str = "in") -> None:
    answer = Manager(client).request("CREATE", {"pattern": pattern, "direction": direction}, type=MADE)
    assert answer.properties["statusCode"] == 201, answer.properties["statusDescription"]


def reload(router: Router) -> None:
    before = router.metric("config_reloads_total")
    router.configure()
    eventually(lambda: router.metric("config_reloads_total") > before, "the change is in force")


def governed_router(routers: Routers, passwords: Path, **mallory: Any) -> tuple[Router, dict[str, Any]]:
    """A router on which Bob may do everything and Alice only what is in the groups that come with it."""
    groups = {"all": group([ALICE], **EVERYTHING), "bob": group([BOB], **EVERYTHING, **mallory)}
    router = routers.add(
        "A",
        ("policy", {"enableVhostPolicy": True}),
        vhost(groups=groups),
        mode="interior",
        authenticatePeer=True,
        saslMechanisms="PLAIN",
    )
    use_database(router, passwords)
    return router, groups


def destinations(manager: Manager, prefix: str) -> int:
    """Clients of a router, and other routers, that take links to `prefix` and what is below it."""
    rows = manager.query("router.address", "key", "containerCount", "remoteCount")
    return sum(row["containerCount"] + row["remoteCount"] for row in rows if row["key"] == f"C{prefix}")


@pytest.mark.parametrize("rights", [ENOUGH, {**ENOUGH, "sources": "*", "allowDynamicLinkRoutes": False}])
def test_link_routes_of_a_client(
    either_kernel: Callable[[], Routers], clients: Clients, passwords: Path, rights: dict[str, Any]
) -> None:
    """With links of clients of its own router and of another one."""
    routers = either_kernel()
    router, groups = governed_router(routers, passwords)
    port = free_port()
    router.sections.insert(3, listener(port, "inter-router", name="inter"))
    other = routers.add("B", connector(port, name="to-a"), mode="interior")
    routers.start_all()
    options: dict[str, Any] = {"user": BOB, "password": PASSWORD, "mechanisms": "PLAIN"}
    bob = Container(clients, router.port, "taker", **options)
    keeps = rights.get("allowDynamicLinkRoutes", True)
    create(bob, "secret.#")
    create(bob, "deleted.#")
    create(bob, "own.#")
    manager = Manager(clients.connect(other.port))
    eventually(lambda: destinations(manager, "own"), "the other router has them")
    alice, far = login(clients, router, ALICE), clients.connect(other.port)
    ends = [
        client.sender(name) for client, name in ((alice, "secret.a"), (far, "secret.b"), (far, "deleted.x"))
    ]
    for end in ends:
        assert end.await_credit().deliver("before") == "accepted"
    own = far.sender("own.x").await_credit()
    taken = [bob.gets(name) for name in ("secret.a", "secret.b", "deleted.x")]
    assert Manager(bob).request("DELETE", type=MADE, name="deleted.#/in").properties["statusCode"] == 204
    with Canary(router, user=ALICE, password=PASSWORD, receive_at=router) as canary:
        groups["bob"] = group([BOB], **rights)
        reload(router)
        for receiver, end in zip(taken, ends, strict=True):
            assert Client.refusal(bob, receiver.link).name == UNAUTHORIZED
            assert end.client.refusal(end.link).name == LOST
            assert len(receiver.received) == 1
        for client, name in ((alice, "secret.a"), (far, "secret.b")):
            eventually(lambda: not destinations(manager, "secret"), "the other router has none")
            attempts = bob.attempts
            link = client.sender(name).link
            if link.state & Endpoint.REMOTE_CLOSED:
                assert refusal(client, link)[0] == NO_ROUTE
            clients.round_trip()
            assert bob.attempts == attempts
        if keeps:
            assert own.deliver("still") == "accepted"
        else:
            assert far.refusal(own.link).name == LOST
    canary.report.check()
    assert destinations(manager, "own") == keeps


def test_link_routes_that_are_created_with_a_right_of_another_kind(
    either_kernel: Callable[[], Routers], clients: Clients, passwords: Path
) -> None:
    """By management without a policy, before there is one; with a policy alone, before there is none."""
    router, groups = governed_router(either_kernel(), passwords)
    router.sections[3][1]["enableVhostPolicy"] = False
    groups["bob"].update(ENOUGH)
    port = free_port()
    router.sections.insert(
        3,
        listener(port, name="basic", management="basic", authenticatePeer=True, saslMechanisms="PLAIN"),
    )
    router.start()
    manager = Manager(login(clients, router, ALICE))
    create(login(clients, router, BOB), "secret.#")
    router.sections[4][1]["enableVhostPolicy"] = True
    reload(router)
    eventually(lambda: not destinations(manager, "secret"), "the policy allows none")
    other = clients.connect(port, user=BOB, password=PASSWORD, mechanisms="PLAIN")
    create(other, "own.#")
    assert destinations(manager, "own")
    router.sections[4][1]["enableVhostPolicy"] = False
    reload(router)
    eventually(lambda: not destinations(manager, "own"), "management allows none")


def test_links_of_every_kind(either_kernel: Callable[[], Routers], clients: Clients, passwords: Path) -> None:
    router, groups = governed_router(either_kernel(), passwords)
    router.sections[1][1]["allowFlowRecords"] = True
    router.start()
    bob = login(clients, router, BOB)
    dynamic = bob.receiver(None, dynamic=True, credit=10, accept=True)
    ends = {
        "receive from 'news'": bob.receiver("news"),
        "receive from 'mc/sfe.all'": bob.receiver("mc/sfe.all"),
        "have a dynamic source": dynamic,
        "send to 'orders'": bob.sender("orders"),
        "send to '$management'": bob.sender("$management"),
        "send without a target address": bob.sender(None),
        "be a waypoint": bob.sender("own", capability="qd.waypoint_1"),
        "be a fallback destination": bob.receiver("own", capability="qd.fallback"),
        "choose the phase of '_$phase.1/own'": bob.receiver("_$phase.1/own"),
    }
    for end in ends.values():
        assert end.link.state & Endpoint.REMOTE_ACTIVE
    kept = bob.sender("own"), bob.receiver("own", credit=10, accept=True)
    nothing = {"allowWaypointLinks": False, "allowFallbackLinks": False, "sources": "own", "targets": "own"}
    with Canary(router, user=ALICE, password=PASSWORD) as canary:
        groups["bob"] = group([BOB], **nothing)
        reload(router)
        for what, end in ends.items():
            assert refusal(bob, end.link) == (UNAUTHORIZED, f"this user may not {what}")
        assert kept[0].await_credit().deliver("still") == "accepted"
    canary.report.check()
    answers = login(clients, router, ALICE).sender(dynamic.address)
    clients.round_trip()
    assert answers.credit == 0, "nobody receives from the address of the dynamic source"


def test_link_routes_of_clients_whose_connections_are_closed(
    either_kernel: Callable[[], Routers], clients: Clients, passwords: Path, tmp_path: Path
) -> None:
    """For a user whom the policy does not admit any more, and for a revoked certificate."""
    authority = Authority(tmp_path, "good")
    certificate, port = authority.issue("mallory"), free_port()
    router, groups = governed_router(either_kernel(), passwords)
    groups["mallory"] = group("mallory", **EVERYTHING)
    secured = {"sslProfile": "tls", "requireClientCertificate": True, "saslMechanisms": "EXTERNAL"}
    profile = authority.issue("router").profile(uidFormat="n", crlFile=str(authority.revoke()))
    router.sections += [profile, listener(port, name="secured", **secured)]
    router.start()
    manager, bob = Manager(login(clients, router, ALICE)), login(clients, router, BOB)
    create(bob, "bob.#")
    mallory = clients.connect(port, tls=certificate.client_domain(), mechanisms="EXTERNAL")
    create(mallory, "mallory.#")
    assert destinations(manager, "bob") == destinations(manager, "mallory") == 1
    del groups["bob"]
    reload(router)
    bob.await_end()
    assert not destinations(manager, "bob")
    authority.revoke(certificate)
    mallory.await_end()
    assert not destinations(manager, "mallory")


def test_unfinished_messages_on_links_without_target(
    either_kernel: Callable[[], Routers], clients: Clients
) -> None:
    """Each names its address itself, and arrives while the policy changes."""
    rights = group("*", allowAnonymousSender=True)
    sections = ("policy", {"enableVhostPolicy": True}), vhost(groups={"all": rights})
    router = either_kernel().add("A", *sections).start()
    names = "taken", "kept"
    received = [clients.connect(router.port).receiver(name, credit=10, accept=True) for name in names]
    with Canary(router) as canary, ByHand(router.port) as client:
        for handle, name in enumerate(names):
            client.attach(send_to(None, handle))
            client.await_credit()
            properties = encode(Described(ULong(0x73), [None, None, name]))
            head = properties + b"\x00\x53\x75\xb0" + PIECES.to_bytes(4)
            client.send(transfer_frame(handle, head, handle=handle, more=True))
            for _ in range(PIECES // PIECE - 1):
                client.send(transfer_frame(None, bytes(PIECE), handle=handle, more=True))
        clients.until(lambda: all(receiver.received for receiver in received), "the messages have begun")
        rights["targets"] = "kept, canary*"
        reload(router)
        error = client.expect_error(DETACH, UNAUTHORIZED)
        assert error.field(0) == 0
        client.send(transfer_frame(None, bytes(PIECE), handle=1))
        clients.until(lambda: received[1].received[0].complete, "the allowed one is there")
    canary.report.check()
    assert not received[0].arrived()
