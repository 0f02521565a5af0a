"""The least loaded consumer is found among many, whatever happened to them before."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.balance import MOST_LOOKS
from isthmus_router.core.model import Link
from isthmus_router.core.nodes import PathLoad
from isthmus_router.core.routes import Route
from isthmus_router.core.treatment import Treatment

CONSUMERS = 6
LOCAL = st.integers(0, CONSUMERS - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 8)),
        st.tuples(st.just("settle"), LOCAL),
        st.tuples(st.just("settle all"), LOCAL),
        st.tuples(st.just("settle remote"), st.just(0)),
        st.tuples(st.just("wait"), LOCAL),
        st.tuples(st.just("go on"), LOCAL),
        st.tuples(st.just("drain"), LOCAL),
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("leave"), LOCAL),
    ),
    max_size=60,
)


class Consumers:
    """A balanced address with consumers here and at another router, as the forwarding kernel handles them."""

    def __init__(self, *, remote: bool) -> None:
        self.router = RouterInMemory(treatments={"even": Treatment.BALANCED})
        if remote:
            self.router.neighbour("B", 2)
            self.router.consumers_at("B", "Meven")
        self.sender = self.router.sender("even")
        self.links = [self.router.receiver("even") for _ in range(CONSUMERS)]
        self.number = 0
        for link in self.links:
            link.capacity = 5

    @property
    def route(self) -> Route:
        return self.router.core.target_route(self.sender)

    def burdens(self) -> list[int]:
        return [
            (load or sink).burden()  # type: ignore[union-attr]
            for sink, load in zip(self.route.sinks, self.route.receivers.loads, strict=True)
        ]

    def send(self, count: int) -> None:
        for _ in range(count):
            before = self.burdens()
            sink, load = self.route.choose()
            assert before[self.route.sinks.index(sink)] == min(before)
            self.number += 1
            if load is not None:
                load.outstanding += 1
            elif isinstance(sink, Link):
                sink.unsettled[self.number] = None

    def eased(self, link: Link) -> None:
        balance = self.router.core.addresses["Meven"].balance
        if balance.heeded > link.load():
            balance.eased(link)

    def step(self, what: str, at: int) -> None:
        link = self.links[at % len(self.links)]
        if what == "send":
            self.send(at)
        elif what == "settle" and link.unsettled:
            link.unsettled.popitem()
            self.eased(link)
        elif what == "settle all":
            while link.unsettled:
                link.unsettled.popitem()
                self.eased(link)
        elif what == "settle remote":
            for load in self.route.receivers.loads:
                if load is not None and load.outstanding:
                    load.settled()
        elif what == "wait":
            link.parked.append(object())
        elif what == "drain":
            link.drained = True
        elif what == "go on":
            link.drained = False
            link.parked.clear()
            self.eased(link)
        elif what == "join":
            self.links.append(self.router.receiver("even"))
        elif what == "leave" and len(self.links) > 2:
            self.links.remove(link)
            self.router.core.link_closed(link)


@given(STEPS, st.booleans(), st.sampled_from([1, 3, MOST_LOOKS]))
def test_the_least_loaded_is_chosen(steps: list[tuple[str, int]], remote: bool, looks: int) -> None:
    consumers = Consumers(remote=remote)
    with patch("isthmus_router.core.balance.MOST_LOOKS", looks):
        for what, at in steps:
            consumers.step(what, at)
        consumers.send(10)


def looks(consumers: Consumers, count: int) -> int:
    """How often a burden is looked at for that many deliveries."""
    seen = 0

    def counted(consumer: Link | PathLoad) -> int:
        nonlocal seen
        seen += 1
        return original(consumer)  # type: ignore[arg-type]

    original = Link.burden
    route = consumers.route
    with patch.object(Link, "burden", counted):
        for _ in range(count):
            sink, _ = route.choose()
            assert isinstance(sink, Link)
            consumers.number += 1
            sink.unsettled[consumers.number] = None
    return seen


def test_few_are_looked_at_however_many_there_are() -> None:
    consumers = Consumers(remote=False)
    for _ in range(994):
        consumers.links.append(consumers.router.receiver("even"))
    for link in consumers.links:
        link.capacity = 250
    assert looks(consumers, 20_000) < 20_000 * 3
    looked = 0
    for link in consumers.links:  # one after the other, each gets the next delivery
        link.unsettled.popitem()
        consumers.eased(link)
        before = len(link.unsettled)
        looked += looks(consumers, 1)
        assert len(link.unsettled) == before + 1
    assert looked < 5 * len(consumers.links)


@pytest.mark.parametrize("idle", [1, 2, 5])
@pytest.mark.parametrize("others", ["without credit", "with a delivery each"])
def test_few_are_looked_at_where_only_some_are_idle(idle: int, others: str) -> None:
    """The idle ones settle at once, so that the others stay as they are."""
    consumers = Consumers(remote=False)
    for _ in range(1_000):
        consumers.links.append(consumers.router.receiver("even"))
    some = consumers.links[:: len(consumers.links) // idle][:idle]
    for link in consumers.links:
        if link not in some and others == "without credit":
            link.capacity = 0
        elif link not in some:
            link.unsettled[0] = None
    counts = dict.fromkeys(some, 0)
    looks_of_all = 0
    for _ in range(3_000):
        looks_of_all += looks(consumers, 1)
        (link,) = (each for each in some if each.unsettled)
        counts[link] += 1
        link.unsettled.clear()
        consumers.eased(link)
    assert looks_of_all < 3_000 * (MOST_LOOKS + 8)
    assert max(counts.values()) - min(counts.values()) <= 2, "they take turns"
