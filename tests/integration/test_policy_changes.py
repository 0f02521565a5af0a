"""Policies of other routers and connectors, policies that change, and what management tells of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from proton import Endpoint, Message
from tests.integration.support.client import Clients
from tests.integration.support.fake_interior import FakeInterior
from tests.integration.support.management import Manager
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
    connector,
    eventually,
    listener,
)

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
    router.await_log("link closed", '"event":"link.denied"', f'"user":"{BOB}"', UNAUTHORIZED)
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
    assert stats["hostname"] == stats["id"]
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
