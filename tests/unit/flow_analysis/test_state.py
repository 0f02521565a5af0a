"""What a stream knows of hours: which are closed, what is forgotten, what is late; and its files."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_flows.log import Quality
from isthmus_flows.log.files import Quarantined
from isthmus_flows.state import Hour, State, States
from isthmus_flows.storage import Entry, Storage


class Memory:
    """Files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def list(self, url: str) -> list[Entry]:
        names = [path.rpartition("/")[2] for path in self.files if path.startswith(f"{url}/")]
        return [Entry(name, f"{url}/{name}", True, 0, 0) for name in sorted(names)]

    def read(self, url: str) -> str:
        return self.files[url]

    def write(self, url: str, text: str) -> None:
        self.files[url] = text

    def delete(self, url: str) -> None:
        del self.files[url]


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def states(memory: Memory) -> States:
    return States(cast(Storage, memory), "checkpoint/hours")


def hour(version: int, **quality: int) -> Hour:
    return Hour(version, Quality("deliveries", **quality))


def test_the_watermark_is_behind_the_newest_hour() -> None:
    assert not State().closed(0, 2)
    state = State(newest=10)
    assert [number for number in range(12) if state.closed(number, 2)] == list(range(8))


@given(st.lists(st.none() | st.integers(0, 50), max_size=6))
def test_the_newest_hour_never_goes_back(newest: list[int | None]) -> None:
    state = State()
    for number, found in enumerate(newest):
        after = state.after(number, found, {}, 0)
        assert after.newest == max((item for item in newest[: number + 1] if item is not None), default=None)
        state = after


def test_hours_take_the_place_of_what_was_known_of_them_and_are_forgotten_before_the_horizon() -> None:
    first = State().after(0, 7, {5: hour(0), 6: hour(0), 7: hour(0)}, 0)
    second = first.after(1, None, {7: hour(1)}, 6)
    assert (second.batch, second.newest) == (1, 7)
    assert {number: found.version for number, found in second.hours.items()} == {6: 0, 7: 1}


def test_late_rows_are_added_to_those_of_before() -> None:
    state = State(hours={5: hour(3, rows=10, late=2), 6: hour(3)})
    assert state.with_late({5: 4, 9: 1}) == {5: hour(3, rows=10, late=6)}


def test_a_state_is_read_as_it_was_written(states: States) -> None:
    gone = Quarantined("deliveries", "x.parquet", "empty", None, 5)
    state = State(4, 7, {5: Hour(4, Quality("deliveries", 1, 2, 3, 4, 5, 6), [gone]), 7: hour(3)})
    states.save(state)
    found = states.last()
    assert (found.batch, found.newest, found.hours[7]) == (4, 7, Hour(3, Quality("deliveries"), []))
    assert found == state.after(4, 7, {7: Hour(3, Quality("deliveries"), [])}, 0)


def test_a_batch_that_is_done_again_begins_with_the_state_before_it(states: States, memory: Memory) -> None:
    for number in range(5):
        states.save(State(number))
    assert set(memory.files) == {"checkpoint/hours/3.json", "checkpoint/hours/4.json"}
    assert states.last().batch == 4
    assert states.last(before=4).batch == 3
    assert States(cast(Storage, Memory()), "checkpoint/hours").last() == State()


def test_a_stream_that_begins_anew_forgets_the_former_one(states: States, memory: Memory) -> None:
    states.save(State(40))
    assert states.last(before=0) == State()
    states.save(State(0))
    assert set(memory.files) == {"checkpoint/hours/0.json"}


def test_qualities_add_up() -> None:
    one = Quality("deliveries", 1, 2, 3, 4, 5, 6)
    assert one + one == Quality("deliveries", 2, 4, 6, 8, 10, 12)
