"""Policies: who may connect and attach to what, with users that have authenticated."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from proton import Message
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Client, Clients
from tests.integration.support.foreign import INTEGRATION, Program, rhea_modules
from tests.integration.support.management import Manager
from tests.integration.support.passwords import PASSWORD, use_database
from tests.integration.support.policies import (
    ALICE,
    BOB,
    CAROL,
    ENABLED,
    EXCEEDED,
    GROUPS,
    UNAUTHORIZED,
    Governed,
    group,
    login,
    refusal,
    refused,
    vhost,
)
from tests.integration.support.ports import free_port
from tests.integration.support.routers import (
    Router,
    Routers,
    Section,
    eventually,
    listener,
)

from isthmus_router.amqp.sessions import CLIENT_SESSION_BYTES
from isthmus_router.message.sections import encode_annotations


@pytest.fixture(scope="module")
def shared(either_kernel: Callable[[], Routers], passwords: Path) -> Router:
    """A router with GROUPS in force, for tests that leave it as they found it; either kernel."""
    router = either_kernel().add(
        "A", ENABLED, vhost(groups=GROUPS), authenticatePeer=True, saslMechanisms="PLAIN"
    )
    use_database(router, passwords)
    return router.start()


# Links


def test_addresses_that_a_user_may_use(clients: Clients, shared: Router) -> None:
    alice, bob = login(clients, shared, ALICE), login(clients, shared, BOB)
    news = bob.receiver("news/today", credit=10, accept=True)
    assert alice.sender("news/today").deliver("for all") == "accepted"
    assert news.bodies() == ["for all"]
    orders = alice.receiver("orders", credit=10, accept=True)
    assert bob.sender("amqp:/orders").deliver("three") == "accepted"
    assert orders.bodies() == ["three"]
    own = bob.receiver(f"{BOB}/inbox", credit=10, accept=True)
    assert bob.sender(f"{BOB}/inbox").deliver("note to self") == "accepted"
    assert own.bodies() == ["note to self"]


def test_links_that_are_refused_name_only_themselves(clients: Clients, shared: Router) -> None:
    bob = login(clients, shared, BOB)
    denied = shared.metric("policy_denials_total")
    sender = bob.sender("news/today", wait=False).link
    assert refusal(bob, sender) == (UNAUTHORIZED, "this user may not send to 'news/today'")
    assert sender.remote_target.type == 0
    shared.await_log("link refused", '"event":"link.refused"', f'"user":"{BOB}"', UNAUTHORIZED)
    other = bob.receiver(f"{CAROL}/inbox", wait=False).link
    assert refusal(bob, other) == (UNAUTHORIZED, f"this user may not receive from '{CAROL}/inbox'")
    dynamic = bob.receiver(None, dynamic=True, wait=False).link
    assert refusal(bob, dynamic) == (UNAUTHORIZED, "this user may not have a dynamic source")
    assert shared.metric("policy_denials_total") == denied + 3
    assert shared.metric("policy_denials_total", 'kind="connection"') == 0


def test_too_many_links(clients: Clients, shared: Router) -> None:
    bob = login(clients, shared, BOB)
    links = [bob.sender("orders").link for _ in range(4)]
    assert refusal(bob, bob.sender("orders", wait=False).link) == (
        EXCEEDED,
        "no more than 4 senders on a connection of this user",
    )
    bob.detach(links[0])
    assert bob.sender("orders").link.remote_target.address == "orders"
    receivers = [bob.receiver("news").link for _ in range(3)]
    assert refusal(bob, bob.receiver("news", wait=False).link)[0] == EXCEEDED
    assert all(link.remote_source.address == "news" for link in receivers)


def test_each_message_of_an_anonymous_sender_is_checked(clients: Clients, shared: Router) -> None:
    orders = login(clients, shared, ALICE).receiver("orders", credit=10, accept=True)
    secret = login(clients, shared, ALICE).receiver("secret", credit=10, accept=True)
    sender = login(clients, shared, BOB).sender(None).await_credit()
    for size in (1, 90_000):
        body = bytes(size)
        assert sender.deliver(Message(address="orders", body=body)) == "accepted"
        sent = sender.send(Message(address="secret", body=body))
        assert sender.outcome(sent) == "rejected"
        assert sent.condition is not None
        assert (sent.condition.name, sent.condition.description) == (
            UNAUTHORIZED,
            "this user may not send to 'secret'",
        )
    assert len(orders.arrived()) == 2
    clients.round_trip()
    assert secret.received == []


@pytest.mark.parametrize("target", ["orders", None])
@pytest.mark.parametrize("size", [10, 90_000])
def test_the_user_of_a_message(clients: Clients, shared: Router, target: str | None, size: int) -> None:
    """Bob's messages are Bob's or nobody's; Alice's may be anybody's."""
    orders = login(clients, shared, ALICE).receiver("orders", credit=100, accept=True)
    sender = login(clients, shared, BOB).sender(target).await_credit()
    body = bytes(size)
    for user in (b"", BOB.encode()):
        assert sender.deliver(Message(address="orders", user_id=user, body=body)) == "accepted"
    sent = sender.send(Message(address="orders", user_id=b"alice@isthmus", body=body))
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == UNAUTHORIZED
    proxy = login(clients, shared, ALICE).sender(target).await_credit()
    assert proxy.deliver(Message(address="orders", user_id=b"another", body=body)) == "accepted"
    assert [item.message.user_id for item in orders.arrived()] == [b"", BOB.encode(), b"another"]


