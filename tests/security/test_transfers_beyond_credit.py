"""A link that the router does not read for now takes no more messages than it has credit for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.by_hand import ByHand, receive_from, send_to, transfer_frame
from tests.integration.support.raw import DETACH, FLOW, frame
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary, memory

from isthmus_router.message.types import UInt

BEYOND = 400
"""More than there is credit for."""
MOST_GROWN = 16 * 1024 * 1024


@pytest.fixture
def attacked(either_kernel: Callable[[], Routers]) -> Iterator[Router]:
    """A router that passes on the messages of others in the meantime, and does not grow."""
    router = either_kernel().add("A").start()
    with Canary(router) as canary:
        before = memory(router.pid)
        yield router
        grown = memory(router.pid) - before
    canary.report.check()
    assert grown < MOST_GROWN, f"{grown} bytes"


def data(size: int) -> bytes:
    """A message of one data section."""
    return b"\x00\x53\x75\xb0" + size.to_bytes(4) + b"x" * size


@pytest.mark.parametrize("waiting", ["parked", "stream"])
def test_transfers_without_payload(attacked: Router, waiting: str) -> None:
    """While messages wait for a receiver without credit; the session's window counts bytes, and these have none."""
    with ByHand(attacked.port) as client:
        client.attach(receive_from("slow", 1))
        client.attach(send_to("slow"))
        assert client.await_credit() < BEYOND
        if waiting == "parked":
            sent = 80
            client.send(*(transfer_frame(n, data(16_000)) for n in range(sent)))
        else:
            sent, message = 1, data(200_000)
            pieces = [message[start : start + 16_000] for start in range(0, len(message), 16_000)]
            client.send(transfer_frame(0, pieces[0], more=True))
            client.send(*(transfer_frame(None, piece, more=True) for piece in pieces[1:]))
            client.send(transfer_frame(None, b""))
        client.send(*(transfer_frame(sent + n, b"", settled=True) for n in range(BEYOND)))
        client.expect_error(DETACH, "amqp:link:transfer-limit-exceeded")


def test_credit_by_wrap_around(attacked: Router) -> None:
    """Two flows whose delivery-counts go once around would leave the engine with a million credits."""
    with ByHand(attacked.port) as client:
        client.attach(receive_from("slow", 1))
        client.attach(send_to("slow"))
        client.await_credit()
        client.send(counted(2**31 - 1) + counted(2**32 - 1_000_000))
        client.expect_error(DETACH, "amqp:link:transfer-limit-exceeded")


def counted(deliveries: int) -> bytes:
    """A flow of the sender on handle 0 that says to have sent so many."""
    return frame(FLOW, [UInt(0), UInt(10_000), UInt(0), UInt(10_000), UInt(0), UInt(deliveries), UInt(0)])
