"""Rotating the certificates of connections between routers: new ones take over, and nothing is disturbed."""

from __future__ import annotations

import os
import signal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from proton import symbol, ulong
from tests.integration.support.certificates import Authority
from tests.integration.support.client import Client, Clients
from tests.integration.support.management import Manager
from tests.integration.support.relay import Relay
from tests.integration.support.rotation import (
    EndlessStream,
    Flow,
    RotatingNetwork,
    flowing,
    progress,
)
from tests.integration.support.routers import Routers

from isthmus_router.config.model import AUTO_DATA_CONNECTIONS

ROTATIONS = 100
MEGA = 1_000_000
USUAL = 1 + AUTO_DATA_CONNECTIONS
"""Connections of a router at the end of the line to its neighbour."""


@pytest.fixture
def line(routers: Routers, clients: Clients, tmp_path: Path) -> RotatingNetwork:
    """A - B - C, every connection with client certificates."""
    network = line_to_start(routers, clients, tmp_path)
    network.start()
    return network


def line_to_start(routers: Routers, clients: Clients, tmp_path: Path) -> RotatingNetwork:
    """A - B - C, none of which runs."""
    network = RotatingNetwork(routers, clients, tmp_path)
    network.line("A", "B", "C")
    network.secure("A", "B", "C")
    for router_id in "ABC":
        network[router_id].sections[0][1]["helloMaxAgeSeconds"] = (
            30  # a busy machine must not look like a lost link
        )
    return network


def flows_across(
    network: RotatingNetwork, clients: Clients, count: int, *, start: str, end: str
) -> list[Flow]:
    """Links of one client at each end, an address for each pair."""
    producers, consumers = clients.connect(network[start].port), clients.connect(network[end].port)
    receivers = [
        consumers.receiver(f"{start}{end}.{number}", credit=50, accept=True) for number in range(count)
    ]
    senders = [producers.sender(f"{start}{end}.{number}") for number in range(count)]
    return [Flow(sender, receiver) for sender, receiver in zip(senders, receivers, strict=True)]


def test_one_rotation_disturbs_nothing(line: RotatingNetwork, clients: Clients) -> None:
    flows = flows_across(line, clients, 5, start="A", end="C") + flows_across(
        line, clients, 5, start="C", end="A"
    )
    with flowing(clients, flows):
        computations = line.computations()
        line.rotate("A", 2)
        line.await_rotated("A", 2)
        progress(clients, flows)
        line.rotate("B", 2)
        line.await_rotated("B", 2)
        progress(clients, flows)
        line.retire("A", 2)
        for role in ("inter-router", "inter-router-data"):
            line["B"].await_log("connection closed", f'"role":"{role}"', "no longer valid")
        progress(clients, flows)
        assert line.computations() == computations


