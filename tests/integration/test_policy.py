"""Policies: who may connect and attach to what, with users that have authenticated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Endpoint, Link, Message
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Client, Clients
from tests.integration.support.fake_interior import FakeInterior
from tests.integration.support.foreign import INTEGRATION, Program, rhea_modules
from tests.integration.support.management import Manager
from tests.integration.support.passwords import PASSWORD, use_database, user_database
from tests.integration.support.ports import free_port
from tests.integration.support.routers import (
    Router,
    Routers,
    Section,
    connector,
    eventually,
    listener,
)

from isthmus_router.message.sections import encode_annotations

UNAUTHORIZED, EXCEEDED = "amqp:unauthorized-access", "amqp:resource-limit-exceeded"
ALICE, BOB, CAROL = "alice@isthmus", "bob@isthmus", "carol@isthmus"
ENABLED: Section = ("policy", {"enableVhostPolicy": True})


def vhost(name: str = "$default", groups: dict[str, Any] | None = None, **attributes: Any) -> Section:
    return ("vhost", {"hostname": name, "groups": groups or {}, **attributes})


def group(users: Any, **attributes: Any) -> dict[str, Any]:
    return {"users": users, "remoteHosts": "*", "sources": "*", "targets": "*", **attributes}


GROUPS = {
    "operators": group(ALICE, allowDynamicSource=True, allowAnonymousSender=True, allowUserIdProxy=True),
    "shops": group(
        [BOB, CAROL],
        sources=["news*", "${user}/*"],
        targets="orders, ${user}/*",
        allowAnonymousSender=True,
        maxSenders=4,
        maxReceivers=3,
        maxMessageSize=100_000,
    ),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Passwords of Alice, Bob, Carol and Mallory."""
    return user_database(tmp_path_factory.mktemp("users"), "alice", "bob", "carol", "mallory")


Governed = Callable[..., Router]


@pytest.fixture
def governed(routers: Routers, database: Path) -> Governed:
    """Starts a router whose clients have to log in."""

    def start(*sections: Section, kernel: str = "compiled", **normal: Any) -> Router:
        router = routers.add("A", *sections, authenticatePeer=True, saslMechanisms="PLAIN", **normal)
        use_database(router, database)
        router.environment["ISTHMUS_KERNEL"] = kernel
        return router.start()

    return start


