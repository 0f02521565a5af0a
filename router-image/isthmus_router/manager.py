"""Carries out what clients ask of `$management`, one request after the other, between other things.

The event loop is held for a few milliseconds at a time, however large the router is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator

from isthmus_router.management.agent import ManagementAgent
from isthmus_router.management.port import ANYBODY, Requester
from isthmus_router.management.waiting import WaitingRequests
from isthmus_router.message.control import Message, decode_message
from isthmus_router.message.types import DecodeError

log = logging.getLogger("AGENT")

TURN_SECONDS = 0.002
"""For management, before messages have their turn; one slice of work more than that at most."""
MOST_VALUES = 5000
"""In one request, which is decoded in one slice."""
CARRY_OUT_SECONDS = 1.0
"""The response to a change waits so long for the change to be carried out, and later requests with it."""


class Manager:
    """The requests of all clients: those of each connection in the order of their arrival."""

    def __init__(
        self,
        agent: ManagementAgent,
        loop: asyncio.AbstractEventLoop,
        reply: Callable[[str, bytes], object],
        flush: Callable[[], None],
        changing: Callable[[], bool],
        requester_now: Callable[[Requester], Requester | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reply` sends a response to an address, `flush` writes out what was said.

        `changing` tells whether a change of the configuration is being carried out, `requester_now` what a requester
        may when its request begins (None: its connection has ended), `clock` the time in seconds.
        """
        self._agent = agent
        self._loop = loop
        self._reply = reply
        self._flush = flush
        self._changing = changing
        self._requester_now = requester_now
        self._clock = clock
        self._changed_before = False
        """Changes were under way when the request began: they are not its own."""
        self._held: tuple[str, bytes] | None = None
        """A response that waits for its change."""
        self._longest: asyncio.TimerHandle | None = None
        self._waiting = WaitingRequests()
        self._request: Message | None = None
        self._work: Generator[None, None, bytes | None] | None = None
        self.dropped = 0
        """Requests that got no answer."""

    def received(self, payload: bytes, requester: Requester = ANYBODY) -> None:
        """A request has arrived: begin with it, unless others are before it."""
        idle = self._held is None and self._work is None and not self._waiting
        for reason in self._waiting.add(payload, requester):
            self._drop(reason)
        if idle and self._waiting:
            self._take_turn()

    def carried_out(self) -> None:
        """What was asked for is done, or takes too long: the response goes out, and the next request begins."""
        if self._held is None or self._longest is None:
            return
        self._longest.cancel()
        to, response = self._held
        self._held = self._longest = None
        self._reply(to, response)
        self._go_on()

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        log.warning("request dropped", extra={"reason": reason})

    def _take_turn(self) -> None:
        end = self._clock() + TURN_SECONDS
        while self._step():
            if self._clock() >= end:
                self._loop.call_soon(self._go_on)
                return

    def _go_on(self) -> None:
        self._take_turn()
        self._flush()

    def _step(self) -> bool:
        """One slice of work; False when there is none left."""
        if self._work is None:
            if not self._waiting:
                return False
            self._begin()
            return True
        try:
            next(self._work)
        except StopIteration as finished:
            response: bytes | None = finished.value
            to = self._request.properties.reply_to if self._request is not None else None
            self._work = self._request = None
            if response is not None and to is not None:
                if self._changing() and not self._changed_before:
                    self._held = (to, response)
                    self._longest = self._loop.call_later(CARRY_OUT_SECONDS, self.carried_out)
                    return False
                self._reply(to, response)
        return True

    def _begin(self) -> None:
        payload, requester = self._waiting.take()
        # The rights may have changed while the request waited.
        present = self._requester_now(requester)
        if present is None:
            self._drop("its connection has ended")
            return
        try:
            self._request = decode_message(payload, most=MOST_VALUES)
        except DecodeError as error:
            self._drop(str(error))
            return
        self._changed_before = self._changing()
        self._work = self._agent.handle(self._request, present)
