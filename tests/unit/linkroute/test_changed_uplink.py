"""An edge changes its uplink: its interior has a way to the edge's containers all the time."""

from __future__ import annotations

import pytest
from tests.unit.linkroute.network import Network, section
from tests.unit.linkroute.peers import End

from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction
from isthmus_router.linkroute import edges
from isthmus_router.linkroute.messages import encode_link_routes
from isthmus_router.linkroute.table import route_key

SHELF = section(container_id="shelf")


def edge_with_container() -> Network:
    """A router with an edge, a container at the edge."""
    network = Network("A", (SHELF,), edges="E")
    network.connect("A", "E")
    network.peer("E", "shelf", container=True)
    network.settle()
    return network


def reachable(network: Network) -> bool:
    """Whether the interior knows of a container for links that send to the address."""
    return all(any(route.routers.values()) for route in network.routers["A"].routing.table.all.values())


def change_uplink(network: Network) -> tuple[End, End]:
    """The interior's ends of the old connection and of the new one, which the edge uses from now on."""
    (old,) = [end for end in network.ends if end.node is network.routers["A"]]
    network.join_edge("A", "E")
    (new,) = [end for end in network.ends if end.node is network.routers["A"] and end is not old]
    return old, new


@pytest.mark.parametrize("first", ["old", "new"])
def test_there_is_a_way_whichever_connection_is_heard_first(first: str) -> None:
    network = edge_with_container()
    assert reachable(network)
    old, new = change_uplink(network)
    order = (old, old.other, new.other, new) if first == "old" else (new, new.other, old.other, old)
    while busy := [end for end in order if end.inbox]:
        network.step(busy[0])
        assert reachable(network)
    exchanges = network.routers["A"].exchange.exchanges
    assert list(exchanges) == [new.connection]
    (route, *_) = network.routers["A"].routing.table.all.values()
    assert route.routers == {new.connection: True}


def test_a_way_that_the_edge_does_not_tell_anew_is_none_any_more() -> None:
    network = edge_with_container()
    (shelf,) = network.peers
    old, new = change_uplink(network)
    while old.inbox or new.other.inbox or len(new.inbox) > 1:
        network.step(next(end for end in (old, old.other, new.other, new) if end.inbox))
    shelf.die()
    network.settle()
    assert not reachable(network)


def test_the_old_connection_ends_before_the_edge_has_told_all() -> None:
    network = edge_with_container()
    old, new = change_uplink(network)
    network.step(new)
    network.cut(old)
    while old.inbox:
        network.step(old)
    assert not reachable(network)
    assert Role.EDGE in {connection.role for connection in network.routers["A"].ends}
    network.settle()
    assert reachable(network)


def keys_heard(network: Network, *keys: str) -> set[str]:
    """What the interior has heard of the edge, after a message with these keys."""
    exchange = list(network.routers["A"].exchange.exchanges.values())[-1]
    assert exchange.hears is not None
    exchange.hears.on_delivery(exchange.hears, encode_link_routes((key, True) for key in keys))  # type: ignore[misc]
    return {route.key for route in exchange.heard}


def test_link_routes_of_an_edge_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network("A", (), edges="E")
    network.connect("A", "E")
    network.settle()
    table = network.routers["A"].routing.table
    monkeypatch.setattr(edges, "MOST_ROUTES_OF_ALL", 6)
    assert keys_heard(network, *(route_key(f"q{number}", Direction.IN) for number in range(5))) == set(
        table.all
    )
    assert len(table.all) == 3
    monkeypatch.setattr(edges, "MOST_ROUTES_OF_ALL", 10)
    monkeypatch.setattr(edges, "MOST_CHARACTERS", 100)
    long = route_key("q" * 200, Direction.IN)
    known = keys_heard(network, long)
    assert long not in known
    assert len(known) == 3
    assert keys_heard(network, *known) == known
    (end, *_) = network.routers["A"].ends.values()
    network.routers["A"].lost(end)
    assert not table.all
    assert network.routers["A"].exchange._characters == 0


def test_an_edge_leaves_room_for_the_link_routes_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "MOST_ROUTES_OF_ALL", 8)
    network = Network("A", (), edges="EF")
    network.connect("A", "E")
    network.settle()
    first = keys_heard(network, *(route_key(f"e{number}", Direction.IN) for number in range(10)))
    assert len(first) == 4
    network.connect("A", "F")
    network.settle()
    second = keys_heard(network, *(route_key(f"f{number}", Direction.IN) for number in range(10)))
    assert len(second) == 2
    assert keys_heard(network, *first) == first | second, "those that another edge has as well take no room"
