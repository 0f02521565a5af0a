"""Totals of the router, which clients may ask for without pause."""

from __future__ import annotations

from itertools import count, pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus_router import totals, view
from isthmus_router.core.counters import CoreCounters
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.totals import AT_ONCE, FEW_CONNECTIONS, FEW_LINKS, OLDEST_SECONDS, Tallies, Tally


@pytest.mark.parametrize("seconds", [0.0001, 0.02, 1.0])
def test_totals_are_counted_again_after_twenty_times_as_long_as_it_took(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Counting takes at most a twentieth of the CPU, however often somebody asks, also on a busy machine."""
    now, spent = 1000.0, 0.0
    counts: list[float] = []

    def counted(_: Any) -> Any:
        nonlocal now, spent
        now += 3 * seconds
        spent += seconds
        counts.append(now)
        return SimpleNamespace(number=len(counts))

    clocks = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: spent)
    monkeypatch.setattr(view, "time", clocks)
    monkeypatch.setattr(view.totals, "counters", counted)
    process: Any = None
    router = view.RouterView(process)
    asked = 0
    while len(counts) < 10:
        assert router.counters() == SimpleNamespace(number=len(counts))
        now += seconds
        asked += 1
    pauses = [after - before for before, after in pairwise(counts)]
    assert all(20 * seconds <= pause <= 25 * seconds for pause in pauses)
    assert asked > 150


class Core:
    """One with a connection that has links."""

    def __init__(self, links: int) -> None:
        self.counters = CoreCounters()
        self.tallies: list[Tally] = []
        self.connection = Connection(1, Role.NORMAL, incoming=True, name="peer")
        self.connections = {1: self.connection}
        self.delivered = 0
        self.attach(links)

    def attach(self, links: int, deliveries: int = 3) -> None:
        for number in range(links):
            link = Link(number, self.connection, Direction.IN, "", source=Terminus(), target=Terminus())
            link.deliveries = deliveries
            link.unsettled = dict.fromkeys(range(deliveries))
            self.connection.links.add(link)
            self.delivered += deliveries

    def close(self, links: int) -> None:
        for link in list(self.connection.links)[:links]:
            self.connection.links.remove(link)
            self.counters.add_link(link)
            for tally in self.tallies:
                tally.link_closed(link)


def test_links_that_come_and_go_while_they_are_counted() -> None:
    core: Any = Core(20 * AT_ONCE)
    before = core.delivered
    tally = Tally(core, set(), lambda: 0)
    for _ in tally.walk():
        core.close(AT_ONCE)
        core.attach(AT_ONCE // 2)
    assert before <= tally.totals.deliveries_in <= core.delivered
    assert not core.tallies
    again = Tally(core, set(), lambda: 0)
    list(again.walk())
    assert again.totals.deliveries_in == core.delivered
    assert again.links.total() == len(core.connection.links)


def test_links_are_counted_in_steps() -> None:
    """A client may have very many, all of them with deliveries."""
    core: Any = Core(20 * AT_ONCE)
    tally, before, most = Tally(core, set(), lambda: 0), 0, 0
    for _ in tally.walk():
        most, before = max(most, tally.links.total() - before), tally.links.total()
    assert tally.links.total() == 20 * AT_ONCE
    assert 0 < most <= AT_ONCE


def test_deliveries_that_are_stuck_are_counted_in_steps() -> None:
    core: Any = Core(0)
    core.attach(20, 5000)
    for link in core.connection.links:
        link.unsettled = dict.fromkeys(range(5000), SimpleNamespace(arrived=0))
    tally, before, most = Tally(core, core.connection.links, lambda: 60_000_000), 0, 0
    for _ in tally.walk():
        most, before = max(most, tally.stuck - before), tally.stuck
    assert (tally.stuck, most) == (100_000, 5000)


def test_counters_do_not_decrease_when_links_become_few_while_they_are_counted() -> None:
    core: Any = Core(FEW_LINKS + 1)
    jobs: list[Any] = []
    driver = SimpleNamespace(activity=SimpleNamespace(busy=set()), clock=lambda: 0, work=jobs.append)
    process: Any = SimpleNamespace(core=core, driver=driver, loop=SimpleNamespace(call_later=lambda *_: None))
    tallies = Tallies(process)
    tallies.latest()
    tallies.latest()
    (job,) = jobs
    next(job)
    for link in core.connection.links:
        link.deliveries += 1
    core.close(10)
    reported = tallies.latest().totals.deliveries_in
    core.attach(20, 0)
    list(job)
    assert tallies.latest().totals.deliveries_in >= reported


def test_the_links_of_many_connections_are_not_counted_by_those_who_ask() -> None:
    """However few links they have."""
    core: Any = Core(1)
    jobs: list[Any] = []
    driver = SimpleNamespace(activity=SimpleNamespace(busy=set()), clock=lambda: 0, work=jobs.append)
    process: Any = SimpleNamespace(core=core, driver=driver, loop=SimpleNamespace(call_later=lambda *_: None))
    tallies = Tallies(process)
    tallies.latest()
    for number in range(2, FEW_CONNECTIONS + 2):
        core.connections[number] = Connection(number, Role.NORMAL, incoming=True, name="peer")
    core.attach(1)
    assert tallies.latest().links.total() == 1
    (job,) = jobs
    list(job)
    assert tallies.latest().links.total() == 2


def test_many_links_are_counted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by those who ask."""
    core: Any = Core(FEW_LINKS)
    jobs: list[Any] = []
    timers: list[Any] = []
    driver = SimpleNamespace(activity=SimpleNamespace(busy=set()), clock=lambda: 0, work=jobs.append)
    loop = SimpleNamespace(call_later=lambda _, call: timers.append(call))
    process: Any = SimpleNamespace(core=core, driver=driver, loop=loop)
    now, cpu = 1000.0, count(step=0.001)
    monkeypatch.setattr(totals, "time", SimpleNamespace(monotonic=lambda: now, thread_time=lambda: next(cpu)))
    tallies = Tallies(process)
    assert tallies.latest().links.total() == FEW_LINKS
    core.close(1)
    assert tallies.latest().links.total() == FEW_LINKS - 1
    core.attach(2)
    assert tallies.latest().links.total() == FEW_LINKS - 1
    assert tallies.latest().links.total() == FEW_LINKS - 1
    job = jobs.pop()
    assert not jobs, "one count at a time"
    next(job)
    core.attach(1)
    list(job)
    assert tallies.latest().links.total() == FEW_LINKS + 1
    timers.pop()()
    assert not jobs
    now += OLDEST_SECONDS / 2  # 20 times as long as 65 steps took
    timers.pop()()
    assert not jobs, "nobody has asked, and it is not so long ago"
    tallies.latest()
    list(jobs.pop())
    assert tallies.latest().links.total() == FEW_LINKS + 2
    now += OLDEST_SECONDS
    timers.pop()()
    list(jobs.pop())