@pytest.fixture(scope="module", params=["compiled", "python"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, database: Path
) -> Iterator[Router]:
    """A router with GROUPS in force, for tests that leave it as they found it; either kernel."""
    started = Routers(tmp_path_factory.mktemp("policy"))
    router = started.add("A", ENABLED, vhost(groups=GROUPS), authenticatePeer=True, saslMechanisms="PLAIN")
    use_database(router, database)
    router.environment["ISTHMUS_KERNEL"] = request.param
    yield router.start()
    started.stop()


def login(clients: Clients, router: Router, user: str, *, wait: bool = True, **options: Any) -> Client:
    return clients.connect(
        router.port, user=user, password=PASSWORD, mechanisms="PLAIN", wait=wait, **options
    )


def refused(clients: Clients, router: Router, user: str, **options: Any) -> tuple[str, str]:
    """Condition and description with which the connection is opened and closed."""
    client = login(clients, router, user, wait=False, **options)
    condition = client.await_end()
    assert client.connection.remote_container == router.id, "opened before it is closed"
    assert condition is not None
    return condition.name, condition.description


def refusal(client: Client, link: Link) -> tuple[str, str]:
    condition = client.refusal(link)
    return condition.name, condition.description


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
    shared.await_log("connection refused", "mallory")


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
    groups = {"one": group(ALICE), "other": group(BOB, allowWaypointLinks=False)}
    router = governed(ENABLED, vhost(groups=groups), ("address", {"prefix": "orders", "waypoint": True}))
    bob = login(clients, router, BOB)
    for attach in (bob.sender, bob.receiver):
        refusal = bob.refusal(attach("orders", capability="qd.waypoint", wait=False).link)
        assert (refusal.name, refusal.description) == (UNAUTHORIZED, "this user may not be a waypoint")
        refusal = bob.refusal(attach("/_$phase.1/orders", wait=False).link)
        assert refusal.description == "this user may not choose the phase of '/_$phase.1/orders'"
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


# Other routers and connectors


def test_other_routers_are_no_clients(clients: Clients, routers: Routers) -> None:
    """Inter-router and edge connections are not refused, nor what they carry, though nobody may connect."""
    inter, edge = free_port(), free_port()
    limited: Section = ("policy", {"enableVhostPolicy": True, "maxConnections": 0})
    routers.add(
        "A",
        limited,
        listener(inter, "inter-router", name="inter"),
        listener(edge, "edge", name="edge"),
        mode="interior",
    )
    routers.add("B", connector(inter, "inter-router", name="to-a"), mode="interior")
    routers.add("E", connector(edge, "edge", name="to-a"), mode="edge")
    routers.start_all()
    receiver = clients.connect(routers.all["E"].port).receiver("x", credit=10, accept=True)
    sender = clients.connect(routers.all["B"].port).sender("x").await_credit()
    assert sender.deliver("through") == "accepted"
    assert receiver.bodies() == ["through"]
    assert routers.all["A"].metric("policy_denials_total") == 0


def test_routers_whose_listener_names_a_vhost(routers: Routers) -> None:
    port = free_port()
    a = routers.add(
        "A",
        ENABLED,
        vhost("routers", {"some": group("router-b")}),
        listener(port, "inter-router", name="inter", policyVhost="routers"),
        mode="interior",
    )
    routers.add("B", connector(port, "inter-router", name="to-a"), mode="interior")
    routers.start_all()
    a.await_log("connection refused", '"user":"anonymous"')
    a.sections[-2][1]["groups"]["some"]["users"] = "anonymous"
    a.configure()
    a.await_status(lambda status: status["neighbors"], "B is let in")


def test_the_policy_of_a_connector(clients: Clients, routers: Routers) -> None:
    """What the peer may attach there."""
    listening = FakeInterior(clients, "broker")
    groups = {"$connector": {"sources": "out*", "targets": "in*", "allowUserIdProxy": True}}
    router = routers.start(
        "A",
        ENABLED,
        vhost("broker", groups),
        vhost("$default", {"all": group("*")}),
        connector(listening.port, "route-container", name="broker", policyVhost="broker"),
    )
    clients.until(lambda: listening.uplinks and listening.uplink.opened, "the router connects")
    broker = listening.uplink
    session = broker.new_session()
    assert broker.sender("in/x", session=session).link.remote_target.address == "in/x"
    for link in (
        broker.sender("out/x", session=session, wait=False).link,
        broker.receiver("in/x", session=session, wait=False).link,
    ):
        assert refusal(broker, link)[0] == UNAUTHORIZED
    listening.close()
    assert router.metric("policy_denials_total", 'kind="sender"') == 1


# Changes


def change(router: Router, **groups: Any) -> None:
    """Other groups in the file, taken over."""
    before = router.metric("config_reloads_total")
    router.sections[-1][1]["groups"] = groups
    router.configure()
    eventually(lambda: router.metric("config_reloads_total") > before, "the change is in force")


def test_a_changed_policy_is_in_force_at_once(clients: Clients, governed: Governed) -> None:
    """What is no longer allowed is closed; what still is goes on, by its new rules."""
    router = governed(ENABLED, vhost(groups=GROUPS))
    alice, bob, carol = (login(clients, router, user) for user in (ALICE, BOB, CAROL))
    orders = alice.receiver("orders", credit=100, accept=True)
    alice.receiver("returns", credit=100, accept=True)
    keeps, anonymous = bob.sender("orders").await_credit(), bob.sender(None).await_credit()
    loses = bob.receiver("news/x", credit=10)
    assert anonymous.deliver(Message(address="orders")) == "accepted"
    assert anonymous.deliver(Message(address="returns")) == "rejected"
    shops = {**GROUPS["shops"], "sources": "", "targets": "orders, returns", "users": BOB}
    change(router, operators=GROUPS["operators"], shops=shops)
    assert refusal(bob, loses.link) == (UNAUTHORIZED, "this user may not receive from 'news/x'")
    condition = carol.await_end()
    assert condition is not None
    assert (condition.name, condition.description) == (UNAUTHORIZED, "this user may not connect")
    assert keeps.deliver("still") == "accepted"
    assert anonymous.deliver(Message(address="returns")) == "accepted"
    assert bob.sender("returns").link.remote_target.address == "returns"
    sent = keeps.send(Message(user_id=b"other"))
    assert keeps.outcome(sent) == "rejected"
    change(
        router, operators=GROUPS["operators"], shops={**shops, "allowUserIdProxy": True, "targets": "orders"}
    )
    assert keeps.deliver(Message(user_id=b"other")) == "accepted"
    assert anonymous.deliver(Message(address="returns")) == "rejected"
    assert len(orders.arrived()) == 3


def test_a_session_beyond_a_limit_that_came_later(clients: Clients, governed: Governed) -> None:
    """The open frame has told another channel-max; the session is begun and ended, what is attached on it ignored."""
    router = governed(ENABLED, vhost(groups={"all": group("*")}))
    bob = login(clients, router, BOB)
    link = bob.sender("x").link
    change(router, all=group("*", maxSessions=1))
    session = bob.new_session()
    bob.sender("x", session=session, wait=False)
    clients.until(lambda: session.state & Endpoint.REMOTE_CLOSED, "the session is refused")
    assert session.remote_condition.name == EXCEEDED
    assert "no more than 1 session on" in session.remote_condition.description
    assert router.metric("policy_denials_total", 'kind="session"') == 1
    session.close()
    bob.receiver("x", credit=1, accept=True)
    assert not link.state & Endpoint.REMOTE_CLOSED
    assert bob.senders[link.name].await_credit().deliver("still") == "accepted"


def test_a_policy_that_is_switched_on_and_off(clients: Clients, governed: Governed) -> None:
    router = governed(("policy", {}), vhost(groups=GROUPS))
    mallory, bob = login(clients, router, "mallory@isthmus"), login(clients, router, BOB)
    sender = bob.sender("anything")
    bob.receiver("news", credit=1)
    router.sections[-2][1]["enableVhostPolicy"] = True
    router.configure()
    assert mallory.await_end() is not None
    assert refusal(bob, sender.link)[0] == UNAUTHORIZED
    assert refused(clients, router, "mallory@isthmus")[0] == UNAUTHORIZED
    router.sections[-2][1]["enableVhostPolicy"] = False
    router.configure()
    eventually(lambda: router.metric("config_reloads_total") == 2, "the change is in force")
    login(clients, router, "mallory@isthmus")


def test_vhosts_in_files_of_their_own(clients: Clients, governed: Governed, tmp_path: Path) -> None:
    folder = tmp_path / "vhosts"
    folder.mkdir()
    (folder / "default.json").write_text(json.dumps([vhost(groups={"all": group(BOB)})]))
    router = governed(("policy", {"enableVhostPolicy": True, "policyDir": str(folder)}))
    login(clients, router, BOB)
    assert refused(clients, router, ALICE)[1] == "this user may not connect"
    before = router.metric("config_reloads_total")
    (folder / "default.json").unlink()
    (folder / "other.json").write_text(
        json.dumps([["router", {"id": "Z"}], vhost(groups={"all": group("*")})])
    )
    eventually(lambda: router.metric("config_reloads_total") > before, "the new file is in force")
    login(clients, router, ALICE)


# Management


def test_management_of_policies(clients: Clients, governed: Governed) -> None:
    may = {"sources": "*", "targets": "*", "allowDynamicSource": True, "allowAdminStatusUpdate": False}
    router = governed(ENABLED, vhost(groups={**GROUPS, "shops": {**GROUPS["shops"], **may}}))
    alice, bob = login(clients, router, ALICE), login(clients, router, BOB)
    assert refused(clients, router, "mallory@isthmus")
    manager = Manager(alice)
    (policy,) = manager.query("policy")
    assert (policy["enableVhostPolicy"], policy["maxConnections"]) == (True, 65535)
    assert (policy["connectionsProcessed"], policy["connectionsDenied"]) == (3, 1)
    assert (policy["connectionsCurrent"], policy["totalDenials"]) == (2, 1)
    (row,) = manager.query("org.apache.qpid.dispatch.vhost")
    assert row["groups"]["shops"]["users"] == f"{BOB}, {CAROL}"
    (stats,) = manager.query("vhostStats")
    assert (stats["connectionsApproved"], stats["connectionsDenied"]) == (2, 1)
    assert sorted(stats["perUserState"]) == [ALICE, BOB]
    assert sum(map(len, stats["perHostState"].values())) == 2
    names = {row["group"]: row["maxSenders"] for row in manager.query("vhostUserGroupSettings")}
    assert names == {"operators": 2**31 - 1, "shops": 4}
    number = next(r["identity"] for r in manager.query("connection") if r["user"] == ALICE)
    request = {"type": "connection", "identity": number}
    response = Manager(bob).request("UPDATE", {"adminStatus": "deleted"}, **request)
    assert response.properties["statusCode"] == 403
    assert not alice.finished
    created = manager.request(
        "CREATE", {"hostname": "b", "groups": {"x": {"users": "y", "remoteHosts": "*"}}}, type="vhost"
    )
    assert created.properties["statusCode"] == 201
    eventually(
        lambda: {row["hostname"] for row in manager.query("vhost")} == {"$default", "b"}, "the new vhost"
    )
    updated = manager.request("UPDATE", {"groups": {"x": {"maxSenders": -1}}}, type="vhost", name="b")
    assert updated.properties["statusCode"] == 400
    assert "group 'x', attribute maxSenders" in updated.properties["statusDescription"]
    assert manager.request("DELETE", type="vhost", name="b").properties["statusCode"] == 204


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
