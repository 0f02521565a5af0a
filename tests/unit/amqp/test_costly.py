"""Costly steps of logins: one in each round of the loop, lines in turn, and none that waits keeps the loop busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from isthmus_router.amqp.costly import AGAIN_SECONDS, CostlySteps, Step
from isthmus_router.amqp.driver import TURN_SECONDS, Driver
from isthmus_router.core.router import RouterCore
from isthmus_router.scram import MOST_ITERATIONS, excess_of


class Loop:
    """Keeps the calls that are asked for, and makes them in rounds."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []

    def add_reader(self, *_: object) -> None:
        """Nothing arrives."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append((seconds, call))

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def round(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()

    def pass_time(self) -> None:
        calls, self.later = self.later, []
        for _, call in calls:
            call()


class Steps:
    """Costly steps of a test, worked off at once."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.done: list[str] = []
        self.looks = 0
        self.due = True
        self.costly = CostlySteps(self._work, self.loop)  # type: ignore[arg-type]
        self.jobs: list[Iterator[None]] = []

    def _work(self, job: Iterator[None]) -> None:
        self.jobs.append(job)

    def work_off(self) -> None:
        while self.jobs:
            for _ in self.jobs.pop():
                pass

    def step(self, name: str, *, waits: bool = False) -> Step:
        def step() -> bool:
            self.looks += 1
            if waits and not self.due:
                return False
            self.done.append(name)
            return True

        return step


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_one_step_in_a_round_of_the_loop() -> None:
    loop = Loop()
    driver = Driver(RouterCore("R", edge=False), loop)  # type: ignore[arg-type]
    done: list[float] = []

    def compute() -> bool:
        time.sleep(TURN_SECONDS)
        done.append(time.monotonic())
        return True

    for number in range(8):
        driver.costly_steps.add(f"host {number % 2}", compute)
    assert not done, "not while a connection is read"
    for rounds in range(1, 9):
        loop.round()
        assert len(done) == rounds


def test_lines_take_turns_and_keep_their_order(steps: Steps) -> None:
    for number in range(3):
        steps.costly.add("crowd", steps.step(f"crowd {number}"))
    steps.costly.add("one", steps.step("one"))
    steps.work_off()
    assert steps.done == ["crowd 0", "one", "crowd 1", "crowd 2"]
    assert len(steps.costly) == 0


def test_a_line_that_waits_holds_up_no_other(steps: Steps) -> None:
    steps.due = False
    for number in range(3):
        steps.costly.add("waits", steps.step(f"waits {number}", waits=True))
    steps.costly.add("other", steps.step("other"))
    steps.work_off()
    assert steps.done == ["other"]
    assert steps.looks <= 4, "it is looked at, and left"
    steps.due = True
    steps.costly.go_on()
    steps.work_off()
    assert steps.done == ["other", "waits 0", "waits 1", "waits 2"]


def test_what_waits_is_looked_at_each_second(steps: Steps) -> None:
    steps.due = False
    steps.costly.add("waits", steps.step("waits", waits=True))
    for _ in range(5):
        steps.costly.go_on()
        steps.work_off()
        assert [seconds for seconds, _ in steps.loop.later] == [AGAIN_SECONDS], "one timer"
    steps.due = True
    steps.loop.pass_time()
    steps.work_off()
    assert steps.done == ["waits"]
    assert not steps.loop.later


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=abc,s=QUFB,i=4096",
        b"r=abc,s=QUFB,i=%d" % MOST_ITERATIONS,
        b"r=abc,s=QUFB,i=1,x=1",
        b"v=abcdef",
        b"",
    ],
)
def test_usual_challenges(challenge: bytes) -> None:
    assert excess_of(challenge) == ""


@pytest.mark.parametrize(
    "count",
    [b"10001", b"65536", b"99999999999", b"1" * 30, b"", b" 65536", b"+65536", b"-1", b"0x10000", b"1\0"],
)
def test_counts_beyond_the_bound(count: bytes) -> None:
    assert excess_of(b"r=abc,s=QUFB,i=" + count)
    assert excess_of(b"r=" + b"x" * 10_000 + b",s=QUFB,i=" + count + b",x=1")
    assert excess_of(b"r=abc,s=QUFB,i=4096,i=" + count)
