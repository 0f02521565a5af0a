"""Several uplinks of one edge: takeover by newer credentials, failover, and what the wire must not allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from proton import Message
from tests.integration.support.certificates import Authority, Identity
from tests.integration.support.client import Client, Clients, Receiver, Sender
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, connector, eventually, listener
from tests.integration.support.topology import Network

EXTERNAL = {"saslMechanisms": "EXTERNAL"}
TRACKING = "_$qd.edge_addr_tracking"
UNDER_WAY = 20
MEGA = 1024 * 1024
DATA_SECTION = b"\x00\x53\x75\xb0"


class Site:
    """An interior with an edge listener that wants certificates, and an edge whose uplinks come and go."""

    def __init__(self, routers: Routers, interior: Identity, edge: Identity) -> None:
        self.port = free_port()
        self.identity = edge
        self.interior = routers.start(
            "A",
            interior.profile(),
            listener(self.port, "edge", name="edges", sslProfile="tls", requireSsl=True, **EXTERNAL),
            mode="interior",
        )
        self.edge = routers.add("E", mode="edge")
        self._rest = list(self.edge.sections)
        self.uplinks(1)
        self.edge.start()
        self.await_active(1)

    def uplinks(self, *ordinals: int) -> None:
        """Lay down one uplink per TLS ordinal; a running edge follows."""
        self.edge.sections = list(self._rest)
        for ordinal in ordinals:
            self.edge.sections += self._uplink(ordinal)
        self.edge.configure()

    def _uplink(self, ordinal: int) -> list[Section]:
        profile = f"tls-{ordinal}"
        return [
            self.identity.profile(profile, ordinal=ordinal),
            connector(self.port, "edge", name=f"uplink-{ordinal}", sslProfile=profile, **EXTERNAL),
        ]

    def await_active(self, ordinal: int, standbys: int = 0) -> None:
        """Wait until the uplink of that ordinal is the active one."""

        def active(status: dict[str, Any]) -> bool:
            rows = [row for row in status["connections"] if row["role"] == "edge"]
            return (
                sorted(row["active"] for row in rows) == [False] * standbys + [True]
                and next(row["tlsOrdinal"] for row in rows if row["active"]) == ordinal
            )

        self.edge.await_status(active, f"uplink {ordinal} is active, {standbys} in reserve")


@pytest.fixture
def site(routers: Routers, tmp_path: Path) -> Site:
    authority = Authority(tmp_path, "edges")
    return Site(routers, authority.issue("A"), authority.issue("E"))


class Traffic:
    """A sender that keeps deliveries under way, and a receiver that accepts each."""

    def __init__(self, clients: Clients, source: Router, sink: Router, name: str) -> None:
        self.receiver: Receiver = clients.connect(sink.port).receiver(name, credit=500, accept=True)
        self.sender: Sender = clients.connect(source.port).sender(name)
        clients.until(lambda: self.sender.credit > 0, "credit")
        self.credit_gone = 0
        clients.background.append(self._send)

    def _send(self) -> bool:
        waiting = sum(1 for sent in self.sender.sent.values() if sent.outcome is None)
        if self.sender.credit == 0:
            self.credit_gone += 1
        elif waiting < UNDER_WAY:
            self.sender.send(str(len(self.sender.sent)))
        return False

    def outcomes(self) -> dict[str | None, int]:
        """How many deliveries came to which end."""
        outcomes = [sent.outcome for sent in self.sender.sent.values()]
        return {outcome: outcomes.count(outcome) for outcome in set(outcomes)}


def flows_on(clients: Clients, *flows: Traffic) -> None:
    """Wait until each has had a few hundred more messages accepted."""
    wanted = {traffic: len(traffic.receiver.received) + 300 for traffic in flows}
    clients.until(
        lambda: all(len(traffic.receiver.received) >= count for traffic, count in wanted.items()),
        "messages in both directions",
        15,
    )


def test_takeover_disturbs_nothing(clients: Clients, site: Site) -> None:
    up = Traffic(clients, site.edge, site.interior, "up")
    down = Traffic(clients, site.interior, site.edge, "down")
    flows_on(clients, up, down)
    site.uplinks(1, 2)
    clients.until(lambda: "edge uplink upgraded" in site.edge.log, "the takeover")
    site.await_active(2, standbys=1)
    flows_on(clients, up, down)
    clients.background.clear()
    for traffic in (up, down):
        sent = traffic.sender.sent
        clients.until(
            lambda sent=sent: all(item.outcome is not None for item in sent.values()),  # type: ignore[misc]
            "all outcomes",
        )
        # Two connections carry them for a moment. What meets the old one's end comes back; it has not arrived.
        assert traffic.outcomes().keys() <= {"accepted", "released"}
        assert traffic.outcomes()["accepted"] >= len(sent) - UNDER_WAY
        accepted = [number for number, item in enumerate(sent.values()) if item.outcome == "accepted"]
        assert sorted(int(body) for body in traffic.receiver.bodies()) == accepted
        assert traffic.credit_gone == 0


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_stream_begun_before_a_takeover_ends_well(clients: Clients, site: Site, way: str) -> None:
    routers = [site.edge, site.interior] if way == "up" else [site.interior, site.edge]
    receiver = clients.connect(routers[1].port).receiver("stream", credit=10, accept=True)
    sender = clients.connect(routers[0].port).sender("stream")
    clients.until(lambda: sender.credit > 0, "credit")
    payload = bytes(range(256)) * 8192
    sent = sender.begin(DATA_SECTION + len(payload).to_bytes(4, "big") + payload[:MEGA])
    clients.until(lambda: receiver.received and len(receiver.received[0].data) > MEGA // 2, "the start")
    site.uplinks(1, 2)
    clients.until(lambda: "edge uplink upgraded" in site.edge.log, "the takeover")
    flow = Traffic(clients, *routers, "beside")
    flows_on(clients, flow)  # on the new uplink
    clients.background.clear()
    sender.more(payload[MEGA:])
    sender.finish()
    assert sender.outcome(sent, 15) == "accepted"
    assert receiver.next().body == payload
    assert sender.deliver("next") == "accepted"


def test_failover_takes_the_greatest_ordinal(clients: Clients, site: Site) -> None:
    for ordinals in ((1, 3), (1, 2, 3)):
        site.uplinks(*ordinals)
        site.await_active(3, standbys=len(ordinals) - 1)
    receiver = clients.connect(site.interior.port).receiver("failover", credit=100, accept=True)
    sender = clients.connect(site.edge.port).sender("failover").await_credit()
    site.uplinks(1, 2)
    site.await_active(2, standbys=1)
    # What was sent with credit from before may still be released.
    eventually(lambda: sender.deliver("x") == "accepted", "the other uplink serves")
    assert receiver.bodies()[-1] == "x"


def test_a_preferred_uplink_that_does_not_serve_disturbs_nothing(clients: Clients, routers: Routers) -> None:
    network = Network(routers)
    network.interior("A")
    edge = network.edge("E", "A")
    edge.sections[-1][1]["cost"] = 5
    network.start()
    edge.await_status(lambda status: status["edge"]["active"], "attached")
    flow = Traffic(clients, edge, network["A"], "flow")
    flows_on(clients, flow)
    wrong = connector(network["A"].port, "edge", name="wrong", cost=1)  # to the listener of clients
    edge.sections.append(wrong)
    edge.configure()
    clients.until(lambda: "preferred edge uplink activated" in edge.log, "it is tried")
    clients.until(lambda: "reserve activated" in edge.log, "it is found not to serve")
    flows_on(clients, flow)
    clients.background.clear()
    clients.until(lambda: all(item.outcome for item in flow.sender.sent.values()), "all outcomes")
    assert flow.outcomes() == {"accepted": len(flow.sender.sent)}
    assert flow.receiver.bodies() == [str(number) for number in range(len(flow.sender.sent))]
    assert flow.credit_gone == 0
    state, reason = edge.connector_state("wrong")
    assert state == "failed"
    assert "is its listener one of role edge?" in reason


@pytest.mark.parametrize("sessions", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("at", ["interior", "edge"])
def test_few_sessions_are_shared(clients: Clients, routers: Routers, sessions: int, at: str) -> None:
    network = Network(routers)
    network.interior("A")
    edge = network.edge("E", "A")
    edges = next(section for _, section in network["A"].sections if section.get("name") == "edges")
    (edges if at == "interior" else edge.sections[-1][1])["maxSessions"] = sessions
    network.start()
    for source, sink in ((edge, network["A"]), (network["A"], edge)):
        for number in range(2):
            name = f"{source.id}/{number}"
            receiver = clients.connect(sink.port).receiver(name, credit=5, accept=True)
            sender = clients.connect(source.port).sender(name).await_credit()
            for body in (b"small", bytes(MEGA)):
                assert sender.deliver(Message(body=body)) == "accepted"
                assert receiver.next().body == body


@pytest.mark.parametrize("at", ["edge", "interior"])
def test_a_client_cannot_subscribe_to_tracking(clients: Clients, site: Site, at: str) -> None:
    router: Router = getattr(site, at)
    client: Client = clients.connect(router.port)
    refused = client.refusal(client.receiver(TRACKING).link)
    assert refused.name == ("amqp:not-allowed" if at == "edge" else "qd:connection-role")
    receiver = clients.connect(site.interior.port).receiver("still", credit=10, accept=True)
    assert clients.connect(site.edge.port).sender("still").deliver("x") == "accepted"
    assert receiver.bodies() == ["x"]
