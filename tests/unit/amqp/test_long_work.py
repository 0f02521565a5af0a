"""Long pieces of work take one slice in each round of the event loop, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from isthmus_router.amqp.driver import AT_ONCE, Driver
from isthmus_router.core.router import RouterCore


class Loop:
    """Counts the calls that the driver asks for, and makes them in rounds."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def add_reader(self, *_: object) -> None:
        """Nothing arrives."""

    def call_later(self, *_: object) -> None:
        """No time passes."""

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def round(self) -> int:
        """How many calls this one has made."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()
        return len(calls)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def driver(loop: Loop) -> Driver:
    return Driver(RouterCore("R", edge=False), loop)  # type: ignore[arg-type]


def test_work_that_starts_other_work_takes_one_slice_in_a_round(driver: Driver, loop: Loop) -> None:
    done: list[str] = []

    def short() -> Iterator[None]:
        done.append("short")
        yield from ()

    def long() -> Iterator[None]:
        for _ in range(5000):
            driver.work(short())
            yield
        done.append("long")

    driver.work(long())
    while "long" not in done:
        assert loop.round() == 1
    while driver._jobs:
        assert loop.round() == 1
    assert done.count("short") == 5000
    assert not loop.calls


def test_work_after_work_has_its_turn(driver: Driver, loop: Loop) -> None:
    done: list[int] = []

    def job(number: int) -> Iterator[None]:
        done.append(number)
        yield from ()

    def broken() -> Iterator[None]:
        raise ValueError
        yield

    for number in range(3):
        driver.work(broken())
        driver.work(job(number))
        while driver._jobs:
            assert loop.round() == 1
    assert done == [0, 1, 2]


def test_connections_that_wait_have_one_turn_in_a_round(driver: Driver, loop: Loop) -> None:
    class Waiting:
        costly, core, id = 0, None, 1

        def go_on(self) -> None:
            driver.postpone(self)  # type: ignore[arg-type]

    waiting = Waiting()
    driver.postpone(waiting)  # type: ignore[arg-type]
    for _ in range(20):
        driver.turn()  # as when something has arrived
        assert loop.round() == 1


def test_connections_are_looked_at_in_steps(driver: Driver) -> None:
    """Each second, and not again before the router has looked at all of them."""
    looked: list[int] = []

    def connection(number: int) -> SimpleNamespace:
        sessions = SimpleNamespace(second_passed=lambda: looked.append(number))
        answers, detached = SimpleNamespace(second_passed=int), SimpleNamespace(has_cramped_sessions=False)
        one = SimpleNamespace(
            closed=False, stirred=False, sessions=sessions, answers=answers, detached=detached
        )
        return SimpleNamespace(io=one)

    number = 10 * AT_ONCE
    connections = {n: connection(n) for n in range(number)}
    with (
        patch.object(driver.core, "connections", connections),
        patch.object(driver.forwarder.streams, "trim", lambda _: None),
        patch("isthmus_router.amqp.driver.is_full", lambda _: False),
    ):
        driver._second_passed()
        assert not looked
        (job,) = (job for job in driver._jobs if getattr(job, "__name__", "") == "_look_at_connections")
        next(job)
        assert len(looked) == AT_ONCE
        driver._second_passed()
        assert sum(getattr(job, "__name__", "") == "_look_at_connections" for job in driver._jobs) == 1
        assert not list(filter(None, job))
        assert looked == list(range(number))
