"""Delivery tags of more than 32 bytes, which the engine keeps as long as their deliveries are unsettled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import (
    ByHand,
    body,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.link_routes import Wire, await_containers, link_route
from tests.integration.support.ports import free_port
from tests.integration.support.raw import CLOSE, DETACH, TRANSFER
from tests.integration.support.routers import Router, Routers, address, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.frames import Flood, attach, begin, flow, opening

LONGEST = b"t" * 32
TOO_LONG = b"t" * 33
INVALID_FIELD = "amqp:invalid-field"
LINKS, DELIVERIES = 100, 240
MOST_GROWTH = 32 << 20


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    sections = [
        listener(free_port(), "route-container", name="containers"),
        *[link_route(direction=direction) for direction in ("in", "out")],
        address("nobody", "unavailable"),
    ]
    return either_kernel().add("A", *sections, mode="interior").start()


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])
def test_a_sender(attacked: Router, *, settled: bool) -> None:
    with ByHand(attacked.port) as receiver, ByHand(attacked.port) as sender:
        receiver.attach(receive_from("tags", credit=10))
        sender.attach(send_to("tags"))
        sender.await_credit()
        sender.send(transfer_frame(0, body("good"), tag=LONGEST, settled=settled))
        receiver.expect(TRANSFER)
        sender.send(transfer_frame(1, body("evil"), tag=TOO_LONG, settled=settled))
        sender.expect_error(CLOSE, INVALID_FIELD)


def test_the_beginning_of_a_message(attacked: Router) -> None:
    with ByHand(attacked.port) as receiver, ByHand(attacked.port) as sender:
        receiver.attach(receive_from("tags", credit=10))
        sender.attach(send_to("tags"))
        sender.await_credit()
        sender.send(transfer_frame(0, body("evil"), tag=TOO_LONG, more=True))
        sender.expect_error(CLOSE, INVALID_FIELD)


def test_behind_a_message_that_waits(attacked: Router) -> None:
    """The router does not read the link on which it comes."""
    with ByHand(attacked.port) as receiver, ByHand(attacked.port) as sender:
        receiver.attach(receive_from("tags"))
        sender.attach(send_to("tags"))
        sender.await_credit()
        large = b"\x00\x53\x75\xb0" + (1 << 20).to_bytes(4) + b"x" * 16_000
        sender.send(
            transfer_frame(0, large, more=True), *[transfer_frame(None, b"x" * 16_000, more=True)] * 4
        )
        sender.send(transfer_frame(None, b""), transfer_frame(1, body("evil"), tag=TOO_LONG))
        sender.expect_error(CLOSE, INVALID_FIELD)


def test_a_link_that_the_router_has_refused(attacked: Router) -> None:
    with ByHand(attacked.port) as sender:
        sender.send(send_to("nobody"))
        sender.expect(DETACH)
        sender.send(transfer_frame(0, body("evil"), tag=TOO_LONG))
        sender.expect_error(CLOSE, INVALID_FIELD)


def test_a_routed_link(attacked: Router) -> None:
    port = next(
        s["port"] for kind, s in attacked.sections if kind == "listener" and s["name"] == "containers"
    )
    for to_container in (True, False):
        with contextlib.closing(Wire(attacked, int(port), to_container=to_container)) as wire:
            wire.receiver.send(credit_frame(0, 5))
            wire.sender.await_credit()
            good = transfer_frame(0, body("good"), tag=LONGEST)
            wire.sender.send(good, transfer_frame(1, body("evil"), tag=TOO_LONG))
            wire.sender.expect_error(CLOSE, INVALID_FIELD)
            wire.receiver.expect(DETACH)
            assert [one.field(2) for one in wire.receiver.rest() if one.code == TRANSFER] in ([LONGEST], [])
    await_containers(attacked, 0, 0)


def test_memory(attacked: Router) -> None:
    with Canary(attacked) as canary, Flood(attacked.port) as receiver, Flood(attacked.port) as sender:
        receiver.send(opening(), begin(), attach(0, "rx", "many", receiver=True), flow(0, 1_000_000))
        sender.send(opening(), begin(), *(attach(link, f"tx{link}", "many") for link in range(LINKS)))
        before = memory(attacked.pid)
        for number in range(LINKS * DELIVERIES):
            tag = number.to_bytes(4) + bytes(16_000)
            if not sender.send(transfer_frame(number, body("x"), handle=number // DELIVERIES, tag=tag)):
                break
        assert sender.closed.wait(60)
        grown = memory(attacked.pid) - before
    canary.report.check()
    assert grown < MOST_GROWTH
