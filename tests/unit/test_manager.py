"""Requests of management take turns with everything else on the event loop."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Generator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from isthmus_router.management.agent import ManagementAgent
from isthmus_router.management.port import ANYBODY, Requester
from isthmus_router.management.waiting import LARGEST_BYTES, MOST_OF_ONE
from isthmus_router.manager import (
    TURN_SECONDS,
    Manager,
)
from isthmus_router.message.control import Message, Properties, encode_message


class Loop:
    """Keeps what is to be called in its next round."""

    def __init__(self) -> None:
        self.now = 1000.0
        """Goes on when there is work, and not else."""
        self.soon: list[Callable[[], None]] = []
        self.later: Callable[[], None] | None = None

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> asyncio.Handle:
        self.later = callback
        return cast(asyncio.Handle, SimpleNamespace(cancel=lambda: None))

    def run_in_executor(self, _: None, work: Callable[[bytes], Message], data: bytes) -> Future[Message]:
        self.aside: Future[Message] = Future()
        self.work = lambda: work(data)
        return self.aside

    def finish(self) -> None:
        """What runs in a thread is done."""
        try:
            self.aside.set_result(self.work())
        except ValueError as error:
            self.aside.set_exception(error)

    def round(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()


class Agent:
    """Takes `slices` of work, of which each uses up a turn, for every request."""

    def __init__(self, loop: Loop, slices: int) -> None:
        self.loop = loop
        self.slices = slices
        self.at_work = 0
        self.on_work: Callable[[], None] | None = None
        self.requesters: list[Requester] = []

    def handle(self, request: Message, requester: Requester) -> Generator[None, None, bytes | None]:
        self.at_work += 1
        self.requesters.append(requester)
        assert self.at_work == 1, "one after the other"
        if self.on_work is not None:
            self.on_work()
        for _ in range(self.slices):
            self.loop.now += 1.5 * TURN_SECONDS
            yield
        self.at_work -= 1
        return str(request.properties.correlation_id).encode()


class Managed:
    def __init__(self, slices: int = 0) -> None:
        self.loop = Loop()
        self.replies: list[tuple[str, bytes]] = []
        self.flushed = 0
        self.agent = Agent(self.loop, slices)
        self.changing = False
        self.rights: dict[Requester, Requester | None] = {}
        """Of requesters whose rights have changed."""
        self.manager = Manager(
            cast(ManagementAgent, self.agent),
            cast(asyncio.AbstractEventLoop, self.loop),
            lambda to, payload: self.replies.append((to, payload)),
            self._flush,
            lambda: self.changing,
            lambda requester: self.rights.get(requester, requester),
            lambda: self.loop.now,
        )

    def change(self) -> None:
        self.changing = True

    def _flush(self) -> None:
        self.flushed += 1

    def ask(self, number: int, requester: Requester = ANYBODY, **fields: Any) -> None:
        message = Message(properties=Properties(reply_to="me", correlation_id=number), **fields)
        self.manager.received(encode_message(message), requester)


def test_what_takes_little_time_is_answered_at_once() -> None:
    managed = Managed()
    managed.ask(1)
    assert managed.replies == [("me", b"1")]
    assert managed.loop.soon == []


def test_what_takes_long_takes_turns() -> None:
    managed = Managed(slices=4)
    managed.ask(1)
    rounds = 0
    while not managed.replies:
        assert len(managed.loop.soon) == 1
        managed.loop.round()
        rounds += 1
    assert managed.flushed == rounds == 4


def test_answers_are_in_the_order_of_the_requests() -> None:
    managed = Managed(slices=2)
    for number in range(5):
        managed.ask(number)
    while managed.loop.soon:
        managed.loop.round()
    assert [payload for _, payload in managed.replies] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_change_is_answered_when_it_is_carried_out() -> None:
    managed = Managed()
    managed.agent.on_work = managed.change
    managed.ask(1)
    managed.ask(2)
    assert managed.replies == []
    managed.agent.on_work = None
    managed.changing = False
    managed.manager.carried_out()
    assert [payload for _, payload in managed.replies] == [b"1", b"2"]


def test_a_change_that_takes_long_is_answered_meanwhile() -> None:
    managed = Managed()
    managed.agent.on_work = managed.change
    managed.ask(1)
    assert managed.loop.later is not None
    managed.loop.later()
    assert managed.replies == [("me", b"1")]
    managed.manager.carried_out()
    assert len(managed.replies) == 1


def test_a_request_has_the_rights_that_its_requester_has_when_it_begins() -> None:
    managed = Managed(slices=1)
    changed, ended, reduced = Requester(1), Requester(2), Requester(1, may_close_connections=False)
    managed.ask(1)
    managed.ask(2, changed)
    managed.ask(3, ended)
    managed.rights = {changed: reduced, ended: None}
    while managed.loop.soon:
        managed.loop.round()
    assert managed.agent.requesters == [ANYBODY, reduced]
    assert [payload for _, payload in managed.replies] == [b"1", b"2"]
    assert managed.manager.dropped == 1


def test_nobody_waits_for_the_changes_of_others() -> None:
    managed = Managed()
    managed.changing = True
    managed.ask(1)
    assert managed.replies == [("me", b"1")]


def test_what_waits_is_bounded() -> None:
    managed = Managed(slices=3)
    for number in range(MOST_OF_ONE + 10):
        managed.ask(number)
    dropped = managed.manager.dropped
    assert dropped == 9, "one is at work, a hundred wait"
    managed.manager.received(b"\x00\x53\x75")
    assert managed.manager.dropped == dropped + 1, "the queue is full"


def test_what_is_too_large_is_dropped() -> None:
    managed = Managed()
    managed.manager.received(bytes(LARGEST_BYTES + 1))
    assert managed.manager.dropped == 1


def test_what_has_too_many_values_is_dropped() -> None:
    managed = Managed()
    managed.manager.received(b"\x00\x53\x77\xd0" + struct.pack(">II", 4 + 10_000, 10_000) + b"\x45" * 10_000)
    managed.ask(3)
    assert managed.manager.dropped == 1
    assert managed.replies == [("me", b"3")]


def test_what_is_no_message_is_dropped_and_the_next_is_answered() -> None:
    managed = Managed()
    for garbage in (b"", b"\x00", b"\x00\x53\x74\xd1\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff" * 100):
        managed.manager.received(garbage)
    managed.ask(2)
    assert managed.replies == [("me", b"2")]
