"""A connection that carries frames, over TCP or TLS: reads in bulk, writes once a turn, never blocks.

What is sent waits in the connection's own queue, and goes to the system at the end of the turn (`Turn`): as a whole, or
in pieces if it is long (`write_turns`). A peer that does not read is nobody else's trouble: its queue is bounded in
bytes, messages beyond the bound are dropped and counted, and a connection whose control frames no longer fit is
aborted.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Protocol, cast

from isthmus_router import tls_records
from isthmus_router.credentials import REVOKED, Credentials, identity_of, peer_chain
from isthmus_router.groups.frames import FrameError, Kind
from isthmus_router.transport.arrivals import LARGE_BYTES, Arrivals
from isthmus_router.transport.framing import PREFIX, FrameBuffer
from isthmus_router.transport.reasons import describe
from isthmus_router.write_turns import write_turns

HIGH_WATER_BYTES = 1 << 20
"""That the event loop holds for a peer before more waits in the queue."""
UNCONNECTED_BYTES = 4 << 20
"""That wait for a connection to be made."""
CONTROL_BYTES = 4 << 20
"""Of room beyond the queue's bound, for what is not dropped."""
SMALL_BYTES = 1024
CHUNK_FRAMES = 8
CHUNK_BYTES = 16 * 1024
"""Handed on before the clock is read again: each byte of a list may be a value, and 16 KiB of them take 4 ms."""
CLOSED = "closed by the peer"
OTHERS_NEED_IT = "others need its place"
LINGER_SECONDS = 1.0
"""For what was sent on a connection that is closed to be written."""
MESSAGES = frozenset((Kind.BATCH, Kind.UNICAST, Kind.FORWARD))
"""Kinds of frames that are dropped where the queue is full; they are sent again when there is room."""


class Turn(Protocol):
    """What a connection tells the driver."""

    arrivals: Arrivals

    def touch(self, connection: FrameConnection) -> None:
        """There is something to write at the end of the turn."""

    def ready(self, connection: FrameConnection, /) -> None:
        """It has frames to hand on: `FrameConnection.work` is called, now or in turns, until it has none."""


class Owner(Protocol):
    """Who has connections."""

    credentials: Credentials | None
    """Those in service now; a handshake may have begun with earlier ones."""

    def connected(self, connection: Any) -> None:
        """Its handshake is done; `certificate` is set."""

    def arrived(self, connection: Any, frames: list[bytes]) -> None:
        """Frames, in order. FrameError ends the connection."""

    def heard(self, connection: Any) -> None:
        """Part of a frame has come, and no whole one: the peer is there, though it takes long to say what it says."""

    def drained(self, connection: Any) -> None:
        """Nothing waits any more, after `full`."""

    def ended(self, connection: Any, reason: str) -> None:
        """It is closed; told once, also if it was never made."""


