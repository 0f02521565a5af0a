"""The links of one edge on several connections follow each other, few of them in one event."""

from __future__ import annotations

from itertools import pairwise

import pytest
from tests.unit.edge.test_edge_identity import announce, connected, downlink, opened
from tests.unit.edge.test_tracking import Told

from isthmus_router.amqp.kernel.copies import Copies
from isthmus_router.core.mesh import MOST_CONNECTIONS, new_mesh_key
from isthmus_router.core.model import Link
from isthmus_router.core.router import ADDRESSES_AT_ONCE
from isthmus_router.core.terms import Direction
from isthmus_router.edge.downlinks import MOST_DOWNLINKS
from isthmus_router.edge.succession import AT_ONCE

OUT = Direction.OUT
MESH = "m" * 15
MANY = 1000


@pytest.fixture
def told() -> Told:
    return Told()


def consumer(told: Told, connection: object, address: str = "x") -> Link:
    return told.router.attach(OUT, address, connection)  # type: ignore[arg-type]


def jobs(told: Told) -> int:
    """Bring all work to its end; the number of steps."""
    steps = 0
    while told.network.jobs:
        told.network.work_on()
        steps += 1
    return steps


def test_one_attach_takes_over_from_one_link_only_however_many_there_are(told: Told) -> None:
    key = new_mesh_key()
    before, after = opened(told, key, "edge"), opened(told, key, "edge")
    links = [consumer(told, before) for _ in range(MANY)]
    new = consumer(told, after)
    assert told.router.port.handed_over == [(links[-1], new)]
    assert told.router.consumers("Mx") == [*links[:-1], new]
    assert not told.network.jobs


def test_an_announcement_takes_over_from_one_link_only_for_each_address(told: Told) -> None:
    before, after = connected(told, "E", "edge"), connected(told, "E", "edge")
    old = [consumer(told, before) for _ in range(MANY)]
    new = [consumer(told, after) for _ in range(MANY)]
    announce(told, before, MESH)
    announce(told, after, MESH)
    jobs(told)
    assert told.router.port.handed_over == [(old[-1], new[-1])]


def test_an_announcement_takes_over_many_addresses_in_steps(told: Told) -> None:
    before, after = connected(told, "E", "edge"), connected(told, "E", "edge")
    old = [consumer(told, before, f"x/{number}") for number in range(MANY)]
    new = [consumer(told, after, f"x/{number}") for number in range(MANY)]
    announce(told, before, MESH)
    announce(told, after, MESH)
    assert len(told.router.port.handed_over) == AT_ONCE
    assert jobs(told) > MANY / AT_ONCE
    assert told.router.port.handed_over == list(zip(old, new, strict=True))
    assert [told.router.consumers(f"Mx/{number}") for number in range(MANY)] == [[link] for link in new]


def test_what_happens_between_the_steps_counts(told: Told) -> None:
    """A third connection, links that end, and a connection that belongs to another mesh before its turn has come."""
    before, after, third = (connected(told, "E", "edge") for _ in range(3))
    addresses = [f"x/{number}" for number in range(4 * AT_ONCE)]
    old = [consumer(told, before, address) for address in addresses]
    new = [consumer(told, after, address) for address in addresses]
    announce(told, before, MESH)
    announce(told, third, MESH)
    announce(told, after, MESH)
    at = AT_ONCE
    newest = consumer(told, third, addresses[at])
    told.router.close_link(old[at + 1])
    told.router.close_link(new[at + 2])
    jobs(told)
    assert told.router.consumers(f"M{addresses[at]}") == [newest]
    # What waits on the oldest link goes to the front, so it comes last.
    assert [pair for pair in told.router.port.handed_over if pair[1] is newest] == [
        (new[at], newest),
        (old[at], newest),
    ]
    assert told.router.consumers(f"M{addresses[at + 1]}") == [new[at + 1]]
    assert told.router.consumers(f"M{addresses[at + 2]}") == [old[at + 2]]
    rest = range(at + 3, len(addresses))
    assert [told.router.consumers(f"M{addresses[number]}") for number in rest] == [[new[n]] for n in rest]


