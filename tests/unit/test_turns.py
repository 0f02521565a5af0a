"""Connections that have received something share a budget in each iteration of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from isthmus_router.turns import LONGEST_SECONDS, SHORTEST_SECONDS, TURN_SECONDS, UNCOUNTED_SECONDS, Turns


class Loop:
    """An event loop whose iterations are those of the test."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lost = 0.0
        """Seconds in which other processes had the processor."""
        self._soon: list[Callable[[], None]] = []
        self.turns = Turns(
            cast(asyncio.AbstractEventLoop, self), lambda: self.now, lambda: self.now - self.lost
        )

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def iterate(self) -> float:
        """One iteration. Returns the seconds that it has taken."""
        start = self.now
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()
        return self.now - start

    @property
    def rests(self) -> bool:
        return not self._soon


class Connection:
    """One with work for some seconds, of which each step takes `step` seconds."""

    def __init__(self, loop: Loop, step: float = SHORTEST_SECONDS / 4) -> None:
        self.served = 0.0
        self.left = 0.0
        self.slices: list[float] = []
        self.broken_off = False
        self._loop = loop
        self._step = step

    def break_off(self) -> None:
        self.broken_off = True

    def work(self, end: float) -> bool:
        start = self._loop.now
        while self.left > 0 and self._loop.now < end:
            self._loop.now += self._step
            self.left -= self._step
        self.slices.append(self._loop.now - start)
        return self.left > 0

    def receive(self, seconds: float) -> None:
        """So much more is to be done."""
        waits = self.left > 0
        self.left += seconds
        if not waits:
            self._loop.turns.ready(self)

    @property
    def done(self) -> bool:
        return self.left <= 0


class Preempted(Connection):
    """Other processes have the processor for `seconds` during its first turn."""

    def __init__(self, loop: Loop, seconds: float) -> None:
        super().__init__(loop)
        self._seconds = seconds

    def work(self, end: float) -> bool:
        left = super().work(end)
        self._loop.now += self._seconds
        self._loop.lost += self._seconds
        self._seconds = 0.0
        return left


def test_little_work_is_done_immediately_and_costs_no_call_of_the_loop() -> None:
    loop = Loop()
    connection = Connection(loop)
    for _ in range(3):
        connection.receive(UNCOUNTED_SECONDS / 4)
        assert connection.done
        assert loop.rests


@pytest.mark.parametrize("number", [1, 60, 1000])
def test_all_connections_together_have_the_budget_of_an_iteration(number: int) -> None:
    loop = Loop()
    connections = [Connection(loop) for _ in range(number)]
    start = loop.now
    for connection in connections:
        connection.receive(10 * LONGEST_SECONDS)
    assert loop.now - start <= TURN_SECONDS + SHORTEST_SECONDS
    for _ in range(20):
        assert loop.iterate() <= TURN_SECONDS + LONGEST_SECONDS
    while not loop.rests:
        loop.iterate()
    assert all(connection.done for connection in connections)
    assert max(part for connection in connections for part in connection.slices) <= 1.1 * LONGEST_SECONDS


@pytest.mark.parametrize("number", [60, 1000])
def test_a_connection_with_little_to_do_does_not_wait_for_those_with_much(number: int) -> None:
    """It waits for one slice of each at most, which are shorter where they are many."""
    loop = Loop()
    connections = [Connection(loop) for _ in range(number)]
    canary = Connection(loop)
    for connection in connections:
        connection.receive(1.0)
    for _ in range(100):
        start = loop.now
        canary.receive(SHORTEST_SECONDS / 4)
        while not canary.done:
            loop.iterate()
        assert loop.now - start <= 3 * TURN_SECONDS + 1.5 * number * SHORTEST_SECONDS


def test_one_that_takes_long_with_each_step_pays_for_it_later() -> None:
    loop = Loop()
    costly, other = Connection(loop, step=0.03), Connection(loop)
    costly.receive(0.3)
    other.receive(1.0)
    for _ in range(40):
        loop.iterate()
    assert sum(other.slices) == pytest.approx(sum(costly.slices), abs=0.031)
    costly.receive(0.3)
    assert len(costly.slices) < 10


@pytest.mark.parametrize("waits", [False, True])
def test_one_that_loses_the_processor_in_its_turn_does_not_pay_for_it(waits: bool) -> None:
    loop = Loop()
    others = [Connection(loop) for _ in range(60)]
    canary = Preempted(loop, 0.03)
    if not waits:
        canary.receive(SHORTEST_SECONDS)
    for connection in others:
        connection.receive(1.0)
    if waits:
        canary.receive(SHORTEST_SECONDS)
    while not canary.done:
        loop.iterate()
    assert loop.lost == pytest.approx(0.03)
    start = loop.now
    canary.receive(SHORTEST_SECONDS)
    while not canary.done:
        loop.iterate()
    assert loop.now - start < 0.03


def test_one_that_comes_back_for_each_little_keeps_no_other_from_its_turn() -> None:
    loop = Loop()
    many = [Connection(loop) for _ in range(100)]
    patient = Connection(loop)
    patient.receive(0.05)
    iterations = 0
    while not patient.done:
        for connection in many:
            if connection.done:
                connection.receive(SHORTEST_SECONDS)
        loop.iterate()
        iterations += 1
    assert iterations <= 0.05 / SHORTEST_SECONDS * 3


def test_what_is_added_waits_for_the_next_iteration() -> None:
    loop = Loop()
    connection = Connection(loop)
    connection.left = SHORTEST_SECONDS
    loop.turns.add(connection)
    assert not connection.slices
    loop.iterate()
    assert connection.done


class FailedError(Exception):
    """What a connection has received cannot be dealt with."""


class Failing(Connection):
    def work(self, end: float) -> bool:
        raise FailedError


def test_a_worker_that_fails_is_broken_off_and_keeps_no_other_from_its_turn() -> None:
    loop = Loop()
    failing, other = Failing(loop), Connection(loop)
    failing.left = other.left = SHORTEST_SECONDS
    loop.turns.add(failing)
    loop.turns.add(other)
    with pytest.raises(FailedError):
        loop.iterate()
    assert failing.broken_off
    loop.iterate()
    assert other.done
    assert not other.broken_off


def test_a_worker_that_fails_immediately_is_broken_off() -> None:
    loop = Loop()
    failing = Failing(loop)
    with pytest.raises(FailedError):
        failing.receive(SHORTEST_SECONDS)
    assert failing.broken_off