@pytest.mark.timeout(400)  # each waits for the next look at the configuration file
def test_a_hundred_rotations_under_traffic_and_streams(line: RotatingNetwork, clients: Clients) -> None:
    """Nothing is lost, doubled or out of order, no path is computed, streams end where they began, nothing leaks."""
    flows = flows_across(line, clients, 10, start="A", end="C") + flows_across(
        line, clients, 10, start="C", end="A"
    )
    usual = {router_id: line.connections(router_id) for router_id in "ABC"}
    computations = line.computations()
    with flowing(clients, flows):
        streams = [
            stream_across(line, clients, f"stream.{way}.{number}", *way)
            for way in ("AC", "CA")
            for number in "12"
        ]
        ordinals = iter(range(2, 2 + ROTATIONS // 2))
        for ordinal in islice(ordinals, ROTATIONS // 4):
            rotate_both(line, ordinal)
            for stream in streams:
                stream.more()
            clients.until(lambda: all(stream.keeps_up() for stream in streams), "the streams go on")
        for stream in streams:
            stream.finish()
        for router_id in "AB":
            line.retire(router_id, ordinal)
        for router_id, count in usual.items():
            line.await_connections(router_id, count)
        memory = []
        for ordinal in ordinals:
            rotate_both(line, ordinal, oldest=ordinal - 1)
            progress(clients, flows, 1)
            memory.append([line[router_id].memory() for router_id in "ABC"])
        for router_id in "AB":
            line.retire(router_id, ordinal)
        for router_id, count in usual.items():
            line.await_connections(router_id, count)
        assert line.computations() == computations
    for early, late in zip(memory[4], memory[-1], strict=True):
        assert late < early + 3 * MEGA


def stream_across(
    network: RotatingNetwork, clients: Clients, address: str, start: str, end: str
) -> EndlessStream:
    receiver = clients.connect(network[end].port).receiver(address, credit=1, accept=True)
    return EndlessStream(clients.connect(network[start].port).sender(address).await_credit(), receiver)


def rotate_both(network: RotatingNetwork, ordinal: int, oldest: int | None = None) -> None:
    """First where others connect to, so that what was accepted with the old credentials is soon replaced."""
    network.rotate("B", ordinal)
    network.await_rotated("B", ordinal)
    network.rotate("A", ordinal)
    network.await_rotated("A", ordinal)
    if oldest is not None:
        network.retire("A", oldest)
        network.retire("B", oldest)


EDGE_ROTATIONS = 10


@pytest.mark.timeout(300)
def test_edges_rotate_under_traffic(routers: Routers, clients: Clients, tmp_path: Path) -> None:
    """Nothing is lost, doubled or out of order in either direction; the old uplink stays in reserve."""
    network = RotatingNetwork(routers, clients, tmp_path)
    network.line("A", "B")
    network.edge("E", "A")
    network.edge("F", "B")
    network.secure("A", "B", "E", "F")
    network.start()
    for edge in "EF":
        network.await_ordinal(edge, 1)
    ways = ["EF", "FE", "EA", "AE", "EE"]
    flows = [flow for start, end in ways for flow in flows_across(network, clients, 4, start=start, end=end)]
    with flowing(clients, flows):
        computations = network.computations()
        streams = [
            stream_across(network, clients, f"stream.{start}{end}", start, end) for start, end in ways[:4]
        ]
        for ordinal in range(2, 2 + EDGE_ROTATIONS):
            for edge in "EF":
                network.rotate(edge, ordinal)
                network.await_ordinal(edge, ordinal)
            progress(clients, flows)
            for stream in streams:
                stream.more()
            clients.until(lambda: all(stream.keeps_up() for stream in streams), "the streams go on")
        reserve = network["E"].status()["edge"]["standbys"]
        assert [row["tlsOrdinal"] for row in reserve] == list(range(EDGE_ROTATIONS, 0, -1))
        for stream in streams:
            stream.finish()
        for edge in "EF":
            network.retire(edge, ordinal)
            network.await_connections(edge, 1)
        progress(clients, flows)
        assert network.computations() == computations


def test_an_edge_falls_back_to_its_newest_certificate(
    routers: Routers, clients: Clients, tmp_path: Path
) -> None:
    network = RotatingNetwork(routers, clients, tmp_path)
    network.interior("A")
    edge = network.edge("E", "A")
    network.secure("A", "E")
    with Relay(network.edge_ports["A"]) as relay:
        next(section for kind, section in edge.sections if kind == "connector")["port"] = relay.port
        network.start()
        network.await_ordinal("E", 1)
        for ordinal in (2, 3):
            network.rotate("E", ordinal)
            network.await_ordinal("E", ordinal)
        (flow,) = flows_across(network, clients, 1, start="E", end="A")
        clients.background.append(flow.push)
        progress(clients, [flow])
        relay.connections[-1].cut()
        edge.await_log("edge uplink lost, reserve activated", '"tls_ordinal":2')
        network.await_ordinal("E", 3)  # connected again, and so the greatest once more
        progress(clients, [flow])
        assert edge.status()["sslProfiles"][0]["connections"] == {"1": 1, "2": 1, "3": 1}


def test_a_rotation_in_the_middle_of_the_handshakes_of_another(
    line: RotatingNetwork, clients: Clients
) -> None:
    """What is given up then is not used, though the peer still opens it."""
    flows = flows_across(line, clients, 5, start="A", end="C") + flows_across(
        line, clients, 5, start="C", end="A"
    )
    with flowing(clients, flows):
        computations = line.computations()
        for ordinal in (2, 4, 6):
            os.kill(line["B"].pid, signal.SIGSTOP)
            for raised in (ordinal, ordinal + 1):
                line.rotate("A", raised)
                line.await_status(
                    "A", lambda status, n=raised: profile_ordinal(status) == n, "the file is read"
                )  # type: ignore[misc]
            os.kill(line["B"].pid, signal.SIGCONT)
            line.await_rotated("A", ordinal + 1)
            progress(clients, flows)
        assert line.computations() == computations


def profile_ordinal(status: dict[str, Any]) -> int:
    ordinal: int = status["sslProfiles"][0]["ordinal"]
    return ordinal


def test_a_certificate_that_the_peer_refuses_changes_nothing(
    line: RotatingNetwork, clients: Clients, tmp_path: Path
) -> None:
    flows = flows_across(line, clients, 5, start="A", end="C")
    own, line.authority = line.authority, Authority(tmp_path, "elsewhere")
    with flowing(clients, flows):
        computations = line.computations()
        line.rotate("A", 2)
        line.await_status(
            "A",
            lambda status: all(
                (row["state"], row["tlsOrdinal"]) == ("open", 1)
                and row["message"].startswith("connections of ordinal 2: ")
                and "certificate" in row["message"]
                for row in status["connectors"]
            ),
            "the old connections stay, and it is told why",
        )
        progress(clients, flows)
        line.authority = own
        line.rotate("A", 3)
        line.await_rotated("A", 3)
        progress(clients, flows)
        assert line.computations() == computations


def test_what_is_no_longer_valid_is_closed_at_both_ends_with_the_reason(
    line: RotatingNetwork, clients: Clients
) -> None:
    """Also what was accepted; only that."""
    client = clients.connect(line["B"].port).await_open()
    line.rotate("B", 2)
    line.await_rotated("B", 2)
    line.retire("B", 2)
    words = (
        "credentials of ordinal 1 are no longer valid: the oldest valid ordinal of sslProfile routers is 2"
    )
    for router_id in "ABC":
        line[router_id].await_log("connection closed", '"role":"inter-router"', words)
    line.await_ordinal("A", 1)  # which has connected again, to what B presents now
    line.await_status(
        "B", lambda status: set(status["sslProfiles"][0]["connections"]) == {"2"}, "only 2 is left"
    )
    assert not client.finished


def test_old_credentials_are_not_used_when_they_expire_with_a_broken_rotation(
    line: RotatingNetwork, clients: Clients
) -> None:
    """Neither to connect nor to accept; a certificate that is in order mends it."""
    for router_id, kind in (("A", "connectors"), ("B", "listeners")):
        line.rotate(router_id, 2, oldest=2, key_of="another")
        line.await_status(
            router_id,
            lambda status, rows=kind: _failed_for_key(status[rows]),  # type: ignore[misc]
            "what was used before is not used on",
        )
    line.await_connections("A", 0)
    line.rotate("B", 3, oldest=3)
    line.rotate("A", 3, oldest=3)
    line.await_rotated("A", 3)


def _failed_for_key(rows: list[dict[str, Any]]) -> bool:
    row = next(row for row in rows if row["role"] == "inter-router")
    return row["state"] == "failed" and "key" in row["message"]


def steal_group(network: RotatingNetwork, clients: Clients, start: str, end: str, correlator: str) -> Client:
    """Somebody who knows the group says to be router `start`, with an ordinal beyond all, at `end`."""
    thief = clients.connect(
        network.inter_router_ports[end],
        container=start,
        properties={
            symbol("qd.group-correlator"): correlator,
            symbol("qd.group-ordinal"): ulong(1_000_000),
        },
        tls=network.authority.issue("thief").client_domain(),
        mechanisms="EXTERNAL",
    )
    for capability in ("qd.router", *["qd.router-data"] * 10):
        thief.sender(None, capability=capability)
        thief.receiver(None, capability=capability, credit=100)
    network[end].await_log("connection has taken over", '"ordinal":1000000')
    return thief


def test_management_does_not_show_what_names_the_group(
    routers: Routers, clients: Clients, tmp_path: Path
) -> None:
    """Who knows it can take the place of the connection."""
    line = line_to_start(routers, clients, tmp_path)
    correlator = line.overhear_group("A", "B")
    line.start()
    groups = set()
    for router_id, peer in ("AB", "BA"):
        rows = Manager(clients.connect(line[router_id].port)).query("connection")
        assert correlator not in str(rows)
        assert correlator not in str(line[router_id].status())
        groups |= {row["groupCorrelationId"] for row in rows if row["container"] == peer}
    assert len(groups) == 1, "both ends show the same hash"


def test_what_the_peer_has_abandoned_is_connected_anew(
    routers: Routers, clients: Clients, tmp_path: Path
) -> None:
    """A rotation would not help: B remembers the greater ordinal for as long as anything of the group is open.

    A stream that is under way ends as usual.
    """
    line = line_to_start(routers, clients, tmp_path)
    correlator = line.overhear_group("A", "B")
    line.start()
    line.await_connections("A", USUAL)
    line.rotate("A", 2)
    line.await_rotated("A", 2)
    line.await_connections("A", 2 * USUAL)
    stream = stream_across(line, clients, "stream", "A", "C")
    clients.until(stream.keeps_up, "the stream arrives")
    steal_group(line, clients, "A", "B", correlator).drop()
    line.await_status(
        "A", lambda status: status["neighbors"] == [], "the peer has closed the links for routing"
    )
    line.rotate("A", 3)
    line["B"].await_log("connection refused", "ordinal 3 was replaced by 1000000")
    stream.more()
    clients.until(stream.keeps_up, "the stream goes on")
    stream.finish()
    for router_id in "AB":
        line[router_id].await_log(
            "connection closed", '"role":"inter-router"', "nothing has replaced the connection"
        )
    line.await_rotated("A", 3)
    flows = flows_across(line, clients, 2, start="A", end="C") + flows_across(
        line, clients, 2, start="C", end="A"
    )
    with flowing(clients, flows):
        progress(clients, flows)
    line.retire("A", 3)
    line.await_connections("A", USUAL)
