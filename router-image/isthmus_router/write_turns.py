"""Writes of many connections in turns, so that data that waits for a peer does not hold up the event loop.

TLS encrypts all that its transport is given in one piece, and a peer chooses when it reads the data that waits for it.
Here a connection gives its transport one piece in an iteration of the event loop. When all connections together have
given as much as an iteration allows, the others wait for their turn.
"""

from __future__ import annotations

import asyncio
from typing import Protocol
from weakref import WeakKeyDictionary

PIECE_BYTES = 1 << 18
"""Of a connection, in an iteration of the event loop. TLS takes about 3 ns for a byte."""
TURN_BYTES = 1 << 20
"""Of all connections together. The last piece may exceed it."""


class Writer(Protocol):
    """A connection."""

    def write_piece(self, most: int, /) -> int:
        """Give the transport up to about `most` bytes, and return their number.

        With `most` or more, this is called again in a later iteration. A connection that gives less has nothing left,
        or its transport accepts no more: it calls `WriteTurns.write` when that changes.
        """


class WriteTurns:
    """Of all connections of an event loop."""

    def __init__(self) -> None:
        self._left = TURN_BYTES
        """Bytes in this iteration. While more than half of them are left, they are for later iterations too, so that
        small writes do not need a callback in each."""
        self._waiting: dict[Writer, None] = {}
        """In the order of their turns."""
        self._scheduled = False

    def write(self, writer: Writer) -> None:
        """The writer has data to write: immediately, or when it is its turn."""
        if writer in self._waiting:
            return
        if self._left > 0:
            self._give(writer)
        else:
            self._waiting[writer] = None
            self._schedule()

    def _give(self, writer: Writer) -> None:
        size = writer.write_piece(PIECE_BYTES)
        self._left -= size
        if size >= PIECE_BYTES:
            self._waiting[writer] = None
        if self._left < TURN_BYTES // 2 or self._waiting:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """An iteration of the event loop begins."""
        self._scheduled = False
        self._left = TURN_BYTES
        waiting = list(self._waiting)
        try:
            for writer in waiting:
                if self._left <= 0:
                    break
                del self._waiting[writer]
                self._give(writer)
        finally:
            if self._waiting:
                self._schedule()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteTurns] = WeakKeyDictionary()


def write_turns() -> WriteTurns:
    """Those of the event loop that runs."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        _turns[loop] = WriteTurns()
    return _turns[loop]
