"""An edge whose clients use more addresses than it deals with within one event: what happens between the steps."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from tests.unit.edge.network import End, Network, Router, credit, proxies

from isthmus_router.core.model import Link
from isthmus_router.core.terms import Direction
from isthmus_router.edge import steps

IN, OUT = Direction.IN, Direction.OUT
NAMES = [f"many/{number}" for number in range(20)]


@pytest.fixture(autouse=True)
def few_at_once() -> object:
    """Edges deal with three addresses within an event."""
    with patch.object(steps, "AT_ONCE", 3):
        yield


@pytest.fixture
def network() -> Network:
    network = Network()
    network.uplinks_go_in_steps = True
    return network


@pytest.fixture
def senders(network: Network, interior: Router, edge: Router) -> list[Link]:
    """Of the edge's clients, who receive from the same addresses of the interior's clients, and the other way round."""
    for name in NAMES:
        interior.attach(OUT, name)
        edge.attach(OUT, f"back/{name}")
    return [edge.attach(IN, name) for name in NAMES]


def opened(network: Network, edge: Router, interior: Router, ordinal: int | None = None) -> End:
    """A connection that is open, on which nothing else has arrived."""
    end = network.connect(edge, interior, ordinal)
    assert end.other is not None
    network.step(end.other)
    while end.connection not in edge.ends:
        network.step(end)
    return end


def complete(edge: Router) -> bool:
    """Whether each address has its link, and no more."""
    return proxies(edge, OUT) == sorted(NAMES) and proxies(edge, IN) == sorted(
        f"back/{name}" for name in NAMES
    )


def test_links_of_a_new_uplink_are_opened_in_steps(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    opened(network, edge, interior)
    assert len(proxies(edge, OUT)) + len(proxies(edge, IN)) == 3
    assert edge.core.uplink is not None
    assert [link.target.address or link.source.address for link in edge.port.opened[:4]] == [
        "_$qd.mesh_discovery",
        None,
        "E",
        "_$qd.edge_addr_tracking",
    ]
    network.work_on()
    assert len(proxies(edge, OUT)) + len(proxies(edge, IN)) == 4
    network.settle()
    assert complete(edge)
    assert all(credit(edge, sender) for sender in senders)


def test_clients_that_come_and_go_between_the_steps(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    opened(network, edge, interior)
    first, last = senders[0], senders.pop()
    edge.close_link(last)
    senders.append(edge.attach(IN, NAMES[-2]))
    assert proxies(edge, OUT).count(NAMES[-2]) == 1
    edge.close_link(first)
    senders[0] = edge.attach(IN, NAMES[0])
    senders.append(edge.attach(IN, "new"))
    network.settle()
    assert proxies(edge, OUT) == sorted([*NAMES[:-1], "new"])
    assert [credit(edge, sender) for sender in senders] == [True] * len(NAMES) + [False]


def test_uplink_lost_while_its_links_are_opened(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    end = opened(network, edge, interior)
    network.cut(end)
    network.step(end)
    number = len(edge.port.opened)
    network.settle()
    assert len(edge.port.opened) == number
    assert edge.core.uplink is None
    assert not any(credit(edge, sender) for sender in senders)


def test_uplink_lost_before_the_steps_is_not_the_uplink(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    end = opened(network, edge, interior)
    network.settle()
    network.cut(end)
    network.step(end)
    assert edge.edge is not None
    assert edge.edge.connections.active is None
    assert edge.core.uplink is None
    assert not end.connection.active
    assert len(end.connection.links) == 2 * len(NAMES)
    network.settle()
    assert edge.core.connections.keys() == {edge.clients.id}


def test_uplink_back_before_the_last_link_of_the_former_one_is_removed(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    end = opened(network, edge, interior)
    network.settle()
    network.cut(end)
    network.step(end)
    again = opened(network, edge, interior)
    assert end.connection.links
    assert again.connection.active
    network.settle()
    assert not end.connection.links
    assert complete(edge)
    assert all(credit(edge, sender) for sender in senders)
    assert [link.connection for name in NAMES for link in edge.consumers(f"M{name}")] == [
        again.connection
    ] * 20


def test_standby_follows_before_the_links_of_the_lost_one_are_removed(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    end, standby = opened(network, edge, interior), opened(network, edge, interior)
    network.settle()
    network.cut(end)
    network.step(end)
    assert end.connection.links
    assert standby.connection.active
    assert edge.core.uplink is not None
    assert edge.core.uplink.connection is standby.connection
    network.settle()
    assert complete(edge)


def test_takeover_in_steps_leaves_no_gap(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    old = opened(network, edge, interior, 1)
    network.settle()
    new = opened(network, edge, interior, 2)
    least = len(NAMES)
    for _ in range(10_000):
        busy = [end for end in network.ends if end.inbox]
        if not busy and not network.jobs:
            break
        for end in busy:
            network.step(end)
        network.work_on()
        least = min(least, len({link.source.address for link in _in_proxies(edge)}))
        assert all(credit(edge, sender) for sender in senders)
    assert least == len(NAMES)
    network.advance(20)
    network.settle()
    assert old.connection.links == set()
    assert new.connection.active
    assert complete(edge)
    assert len(edge.port.handed_over) == len(NAMES) + 1


def _in_proxies(edge: Router) -> list[Link]:
    return [link for end in edge.ends for link in end.links if link.incoming and link.source.address]


def test_next_takeover_while_the_links_of_the_last_one_are_opened(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    uplinks = [opened(network, edge, interior, 1)]
    network.settle()
    for ordinal in (2, 3):
        uplinks.append(opened(network, edge, interior, ordinal))
        while not uplinks[-1].connection.links or edge.core.uplink not in uplinks[-1].connection.links:
            for end in [end for end in network.ends if end.inbox]:
                network.step(end)
        assert network.jobs
    network.settle()
    for _ in range(20):
        network.advance(1)
        network.settle()
    assert complete(edge)
    assert [bool(uplink.connection.links) for uplink in uplinks] == [False, False, True]
    assert all(credit(edge, sender) for sender in senders)


def test_uplink_lost_while_it_takes_over(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    old = opened(network, edge, interior, 1)
    network.settle()
    new = opened(network, edge, interior, 2)
    while edge.core.uplink not in new.connection.links:
        for end in [end for end in network.ends if end.inbox]:
            network.step(end)
    assert network.jobs
    network.cut(new)
    network.settle()
    for _ in range(20):
        network.advance(1)
        network.settle()
    assert old.connection.active
    assert complete(edge)
    assert all(credit(edge, sender) for sender in senders)


def test_tracking_link_lost_and_back_before_all_addresses_are_unbound(
    network: Network, interior: Router, edge: Router, senders: list[Link]
) -> None:
    opened(network, edge, interior)
    network.settle()
    assert interior.interior is not None
    (endpoint,) = interior.interior.tracking.endpoints.values()
    assert endpoint.link is not None
    interior.port.detach_link(endpoint.link)
    (end,) = [end for end in network.ends if end.router is edge]
    network.step(end)
    assert sum(credit(edge, sender) for sender in senders) == len(NAMES) - 3
    jobs, network.jobs = network.jobs, type(network.jobs)()
    network.advance(6)
    network.settle()
    assert all(credit(edge, sender) for sender in senders)
    network.jobs.extend(jobs)
    network.settle()
    assert all(credit(edge, sender) for sender in senders)
