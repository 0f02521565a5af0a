"""Requests that wait: connections have their turns."""

from __future__ import annotations

import pytest

from isthmus_router.management.port import Requester
from isthmus_router.management.waiting import MOST_BYTES, MOST_OF_ONE, MOST_REQUESTS, WaitingRequests


@pytest.fixture
def waiting() -> WaitingRequests:
    return WaitingRequests()


def add(waiting: WaitingRequests, connection: int | None, payload: bytes = b"x") -> list[str]:
    return waiting.add(payload, Requester(connection))


def taken(waiting: WaitingRequests) -> list[tuple[int | None, bytes]]:
    found = []
    while waiting:
        payload, requester = waiting.take()
        found.append((requester.connection_id, payload))
    return found


def test_connections_take_turns(waiting: WaitingRequests) -> None:
    for number in range(3):
        assert not add(waiting, 1, b"%d" % number)
    assert not add(waiting, 2, b"a")
    assert not add(waiting, None, b"b")
    assert taken(waiting) == [(1, b"0"), (2, b"a"), (None, b"b"), (1, b"1"), (1, b"2")]


def test_one_connection_cannot_fill_it(waiting: WaitingRequests) -> None:
    for _ in range(MOST_OF_ONE):
        assert not add(waiting, 1)
    assert add(waiting, 1) == [f"{MOST_OF_ONE} requests of one connection wait"]
    assert not add(waiting, 2)
    assert len(waiting) == MOST_OF_ONE + 1


def test_many_connections_that_fill_it_make_room_for_another(waiting: WaitingRequests) -> None:
    for number in range(MOST_REQUESTS):
        assert not add(waiting, number % 20)
    assert add(waiting, 99, b"victim") == ["requests of other connections wait"]
    assert len(waiting) == MOST_REQUESTS
    assert (99, b"victim") in taken(waiting)[:21]


def test_bytes_are_bounded_by_those_who_have_the_most_waiting(waiting: WaitingRequests) -> None:
    for _ in range(4):
        assert not add(waiting, 1, bytes(MOST_BYTES // 4))
    assert add(waiting, 1, b"more") == ["too many requests wait"]
    assert add(waiting, 2, b"other") == ["requests of other connections wait"]
    assert add(waiting, 3, bytes(MOST_BYTES + 1)) == [f"more than {MOST_BYTES} bytes"]
    assert [connection for connection, _ in taken(waiting)] == [1, 2, 1, 1]


def test_one_large_request_does_not_hold_back_small_ones(waiting: WaitingRequests) -> None:
    assert not add(waiting, 1, bytes(MOST_BYTES))
    assert add(waiting, 2, b"small") == ["requests of other connections wait"]
    assert taken(waiting) == [(2, b"small")]


def test_nothing_is_left_of_a_connection_without_requests(waiting: WaitingRequests) -> None:
    add(waiting, 1)
    taken(waiting)
    assert not waiting
    assert not add(waiting, 2, bytes(MOST_BYTES))
