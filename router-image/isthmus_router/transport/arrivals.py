"""Long frames that arrive at the connections of a member: one bound for all of them, and a least progress of each.

A connection reserves room for a frame longer than `LARGE_BYTES`. If there is no room, or its identity has its share, it
is not read until there is.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from isthmus_router.room import Hindered, Room, Waiting

LARGE_BYTES = 128 * 1024
"""A connection that holds less, and receives no longer frame, is not accounted for. Few batches are longer."""
MOST_BYTES = 128 * 1024 * 1024
"""That all connections together hold, or have reserved, of long frames."""
PROGRESS_BYTES = 32 * 1024
"""A frame of which less arrives in `PROGRESS_SECONDS`, or while others wait for room in `HINDERING_SECONDS`, ends its
connection."""
PROGRESS_SECONDS = 10.0
HINDERING_PART = 16
HINDERING_SECONDS = 3.0
"""A frame of which a smaller part arrives in that time gives up the room for its rest, if others wait for room that
they may have then."""
ROOM_SECONDS = 30.0
"""For a connection to wait for room."""
CHECK_SECONDS = 0.5
_SERVED = 16
"""Connections that get room in an iteration of the event loop."""


class Receiver(Protocol):
    """A connection."""

    @property
    def reading(self) -> bool:
        """Whether what the peer sends is read."""

    def wait_for_room(self, waits: bool) -> None:
        """Read no more of it, or read on."""

    def still_there(self) -> None:
        """The peer cannot show that it is there, as it is not read."""

    def abort(self, reason: str) -> None:
        """End it now."""


class Arrival:
    """Of one connection, from when a long frame begins to arrive until it holds little."""

    def __init__(self, receiver: Receiver, identity: str, now: float) -> None:
        self.receiver = receiver
        self.identity = identity
        self.group = None
        self.size = 0
        """Bytes of the frame that is not complete; 0: there is no long one."""
        self.held = 0
        """Bytes that have arrived and were not handed on."""
        self.waits = False
        self.since = now
        """When it began to wait for room, or had last made progress,"""
        self.before = 0
        """and the bytes that it held by then."""
        self.charged = 0
        self.reserved = 0
        """As the room knows."""


class Arrivals:
    """Those of a driver."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST_BYTES) -> None:
        self._loop = loop
        self.room = Room(most)
        self._waiting = Waiting[Arrival](self.room)
        self._all: dict[Receiver, Arrival] = {}
        self._hindered = self._waiting.hindered()
        """When progress was last checked."""
        self._serving = False
        self._timer: asyncio.TimerHandle | None = None

    def update(self, receiver: Receiver, identity: str, size: int, held: int) -> bool:
        """The connection holds so many bytes; those of a frame of `size` that is not complete included, if it is not 0.

        Returns whether the connection is accounted for, so that each change has to be reported.
        """
        arrival = self._all.get(receiver)
        if size <= LARGE_BYTES:
            size = 0
        if not size and held <= LARGE_BYTES:
            if arrival is not None:
                self.end(receiver)
            return False
        if arrival is None:
            arrival = self._all[receiver] = Arrival(receiver, identity, self._loop.time())
            if self._timer is None:
                self._timer = self._loop.call_later(CHECK_SECONDS, self._check)
        begins = size and (size != arrival.size or held < arrival.held)
        if begins and arrival.size:
            arrival.size = 0
            self._account(arrival)
        arrival.size, arrival.held = size, held
        if not size and arrival.waits:
            self._wait_no_more(arrival)
        if begins:
            if self._waiting or not self.room.fits(arrival, size - arrival.charged):
                self._wait(arrival)
            else:
                arrival.since, arrival.before = self._loop.time(), held
        self._account(arrival)
        return True

    def end(self, receiver: Receiver) -> None:
        """It holds nothing more."""
        arrival = self._all.pop(receiver, None)
        if arrival is not None:
            self._wait_no_more(arrival)
            arrival.size = arrival.held = 0
            self._account(arrival)

    def _account(self, arrival: Arrival) -> None:
        size = 0 if arrival.waits else arrival.size
        charged, reserved = max(size, arrival.held), max(0, size - arrival.held)
        more = charged - arrival.charged
        if more:
            self.room.charge(arrival.identity, None, more)
        if reserved != arrival.reserved:
            self.room.reserve(arrival.identity, None, reserved - arrival.reserved)
        if (more < 0 or reserved < arrival.reserved) and self._waiting:
            self._serve_soon()
        arrival.charged, arrival.reserved = charged, reserved

    def _wait(self, arrival: Arrival) -> None:
        arrival.waits, arrival.since = True, self._loop.time()
        arrival.receiver.wait_for_room(True)
        self._waiting.add(arrival, arrival.size - arrival.held)
        self._serve_soon()  # it may fit where those that came before do not

    def _wait_no_more(self, arrival: Arrival) -> None:
        if arrival.waits:
            arrival.waits = False
            self._waiting.discard(arrival)
            arrival.receiver.wait_for_room(False)
            self._serve_soon()  # those behind it may fit

    def _serve_soon(self) -> None:
        if self._waiting and not self._serving:
            self._serving = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._serving = False
        if self._waiting.serve(self._admit, _SERVED):
            self._serve_soon()

    def _admit(self, arrival: Arrival) -> None:
        arrival.waits = False
        arrival.since, arrival.before = self._loop.time(), arrival.held
        self._account(arrival)
        arrival.receiver.wait_for_room(False)

    def _check(self) -> None:
        self._timer = None
        now, hindered = self._loop.time(), self._hindered
        self._hindered = self._waiting.hindered()
        for arrival in list(self._all.values()):
            self._check_one(arrival, now, hindered)
        if self._all:
            self._timer = self._loop.call_later(CHECK_SECONDS, self._check)

    def _check_one(self, arrival: Arrival, now: float, hindered: Hindered) -> None:
        receiver = arrival.receiver
        waited, progress = now - arrival.since, arrival.held - arrival.before
        if arrival.waits:
            if waited >= ROOM_SECONDS:
                receiver.abort(f"no room for a frame of {arrival.size} bytes")
            else:
                receiver.still_there()
            return
        hinders = hindered.by(arrival)
        enough = max(PROGRESS_BYTES, arrival.size // HINDERING_PART) if hinders else PROGRESS_BYTES
        if not arrival.size or not receiver.reading or progress >= enough:
            arrival.since, arrival.before = now, arrival.held
        elif waited >= (HINDERING_SECONDS if hinders else PROGRESS_SECONDS):
            if progress < PROGRESS_BYTES:
                receiver.abort(f"little more than {arrival.held} of {arrival.size} bytes of a frame arrive")
            else:
                self._wait(arrival)
                self._account(arrival)