class FrameConnection(asyncio.BufferedProtocol):
    """One; until it is connected, what is sent waits."""

    def __init__(
        self, owner: Owner, turn: Turn, longest: int, queue_bytes: int, droppable: frozenset[int] = MESSAGES
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.making: asyncio.Task[None] | None = None
        """Connects it, and does its handshake."""
        self.certificate: dict[str, Any] | None = None
        """Of the peer, verified; None without TLS."""
        self.remote = ""
        """The peer, for logs and problems; the IP address of one that has connected."""
        self.place = ""
        """The identity of the peer whose place this connection takes at the port; empty for connections to others."""
        self.held = False
        """What is sent waits, until `release`."""
        self.dropped = 0
        """Messages that did not fit into the queue."""
        self.full = False
        """What is sent waits, because the system takes no more for now, or because much is written in pieces. The end
        is reported by `Owner.drained`."""
        self.over = asyncio.Event()
        """It has ended."""
        self.misfit = False
        """That is for what the peer is or said, not for how the network is."""
        self.served = 0.0
        """Implements `turns.Worker`."""
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._turn = turn
        self._incoming = FrameBuffer(longest)
        self._unread = False
        """The owner wants no more read."""
        self._waits_for_turn = False
        """Others decrypt what they have received."""
        self._waits_for_room = False
        """There is no room for the frame that arrives."""
        self._accounted = False
        """`Arrivals` has to know how much of frames has arrived."""
        self._stopped = False
        """Nothing is read."""
        self._lost: str | None = None
        """The connection was lost for that, while frames waited."""
        self._queue: deque[bytes | memoryview] = deque()
        self._rest = memoryview(b"")
        """Of a frame that was written in part. It is written before the queue."""
        self._queued = 0
        """Bytes of both."""
        self._first = 0
        """Bytes of the first frame in it, which may be longer than there is room otherwise."""
        self._most_queued = queue_bytes
        self._room = min(queue_bytes, UNCONNECTED_BYTES)
        self._droppable = droppable
        self._reason = ""
        self._encrypted = False
        self._heard = False
        self._paused = False
        """The system takes no more for now."""
        self._closing = False
        """The transport is closed when what waits is written."""
        self._write_turns = write_turns()

    @property
    def ending(self) -> bool:
        """Whether it was closed, or aborted, and is on its way out."""
        return bool(self._reason)

    @property
    def backlog(self) -> int:
        """Bytes sent that the system has not taken."""
        return self._queued + (self.transport.get_write_buffer_size() if self.transport is not None else 0)

    @property
    def longest(self) -> int:
        """Bytes of the longest frame that is taken."""
        return self._incoming.longest

    @longest.setter
    def longest(self, size: int) -> None:
        self._incoming.longest = size

    def send(self, frame: bytes | memoryview) -> None:
        """Write at the end of the turn, or when the peer reads on."""
        size = len(frame) + PREFIX.size
        queued = self._queued + size
        if not self._queued:
            self._first = size
        elif queued > (room := max(self._room, self._first)):
            if frame[0] in self._droppable:
                self.dropped += 1
                return
            if queued > room + CONTROL_BYTES:
                self.abort("the peer does not read")
                return
        if self._closing or self.over.is_set():
            return
        if not self._queued and not self._paused and not self.held:
            self._turn.touch(self)
        self._queue += (PREFIX.pack(len(frame)), frame)
        self._queued = queued

    def release(self) -> None:
        """What is sent waits no longer."""
        self.held = False
        if self._queued:
            self._turn.touch(self)

    @property
    def queue(self) -> list[bytes | memoryview]:
        """The frames of which nothing has been given to the system."""
        return list(islice(self._queue, 1, None, 2))

    def take_queue(self) -> list[bytes | memoryview]:
        """Take back the frames of which nothing has been given to the system."""
        frames = self.queue
        self._queue.clear()
        self._first = self._queued = len(self._rest)
        return frames

    def write(self) -> None:
        """Give the system what is queued, or a piece of it, when it is the turn of this connection."""
        if self._can_write():
            self._write_turns.write(self)
            if self._queued:
                self.full = True

    def _can_write(self) -> bool:
        if self.transport is None or self._paused or self.held or not self._queued:
            return False
        return not self.transport.is_closing()

    def write_piece(self, most: int) -> int:
        """Implements `write_turns.Writer`. Small frames are written as one piece, as it costs less to copy them than to
        list them, and with TLS all, as each piece would become a record of its own."""
        if not self._can_write():
            return 0
        assert self.transport is not None
        size = self._queued
        pieces: Iterable[bytes | memoryview]
        if size <= most and not self._rest:
            count, pieces = len(self._queue), self._queue
            self._queue, self._queued = deque(), 0
        else:
            pieces = self._cut(most)
            count = len(pieces)
            size -= self._queued
        if self._encrypted or size < count * SMALL_BYTES:
            self.transport.write(b"".join(pieces))
        else:
            self.transport.writelines(pieces)
        self._settle()
        return size

    def _cut(self, most: int) -> list[bytes | memoryview]:
        """Take so many bytes from the queue, and up to 3 more, or what there is."""
        pieces: list[bytes | memoryview] = [self._rest[:most]]
        rest, left = self._rest[most:], most - len(self._rest)
        while self._queue and left > 0:
            prefix, frame = self._queue.popleft(), self._queue.popleft()
            left = max(0, left - PREFIX.size)
            if len(frame) > left:
                frame, rest = memoryview(frame)[:left], memoryview(frame)[left:]
            pieces += (prefix, frame)
            left -= len(frame)
        self._rest, self._first = rest, len(rest)
        self._queued -= sum(map(len, pieces))
        return pieces

    def _settle(self) -> None:
        """Close the transport, or report that nothing waits any more, once that is so."""
        if self._queued:
            return
        if self._closing:
            self._end_transport()
        elif self.full and not self._paused:
            self.full = False
            self._owner.drained(self)

    def say(self, frame: bytes) -> None:
        """Write before all that is queued, except for the rest of a frame that was written in part."""
        if self.transport is None or self._closing:
            return
        if self._rest:
            self._queue.extendleft((frame, PREFIX.pack(len(frame))))
            self._queued += PREFIX.size + len(frame)
        else:
            self.transport.write(PREFIX.pack(len(frame)) + frame)

    def close(self, reason: str) -> None:
        """End it when what was sent is written, or `LINGER_SECONDS` are over. What still comes is not looked at."""
        self._reason = self._reason or reason
        if self.transport is None:
            self._loop.call_soon(self._give_up, reason)  # the task has begun by then, and closes the socket
            return
        if self._closing:
            return
        self._closing = True
        self._loop.call_later(LINGER_SECONDS, self.transport.abort)
        if self.held or not self._queued:
            self._end_transport()
        else:
            self.write()

    def _end_transport(self) -> None:
        assert self.transport is not None
        tls_records.end(self.transport)
        self.transport.close()

    def abort(self, reason: str) -> None:
        """End it now."""
        self._reason = self._reason or reason
        if self.transport is None:
            self._loop.call_soon(self._give_up, reason)  # the task has begun by then, and closes the socket
        else:
            self.transport.abort()

    def _give_up(self, reason: str) -> None:
        """Not made yet. Its socket must not wait for the end of a handshake that nobody counts any more."""
        if self.making is not None:
            self.making.cancel()
        self._end(reason)

    def failed(self, error: OSError, reason: str) -> None:
        """It could not be made."""
        self.misfit = _by_the_peer(error)
        self._end(self._reason or reason)

    @property
    def identity(self) -> str:
        """Who is at the other end: the names of its certificate, or without one its address."""
        return identity_of(self.certificate, self.remote)

    def end_if_revoked(self, credentials: Credentials) -> bool:
        """End the connection if `credentials` no longer accept the certificate of the peer. Whether that is so."""
        revoked = credentials.is_revoked(peer_chain(self.transport))
        if revoked:
            self.abort(REVOKED)
        return revoked

    def pause_reading(self, paused: bool) -> None:
        """Read no more of what the peer sends, or do so again."""
        self._unread = paused
        self._pace()

    def _wait_for_turn(self, waits: bool) -> None:
        self._waits_for_turn = waits
        self._pace()

    @property
    def reading(self) -> bool:
        """Implements `arrivals.Receiver`."""
        return not self._stopped

    def wait_for_room(self, waits: bool) -> None:
        """Implements `arrivals.Receiver`."""
        self._waits_for_room = waits
        self._pace()

    def still_there(self) -> None:
        """Implements `arrivals.Receiver`."""
        if not self._reason:
            self._owner.heard(self)

    def _account(self) -> None:
        """Have `Arrivals` know of a long frame that arrives, and of what is held."""
        incoming = self._incoming
        if self._accounted or incoming.pending > LARGE_BYTES:
            identity = self.place or self.identity
            self._accounted = self._turn.arrivals.update(self, identity, incoming.pending, incoming.held)

    def _pace(self) -> None:
        """Read on only when no frames wait, the owner wants more, and it is the turn of this connection."""
        stop = self._unread or self._waits_for_turn or self._waits_for_room or self._incoming.whole
        if stop is self._stopped or self.transport is None or self.over.is_set():
            return
        if self.transport.is_closing():
            return
        self._stopped = stop
        if stop:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def work(self, end: float) -> bool:
        """Hand on frames that have arrived. Implements `turns.Worker`."""
        incoming = self._incoming
        try:
            while incoming.whole and not self._reason:
                self._owner.arrived(self, incoming.cut(CHUNK_FRAMES, CHUNK_BYTES))
                if incoming.whole and time.monotonic() >= end:
                    break
        except FrameError as error:
            self.misfit = True
            self.close(str(error))
        if self._reason:
            incoming.clear()
        self._account()
        self._pace()
        if not incoming.whole and self._lost is not None:
            self._end(self._reason or self._lost)
        return incoming.whole

    def break_off(self) -> None:
        """Implements `turns.Worker`."""
        self._incoming.clear()
        self.abort("internal error")
        if self._lost is not None:
            self._end(self._reason or self._lost)

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Implements asyncio.BaseProtocol."""
        transport = cast(asyncio.Transport, transport)
        if self._reason or self.over.is_set():
            transport.abort()
            return
        self.transport = transport
        self._room = self._most_queued
        transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self._encrypted = transport.get_extra_info("ssl_object") is not None
        tls_records.begin(transport, self._wait_for_turn)
        self.certificate = transport.get_extra_info("peercert")
        if self._owner.credentials is not None and self.end_if_revoked(self._owner.credentials):
            return  # the list has changed during the handshake
        self._owner.connected(self)
        self.write()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Implements asyncio.BufferedProtocol."""
        return self._incoming.space()

    def buffer_updated(self, nbytes: int) -> None:
        """Implements asyncio.BufferedProtocol."""
        if self._reason:
            return
        self._heard = True
        incoming = self._incoming
        waits = incoming.whole
        incoming.filled(nbytes)
        if not incoming.whole:
            self._owner.heard(self)
        elif not waits:
            self._turn.ready(self)
            if incoming.whole:
                self._pace()
        self._account()

    def eof_received(self) -> None:
        """Implements asyncio.BufferedProtocol."""
        if not self._incoming.whole:
            self._reason = self._reason or CLOSED

    def pause_writing(self) -> None:
        """Implements asyncio.BaseProtocol."""
        self._paused = self.full = True

    def resume_writing(self) -> None:
        """Implements asyncio.BaseProtocol."""
        self._paused = False
        if self._queued:
            self.write()
        else:
            self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Implements asyncio.BaseProtocol."""
        self.misfit = self.misfit or _by_the_peer(exc)
        reason = self._reason or (CLOSED if exc is None else describe(exc))
        if reason == CLOSED and self.certificate is not None and not self._heard:
            # With TLS 1.3 who is refused has done its handshake, and not every peer sends an alert.
            self.misfit = True
            reason = f"{CLOSED} without a word; it may have refused this certificate"
        if self._incoming.whole and not self._reason:
            self._lost = reason
            return
        self._end(reason)

    def _end(self, reason: str) -> None:
        if not self.over.is_set():
            self.over.set()
            self._turn.arrivals.end(self)
            self._owner.ended(self, reason)


def _by_the_peer(error: Exception | None) -> bool:
    """Whether TLS did not come about, or ended with an alert; not for a connection that is just closed."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
