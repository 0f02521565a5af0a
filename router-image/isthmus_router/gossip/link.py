"""One connection of the gossip router's process: bytes to frames, and a bounded queue back."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol, cast

from isthmus_router.credentials import REVOKED, WatchedFiles, certificate_names, peer_certificate
from isthmus_router.gossip.messages import LONGEST_HELLO_BYTES, FrameReader
from isthmus_router.gossip.table import Table
from isthmus_router.groups.frames import FrameError

log = logging.getLogger("GOSSIP")

WRITE_BYTES = 1 << 18
"""Given to the transport at once, which then says whether that was too much."""
READ_SECONDS = 0.002
"""For the frames of one read; the others wait for their turns (`Owner.waits`), and nothing more is read until then."""
LOOKS_AT_CLOCK = 8
"""Frames between two looks."""
CLOSE_SECONDS = 1.0
"""For a peer to take what it is told before its connection is closed."""


class Owner(Protocol):
    """The process, as its connections see it."""

    table: Table
    slow: int
    """Links cut off."""
    credentials: WatchedFiles | None

    def greeted(self, link: ServerLink) -> None:
        """It has said HELLO."""

    def gone(self, link: ServerLink) -> None:
        """Its connection has ended."""

    def touched(self, link: ServerLink) -> None:
        """It has something to write at the end of this turn."""

    def waits(self, link: ServerLink) -> None:
        """It has frames to work off; calls `work` when it is its turn."""

    def holds(self, more: int) -> None:
        """So many bytes more are held, or fewer; may have any link cut off."""


class ServerLink(asyncio.Protocol):
    """What it holds is frames that it has received and not worked off, the last one incomplete, and frames that its
    peer has not taken."""

    def __init__(self, owner: Owner, most_queued: int, peer: str) -> None:
        """`most_queued`: bytes; a peer that is further behind is cut off, so that it delays nobody else."""
        self._owner = owner
        self._most_queued = most_queued
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(LONGEST_HELLO_BYTES)
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._paused = False
        self._answering = False
        """An answer is queued; what the peer has sent after its question waits."""
        self._frames: deque[bytes] = deque()
        """Received, and not worked off."""
        self._waits = False
        """Nothing more is read."""
        self._unread = 0
        """Bytes that `_frames` had at most."""
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
        if self.end_if_revoked():
            self.ended = True  # the list has changed during the handshake
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

    def end_if_revoked(self) -> bool:
        """End the connection if its certificate is revoked by now. Whether that is so."""
        credentials, transport = self._owner.credentials, self._transport
        if (
            credentials is None
            or transport is None
            or not credentials.is_revoked(peer_certificate(transport))
        ):
            return False
        log.warning("connection ended", extra={"peer": self.peer, "reason": REVOKED})
        transport.abort()
        return True

    def data_received(self, data: bytes) -> None:
        if not self.ended:
            self._read(data)

    def _read(self, data: bytes) -> None:
        try:
            frames = self._reader.feed(data)
        except FrameError as error:
            self._owner.table.refuse(self, str(error))
            self._account()
            return
        waiting = bool(self._frames)
        self._frames += frames
        if waiting or self._answering:
            # TLS hands on what it had decrypted before it was paused.
            self._unread += len(data)
            self._account()
        elif self.work(READ_SECONDS):
            self._owner.waits(self)

    def work(self, seconds: float) -> bool:
        """Work off frames for so long. Returns whether some are left that can be worked off now."""
        table, clock, frames = self._owner.table, self._loop.time, self._frames
        now = clock()
        end = now + seconds
        number = 0
        while frames and not self.ended and not self._answering:
            table.received(now, self, frames.popleft())
            number += 1
            if not number % LOOKS_AT_CLOCK:
                now = clock()
                if now >= end:
                    break
        if not self._greeted and not self.ended and table.greeted(self):
            self._greeted = True
            self._reader.most_bytes = table.limits.most_bytes
            self._owner.greeted(self)
        self._pace()
        return bool(frames) and not self._answering

    def _pace(self) -> None:
        """Read nothing more while frames wait, or the answer to one."""
        if self.ended:
            return
        assert self._transport is not None
        if not self._frames:
            self._unread = 0
        elif not self._unread:
            self._unread = sum(map(len, self._frames))
        wait = bool(self._frames) or self._answering
        if wait is not self._waits:
            self._waits = wait
            if wait:
                self._transport.pause_reading()
            elif not self._transport.is_closing():
                self._transport.resume_reading()
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

    def answer(self, frames: Sequence[bytes]) -> None:
        """Implements `table.Link`."""
        self._answering = True
        for frame in frames:
            self.send(frame)

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
        if self._answering:
            self._owner.table.taking(self._loop.time(), self)
            if not self._queue:
                self._answering = False
                self._pace()
                if self._frames:
                    self._owner.waits(self)
        self._account()

    def _drop(self) -> None:
        self.ended = True
        self._queue.clear()
        self._queued = 0
        self._frames.clear()
        self._unread = 0
        self._reader = FrameReader(0)
        self._account()

    def _account(self) -> None:
        before, self.held = self.held, self._queued + self._unread + self._reader.held
        if self.held != before:
            self._owner.holds(self.held - before)
