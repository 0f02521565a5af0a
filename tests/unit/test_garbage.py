"""Full collections of garbage: how often there are any, and when memory goes back to the system."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus_router import garbage

LAST = 2**31 - 1


class Interpreter:
    """Time, a garbage collector and an event loop in simulated time."""

    def __init__(self, seconds: float, of_object: float = 0.0) -> None:
        """`seconds` that a full collection takes beside those for each object that it examines, and that it takes to
        give memory back."""
        self.seconds = seconds
        self.of_object = of_object
        self.new = self.frozen = 0
        """Objects that a full collection examines, and others."""
        self.took: list[float] = []
        self.now = 1000.0
        self.middle = 0
        """Collections of the middle generation since the last full one."""
        self.threshold = (700, 10, 10)
        self.full: list[float] = []
        self.trimmed = self.ended = 0
        self._later: list[tuple[float, Callable[[], None]]] = []

    def collect(self) -> int:
        self.full.append(self.now)
        self.took.append(self.seconds + self.new * self.of_object)
        self.now += self.took[-1]
        self.middle = 0
        return 0

    def freeze(self) -> None:
        self.frozen, self.new, self.middle = self.frozen + self.new, 0, 0

    def unfreeze(self) -> None:
        self.frozen, self.new = 0, self.frozen + self.new

    def set_threshold(self, *threshold: int) -> None:
        self.threshold = (threshold[0], threshold[1], threshold[2])

    def trim(self, _: int) -> int:
        self.trimmed += 1
        self.now += self.seconds
        return 1

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._later.append((self.now + delay, call))

    def run(self, seconds: float, each_second: Callable[[], None]) -> None:
        end = self.now + seconds
        while self.now < end:
            at, call = self._later.pop(0)
            self.now = max(self.now, at)
            each_second()
            call()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Interpreter]:
    """Full collections of a simulated interpreter."""

    def begin(seconds: float, of_object: float = 0.0) -> Interpreter:
        interpreter = Interpreter(seconds, of_object)
        collector = SimpleNamespace(
            collect=interpreter.collect,
            freeze=interpreter.freeze,
            unfreeze=interpreter.unfreeze,
            get_threshold=lambda: interpreter.threshold,
            set_threshold=interpreter.set_threshold,
            get_count=lambda: (0, 0, interpreter.middle),
        )
        monkeypatch.setattr(garbage, "gc", collector)
        monkeypatch.setattr(garbage, "time", SimpleNamespace(monotonic=lambda: interpreter.now))
        monkeypatch.setattr(garbage, "_trim_memory", interpreter.trim)
        loop: Any = interpreter
        garbage.FullCollections(loop, lambda: interpreter.ended)
        interpreter.full.clear()
        interpreter.took.clear()
        return interpreter

    return begin


def test_the_interpreter_makes_no_full_collections_by_itself(begun: Callable[..., Interpreter]) -> None:
    assert begun(0.1).threshold == (700, 10, LAST)


@pytest.mark.parametrize("seconds", [0.01, 0.1, 3.0])
@pytest.mark.parametrize("cause", ["garbage", "connections"])
def test_each_takes_a_hundredth_of_the_time(
    begun: Callable[..., Interpreter], seconds: float, cause: str
) -> None:
    interpreter = begun(seconds)

    def much() -> None:
        if cause == "garbage":
            interpreter.middle += 1000
        else:
            interpreter.ended += 1000

    interpreter.run(10_000, much)
    times = len(interpreter.full) if cause == "garbage" else interpreter.trimmed
    assert times > 30
    assert times * seconds <= 0.01 * 10_000 + seconds
    assert len(interpreter.full) + interpreter.trimmed == times


def test_a_collection_examines_few_new_objects(begun: Callable[..., Interpreter]) -> None:
    interpreter = begun(0.0, 0.4e-6)

    def attach() -> None:
        interpreter.new += 7_700
        interpreter.middle += 1
        interpreter.frozen = 0  # a collection of everything takes longer

    interpreter.run(60, attach)
    assert len(interpreter.took) > 10
    assert max(interpreter.took) < 0.015


def test_memory_goes_back_after_256_connections(begun: Callable[..., Interpreter]) -> None:
    interpreter = begun(0.001)
    interpreter.run(10, lambda: None)
    interpreter.ended = 255
    interpreter.run(10, lambda: None)
    assert not interpreter.trimmed
    interpreter.ended = 256
    interpreter.run(10, lambda: None)
    assert (len(interpreter.full), interpreter.trimmed) == (0, 1)


def test_what_has_been_there_before_is_examined_once_in_a_while(begun: Callable[..., Interpreter]) -> None:
    """A client attaches 100,000 links, and others come and go."""
    interpreter = begun(0.02, 0.3e-6)

    def attach() -> None:
        interpreter.new += 20_000
        interpreter.middle += 3

    def come_and_go() -> None:
        interpreter.new += 1000
        interpreter.frozen = max(0, interpreter.frozen - 1000)
        interpreter.middle += 3

    interpreter.run(15, attach)
    assert interpreter.new + interpreter.frozen > 3_000_000 / 1.1
    interpreter.run(10_000, come_and_go)
    long = [seconds for seconds in interpreter.took if seconds > 0.05]
    assert len(interpreter.took) > 1000
    assert 0 < sum(long) <= 0.0005 * 10_000 + max(interpreter.took)
    assert sum(interpreter.took) <= 0.01 * 10_000 + max(interpreter.took)