def test_a_mesh_that_changes_between_the_steps_ends_them(told: Told) -> None:
    before, after = connected(told, "E", "edge"), connected(told, "E", "edge")
    for number in range(2 * AT_ONCE):
        consumer(told, before, f"x/{number}")
        consumer(told, after, f"x/{number}")
    announce(told, before, MESH)
    announce(told, after, MESH)
    announce(told, after, "n" * 15)
    jobs(told)
    assert len(told.router.port.handed_over) == AT_ONCE


def test_back_to_the_first_connection(told: Told) -> None:
    key = new_mesh_key()
    one, other = opened(told, key, "edge"), opened(told, key, "edge")
    links = [consumer(told, connection) for connection in (one, other, one, other)]
    assert told.router.port.handed_over == list(pairwise(links))
    assert told.router.consumers("Mx") == [links[-1]]


def test_the_connections_of_an_edge_that_are_compared_are_bounded(told: Told) -> None:
    key = new_mesh_key()
    first = opened(told, key, "edge")
    old = consumer(told, first)
    last = [opened(told, key, "edge") for _ in range(MOST_CONNECTIONS)][-1]
    new = consumer(told, last)
    assert told.router.port.handed_over == []
    newest = consumer(told, opened(told, key, "edge"))
    assert told.router.port.handed_over == [(new, newest)]
    assert told.router.consumers("Mx") == [old, newest]


def test_nothing_is_left_of_connections_that_are_gone(told: Told) -> None:
    key = new_mesh_key()
    connections = [opened(told, key, "edge") for _ in range(3)]
    for connection in connections:
        consumer(told, connection)
        consumer(told, connection, "y")
    assert told.router.interior is not None
    succession = told.router.interior.downlinks.succession
    for connection in connections:
        told.router.core.connection_closed(connection)
    assert (succession._connections, succession._edges, succession._consumers) == ({}, {}, {})
    assert not told.router.consumers("Mx")


def test_an_announcement_changes_the_routes_of_many_addresses_in_steps(told: Told) -> None:
    edge = connected(told, "E", "edge")
    for number in range(MANY):
        consumer(told, edge, f"x/{number}")
    advertised: list[str] = []
    told.router.core.advertised = lambda address: advertised.append(address.key)
    announce(told, edge, MESH)
    assert len(advertised) == ADDRESSES_AT_ONCE
    told.router.close_link(next(link for link in edge.links if link.address and link.address.key == "Mx/999"))
    assert "Mx/999" not in told.router.core.addresses
    jobs(told)
    assert sorted(set(advertised)) == sorted(f"Mx/{number}" for number in range(MANY))
    assert "Mx/999" not in told.router.core.addresses


def test_an_edge_has_few_downlinks_on_one_connection(told: Told) -> None:
    edge = connected(told, "E", "edge")
    links = [downlink(told, edge, "E") for _ in range(MOST_DOWNLINKS)]
    refused = downlink(told, edge, "E")
    assert told.router.port.refused[refused].name == "amqp:not-allowed"
    told.router.close_link(links[0])
    assert downlink(told, edge, "E") in told.router.consumers("HE")


def test_the_clients_of_an_address_are_counted(told: Told) -> None:
    edge = connected(told, "E", "edge")
    links = [consumer(told, connection) for connection in (edge, told.router.clients, None, edge)]
    address = links[0].address
    assert address is not None
    assert address.clients == 2
    told.router.core.unbind_consumer(links[1])
    told.router.core.unbind_consumer(links[1])
    assert address.clients == 1
    told.router.close_link(links[1])
    told.router.close_link(links[2])
    told.router.close_link(links[3])
    assert address.clients == 0


def test_copies_of_a_message_follow_links_that_take_over_again(told: Told) -> None:
    """As between interior routers: back to the link that was replaced before."""
    one, other = (consumer(told, connected(told, "E", "edge")) for _ in range(2))
    copies = Copies(None)  # type: ignore[arg-type]
    copies._lines[None] = None  # type: ignore[assignment]
    copies.hand_over([(one, other)])
    assert copies.present([one]) == [other]
    copies.hand_over([(other, one)])
    assert copies.present([one, other]) == [one, one]
