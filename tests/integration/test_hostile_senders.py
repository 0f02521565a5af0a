"""Clients that keep to no limit of theirs cost the router bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable

from proton import Message
from tests.integration.support.by_hand import (
    ACCEPTED,
    ByHand,
    attach_frame,
    begin_frame,
    body,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.client import Clients
from tests.integration.support.raw import CLOSE, DETACH, DISPOSITION, FLOW, TRANSFER, frame
from tests.integration.support.routers import WAIT_SECONDS, Router, Routers, eventually

from isthmus_router.message.types import UByte, UInt

BATCH = 200
MEGA = 1_000_000
LARGE = UInt(2**31 - 1)
UNSETTLED = UByte(0)


class Window:
    """How much a sender may send: more frames than the router's window has are a violation."""

    def __init__(self, sender: ByHand, first: int = 400) -> None:
        self._sender = sender
        self._end = first
        self.open = True

    def wait(self, end: int) -> None:
        """Until `end` frames may have been sent."""

        def open_so_far() -> bool:
            for one in self._sender.arrived():
                if one.code == FLOW:
                    self._end = int(one.fields[0]) + int(one.fields[1])
                self.open &= one.code != CLOSE
            self.open &= not self._sender.ended
            return self._end >= end or not self.open

        eventually(open_so_far, f"a window of {end} frames")


def flood(sender: ByHand, count: int, transfer: Callable[[int], bytes], also: ByHand | None = None) -> None:
    window = Window(sender)
    for start in range(0, count, BATCH):
        window.wait(start + BATCH)
        sender.send(*(transfer(number) for number in range(start, start + BATCH)))
        if also is not None:
            also.arrived()


def test_a_sender_that_needs_no_credit(router: Router, clients: Clients) -> None:
    """Its link is closed, though a message has no bytes that anybody would count."""
    stuck = clients.connect(router.port).receiver("greedy", credit=0)
    clients.connect(router.port).receiver("greedy", credit=1)  # so that it gets credit at all
    with ByHand(router.port) as sender:
        sender.send(send_to("greedy"))
        credit = sender.await_credit()
        sender.send(*(transfer_frame(number, body("x")) for number in range(credit + 1)))
        sender.expect_error(DETACH, "amqp:link:transfer-limit-exceeded")
    assert stuck.bodies() == []


def test_messages_that_keep_coming_on_a_detached_link(router: Router, clients: Clients) -> None:
    """What was on its way may come; whoever goes on is thrown out, for the engine keeps all of it."""
    clients.connect(router.port).receiver("errant", credit=0)
    with ByHand(router.port) as sender:
        sender.send(send_to("errant", 0), send_to("nobody/refused", 1))
        sender.expect_error(DETACH, "amqp:not-found")
        sender.await_credit()
        window = Window(sender)
        number = 0
        deadline = time.monotonic() + WAIT_SECONDS
        while window.open:
            assert time.monotonic() < deadline, f"{number} messages are taken"
            window.wait(number + BATCH)
            # Those of the first link, which come last, have its session's window opened again.
            handles = [1] * (BATCH - 5) + [0] * 5
            transfers = (
                transfer_frame(number + at, body("x"), handle=handle, settled=True)
                for at, handle in enumerate(handles)
            )
            try:
                sender.send(*transfers)
            except OSError:
                break
            number += BATCH
        router.await_log("amqp:session:errant-link")


def test_presettled_messages_to_a_session_without_window(routers: Routers) -> None:
    """Credit alone does not have the router collect messages for a receiver."""
    router = routers.start("A")
    with ByHand(router.port, begun=begin_frame(incoming=0)) as receiver, ByHand(router.port) as sender:
        receiver.send(receive_from("windowless"), credit_frame(0, LARGE, incoming=0))
        sender.send(send_to("windowless"))
        sender.await_credit()
        before = router.memory()
        flood(sender, 100_000, lambda number: transfer_frame(number, body("x" * 100), settled=True))
        assert router.memory() - before < 25 * MEGA


def test_presettled_messages_to_a_receiver_that_never_settles(routers: Routers) -> None:
    """It wants them unsettled, and no sender is held back by that."""
    router = routers.start("A")
    with ByHand(router.port, begun=begin_frame(incoming=LARGE)) as receiver, ByHand(router.port) as sender:
        attach = attach_frame("r", 0, receiver=True, source="unasked", settle_modes=(UNSETTLED, None))
        receiver.send(attach, credit_frame(0, LARGE, incoming=LARGE))
        sender.send(send_to("unasked"))
        sender.await_credit()
        before = router.memory()
        flood(sender, 100_000, lambda number: transfer_frame(number, body("x"), settled=True), receiver)
        assert router.memory() - before < 25 * MEGA


def test_a_receiver_that_settles_late_gets_what_waited(router: Router, clients: Clients) -> None:
    """Its own deliveries held it back: it goes on when they are settled, without a word about credit."""
    with ByHand(router.port, begun=begin_frame(incoming=LARGE)) as receiver:
        attach = attach_frame("r", 0, receiver=True, source="late", settle_modes=(UNSETTLED, None))
        receiver.send(attach, credit_frame(0, LARGE, incoming=LARGE))
        with ByHand(router.port) as sender:
            sender.send(send_to("late"))
            sender.await_credit()
            flood(sender, 12_000, lambda number: transfer_frame(number, body(f"{number}"), settled=True))
            sender.round_trip()
            receiver.round_trip()
            taken = [one for one in receiver.rest() if one.code == TRANSFER]
            assert 10_000 <= len(taken) < 12_000
            receiver.send(frame(DISPOSITION, [True, UInt(0), UInt(len(taken) - 1), True, ACCEPTED]))
            assert receiver.expect(TRANSFER)[0].payload == body("11750")


def test_ever_new_destinations(routers: Routers) -> None:
    """An anonymous sender names each of its destinations at length."""
    router = routers.start("A")
    with ByHand(router.port) as sender:
        sender.send(send_to(None))
        sender.await_credit()
        before = router.memory()
        padding = "z" * 10_000
        flood(
            sender,
            4000,
            lambda number: transfer_frame(
                number, Message(address=f"{number}{padding}", body="x").encode(), settled=True
            ),
        )
        assert router.memory() - before < 15 * MEGA


def test_many_senders_that_leave_at_once(routers: Routers) -> None:
    """What each of them has waiting for one consumer is found without a look at what the others have."""
    router = routers.start("A")
    senders, messages = 200, 200
    with ByHand(router.port) as receiver:
        receiver.attach(receive_from("left"))
        with ByHand(router.port) as sender:
            sender.send(*(send_to("left", handle) for handle in range(senders)))
            flood(
                sender,
                senders * messages,
                lambda number: transfer_frame(number, body("x"), handle=number // messages),
            )
            sender.round_trip()
            before = router.cpu()
        router.await_log("connection closed")
        assert router.cpu() - before < 0.25
