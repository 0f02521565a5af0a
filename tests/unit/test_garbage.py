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

    def __init__(self, seconds: float) -> None:
        """`seconds` that a full collection takes, and that it takes to give memory back."""
        self.seconds = seconds
        self.now = 1000.0
        self.middle = 0
        """Collections of the middle generation since the last full one."""
        self.threshold = (700, 10, 10)
        self.full: list[float] = []
        self.trimmed = self.ended = 0
        self._later: list[tuple[float, Callable[[], None]]] = []

    def collect(self) -> int:
        self.full.append(self.now)
        self.now += self.seconds
        self.middle = 0
        return 0

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
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Interpreter]:
    """Full collections of a simulated interpreter."""

    def begin(seconds: float) -> Interpreter:
        interpreter = Interpreter(seconds)
        collector = SimpleNamespace(
            collect=interpreter.collect,
            freeze=lambda: None,
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
        return interpreter

    return begin


def test_the_interpreter_makes_no_full_collections_by_itself(begun: Callable[[float], Interpreter]) -> None:
    assert begun(0.1).threshold == (700, 10, LAST)


@pytest.mark.parametrize("seconds", [0.01, 0.1, 3.0])
@pytest.mark.parametrize("cause", ["garbage", "connections"])
def test_each_takes_a_hundredth_of_the_time(
    begun: Callable[[float], Interpreter], seconds: float, cause: str
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


def test_memory_goes_back_after_256_connections(begun: Callable[[float], Interpreter]) -> None:
    interpreter = begun(0.001)
    interpreter.run(10, lambda: None)
    interpreter.ended = 255
    interpreter.run(10, lambda: None)
    assert not interpreter.trimmed
    interpreter.ended = 256
    interpreter.run(10, lambda: None)
    assert (len(interpreter.full), interpreter.trimmed) == (0, 1)