def test_the_user_of_a_stream_is_checked_before_it_is_passed_on(clients: Clients, shared: Router) -> None:
    alice = login(clients, shared, ALICE)
    orders = alice.receiver(f"{BOB}/big", credit=10)
    sender = login(clients, shared, BOB).sender(f"{BOB}/big").await_credit()
    data = Message(user_id=b"alice@isthmus", body=bytes(90_000)).encode()
    sent = sender.begin(data[:80_000])
    clients.round_trip()
    sender.more(data[80_000:])
    sender.finish()
    assert sender.outcome(sent) == "rejected"
    assert [item for item in orders.received if not item.aborted] == []


def test_a_message_that_is_too_large(clients: Clients, shared: Router) -> None:
    bob = login(clients, shared, BOB)
    login(clients, shared, ALICE).receiver("orders", credit=10, accept=True)
    sender = bob.sender("orders").await_credit()
    assert sender.link.remote_max_message_size == 100_000
    sent = sender.send(bytes(100_001))
    assert sender.outcome(sent) == "rejected"
    assert refusal(bob, sender.link)[0] == "amqp:link:message-size-exceeded"
    (row,) = Manager(login(clients, shared, ALICE)).query("vhostStats")
    assert row["maxMessageSizeDenied"] >= 1


def test_annotations_do_not_lead_elsewhere(clients: Clients, governed: Governed) -> None:
    """A listener that leaves router annotations in messages does not let clients choose an address by them."""
    router = governed(ENABLED, vhost(groups=GROUPS), stripAnnotations="no")
    alice = login(clients, router, ALICE)
    secret = alice.receiver("secret", credit=10, accept=True)
    orders = alice.receiver("orders", credit=10, accept=True)
    bob = login(clients, router, BOB)
    message = Message(body="x").encode()
    for target in ("orders", None):
        sender = bob.sender(target).await_credit()
        for to, outcome in (("secret", "rejected"), ("orders", "accepted"), ("secret", "rejected")):
            annotated = encode_annotations(0, to, None, []) + message
            assert sender.outcome(sender.send(annotated)) == outcome
    clients.until(lambda: len(orders.received) == 2, "those that are allowed")
    clients.round_trip()
    assert secret.received == []


# Connections


def test_who_may_connect(clients: Clients, shared: Router) -> None:
    assert refused(clients, shared, "mallory@isthmus") == (UNAUTHORIZED, "this user may not connect")
    shared.await_log("connection refused", '"event":"connection.denied"', '"user":"mallory@isthmus"')


def test_unknown_users_and_other_hosts(clients: Clients, governed: Governed) -> None:
    groups = {
        "far": group(BOB, remoteHosts="192.0.2.0/24"),
        "nowhere": {**group(CAROL), "remoteHosts": ""},
        "$default": group("", sources="public*", targets=""),
    }
    router = governed(ENABLED, vhost(groups=groups, allowUnknownUser=True))
    for user in (BOB, CAROL):
        assert refused(clients, router, user) == (
            UNAUTHORIZED,
            "this user may not connect from this host",
        )
    alice = login(clients, router, ALICE)
    assert alice.receiver("public/x").link.remote_source.address == "public/x"
    assert refusal(alice, alice.sender("public/x", wait=False).link)[0] == UNAUTHORIZED


