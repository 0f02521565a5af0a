"""Requests that wait: connections have their turns."""

from __future__ import annotations

from random import Random

import pytest

from isthmus_router.management.port import Requester
from isthmus_router.management.waiting import (
    LARGEST_BYTES,
    MOST_BYTES,
    MOST_OF_ONE,
    MOST_ORIGINS,
    MOST_REQUESTS,
    WaitingRequests,
)

LARGE_REQUESTS = MOST_BYTES // LARGEST_BYTES


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
    assert add(waiting, 1) == [f"{MOST_OF_ONE} requests of one connection or router wait"]
    assert not add(waiting, 2)
    assert len(waiting) == MOST_OF_ONE + 1


def test_many_connections_that_fill_it_make_room_for_another(waiting: WaitingRequests) -> None:
    for number in range(MOST_REQUESTS):
        assert not add(waiting, number % 20)
    assert add(waiting, 99, b"victim") == ["requests of other connections wait"]
    assert len(waiting) == MOST_REQUESTS
    assert (99, b"victim") in taken(waiting)[:21]


def test_bytes_are_bounded_by_those_who_have_the_most_waiting(waiting: WaitingRequests) -> None:
    for _ in range(LARGE_REQUESTS):
        assert not add(waiting, 1, bytes(LARGEST_BYTES))
    assert add(waiting, 1, b"more") == ["too many requests wait"]
    assert add(waiting, 2, b"other") == ["requests of other connections wait"]
    assert add(waiting, 3, bytes(LARGEST_BYTES + 1)) == [f"more than {LARGEST_BYTES} bytes"]
    assert [connection for connection, _ in taken(waiting)] == [1, 2, *[1] * (LARGE_REQUESTS - 2)]


def test_large_requests_do_not_hold_back_small_ones(waiting: WaitingRequests) -> None:
    for _ in range(LARGE_REQUESTS):
        assert not add(waiting, 1, bytes(LARGEST_BYTES))
    assert add(waiting, 2, b"small") == ["requests of other connections wait"]
    assert (2, b"small") in taken(waiting)[:2]


def test_nothing_is_left_of_a_connection_without_requests(waiting: WaitingRequests) -> None:
    add(waiting, 1)
    taken(waiting)
    assert not waiting
    assert not add(waiting, 2, bytes(LARGEST_BYTES))


def of_router(waiting: WaitingRequests, neighbour: int, origin: str, payload: bytes = b"x") -> list[str]:
    return waiting.add(payload, Requester(neighbour=neighbour, origin=origin))


def test_routers_take_turns_within_their_connection(waiting: WaitingRequests) -> None:
    for number in range(3):
        assert not of_router(waiting, 1, "B", b"b%d" % number)
    assert not of_router(waiting, 1, "C", b"c0")
    assert not add(waiting, 9, b"client")
    assert [payload for _, payload in taken(waiting)] == [b"b0", b"client", b"c0", b"b1", b"b2"]


def test_clients_of_one_router_do_not_fill_the_turns_of_another(waiting: WaitingRequests) -> None:
    for _ in range(MOST_OF_ONE):
        assert not of_router(waiting, 1, "B")
    assert of_router(waiting, 1, "B") == [f"{MOST_OF_ONE} requests of one connection or router wait"]
    assert not of_router(waiting, 1, "C", b"victim")
    assert waiting.take()[0] == b"x"
    assert waiting.take()[0] == b"victim"


def test_a_neighbor_that_invents_routers_has_one_turn_of_the_connections(waiting: WaitingRequests) -> None:
    for number in range(2 * MOST_REQUESTS):
        of_router(waiting, 1, f"X{number}")
    assert len(waiting) <= MOST_REQUESTS
    assert len(waiting._queues[1]) <= MOST_ORIGINS + 1
    assert not of_router(waiting, 2, "B", b"victim")
    assert b"victim" in [payload for _, payload in taken(waiting)[:2]]


def test_many_requests_of_a_connection_make_room_for_another_of_its_routers(waiting: WaitingRequests) -> None:
    for number in range(MOST_REQUESTS):
        assert not of_router(waiting, 1, f"R{number % 10}")
    assert of_router(waiting, 1, "victim", b"victim") == ["requests of other routers wait"]
    assert len(waiting) == MOST_REQUESTS
    assert b"victim" in [payload for _, payload in taken(waiting)[:11]]


def test_large_requests_of_a_router_make_room_for_small_ones_of_another(waiting: WaitingRequests) -> None:
    for _ in range(LARGE_REQUESTS):
        assert not of_router(waiting, 1, "B", bytes(LARGEST_BYTES))
    assert of_router(waiting, 1, "C", b"small") == ["requests of other routers wait"]
    assert b"small" in [payload for _, payload in taken(waiting)[:2]]


def test_any_requests(waiting: WaitingRequests) -> None:
    random = Random(1)
    added = dropped = 0
    for _ in range(20_000):
        if random.random() < 0.6:
            size = random.choice((1, 1, 1, 100, LARGEST_BYTES))
            requester = random.choice(
                (Requester(random.randrange(5)), Requester(neighbour=9, origin=str(random.randrange(200))))
            )
            dropped += len(waiting.add(bytes(size), requester))
            added += 1
        elif waiting:
            waiting.take()
            added -= 1
        assert waiting._bytes <= MOST_BYTES
        assert len(waiting) == added - dropped <= MOST_REQUESTS
    taken(waiting)
    assert not waiting._queues
    assert waiting._bytes == 0
