"""TLS records of many connections in steps, so that no peer holds up the event loop with a great number of small ones.

asyncio decrypts all records that a read has brought in one piece: thousands, where each has one byte. Here a connection
decrypts some, and when all connections together have decrypted as many as an iteration of the event loop allows, the
others wait for their turn.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from weakref import WeakKeyDictionary

STEP_RECORDS = 32
"""Decrypted of a connection before others have their turn."""
STEPS = 32
"""Of all connections together, in an iteration of the event loop. Such records take 2 to 4 us each."""
LAST_RECORDS = 2048
"""Decrypted in one piece of a connection that is closed. If more have come, what it was told last may not arrive."""
RECORD_BYTES = 1 << 14
"""The longest content of a record. A read gives that of one record."""


class SteppedObject(ssl.SSLObject):
    """TLS of a connection. Its class is that of the context (`sslobject_class`)."""

    _steps: Steps | None = None
    """Records are counted from the end of the handshake."""
    _left = 0
    _wait: Callable[[bool], None]

    def begin(self, steps: Steps, wait: Callable[[bool], None]) -> None:
        """`wait`: read nothing more, or read on."""
        self._steps, self._wait = steps, wait

    def read(self, len: int = 1024, buffer: bytearray | None = None) -> bytes:  # type: ignore[override]
        """Raises SSLWantReadError as well when it is the turn of others."""
        if not self._may_read():
            raise ssl.SSLWantReadError
        return super().read(min(len, RECORD_BYTES), buffer)

    def _may_read(self) -> bool:
        if self._steps is not None:
            if not self._left and not self._steps.ask(self):
                return False
            self._left -= 1
        return True

    def grant(self) -> None:
        """It may decrypt some records."""
        self._left += STEP_RECORDS

    def end(self) -> None:
        """The connection is about to be closed."""
        self._left += LAST_RECORDS

    def wait(self, waits: bool) -> None:
        """Whether it waits for its turn."""
        self._wait(waits)


class Steps:
    """Those of all connections of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._left = STEPS
        """In this iteration."""
        self._waiting: dict[SteppedObject, None] = {}
        """In the order in which they have come."""
        self._scheduled = False

    def ask(self, what: SteppedObject) -> bool:
        """Whether it may take a step now; otherwise it waits for its turn."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._next)
        if self._left and not self._waiting:
            self._left -= 1
            what.grant()
            return True
        self._waiting[what] = None
        what.wait(True)
        return False

    def _next(self) -> None:
        """An iteration of the event loop begins."""
        self._scheduled = False
        self._left = STEPS
        for what in list(self._waiting)[:STEPS]:
            del self._waiting[what]
            self._left -= 1
            what.grant()
            what.wait(False)
        if self._left < STEPS:
            self._scheduled = True
            self._loop.call_soon(self._next)


_steps: WeakKeyDictionary[asyncio.AbstractEventLoop, Steps] = WeakKeyDictionary()


def end(transport: asyncio.BaseTransport) -> None:
    """It is about to be closed."""
    found = transport.get_extra_info("ssl_object")
    if isinstance(found, SteppedObject):
        found.end()


def begin(transport: asyncio.BaseTransport, wait: Callable[[bool], None]) -> None:
    """Its handshake is done. `wait`: read nothing more of it, or read on."""
    found = transport.get_extra_info("ssl_object")
    if isinstance(found, SteppedObject):
        loop = asyncio.get_running_loop()
        if loop not in _steps:
            _steps[loop] = Steps(loop)
        found.begin(_steps[loop], wait)