def test_how_many_may_connect(clients: Clients, governed: Governed) -> None:
    groups = {
        "operators": group(ALICE, maxConnectionsPerUser=3, maxConnectionsPerHost=100),
        "shops": group([BOB, CAROL]),
    }
    policy: Section = ("policy", {"enableVhostPolicy": True, "maxConnections": 5})
    limits = {"maxConnections": 4, "maxConnectionsPerUser": 1, "maxConnectionsPerHost": 4}
    router = governed(policy, vhost(groups=groups, **limits))
    first = [login(clients, router, ALICE) for _ in range(3)]
    assert refused(clients, router, ALICE) == (EXCEEDED, "no more than 3 connections of this user")
    login(clients, router, BOB)
    assert refused(clients, router, BOB)[1] == "no more than 4 connections to this hostname"
    first[0].close()
    assert refused(clients, router, BOB)[1] == "no more than 1 connection of this user"
    login(clients, router, CAROL)
    router.sections[-1][1]["maxConnections"] = 10
    router.configure()
    eventually(
        lambda: refused(clients, router, CAROL)[1] == "no more than 1 connection of this user",
        "the change is in force",
    )
    assert router.metric("policy_denials_total", 'kind="connection"') >= 4


def test_connections_of_all_clients_are_limited_without_vhosts(clients: Clients, routers: Routers) -> None:
    policy: Section = ("policy", {"maxConnections": 2, "maxMessageSize": 1000})
    router = routers.start("A", policy)
    first, second = clients.connect(router.port), clients.connect(router.port)
    third = clients.connect(router.port, wait=False)
    condition = third.await_end()
    assert condition is not None
    assert (condition.name, condition.description) == (EXCEEDED, "no more than 2 connections of clients")
    first.close()
    fourth = clients.connect(router.port)
    fourth.receiver("x", credit=10, accept=True)
    sender = second.sender("x").await_credit()
    assert sender.link.remote_max_message_size == 1000
    assert sender.outcome(sender.send(bytes(2000))) == "rejected"


def test_vhosts_by_hostname_alias_pattern_and_listener(clients: Clients, governed: Governed) -> None:
    everybody = {"all": group("*")}
    port = free_port()
    policy: Section = (
        "policy",
        {"enableVhostPolicy": True, "enableVhostNamePatterns": True, "defaultVhost": ""},
    )
    router = governed(
        policy,
        vhost("shop.example", {"some": group(BOB)}, aliases="store.example, *.shop.example"),
        vhost("office.example", everybody),
        listener(
            port, name="office", policyVhost="office.example", authenticatePeer=True, saslMechanisms="PLAIN"
        ),
    )
    for hostname in ("shop.example", "store.example", "eu.shop.example"):
        login(clients, router, BOB, hostname=hostname)
        assert refused(clients, router, ALICE, hostname=hostname)[1] == "this user may not connect"
    login(clients, router, ALICE, hostname="office.example")
    assert refused(clients, router, BOB, hostname="a.b.example")[1] == (
        "no connection is allowed to this hostname"
    )
    clients.connect(port, user=ALICE, password=PASSWORD, mechanisms="PLAIN", hostname="shop.example")


def test_who_may_be_a_waypoint(clients: Clients, governed: Governed) -> None:
    groups = {"one": group(ALICE), "other": group(BOB, allowWaypointLinks=False, allowAnonymousSender=True)}
    router = governed(ENABLED, vhost(groups=groups), ("address", {"prefix": "orders", "waypoint": True}))
    bob = login(clients, router, BOB)
    for attach in (bob.sender, bob.receiver):
        refusal = bob.refusal(attach("orders", capability="qd.waypoint", wait=False).link)
        assert (refusal.name, refusal.description) == (UNAUTHORIZED, "this user may not be a waypoint")
        refusal = bob.refusal(attach("/_$phase.1/orders", wait=False).link)
        assert refusal.description == "this user may not choose the phase of '/_$phase.1/orders'"
    anonymous = bob.sender(None).await_credit()
    sent = anonymous.send(Message(address="_$phase.1/orders", body="past the queue"))
    assert anonymous.outcome(sent) == "rejected", "its messages may not choose the phase either"
    receiver = bob.receiver("orders", credit=1, accept=True)
    alice = login(clients, router, ALICE).sender("_$phase.1/orders")
    assert alice.deliver("x") == "accepted"
    assert receiver.bodies() == ["x"]


