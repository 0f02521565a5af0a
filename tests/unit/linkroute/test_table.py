"""Which link routes a router knows, under which keys, and which of them an address belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.patterns import PatternTree, normal_pattern
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction
from isthmus_router.core.treatment import Treatment
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.linkroute.table import (
    Declaration,
    direction_of,
    is_route_key,
    pattern_of,
    prefix_pattern,
    route_key,
)

IN, OUT = Direction.IN, Direction.OUT

tokens = st.sampled_from(("a", "b", "c", "*", "#"))
patterns = st.builds(
    lambda found, separators: "".join(
        text for pair in zip(found, separators, strict=True) for text in pair
    ).rstrip("./"),
    st.shared(st.lists(tokens, min_size=1, max_size=4), key="tokens"),
    st.shared(st.lists(tokens, min_size=1, max_size=4), key="tokens").flatmap(
        lambda found: st.lists(st.sampled_from("./"), min_size=len(found), max_size=len(found))
    ),
)
addresses = st.lists(st.sampled_from(("a", "b", "c", "d")), min_size=1, max_size=5).map(".".join)


def routing() -> LinkRouting:
    return LinkRouting(RouterInMemory().core, lambda: 0.0, lambda *_: None)


@pytest.mark.parametrize(
    ("pattern", "direction", "key"),
    [
        (prefix_pattern("b2"), IN, "Cb2"),
        (prefix_pattern("b2"), OUT, "Db2"),
        (prefix_pattern("b2/queues"), IN, "Cb2.queues"),
        (prefix_pattern("b2."), IN, "Cb2"),
        ("b2.#", OUT, "Db2"),
        ("b2/#/#", OUT, "Db2"),
        ("b2", IN, "Eb2"),
        ("b2.*.x", IN, "Eb2.*.x"),
        ("b2/*/#", OUT, "Fb2.*.#"),
        ("b2.#.*", OUT, "Fb2.*.#"),
        ("#", OUT, "F#"),
        (prefix_pattern("a.*"), IN, "Ea.*.#"),
    ],
)
def test_keys(pattern: str, direction: Direction, key: str) -> None:
    assert route_key(pattern, direction) == key
    assert direction_of(key) is direction
    assert is_route_key(key)
    assert normal_pattern(pattern_of(key)) == normal_pattern(pattern)


@given(patterns, st.sampled_from(Direction))
def test_a_key_is_that_of_its_pattern(pattern: str, direction: Direction) -> None:
    key = route_key(pattern, direction)
    assert is_route_key(key)
    assert route_key(pattern_of(key), direction_of(key)) == key
    assert direction_of(key) is direction


@pytest.mark.parametrize("key", ["", "C", "Mb2", "Cb2/x", "Cb2.", "Eb2.#", "E#.#", "C.b2"])
def test_no_keys(key: str) -> None:
    assert not is_route_key(key)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("b2", "Cb2"),
        ("b2.queues", "Cb2.queues"),
        ("b2/queues", "Cb2.queues"),
        ("b2/queues.deep/down", "Cb2.queues"),
        ("/b2/other/", "Cb2"),
        ("amqp://host/b2/other", "Cb2"),
        ("b2x", None),
        ("b2.queuesx", "Cb2"),
        ("x.b2", None),
        ("b2.a.log", "Eb2.*.log"),
        ("b2.queues.log", "Cb2.queues"),
        ("b2.a.b.log", "Cb2"),
        ("", None),
    ],
)
def test_the_most_specific_one_is_found(address: str, found: str | None) -> None:
    table = routing().table
    for pattern in ("b2.#", prefix_pattern("b2.queues"), "b2.*.log"):
        table.obtain(pattern, IN)
    table.obtain("#", OUT)
    route = table.find(address, IN)
    assert (route and route.key) == found


def test_directions_are_told_apart() -> None:
    table = routing().table
    into = table.obtain("b2.#", IN)
    assert table.find("b2.x", IN) is into
    assert table.find("b2.x", OUT) is None
    out = table.obtain("b2.#", OUT)
    assert table.find("b2.x", OUT) is out
    assert table.obtain("b2/#", IN) is into


Steps = list[tuple[bool, str]]


@given(st.lists(st.tuples(st.booleans(), patterns), max_size=20), st.lists(addresses, max_size=10))
def test_what_is_removed_is_as_if_it_had_never_been(steps: Steps, asked: list[str]) -> None:
    """A tree from which patterns were removed finds what a new one with the others does, and is no larger."""
    tree: PatternTree[str] = PatternTree()
    left: dict[tuple[str, ...], str] = {}
    for adds, pattern in steps:
        key = tuple(pattern.replace("/", ".").split("."))
        if adds:
            tree.add_pattern(pattern, pattern)
            left[key] = pattern
        else:
            tree.remove_pattern(pattern)
            left.pop(key, None)
    new: PatternTree[str] = PatternTree()
    for pattern in left.values():
        new.add_pattern(pattern, pattern)
    assert [tree.find(address) for address in asked] == [new.find(address) for address in asked]
    assert _shape(tree._root) == _shape(new._root)


def _shape(node: object) -> object:
    children: dict[str, object] = node.children  # type: ignore[attr-defined]
    return node.value, {token: _shape(child) for token, child in children.items()}  # type: ignore[attr-defined]


@given(st.lists(st.tuples(st.booleans(), patterns, st.sampled_from(Direction)), max_size=20))
def test_nothing_is_left_of_what_is_removed(steps: list[tuple[bool, str, Direction]]) -> None:
    routes = routing()
    connection = RouterInMemory().connection(Role.ROUTE_CONTAINER)
    made: dict[str, str] = {}
    for number, (adds, pattern, direction) in enumerate(steps):
        key = route_key(pattern, direction)
        if adds and key not in made:
            made[key] = str(number)
            routes.made.make(connection, made[key], pattern, direction)
        elif not adds and key in made:
            routes.made.unmake(connection, made.pop(key))
        assert set(routes.table.all) == set(made) == set(routes.core.addresses)
    for name in made.values():
        routes.made.unmake(connection, name)
    assert not routes.core.addresses
    assert not routes.table.all
    assert not routes.made.of
    for tree in routes.table._trees.values():
        assert not tree._root.children


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(("", "b2", "b2/", ".b2", "b2.#", "#", "*"))), max_size=12
    )
)
def test_another_router_may_name_any_key(steps: list[tuple[bool, str]]) -> None:
    """What is no key in the one form of its pattern does not take the place of what is."""
    router = RouterInMemory()
    table = LinkRouting(router.core, lambda: 0.0, lambda *_: None).table
    known = table.obtain("b2.#", IN)
    known.declarations[Declaration("any", None)] = None
    node = router.core.remotes.node("OTHER")
    for there, rest in steps:
        if there:
            router.core.remotes.add(node, f"C{rest}", Treatment.BALANCED)
        else:
            router.core.remotes.remove(node, f"C{rest}")
        assert table.find("b2", IN) is known
    router.core.remotes.remove_node("OTHER")
    assert table.find("b2", IN) is known
    assert set(table.all) == {"Cb2"} == set(router.core.addresses)


@pytest.mark.parametrize(
    ("add", "remove", "address", "outside"),
    [
        ("", "", "/b2/q", "/b2/q"),
        ("queue/", "", "/b2/q", "queue/b2/q"),
        ("", "b2/", "b2/q", "q"),
        ("queue/", "b2/", "b2/q", "queue/q"),
        ("queue/", "b2/", "amqp:/b2/q", "queue/q"),
        ("", "b2.", "b2/q", "b2/q"),
    ],
)
def test_what_a_container_calls_an_address(add: str, remove: str, address: str, outside: str) -> None:
    declaration = Declaration("broker", None, add, remove)
    assert declaration.outside(address) == outside


@pytest.mark.parametrize(
    ("add", "remove", "address", "inside"),
    [
        ("", "", "q", "q"),
        ("queue/", "", "queue/q", "q"),
        ("queue/", "b2/", "queue/q", "b2/q"),
        ("queue/", "b2/", "temporary-1", "temporary-1"),
        ("", "b2/", "q", "b2/q"),
    ],
)
def test_what_the_network_calls_an_address_of_a_container(
    add: str, remove: str, address: str, inside: str
) -> None:
    assert Declaration("broker", None, add, remove).inside(address) == inside
