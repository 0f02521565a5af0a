"""Connections that wait for their turns: none is lost, and no client has more than its share of the time."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.amqp.waiting import MOST_ABSENT, WaitingConnections

Connection = tuple[str, int]
"""The client, and the number of the connection."""


def waiting() -> WaitingConnections[Connection]:
    return WaitingConnections(lambda connection: connection[0])


CONNECTIONS = st.tuples(st.sampled_from("abc"), st.integers(0, 3))


@given(st.lists(CONNECTIONS | st.floats(0.0, 1.0)))
def test_each_connection_has_one_turn_for_each_time_that_it_is_added(steps: list[Connection | float]) -> None:
    """A number is a turn of so many seconds, in which the connection may be added again."""
    queue = waiting()
    present: set[Connection] = set()
    for step in steps:
        if isinstance(step, tuple):
            queue.add(step)
            present.add(step)
        elif present:
            taken = queue.take()
            assert taken in present
            if step > 0.5:
                queue.add(taken)
            else:
                present.remove(taken)
            queue.had_turn(step)
        assert queue.connections == present


@pytest.mark.parametrize(
    "seconds", [{"a": 1.0, "b": 1.0}, {"a": 4.0, "b": 1.0}], ids=["alike", "one is costly"]
)
def test_clients_have_as_much_time_however_many_connections_they_have(seconds: dict[str, float]) -> None:
    queue = waiting()
    for number in range(100):
        queue.add(("a", number))
    queue.add(("b", 0))
    had: Counter[str] = Counter()
    for _ in range(200):
        client, number = queue.take()
        had[client] += int(seconds[client])
        queue.add((client, number))
        queue.had_turn(seconds[client])
    assert abs(had["a"] - had["b"]) <= max(seconds.values())


def test_connections_of_a_client_take_turns() -> None:
    queue = waiting()
    for number in range(5):
        queue.add(("a", number))
    taken = []
    for _ in range(10):
        connection = queue.take()
        taken.append(connection[1])
        queue.add(connection)
        queue.had_turn(1.0)
    assert taken == [0, 1, 2, 3, 4] * 2


def test_a_client_that_comes_waits_for_one_turn_of_each_other_client_at_most() -> None:
    queue = waiting()
    for number in range(1_000):
        queue.add((f"client-{number % 50}", number))
    for turn in range(500):
        queue.had_turn(1.0 if turn and queue.take() else 0.0)
    queue.add(("late", 0))
    assert "late" in [_turn(queue)[0] for _ in range(51)]


def _turn(queue: WaitingConnections[Connection]) -> Connection:
    connection = queue.take()
    queue.had_turn(1.0)
    return connection


def test_a_client_does_not_save_up_time_while_nothing_of_it_waits() -> None:
    queue = waiting()
    queue.add(("idle", 0))
    _turn(queue)
    for number in range(100):
        queue.add(("busy", number))
    for _ in range(50):
        _turn(queue)
    for number in range(20):
        queue.add(("idle", number))
    turns = Counter(_turn(queue)[0] for _ in range(20))
    assert abs(turns["idle"] - turns["busy"]) <= 1


def test_clients_that_have_gone_are_forgotten() -> None:
    queue = waiting()
    queue.add(("always", 0))
    for number in range(10_000):
        queue.add((f"client-{number}", 0))
        queue.add(_turn(queue))
        _turn(queue)
    assert len(queue._clients) <= 2 * (len(queue.connections) + 1) + MOST_ABSENT + 2
