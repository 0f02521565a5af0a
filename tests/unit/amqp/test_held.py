"""Links that found no room in their sessions, and how they go on after writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from isthmus_router.amqp.kernel.held import AT_ONCE, Held

MANY = 10 * AT_ONCE


class Engine:
    """A connection whose sessions have room for so many messages, of links that want to send one each."""

    def __init__(self, **room: int) -> None:
        self.room_in = Counter(room)
        self.waiting_in: Counter[str] = Counter()
        self.sent: list[Any] = []
        self.asked: list[Any] = []
        self.jobs: list[Iterator[None]] = []
        self.first: list[Any] = []
        self.too_large: set[Any] = set()
        self.stalled: set[Any] = set()
        self.closed = False
        self.touched = 0
        self.held = Held(self)  # type: ignore[arg-type]
        self.core = None
        self.outgoing = SimpleNamespace(
            written=lambda: self.first,
            is_full=lambda session: not self.room_in[session],
            waiting=lambda session: (self.waiting_in[session], 0),
        )
        self.driver = SimpleNamespace(
            forwarder=SimpleNamespace(room=self.room), work=self.jobs.append, touch=self.touch
        )

    def touch(self, _: object) -> None:
        self.touched += 1

    def links(self, session: str, count: int) -> list[Any]:
        made = [_Link(session) for _ in range(count)]
        self.held.keep(made)
        return made

    def room(self, link: Any) -> None:
        self.asked.append(link)
        if self.room_in[link.session] and link not in self.too_large:
            self.room_in[link.session] -= 1
            self.sent.append(link)
        else:
            self.stalled.add(link)

    def written(self) -> None:
        """As the connection does after a write."""
        stalled, self.stalled = self.stalled, set()
        self.held.keep(stalled)
        self.held.written()

    def work_off(self) -> None:
        while self.jobs:
            before = len(self.asked)
            if next(self.jobs[0], self) is self:
                self.jobs.pop(0)
            assert len(self.asked) - before <= AT_ONCE


class _Link:
    def __init__(self, session: str) -> None:
        self.session = session


def test_links_are_asked_as_long_as_there_is_room() -> None:
    """A peer may let in one frame after the other."""
    engine = Engine()
    links = engine.links("s", MANY)
    for number in range(5):
        engine.room_in["s"] = 1
        engine.written()
        assert engine.sent == links[: number + 1]
    assert engine.asked == engine.sent
    assert not engine.jobs


def test_a_session_without_room_does_not_keep_others_from_going_on() -> None:
    engine = Engine(second=2)
    engine.links("first", 3)
    links = engine.links("second", 3)
    engine.written()
    assert engine.sent == links[:2]


def test_links_that_go_first() -> None:
    engine = Engine(first=1, second=1)
    some, others = engine.links("first", 3), engine.links("second", 3)
    engine.first = [others[2], some[1]]
    engine.written()
    assert engine.sent == [others[2], some[1]]


def test_many_links_go_on_in_steps() -> None:
    engine = Engine(s=MANY)
    links = engine.links("s", MANY)
    engine.written()
    assert len(engine.sent) == AT_ONCE
    engine.written()  # another write meanwhile
    assert len(engine.sent) == AT_ONCE
    engine.work_off()
    assert engine.sent == links
    assert not engine.held
    assert engine.touched == 1, "after that write there may have been more room"


def test_links_that_find_no_room_though_there_is_some_do_not_hold_others_up() -> None:
    engine = Engine(s=1)
    engine.waiting_in["s"] = 1
    links = engine.links("s", MANY)
    engine.too_large = set(links[: 3 * AT_ONCE])
    for _ in range(4):
        engine.written()
        engine.work_off()
    assert engine.sent == [links[3 * AT_ONCE]]
    assert len(engine.asked) == 3 * AT_ONCE + 1


def test_all_links_are_asked_if_nothing_waits() -> None:
    """There might be no other write."""
    engine = Engine(s=1)
    links = engine.links("s", MANY)
    engine.too_large = set(links[:-1])
    engine.written()
    engine.work_off()
    assert engine.sent == links[-1:]


def test_links_that_are_gone_are_not_asked() -> None:
    engine = Engine(s=MANY)
    links = engine.links("s", MANY)
    engine.written()
    for link in links[AT_ONCE : 2 * AT_ONCE]:
        engine.held.forget(link)
    engine.work_off()
    assert engine.sent == [*links[:AT_ONCE], *links[2 * AT_ONCE :]]


def test_nothing_goes_on_when_the_connection_is_closed() -> None:
    engine = Engine(s=MANY)
    engine.links("s", MANY)
    engine.written()
    engine.closed = True
    engine.work_off()
    assert len(engine.sent) == AT_ONCE
