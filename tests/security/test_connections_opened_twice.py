"""Connections that are opened twice: the router closes them, and counts none of them twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import ByHand, open_frame, receive_from
from tests.integration.support.raw import CLOSE
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary

ROUNDS = 100


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients."""
    return either_kernel().add("A").start()


def connections(router: Router) -> tuple[int, int]:
    """How many are open, and how many have been opened."""
    counters = router.status()["counters"]
    return counters["connectionCount"], counters["connectionsOpened"]


def test_an_open_connection_is_opened_again(attacked: Router) -> None:
    before = connections(attacked)
    with Canary(attacked) as canary:
        for _ in range(ROUNDS):
            with ByHand(attacked.port) as peer:
                peer.attach(receive_from("any"))
                peer.send(*(open_frame() + receive_from("any", handle) for handle in (1, 2, 3)))
                peer.expect_error(CLOSE, "amqp:not-allowed")
    canary.report.check()
    eventually(lambda: connections(attacked)[0] == before[0], "no connection is left")
    assert connections(attacked)[1] < before[1] + 2 * ROUNDS
