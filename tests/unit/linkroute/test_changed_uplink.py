"""An edge changes its uplink: its interior has a way to the edge's containers all the time."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterable

import pytest
from tests.unit.linkroute.network import Network, Router, section
from tests.unit.linkroute.peers import End

from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction
from isthmus_router.linkroute import edges
from isthmus_router.linkroute.messages import LinkRouteNews, encode_link_routes
from isthmus_router.linkroute.table import LinkRoute, route_key
from isthmus_router.message.control import Message, encode_message

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
    while (busy := [end for end in order if end.inbox]) or network.jobs:
        if busy:
            network.step(busy[0])
        else:
            network.work_on()
        assert reachable(network)
    exchanges = network.routers["A"].exchange.exchanges
    assert list(exchanges) == [new.connection]
    (route, *_) = network.routers["A"].routing.table.all.values()
    assert route.routers == {new.connection: True}


def test_a_way_that_the_edge_does_not_tell_anew_is_none_any_more() -> None:
    network = edge_with_container()
    (shelf,) = network.peers
    old, new = change_uplink(network)
    while old.inbox or new.other.inbox or len(new.inbox) > 1 or network.jobs:
        network.work_on()
        if busy := [end for end in (old, old.other, new.other, new) if end.inbox]:
            network.step(busy[0])
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
    while network.jobs:
        network.work_on()
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
    while network.jobs:
        network.work_on()
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


def tell(network: Network, keys: Iterable[str], at_once: int = 50) -> None:
    """Messages of the edge with these keys arrive at the interior."""
    (exchange,) = network.routers["A"].exchange.exchanges.values()
    assert exchange.hears is not None
    assert exchange.hears.on_delivery is not None
    told = list(keys)
    for first in range(0, len(told), at_once):
        news = [(key, True) for key in told[first : first + at_once]]
        exchange.hears.on_delivery(exchange.hears, encode_link_routes(news))


def keys(count: int, prefix: str = "q") -> list[str]:
    """Of link routes."""
    return [route_key(f"{prefix}{number}", Direction.IN) for number in range(count)]


def test_link_routes_of_an_edge_are_forgotten_in_steps() -> None:
    network = Network("A", (), edges="E")
    network.connect("A", "E")
    network.settle()
    router = network.routers["A"]
    tell(network, keys(300))
    network.settle()
    assert len(router.known) == 300
    (end,) = router.ends.values()
    network.cut(end)
    network.step(end)
    assert len(router.routing.table.all) == 300
    for _ in range(10):
        network.work_on()
    assert 290 <= len(router.routing.table.all) < 300
    # No link goes to the edge whose connection has ended.
    link = network.peer("A", "client").attach("q0", sends=True)
    while not link.heard:
        network.step(next(end for end in network.ends if end.inbox))
    assert link.condition is not None
    assert link.condition.name == "qd:no-route-to-dest"
    network.settle()
    assert not router.routing.table.all


def test_link_routes_that_the_edge_tells_again_while_they_are_forgotten_stay() -> None:
    network = Network("A", (), edges="E")
    network.connect("A", "E")
    network.settle()
    router = network.routers["A"]
    tell(network, keys(20))
    network.settle()
    (exchange,) = router.exchange.exchanges.values()
    assert exchange.hears is not None
    router.exchange._forget(exchange, kept=False)
    network.work_on()
    tell(network, keys(10))
    network.settle()
    assert set(router.routing.table.all) == set(keys(10)) == router.known
    network.check()


def test_peer_is_told_all_in_steps_and_changes_meanwhile() -> None:
    network = Network("A", (), edges="E")
    network.connect("A", "E")
    network.settle()
    router = network.routers["A"]
    tell(network, keys(250))
    network.settle()
    network.routers["F"] = other = Router(network, "F", (), edge=True)
    network.connect("A", "F")
    told = {}
    while len(told) < 100:
        network.work_on()
        for end in [end for end in network.ends if end.inbox]:
            network.step(end)
        told = next(one.told for one in router.exchange.exchanges.values() if one.connection.container == "F")
    assert len(told) == 100
    (exchange,) = other.exchange.exchanges.values()
    assert not exchange.complete
    changed = next(one for one in router.exchange.exchanges.values() if one.connection.container == "E")
    first, last = keys(250)[0], keys(250)[-1]
    router.exchange._hear(changed, LinkRouteNews(first, None))
    router.exchange._hear(changed, LinkRouteNews(last, False))
    network.settle()
    network.check()
    assert exchange.complete
    assert {route.key: route.routers[exchange.connection] for route in exchange.heard} == {
        **dict.fromkeys(keys(250)[1:], True),
        last: False,
    }


def test_long_keys_do_not_keep_a_peer_from_reading_the_others() -> None:
    network = Network("A", (), edges="EF")
    network.connect("A", "E")
    network.settle()
    for number in range(150):
        tell(network, keys(1, f"{number}" + "\u20ac" * 4000))
    tell(network, [route_key("q" * 5000, Direction.IN), *keys(3)])
    network.settle()
    network.connect("A", "F")
    network.settle()
    (exchange,) = network.routers["F"].exchange.exchanges.values()
    assert len(exchange.heard) == 153
    assert set(keys(3)) <= {route.key for route in exchange.heard}


@pytest.mark.parametrize("invalid", [None, [], ["Cq", 1], [7, True], ["Q", True], ["C" + "q" * 5000, True]])
def test_invalid_link_routes_do_not_keep_others_from_being_known(invalid: object) -> None:
    network = Network("A", (), edges="E")
    network.connect("A", "E")
    network.settle()
    (exchange,) = network.routers["A"].exchange.exchanges.values()
    assert exchange.hears is not None
    assert exchange.hears.on_delivery is not None
    exchange.complete = False
    for body in ([["Cfirst", True], invalid, ["Csecond", True]], [invalid]):
        exchange.hears.on_delivery(exchange.hears, encode_message(Message(body=body)))
    assert {route.key for route in exchange.heard} == {"Cfirst", "Csecond"}
    assert network.routers["A"].exchange.ignored == {"invalid": 2}
    assert not exchange.complete, "only an empty list is the end"


def test_message_of_more_than_it_may_have_is_ignored() -> None:
    for many in (keys(134), keys(100, "q" * 1000)):
        network = Network("A", (), edges="E")
        network.connect("A", "E")
        network.settle()
        tell(network, many, len(many))
        assert not network.routers["A"].routing.table.all
        tell(network, many[:50])
        assert len(network.routers["A"].routing.table.all) == 50


def test_link_routes_that_are_forgotten_leave_no_garbage_to_collect() -> None:
    """A collection of those of one edge would be a long turn."""
    network = Network("A", (), edges="E")
    network.connect("A", "E")
    network.settle()
    tell(network, keys(300, "forgotten"))
    network.settle()
    gc.disable()
    try:
        (end,) = network.routers["A"].ends.values()
        network.cut(end)
        network.step(end)
        network.settle()
        left = [found for found in gc.get_objects() if isinstance(found, LinkRoute)]
        assert not [route for route in left if "forgotten" in route.key]
    finally:
        gc.enable()


def test_changes_that_wait_to_be_told_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "MOST_NEWS", 50)
    network = Network("A", (), edges="EF")
    for edge in "EF":
        network.connect("A", edge)
        network.settle()
    router = network.routers["A"]
    changed, other = router.exchange.exchanges.values()
    for first in range(0, 300, 30):
        for key in keys(300)[first : first + 30]:
            router.exchange._hear(changed, LinkRouteNews(key, True))
        if first < 150:
            network.settle()
    assert len(router.exchange._news) <= 50
    assert set(other.told) == set(keys(150))
    for key in keys(300)[:250]:
        router.exchange._hear(changed, LinkRouteNews(key, None))
    assert len(router.exchange._news) <= 50
    network.work_on()
    router.exchange._hear(changed, LinkRouteNews(keys(1)[0], False))
    network.settle()
    network.check()
    assert other.told == {keys(1)[0]: False, **dict.fromkeys(keys(300)[250:], True)}


def test_peer_that_says_again_that_all_is_told_starts_no_work() -> None:
    network = edge_with_container()
    (exchange,) = network.routers["E"].exchange.exchanges.values()
    assert exchange.complete
    assert exchange.hears is not None
    assert exchange.hears.on_delivery is not None
    for _ in range(100):
        exchange.hears.on_delivery(exchange.hears, encode_link_routes(()))
    assert not network.jobs


@pytest.mark.parametrize(
    "patterns",
    [["*." * 1500 + "z"], [".".join([*tokens, "z"]) for tokens in itertools.product("q*#", repeat=6)]],
    ids=["long", "many"],
)
def test_link_to_an_address_that_patterns_of_an_edge_make_costly_is_refused(patterns: list[str]) -> None:
    network = Network("A", (), edges="E")
    network.connect("A", "E")
    network.settle()
    tell(network, {route_key(pattern, Direction.IN) for pattern in patterns})
    network.settle()
    client = network.peer("A", "client")
    costly = client.attach("q." * 1600, sends=True)
    others = [client.attach("other", sends=True), client.attach("_local/" + "q." * 1600, sends=True)]
    network.settle()
    assert costly.condition is not None
    assert costly.condition.name == "amqp:resource-limit-exceeded"
    assert others[0].attached
    assert others[1].condition is None or others[1].condition.name != "amqp:resource-limit-exceeded"
