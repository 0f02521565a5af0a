"""TLS records and handshakes of many connections in steps, so that no peer holds up the event loop with many of them.

asyncio decrypts all records that a read has brought in one piece: thousands, where each has one byte. Here a connection
decrypts some, and when all connections together have decrypted as many as an iteration of the event loop allows, the
others wait for their turn. Handshakes of accepted connections have steps as well: a ClientHello costs a signature, and
anybody can send many of them that arrive together.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import uvloop

STEP_RECORDS = 32
"""Decrypted of a connection before others have their turn."""
STEPS = 32
"""Of all connections together, in an iteration of the event loop. Such records take 2 to 4 us each."""
HANDSHAKES = 4
"""Parts of handshakes, of all accepted connections together, in an iteration of the event loop. Each takes 0.3 to 1.5
ms."""
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
    handshake: Handshake | None = None
    """Of an accepted connection, which has its turns."""

    def do_handshake(self) -> None:
        """Raises SSLWantReadError as well when it is the turn of others."""
        if self.handshake is not None and not self.handshake.may_go_on():
            raise ssl.SSLWantReadError
        super().do_handshake()

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


class Stepping(Protocol):
    """What takes steps."""

    def grant(self) -> None:
        """It may take a step."""

    def wait(self, waits: bool) -> None:
        """Whether it waits for its turn."""


class Steps:
    """Those of all connections of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = STEPS) -> None:
        """`most`: in an iteration of the event loop."""
        self._loop = loop
        self._most = self._left = most
        """In this iteration."""
        self._waiting: dict[Stepping, None] = {}
        """In the order in which they have come."""
        self._scheduled = False

    def ask(self, what: Stepping) -> bool:
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
        self._left = self._most
        for what in list(self._waiting)[: self._most]:
            del self._waiting[what]
            self._left -= 1
            what.grant()
            what.wait(False)
        if self._left < self._most:
            self._scheduled = True
            self._loop.call_soon(self._next)


class Handshake:
    """That of one accepted connection, in turns. For the TLS protocol it is the context."""

    def __init__(self, context: ssl.SSLContext, steps: Steps) -> None:
        self._context = context
        self._steps = steps
        self._begun = False
        self._granted = False
        self._waits = False
        self.transport: asyncio.Transport | None = None
        """Below TLS; None: it has just been made."""
        self.protocol: Any = None
        """Of TLS."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> ssl.SSLObject:
        """As the context's."""
        made = self._context.wrap_bio(incoming, outgoing, **options)
        if isinstance(made, SteppedObject):
            made.handshake = self
        return made

    def may_go_on(self) -> bool:
        """Whether it may go on with what has arrived; otherwise it does so when it is its turn."""
        if not self._begun:
            self._begun = True  # nothing has arrived
            return True
        if not self._granted and (self._waits or not self._steps.ask(self)):
            return False
        self._granted = False
        return True

    def grant(self) -> None:
        """Implements Stepping."""
        self._granted = True

    def wait(self, waits: bool) -> None:
        """Implements Stepping."""
        self._waits = waits
        if self.transport is not None and not self.transport.is_closing():
            if waits:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()
        if not waits:
            # The protocol goes on as if more had arrived.
            asyncio.get_running_loop().call_soon(self.protocol.buffer_updated, 0)


_steps: WeakKeyDictionary[asyncio.AbstractEventLoop, Steps] = WeakKeyDictionary()
_handshakes: WeakKeyDictionary[asyncio.AbstractEventLoop, Steps] = WeakKeyDictionary()


async def accept(
    protocol: asyncio.BaseProtocol, sock: socket.socket, context: ssl.SSLContext | None, seconds: float
) -> None:
    """Run an accepted socket, with TLS if there is a context. `seconds`: for the handshake.

    Does what `connect_accepted_socket` of the event loop does. Raises OSError (TimeoutError, ssl.SSLError).
    """
    loop = asyncio.get_running_loop()
    if context is None:
        await loop.connect_accepted_socket(lambda: protocol, sock)
        return
    if loop not in _handshakes:
        _handshakes[loop] = Steps(loop, HANDSHAKES)
    handshake = Handshake(context, _handshakes[loop])
    done = loop.create_future()
    of_loop: Any = uvloop.loop if isinstance(loop, uvloop.Loop) else sslproto
    made = of_loop.SSLProtocol(
        loop, protocol, handshake, done, server_side=True, ssl_handshake_timeout=seconds
    )
    handshake.protocol = made
    transport, _ = await loop.connect_accepted_socket(lambda: made, sock)
    handshake.transport = transport
    try:
        await done
    except BaseException:
        transport.abort()
        raise


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
