"""Consumers of a `closest` address take turns, and who cannot take a delivery is not looked at for each one."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.balance import RELUCTANT
from isthmus_router.core.model import Link
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.roles import Role
from isthmus_router.core.routes import Route
from isthmus_router.core.treatment import Treatment

CONSUMERS = 6
LOCAL = st.integers(0, CONSUMERS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 8)),
        *(st.tuples(st.just(what), LOCAL) for what in ("settle", "wait", "drain", "go on", "join", "leave")),
    ),
    max_size=60,
)


class Turns:
    """A `closest` address, or a `balanced` one, with consumers here, as the forwarding kernel handles them.

    With `edge`, the sender is an edge, which gets none of its own messages, although it consumes.
    """

    def __init__(
        self, count: int = CONSUMERS, *, treatment: Treatment = Treatment.CLOSEST, edge: bool = False
    ) -> None:
        self.router = RouterInMemory(treatments={"near": treatment})
        connection = self.router.connection(Role.EDGE) if edge else None
        self.sender = self.router.sender("near", connection)
        self.links = [self.join() for _ in range(count)]
        if edge:
            self.router.receiver("near", connection)
        self.number = 0

    def join(self) -> Link:
        link = self.router.receiver("near")
        link.capacity = 5
        return link

    @property
    def route(self) -> Route:
        return self.router.core.target_route(self.sender)

    def send(self, size: int | None = None) -> Link | None:
        found = self.route.choose() if size is None else self.route.choose_for(size)
        if found is None:
            return None
        sink, load = found
        assert isinstance(sink, Link)
        assert load is None
        self.number += 1
        if sink.burden() < RELUCTANT:
            sink.unsettled[self.number] = None
        elif sink.waiting < sink.capacity:
            sink.parked.append(object())
        return sink

    def eased(self, link: Link) -> None:
        balance = self.router.core.addresses["Mnear"].balance
        if balance.heeded > link.load():  # as the compiled kernel, which asks least often
            balance.eased(link)

    def step(self, what: str, at: int) -> None:
        link = self.links[at % len(self.links)]
        if what == "send":
            for _ in range(at):
                least = min(link.burden() // RELUCTANT for link in self.links)
                before = {link: link.burden() // RELUCTANT for link in self.links}
                chosen = self.send()
                assert chosen is not None
                assert before[chosen] == least
        elif what == "settle" and link.unsettled:
            link.unsettled.popitem()
            self.eased(link)
        elif what == "wait":
            link.parked.append(object())
        elif what == "drain":
            link.drained = True
        elif what == "go on":
            link.drained = False
            link.parked.clear()
            self.eased(link)
        elif what == "join":
            self.links.append(self.join())
        elif what == "leave" and len(self.links) > 3:
            self.links.remove(link)
            self.router.core.link_closed(link)

    def looks(self, count: int, size: int | None = None) -> int:
        """How often a burden is looked at for that many deliveries."""
        seen = 0
        original = Link.burden

        def counted(link: Link) -> int:
            nonlocal seen
            seen += 1
            return original(link)

        route = self.route
        with patch.object(Link, "burden", counted):
            for _ in range(count):
                route.choose() if size is None else route.choose_for(size)
        return seen


@given(STEPS, st.booleans())
def test_who_takes_a_delivery_comes_before_who_lets_it_wait(steps: list[tuple[str, int]], edge: bool) -> None:
    turns = Turns(edge=edge)
    assert turns.route.kind is RouteKind.ROTATE
    for what, at in steps:
        turns.step(what, at)
    turns.step("send", 10)


def test_each_has_a_turn() -> None:
    turns = Turns()
    turns.links[2].drained = True
    taken = [turns.send() for _ in range(10)]
    assert set(taken[:5]) == set(turns.links) - {turns.links[2]}
    assert taken[:5] == taken[5:]


@pytest.mark.parametrize("edge", [True, False])
@pytest.mark.parametrize("willing", [0, 1, 2])
def test_those_without_credit_are_not_looked_at_for_each_delivery(willing: int, edge: bool) -> None:
    turns = Turns(1000, edge=edge)
    takers = turns.links[::500][:willing]
    for link in turns.links:
        link.drained = link not in takers
    assert turns.looks(200) < 5000


def test_turns_last_when_consumers_elsewhere_come_and_go() -> None:
    turns = Turns(1000)
    turns.send()
    turns.router.neighbour("B")
    for _ in range(3):
        turns.router.consumers_at("B", "Mnear", Treatment.CLOSEST)
        assert turns.looks(1) < 10


@pytest.mark.parametrize("treatment", [Treatment.CLOSEST, Treatment.BALANCED])
@pytest.mark.parametrize("size", [10, 1000])
def test_nor_are_they_where_a_receiver_has_a_largest_message(treatment: Treatment, size: int) -> None:
    turns = Turns(1000, treatment=treatment)
    for link in turns.links:
        link.drained, link.max_message_size = True, 100
    turns.router.core.addresses["Mnear"].invalidate()
    assert turns.route.kind is RouteKind.SELECTIVE
    assert turns.looks(200, size) < 8000
    assert (turns.send(size) is None) is (size > 100)


def test_a_receiver_that_takes_larger_messages_gets_them() -> None:
    turns = Turns()
    for link in turns.links[:5]:
        link.max_message_size = 100
    turns.router.core.addresses["Mnear"].invalidate()
    assert {turns.send(1000) for _ in range(4)} == {turns.links[5]}
    assert {turns.send(10) for _ in range(6)} == set(turns.links)
