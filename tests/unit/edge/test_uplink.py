"""Links of an uplink that are refused, lost or not answered: when they are attached again, and when it gives way."""

from __future__ import annotations

import pytest
from tests.unit.edge.network import End, Network, Router, credit, proxies

from isthmus_router.core.terms import Condition, Direction
from isthmus_router.core.treatment import Treatment
from isthmus_router.edge.address_proxy import FIRST_REPAIR_SECONDS
from isthmus_router.edge.connection_manager import PROVEN_SECONDS
from isthmus_router.edge.uplink import ANSWER_SECONDS, TOLD_REFUSALS

IN, OUT = Direction.IN, Direction.OUT


def test_tracking_link_taken_away(network: Network, interior: Router, edge: Router, uplink: End) -> None:
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    network.settle()
    assert interior.interior is not None
    (endpoint,) = interior.interior.tracking.endpoints.values()
    assert endpoint.link is not None
    interior.port.detach_link(endpoint.link)
    network.settle()
    assert not credit(edge, sender)  # nobody would say if the consumer went
    network.advance(6)
    network.settle()
    assert credit(edge, sender)


def test_refused_proxy_is_tried_again_ever_more_slowly(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    interior.core.configured.default = Treatment.UNAVAILABLE
    edge.attach(IN, "x")
    network.settle()
    attempts = []
    for _ in range(300):
        opened = len(edge.port.opened)
        network.advance(1)
        network.settle()
        if len(edge.port.opened) > opened:
            attempts.append(network.now)
    assert attempts == [5, 15, 35, 75, 135, 195, 255]
    interior.core.configured.default = Treatment.BALANCED
    network.advance(60)
    network.settle()
    assert proxies(edge, OUT) == ["x"]


def test_a_link_lost_long_after_the_last_repair_comes_back_soon(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    interior.attach(OUT, "x")
    sender = edge.attach(IN, "x")
    network.settle()
    assert interior.interior is not None
    waits = []
    for quiet in (0, 0, 59, 61, 0):
        network.advance(quiet)
        network.settle()
        assert credit(edge, sender)
        (endpoint,) = interior.interior.tracking.endpoints.values()
        assert endpoint.link is not None
        interior.port.detach_link(endpoint.link)
        network.settle()
        waited = 0
        while not credit(edge, sender):
            network.advance(1)
            network.settle()
            waited += 1
        waits.append(waited)
    assert waits == [5, 10, 20, 5, 10]


def opened(network: Network, edge: Router, interior: Router) -> End:
    """A connection that is open, of which the interior has said no more yet."""
    end = network.connect(edge, interior)
    assert end.other is not None
    network.step(end.other)
    network.step(end)
    assert end.connection in edge.ends
    return end


def test_an_interior_that_does_not_answer_gives_way_to_a_standby(
    network: Network, interior: Router, edge: Router, caplog: pytest.LogCaptureFixture
) -> None:
    silent = opened(network, edge, interior)
    other = network.add("B", edge=False)
    standby = opened(network, edge, other)
    assert (silent.connection.active, standby.connection.active) == (True, False)
    network.advance(ANSWER_SECONDS + 0.1)
    assert silent.connection.problem == "the peer A does not answer the attach of an edge's links"
    network.advance(PROVEN_SECONDS + 0.1)
    assert (silent.connection.active, standby.connection.active) == (False, True)
    assert "interior does not answer" in caplog.text


def test_links_do_not_pile_up_on_a_connection_that_is_activated_again_and_again(
    network: Network, interior: Router, edge: Router
) -> None:
    first, second = network.connect(edge, interior, 1), network.connect(edge, interior, 1)
    network.settle()
    standing = len(first.connection.links)
    for cost in range(2, 12):
        active = edge.edge.connections.active
        assert active is not None
        active.cost = cost
        edge.edge.connections.preference_changed()
        network.advance(2 * PROVEN_SECONDS)
        network.settle()
        network.advance(2 * PROVEN_SECONDS)
        network.settle()
        assert edge.edge.connections.active is not active
        assert sorted(len(end.connection.links) for end in (first, second)) == [0, standing]


def test_a_link_attached_again_has_its_own_time_to_be_answered(
    network: Network, interior: Router, edge: Router, uplink: End
) -> None:
    network.settle()
    assert interior.interior is not None
    network.advance(ANSWER_SECONDS - FIRST_REPAIR_SECONDS - 1)
    (endpoint,) = interior.interior.tracking.endpoints.values()
    assert endpoint.link is not None
    interior.port.detach_link(endpoint.link)
    network.settle()
    network.advance(FIRST_REPAIR_SECONDS)
    network.advance(ANSWER_SECONDS - 1)  # it was ten seconds after the others were attached in between
    assert uplink.connection.problem is None
    network.advance(1.1)
    assert uplink.connection.problem is not None


def test_a_late_answer_makes_an_uplink_fit_again(network: Network, interior: Router, edge: Router) -> None:
    late = opened(network, edge, interior)
    network.advance(ANSWER_SECONDS + 0.1)
    assert late.connection.problem is not None
    network.settle()
    assert late.connection.problem is None
    network.advance(10 * ANSWER_SECONDS)
    assert late.connection.problem is None


def test_refusals_of_ever_new_kinds_fill_neither_log_nor_memory(
    edge: Router, uplink: End, caplog: pytest.LogCaptureFixture
) -> None:
    assert edge.edge is not None
    active = edge.edge.proxy.uplink
    assert active is not None
    assert active.anonymous is not None
    assert active.anonymous.on_refused is not None
    for number in range(TOLD_REFUSALS + 100):
        active.anonymous.on_refused(active.anonymous, Condition(f"made:up-{number}"))
    assert caplog.text.count("interior closed a link of this edge") == TOLD_REFUSALS
    assert uplink.connection.problem is None
    active.anonymous.on_refused(active.anonymous, Condition("qd:forbidden"))
    assert uplink.connection.problem is not None, "what matters is not overlooked for that"