def test_frames_sessions_and_their_windows(clients: Clients, governed: Governed) -> None:
    groups = {"all": group("*", maxFrameSize=2048, maxSessions=2, maxSessionWindow=20_000)}
    router = governed(ENABLED, vhost(groups=groups))
    client = login(clients, router, BOB)
    assert client.transport.remote_max_frame_size == 2048
    assert client.transport.remote_channel_max == 1
    sender = client.sender("x")
    client.new_session()
    receiver = login(clients, router, ALICE).receiver("x", credit=10, accept=True)
    assert sender.await_credit().deliver(Message(body=bytes(100_000))) == "accepted"
    assert len(receiver.next().body) == 100_000


def test_frames_larger_than_what_sessions_share(clients: Clients, governed: Governed) -> None:
    frame = 2 * CLIENT_SESSION_BYTES
    router = governed(ENABLED, vhost(groups={"all": group("*", maxFrameSize=frame)}))
    client = login(clients, router, BOB)
    assert client.transport.remote_max_frame_size == frame
    receiver = login(clients, router, ALICE).receiver("x", credit=10, accept=True)
    assert client.sender("x").await_credit().deliver("one frame") == "accepted"
    assert receiver.next().body == "one frame"


def test_users_from_certificates(clients: Clients, routers: Routers, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "policy")
    port = free_port()
    router = routers.start(
        "A",
        ENABLED,
        vhost(groups={"shops": group("bob", targets="${user}/*", sources="${user}/*")}),
        authority.issue("router").profile(uidFormat="n"),
        listener(
            port,
            name="secured",
            sslProfile="tls",
            requireSsl=True,
            authenticatePeer=True,
            saslMechanisms="EXTERNAL",
        ),
    )
    bob = clients.connect(port, tls=authority.issue("bob").client_domain(), mechanisms="EXTERNAL")
    bob.receiver("bob/in", credit=1, accept=True)
    assert bob.sender("bob/in").deliver("x") == "accepted"
    assert refusal(bob, bob.sender("alice/in", wait=False).link)[0] == UNAUTHORIZED
    domain = authority.issue("mallory").client_domain()
    mallory = clients.connect(port, tls=domain, mechanisms="EXTERNAL", wait=False)
    condition = mallory.await_end()
    assert condition is not None
    assert condition.name == UNAUTHORIZED
    assert router.metric("policy_denials_total", 'kind="connection"') == 1


def test_users_by_the_names_that_a_file_gives_them(
    clients: Clients, routers: Routers, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "policy")
    names = tmp_path / "names.json"
    names.write_text('{"0042": "bob"}')
    port = free_port()
    router = routers.start(
        "A",
        ENABLED,
        vhost(groups={"shops": group("bob, 0043", targets="${user}/*", sources="${user}/*")}),
        authority.issue("router").profile(uidFormat="n", uidNameMappingFile=str(names)),
        listener(port, sslProfile="tls", name="secured", authenticatePeer=True, saslMechanisms="EXTERNAL"),
    )

    def connect(number: str) -> Client:
        return clients.connect(port, tls=authority.issue(number).client_domain(), mechanisms="EXTERNAL")

    for number, address in (("0042", "bob/in"), ("0043", "0043/in")):
        client = connect(number)
        client.receiver(address, credit=1, accept=True)
        assert client.sender(address).deliver("x") == "accepted"
    names.write_text('{"0043": 7}')
    assert "uidNameMappingFile" in router.await_log("not a JSON object that gives each user a name")
    names.write_text('{"0043": "bob"}')

    def renamed() -> bool:
        connect("0043").await_open()
        return router.log.count('"user":"bob"') >= 2

    eventually(renamed, "the changed file is in force")


# A client of another make


def test_rhea_is_told_what_it_may_not_do(shared: Router, clients: Clients) -> None:
    login(clients, shared, ALICE).receiver("orders", credit=10, accept=True)
    program = Program(
        ["node", str(INTEGRATION / "rhea" / "policy.js"), "localhost", str(shared.port), BOB, PASSWORD],
        {"NODE_PATH": str(rhea_modules()), "PATH": os.environ["PATH"]},
    )
    clients.until(lambda: program.process.poll() is not None, "the program ends")
    heard = program.result()
    assert heard["allowed"] == "accepted"
    assert heard["sender"] == {
        "condition": UNAUTHORIZED,
        "description": "this user may not send to 'secret'",
    }
    assert heard["receiver"]["condition"] == UNAUTHORIZED
    assert heard["dynamic"]["condition"] == UNAUTHORIZED
    assert heard["stranger"]["condition"] == UNAUTHORIZED
