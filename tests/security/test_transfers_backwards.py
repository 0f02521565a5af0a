"""Transfers on links on which the router sends: the connection is closed before the engine mixes up its deliveries.

The engine takes such a transfer. When its link is freed, a disposition that names it reaches memory that is freed, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.by_hand import (
    ACCEPTED,
    AMPLE,
    ByHand,
    attach_frame,
    body,
    credit_frame,
    open_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.link_routes import Wire, await_containers, link_route
from tests.integration.support.ports import free_port
from tests.integration.support.raw import ATTACH, BEGIN, CLOSE, DETACH, DISPOSITION, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, address, listener
from tests.security.support.canary import Canary

from isthmus_router.message.types import UInt, UShort

NOT_ALLOWED = "amqp:not-allowed"
LEAVING = frame(DETACH, [UInt(0), True])
TRANSFERS = {
    "whole": transfer_frame(0, body("evil")),
    "empty": transfer_frame(0, b""),
    "settled": transfer_frame(0, body("evil"), settled=True),
    "begun": transfer_frame(0, body("evil"), more=True),
    "begun without a byte": transfer_frame(0, b"", more=True),
    "aborted": transfer_frame(0, b"", aborted=True),
}


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a link route and an auto-link for containers."""
    sections = [
        listener(free_port(), "route-container", name="containers"),
        *[link_route(direction=direction) for direction in ("in", "out")],
        ("autoLink", {"address": "auto", "direction": "out", "containerId": "auto"}),
        address("nobody", "unavailable"),
    ]
    return either_kernel().add("A", *sections, mode="interior").start()


@pytest.fixture
def unharmed(attacked: Router) -> Iterator[Router]:
    """The router, which goes on with the work of others during the test."""
    with Canary(attacked) as canary:
        yield attacked
    canary.report.check()


def containers(router: Router) -> int:
    """The port for containers."""
    return int(
        next(s["port"] for kind, s in router.sections if kind == "listener" and s.get("name") == "containers")
    )


def dispositions(first: int = 0, last: int = 3) -> bytes:
    """What a sender says of its deliveries."""
    return frame(DISPOSITION, [False, UInt(first), UInt(last), True, ACCEPTED])


def test_a_receiver_sends(unharmed: Router) -> None:
    for credit in (0, 10):
        for transfer in TRANSFERS.values():
            for more in (b"", LEAVING + dispositions()):
                with ByHand(unharmed.port) as peer:
                    peer.attach(receive_from("any", credit=credit))
                    peer.send(transfer, more)
                    peer.expect_error(CLOSE, NOT_ALLOWED)


def test_a_receiver_sends_on_a_link_that_gets_messages_in_the_same_moment(unharmed: Router) -> None:
    for settled in (True, False):
        with ByHand(unharmed.port) as peer:
            peer.attach(receive_from("loop", credit=10))
            peer.attach(send_to("loop", 1))
            peer.await_credit()
            to_itself = [transfer_frame(n, body("own"), handle=1, settled=settled) for n in range(2)]
            peer.send(*to_itself, transfer_frame(2, body("evil")), LEAVING, dispositions())
            peer.expect_error(CLOSE, NOT_ALLOWED)


def test_a_receiver_sends_in_the_middle_of_a_large_message(unharmed: Router) -> None:
    with ByHand(unharmed.port) as sender, ByHand(unharmed.port) as peer:
        peer.attach(receive_from("large", credit=1))
        sender.attach(send_to("large"))
        sender.await_credit()
        sender.send(transfer_frame(0, b"\x00\x53\x75\xb0\x00\x10\x00\x00" + b"x" * 16_000, more=True))
        sender.send(*[transfer_frame(None, b"x" * 16_000, more=True)] * 10)
        peer.expect(TRANSFER)
        peer.send(frame(DISPOSITION, [True, UInt(0), None, False, None]))  # what a receiver may say
        peer.round_trip()
        peer.send(TRANSFERS["empty"])
        peer.expect_error(CLOSE, NOT_ALLOWED)


def test_a_receiver_sends_on_a_link_that_the_router_has_refused(unharmed: Router) -> None:
    """The close of the link crosses the transfer: the router ignores it, and what is said of it afterwards."""
    for transfer in TRANSFERS.values():
        with ByHand(unharmed.port) as peer:
            peer.send(receive_from("nobody"))
            peer.expect(DETACH)
            peer.send(transfer)
            peer.round_trip()
            peer.send(LEAVING)
            peer.round_trip()
            peer.send(*[dispositions()] * 3)
            peer.round_trip()


def test_the_receiver_of_a_routed_link_sends(unharmed: Router) -> None:
    for to_container in (True, False):
        with contextlib.closing(Wire(unharmed, containers(unharmed), to_container=to_container)) as wire:
            wire.receiver.send(credit_frame(0, 5))
            wire.sender.await_credit()
            wire.receiver.send(transfer_frame(0, body("evil")), LEAVING, dispositions())
            wire.receiver.expect_error(CLOSE, NOT_ALLOWED)
            wire.sender.expect(DETACH)
            wire.sender.round_trip()
    await_containers(unharmed, 0, 0)


def test_the_container_of_an_auto_link_sends(unharmed: Router) -> None:
    with ByHand(containers(unharmed), opened=open_frame("auto"), begun=b"") as container:
        (begun,) = container.expect(BEGIN)
        (asked,) = container.expect(ATTACH)
        container.send(
            frame(BEGIN, [UShort(begun.channel), UInt(0), AMPLE, AMPLE]),
            attach_frame(asked.field(0), 0, receiver=True, source="auto", target="auto"),
            TRANSFERS["whole"],
            LEAVING,
            dispositions(),
        )
        container.expect_error(CLOSE, NOT_ALLOWED)


def test_a_receiver_may_say_two_things_at_once(unharmed: Router) -> None:
    """The second is about a delivery that the router has settled already."""
    with ByHand(unharmed.port) as receiver, ByHand(unharmed.port) as sender:
        receiver.attach(receive_from("twice", credit=10))
        sender.attach(send_to("twice"))
        sender.await_credit()
        for number in range(3):
            sender.send(transfer_frame(number, body("one")))
            receiver.expect(TRANSFER)
            said = [True, UInt(number), None]
            receiver.send(
                frame(DISPOSITION, [*said, False, ACCEPTED]), frame(DISPOSITION, [*said, True, ACCEPTED])
            )
            sender.expect(DISPOSITION)
        receiver.round_trip()
