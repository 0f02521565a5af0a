"""One connection of the gossip router's process: bytes to frames, and a bounded queue back."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol, cast

from isthmus_router.credentials import certificate_names
from isthmus_router.gossip.messages import LONGEST_HELLO_BYTES, FrameReader
from isthmus_router.gossip.table import Table
from isthmus_router.groups.frames import FrameError

log = logging.getLogger("GOSSIP")

WRITE_BYTES = 1 << 18
"""Given to the transport at once, which then says whether that was too much."""
CLOSE_SECONDS = 1.0
"""For a peer to take what it is told before its connection is closed."""


class Owner(Protocol):
    """The process, as its connections see it."""

    table: Table
    slow: int
    """Links cut off."""

    def greeted(self, link: ServerLink) -> None:
        """It has said HELLO."""

    def gone(self, link: ServerLink) -> None:
        """Its connection has ended."""

    def touched(self, link: ServerLink) -> None:
        """It has something to write at the end of this turn."""

    def holds(self, more: int) -> None:
        """So many bytes more are held, or fewer; may have any link cut off."""


class ServerLink(asyncio.Protocol):
    """What it holds is the beginning of a frame that it receives, and frames that its peer has not taken."""

    def __init__(self, owner: Owner, most_queued: int, peer: str) -> None:
        """`most_queued`: bytes; a peer that is further behind is cut off, so that it delays nobody else."""
        self._owner = owner
        self._most_queued = most_queued
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(LONGEST_HELLO_BYTES)
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._paused = False
        self._touched = False
        self._greeted = False
        self._transport: asyncio.Transport | None = None
        self.making: asyncio.Task[None] | None = None
        """Its handshake."""
        self.peer = peer
        self.held = 0
        """Bytes, of both directions, as the owner knows."""
        self.ended = False
        """Nothing more is read or sent."""

    # The transport's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BYTES)
        if self.ended:
            self._transport.abort()
            return
        log.debug("connection opened", extra={"peer": self.peer})
        self._owner.table.opened(self._loop.time(), self, self._identity(transport))

    def _identity(self, transport: asyncio.BaseTransport) -> str:
        """Who may take over what it registers: the names of its certificate, or without one its IP address."""
        names = certificate_names(transport.get_extra_info("peercert"))
        address = transport.get_extra_info("peername")
        return (
            f"certificate {', '.join(sorted(names))}" if names else f"address {address[0] if address else ''}"
        )

    def data_received(self, data: bytes) -> None:
        if not self.ended:
            self._read(data)

    def _read(self, data: bytes) -> None:
        table, now = self._owner.table, self._loop.time()
        try:
            for frame in self._reader.feed(data):
                table.received(now, self, frame)
                if self.ended:
                    break
            if not self._greeted and table.greeted(self):
                self._greeted = True
                self._reader.most_bytes = table.limits.most_bytes
                self._owner.greeted(self)
        except FrameError as error:
            table.refuse(self, str(error))
        self._account()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop()
        self._owner.table.closed(self._loop.time(), self)
        self._owner.gone(self)
        log.debug("connection closed", extra={"peer": self.peer, "reason": str(exc or "")})

    # What the table asks for

    def send(self, frame: bytes) -> None:
        """Queue a frame until the end of this turn, or until the peer takes it."""
        if self.ended:
            return
        self._queue.append(frame)
        self._queued += len(frame)
        if not self._touched:
            self._touched = True
            self._owner.touched(self)
        if self._queued > self._most_queued:
            self.cut_off(f"{self._queued} bytes wait for it")

    def close(self, reason: str) -> None:
        """End the connection after what was sent, if the peer takes that soon."""
        log.info("connection ended", extra={"peer": self.peer, "reason": reason})
        self.finish()

    # What the process asks for

    def finish(self) -> None:
        """As `close`, without a word in the log."""
        if self._transport is None:
            self.ended = True
            if self.making is not None:
                # The task has begun by then, and closes the socket.
                self._loop.call_soon(self.making.cancel)
            return
        self.flush()
        self._drop()
        self._transport.close()
        self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def cut_off(self, reason: str) -> None:
        """End the connection now; what waits is dropped."""
        log.warning("slow client cut off", extra={"peer": self.peer, "reason": reason})
        self._owner.slow += 1
        self._drop()
        assert self._transport is not None
        self._transport.abort()

    def flush(self) -> None:
        """Write what the transport takes. Called at the end of a turn in which something was queued."""
        assert self._transport is not None
        self._touched = False
        while self._queue and not self._paused:
            part: list[bytes] = []
            size = 0
            while self._queue and size < WRITE_BYTES:
                part.append(self._queue.popleft())
                size += len(part[-1])
            self._queued -= size
            self._transport.write(b"".join(part))
        self._account()

    def _drop(self) -> None:
        self.ended = True
        self._queue.clear()
        self._queued = 0
        self._reader = FrameReader(0)
        self._account()

    def _account(self) -> None:
        before, self.held = self.held, self._queued + self._reader.held
        if self.held != before:
            self._owner.holds(self.held - before)
