"""One connection of the gossip router's process: bytes to frames, and a queue back.

A message counts for the connection that has sent it, and once for all of its copies, until the last receiver has taken
it. The router reads nothing more from a connection of which too much waits, or of whose identity too much waits for one
receiver. The identities whose messages wait for a receiver have turns (`queues`). What the router itself has to say to
it comes before these messages.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import sys
import termios
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol, cast

from isthmus_router import tls_records
from isthmus_router.credentials import REVOKED, WatchedFiles, certificate_names, identity_of, peer_chain
from isthmus_router.gossip.messages import LONGEST_HELLO_BYTES, FrameReader
from isthmus_router.gossip.queues import LEAST_COST, FairQueue
from isthmus_router.gossip.table import Link, Table
from isthmus_router.groups.frames import FrameError
from isthmus_router.room import Room
from isthmus_router.write_turns import write_turns

log = logging.getLogger("GOSSIP")

WRITE_BYTES = 1 << 16
"""Given to the transport at once, which then says whether that was too much. Longer frames are given in parts. How much
is written in an iteration of the event loop is bounded by `write_turns`."""
LARGE_BYTES = 1 << 16
"""A longer frame is read when there is room for all of it. A connection that holds less does not wait for room."""
SLACK_BYTES = 1 << 13
"""A connection that holds less is not accounted for."""
MESSAGE_BYTES = 128
COPY_BYTES = 16
"""That a message, and each of its copies, takes beside the frame."""
OWN_BYTES = 64
"""That a frame which the router itself has made takes beside its bytes."""
PROGRESS_BYTES = 1 << 15
"""A receiver that takes so much within `STALLED_SECONDS` makes progress."""
STALLED_SECONDS = 10.0
"""For a receiver to make progress."""
ROOM_SECONDS = 30.0
"""For a connection to wait for room."""
ARRIVAL_PART = 16
"""A frame for which room is reserved makes progress if this part of it, and at least `PROGRESS_BYTES`, arrives within
`STALLED_BEHIND_SECONDS`. It gives the room up if it does not, and others wait for room that it may have."""
STALLED_BEHIND_SECONDS = 3.0
"""The same for one that may hold senders back: where other connections wait for room, and where more than a quarter of
the bound waits for it."""
CUT_FRAMES = 32
CUT_BYTES = 1 << 15
"""Cut at the same time, out of what has arrived. Between messages of these the clock is not read."""
CLOSE_SECONDS = 1.0
"""For a peer to take what it is told before its connection is closed."""


class Owner(Protocol):
    """The process, as its connections see it."""

    table: Table
    room: Room
    slow: int
    """Links cut off."""
    dropped: int
    """Messages for which there was no room."""
    credentials: WatchedFiles | None

    def greeted(self, link: ServerLink) -> None:
        """It has said HELLO."""

    def gone(self, link: ServerLink) -> None:
        """Its connection has ended."""

    def touched(self, link: ServerLink) -> None:
        """It has something to write at the end of this turn."""

    def ready(self, link: ServerLink, /) -> None:
        """It has frames to work off: calls `work`, now or in turns, until it has none."""

    def holds(self, more: int) -> None:
        """So many bytes of frames that the router itself has made wait more, or fewer; may have any link cut off."""

    def wants_room(self, link: ServerLink) -> None:
        """It waits for room, until `has_room` is called."""

    def wants_none(self, link: ServerLink) -> None:
        """It no longer waits for room."""

    def has_room(self) -> None:
        """Less of the room is in use."""

    def crowded(self) -> bool:
        """Whether any connection waits for room."""

    def hinders(self, link: ServerLink) -> bool:
        """Whether any connection waited, when progress was last checked, for room that the link may have."""


class _Message:
    """A message that some of its receivers have not taken."""

    __slots__ = ("copies", "cost", "frame", "sender", "size")

    def __init__(self, frame: bytes, sender: ServerLink, copies: int, size: int, cost: int) -> None:
        self.frame = frame
        self.sender = sender
        self.copies = copies
        """That are not taken."""
        self.size = size
        """In memory."""
        self.cost = cost
        """Implements `queues.Message`."""


class ServerLink(asyncio.Protocol):
    """What it holds is bytes that it has received and not worked off, and messages that it has sent and that others
    have not taken."""

    def __init__(self, owner: Owner, most_queued: int, peer: str) -> None:
        """`most_queued`: memory in bytes of what the router itself may have to say to the peer. Half as much may wait
        of the messages of this connection, and for the peer of those of one identity, before the router reads no
        further from the connections that have sent them."""
        self._owner = owner
        self._most_queued = most_queued
        self.identity = ""
        self.group = b""
        """Of its last message."""
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(LONGEST_HELLO_BYTES)
        self._answers: deque[bytes] = deque()
        """What the router itself has to say to the peer."""
        self._messages = FairQueue[str, _Message, ServerLink](most_queued // 2)
        """For the peer, by the identities of their senders."""
        self._rest = memoryview(b"")
        """Of a frame that is written in part; comes before both."""
        self._begun: bytes | _Message = b""
        """That frame."""
        self._queued = 0
        """Bytes that wait for the peer."""
        self._own = 0
        """Memory of those that the router itself has made."""
        self._written = 0
        self._progress = (0.0, 0)
        """When the peer had last made progress, and the bytes that it had taken by then."""
        self._charged = 0
        """Bytes of its messages that wait for others."""
        self._reserved = 0
        """For the frame that is not complete."""
        self._to_arrive = 0
        """Of these, bytes that have not arrived, as the room knows."""
        self._arrival = (0.0, 0)
        """When that frame had last made progress, and the bytes of it that had arrived by then."""
        self.wanted: int | None = None
        """Room for so many bytes; nothing is read until then."""
        self._wanted_at = 0.0
        self._admitted = False
        """It may be read once."""
        self._paused = False
        self._answering = False
        """An answer is queued; what the peer has sent after its question waits."""
        self.served = 0.0
        """Implements `turns.Worker`."""
        self._frames: list[bytes] = []
        """Cut out of what was received, and not worked off, as the last one that was is a question or took long."""
        self._working = False
        """It is in a turn, or waits for one."""
        self._waits_for_turn = False
        """Others decrypt what they have received."""
        self._full: set[ServerLink] = set()
        """Receivers for which too much of this identity waits."""
        self._stuck = False
        """What the peer has sent waits until what was asked before is answered, or until receivers have taken more."""
        self._waits = False
        """Nothing more is read."""
        self._parts = 0
        """Bytes of a frame that is not complete, since the table was told of them."""
        self._touched = False
        self._greeted = False
        self._transport: asyncio.Transport | None = None
        self.making: asyncio.Task[None] | None = None
        """Its handshake."""
        self.peer = peer
        self.held = 0
        """Bytes, as the room knows."""
        self._held_own = 0
        """As the owner knows."""
        self.ended = False
        """Nothing more is read, and nothing more is queued."""
        self._deaf = False
        """Nothing more is queued."""
        self._finishing = False
        """The transport is closed when what is queued is written."""
        self._write_turns = write_turns()
        self._lost: str | None = None
        """Why the connection was lost, while frames wait that had arrived before."""

    # The transport's events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BYTES)
        tls_records.begin(transport, self._wait_for_turn)
        if self.ended:
            self._transport.abort()
            return
        if self.end_if_revoked():
            return  # the list has changed during the handshake
        log.debug("connection opened", extra={"peer": self.peer})
        certificate = transport.get_extra_info("peercert")
        address = transport.get_extra_info("peername")
        self.identity = identity_of(certificate, address[0] if address else "")
        names = certificate_names(certificate) if certificate else None
        self._progress = (self._loop.time(), 0)
        self._owner.table.opened(self._loop.time(), self, self.identity, names)

    def end_if_revoked(self) -> bool:
        """End the connection if its certificate, or that of an authority, is revoked by now. Whether that is so."""
        credentials, transport = self._owner.credentials, self._transport
        if credentials is None or transport is None or not credentials.is_revoked(peer_chain(transport)):
            return False
        log.warning("connection ended", extra={"peer": self.peer, "reason": REVOKED})
        self._drop()
        transport.abort()
        return True

    def data_received(self, data: bytes) -> None:
        if not self.ended:
            self._read(data)

    def _read(self, data: bytes) -> None:
        self._reader.feed(data)
        self._admitted = False
        if self._reader.whole:
            self._reserved = 0
            self._begin()
            if self._reader.whole:
                self._pace()
            return
        # Part of a long frame is a sign of life, as nothing else can come before the rest of it.
        self._parts += len(data)
        if self._parts >= PROGRESS_BYTES:
            self._parts = 0
            self._owner.table.taking(self._loop.time(), self)
        self._pace()

    @property
    def _behind(self) -> bool:
        """Whether frames wait that can be worked off, unless they are `_stuck`."""
        return self._reader.whole or bool(self._frames)

    def _begin(self) -> None:
        """Work off what can be worked off, now or in turns."""
        if not self._working and not self._stuck and self._behind:
            self._working = True
            self._owner.ready(self)

    def work(self, end: float) -> bool:
        """Work off frames, until some are left that cannot be worked off now. Implements `turns.Worker`."""
        table, now = self._owner.table, time.monotonic()
        while True:
            frames, self._frames = self._frames, []
            if not frames:
                try:
                    frames = self._reader.cut(CUT_FRAMES, CUT_BYTES)
                except FrameError as error:
                    table.refuse(self, str(error))
                    break
            for number, frame in enumerate(frames, 1):
                if (table.received(now, self, frame) or self._stuck) and self._stops(end):
                    self._frames = frames[number:]
                    break
            if not self._greeted and not self.ended and table.greeted(self):
                self._greeted = True
                self._reader.most_bytes = table.limits.most_bytes
                self._owner.greeted(self)
            if not self._reader.whole or self._stops(end):
                break
        if self.ended:
            self._frames = []
        self._pace()
        if not self._behind and self._lost is not None:
            self._end()
        self._working = self._behind and not self._stuck
        return self._working

    def break_off(self) -> None:
        """Implements `turns.Worker`."""
        self._drop()
        if self._transport is not None:
            self._transport.abort()

    def _stops(self, end: float) -> bool:
        """Whether no further frame is to be worked off, as the last one has ended the connection, was a question, has
        filled the queue of a receiver, or took too long."""
        return self.ended or self._stuck or time.monotonic() >= end

    @property
    def held_back(self) -> bool:
        """Whether the router does not read it."""
        return self._waits and not self.ended

    @property
    def own(self) -> int:
        """Memory in bytes of what the router itself has to say to the peer."""
        return self._own

    @property
    def input(self) -> int:
        """Bytes that were received, or are about to be, and are not worked off."""
        size = max(self._reader.held, self._reserved)
        return size + sum(map(len, self._frames)) if self._frames else size

    def _wait_for_turn(self, waits: bool) -> None:
        self._waits_for_turn = waits
        if self._transport is not None:
            self._pace()

    def _pace(self) -> None:
        """Read nothing more while frames wait, or the answer to one, or too much of what has come from here or from
        others of the same identity."""
        if self.ended:
            self._account()
            return
        assert self._transport is not None
        self._account()
        wait = self._behind or self._stuck or 2 * self._charged >= self._most_queued
        wait = wait or self._waits_for_turn
        if not wait and (self.held or self.wanted is not None):
            wait = self._waits_for_room()
        if wait is not self._waits:
            self._waits = wait
            if self._transport.is_closing():
                return
            if wait:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _waits_for_room(self) -> bool:
        """Take room for the frame that is not complete, or wait for it."""
        self._reserve()
        return self.wanted is not None

    def _reserve(self) -> None:
        if self.wanted == 0 and self.held <= LARGE_BYTES:
            self.wanted = None
            self._owner.wants_none(self)
        if self.wanted is not None or self._reserved or self._admitted:
            return
        size = 0
        if self._reader.pending > LARGE_BYTES:
            size = self._reader.pending
            if not self.group:
                self._sends_to(self._owner.table.group_of(self))
        if not size and self.held <= LARGE_BYTES:
            return
        missing = max(0, size - self._reader.held)
        if self._owner.crowded() or not self._owner.room.fits(self, missing):
            self.wanted, self._wanted_at = missing, self._loop.time()
            self._owner.wants_room(self)
        elif size:
            self._expect(size)
            self._account()

    def _expect(self, size: int) -> None:
        """Reserve room for the frame that is not complete."""
        self._reserved = size
        self._arrival = (self._loop.time(), self._reader.held)

    def admit(self) -> None:
        """There is room for what it wants."""
        if self.wanted:
            self._expect(self._reader.pending)
        self.wanted = None
        self._admitted = True
        self._pace()

    def _sends_to(self, group: bytes) -> None:
        self._owner.room.charge(self.identity, self.group, -self.held)
        self._owner.room.charge(self.identity, group, self.held)
        self._owner.room.reserve(self.identity, self.group, -self._to_arrive)
        self._owner.room.reserve(self.identity, group, self._to_arrive)
        self.group = group

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = str(exc or "")
        if self.ended or not self._behind:
            self._drop()
            self._end()
            return
        self._drop_queue()
        self._answering = self._stuck = False
        self._begin()

    def _end(self) -> None:
        """The connection is lost, and what had arrived before is worked off."""
        if self._lost is None:
            return
        reason, self._lost = self._lost, None
        self._owner.table.closed(self._loop.time(), self)
        self._owner.gone(self)
        log.debug("connection closed", extra={"peer": self.peer, "reason": reason})

    # What the table asks for

    def send(self, frame: bytes) -> None:
        """Implements `table.Link`."""
        if self._deaf:
            return
        self._own += len(frame) + OWN_BYTES
        self._answers.append(frame)
        self._queued += len(frame)
        if not self._touched:
            self._touch()
        if self._own > self._most_queued:
            self.cut_off(f"{self._own} bytes wait for it")

    def carry(self, group: bytes, frame: bytes, to: Sequence[Link]) -> None:
        """Implements `table.Link`."""
        links: Sequence[ServerLink] = to  # type: ignore[assignment]  # all links of a table are of one kind
        if len(links) > 1:
            links = [link for link in links if not link._deaf]
        if not links or links[0]._deaf or self.ended:
            return
        if group != self.group:
            self._sends_to(group)
        size = len(frame)
        memory = size + MESSAGE_BYTES + COPY_BYTES * len(links)
        message = _Message(frame, self, len(links), memory, size if size > LEAST_COST else LEAST_COST)
        if size > LARGE_BYTES:
            self._account()  # its reservation is over
        if not self._owner.room.ample and not self._owner.room.takes(self, memory):
            self._owner.dropped += len(links)
            return
        self._charged += memory
        for link in links:
            if link._messages.put(self.identity, message):
                link._messages.hold(self.identity, self)
                self._full.add(link)
                self._stuck = self._lost is None
            link._queued += size
            if not link._touched:
                link._touch()

    def _touch(self) -> None:
        """Something waits until the end of this turn, or until the peer takes it."""
        self._touched = True
        self._owner.touched(self)

    def answer(self, frames: Sequence[bytes]) -> None:
        """Implements `table.Link`."""
        self._answering = self._stuck = not self._deaf
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
        if self.ended:
            return
        self._stop()
        self._deaf = self._finishing = True
        self._account()
        self.flush()
        self._loop.call_later(CLOSE_SECONDS, self._transport.abort)

    def _close_transport(self) -> None:
        """Close the connection; what the transport has not taken is dropped."""
        assert self._transport is not None
        self._finishing = False
        self._drop()
        tls_records.end(self._transport)
        self._transport.close()

    def cut_off(self, reason: str) -> None:
        """End the connection now; what waits is dropped."""
        log.warning("slow client cut off", extra={"peer": self.peer, "reason": reason})
        self._owner.slow += 1
        self._drop()
        assert self._transport is not None
        self._transport.abort()

    def broken(self, error: Exception) -> None:
        """End the connection after a fault in what this router did for it."""
        log.error("internal error", exc_info=error, extra={"peer": self.peer})
        self._drop()
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        """Write what the transport takes, when it is the turn of this connection. Called at the end of a turn in which
        something was queued."""
        self._touched = False
        self._write_turns.write(self)

    def write_piece(self, most: int) -> int:
        """Implements `write_turns.Writer`."""
        assert self._transport is not None
        senders: set[ServerLink] = set()
        begin = self._written
        while self._queued and not self._paused and self._written - begin < most:
            self._transport.write(self._part(senders))
        if self._answering:
            self._owner.table.taking(self._loop.time(), self)
            if not self._own:
                self._answering = self._stuck = False
                self._pace()
                self._begin()
        self._account_own()
        for sender in senders:
            sender._pace()
        if self._messages.released:
            self._release()
        if self._finishing and (self._paused or not self._queued):
            self._close_transport()
        return self._written - begin

    def _release(self) -> None:
        """Less waits for the peer of identities of which too much did."""
        while self._messages.released:
            sender = self._messages.released.pop()
            sender._full.discard(self)
            if not sender._full and not sender.ended:
                sender._stuck = False
                sender._pace()
                sender._begin()

    def _part(self, senders: set[ServerLink]) -> bytes:
        """Take the next bytes from the queue; adds those of whom less waits then."""
        part: list[bytes | memoryview] = []
        left = WRITE_BYTES
        if self._rest:
            part.append(self._rest[:left])
            left -= len(part[0])
            self._rest = self._rest[WRITE_BYTES:]
            if not self._rest:
                self._taken(self._begun, senders)
        while self._answers and left > 0:
            frame = self._answers.popleft()
            part.append(self._cut(frame, frame, left))
            left -= len(part[-1])
            if not self._rest:
                self._taken(frame, senders)
        for message in self._messages.take(left):
            frame = message.frame
            if len(frame) > left:
                part.append(self._cut(message, frame, left))
                left = 0
                break
            part.append(frame)
            left -= len(frame)
            message.copies -= 1
            if not message.copies:
                sender = message.sender
                sender._charged -= message.size
                senders.add(sender)
        self._queued -= WRITE_BYTES - left
        self._written += WRITE_BYTES - left
        return b"".join(part)

    def _cut(self, what: bytes | _Message, frame: bytes, left: int) -> memoryview:
        """So much of a frame; the rest is written before all others."""
        view = memoryview(frame)
        self._begun, self._rest = what, view[left:]
        return view[:left]

    def _taken(self, what: bytes | _Message, senders: set[ServerLink]) -> None:
        """It is written, or dropped; adds the sender of a message of which no other copy waits."""
        if isinstance(what, bytes):
            self._own -= len(what) + OWN_BYTES
            return
        what.copies -= 1
        if not what.copies:
            what.sender._charged -= what.size
            senders.add(what.sender)

    def check_progress(self, now: float) -> None:
        """Cut the peer off if it takes nothing of what waits for it, or has waited for room for too long."""
        if self.ended or self._transport is None:
            return
        if self.wanted is not None and now - self._wanted_at >= ROOM_SECONDS:
            self.cut_off(f"no room for {self.wanted} bytes of it")
            return
        if self._reserved:
            self._check_arrival(now)
        if self._deaf:
            return  # the connection is lost
        since, before = self._progress
        taken = self._written - self._transport.get_write_buffer_size() - self._unacknowledged()
        if not self._queued or taken - before >= PROGRESS_BYTES:
            self._progress = (now, taken)
            return
        behind = 4 * self._queued > self._most_queued or self._owner.crowded()
        if now - since >= (STALLED_BEHIND_SECONDS if behind else STALLED_SECONDS):
            self.cut_off(f"{self._queued} bytes wait for it, and it takes none")

    def _unacknowledged(self) -> int:
        """Bytes that the system has taken and the peer has not: up to some megabytes, which it takes in few steps.

        It is 0 if the connection is lost and `connection_lost` has not been called yet.
        """
        assert self._transport is not None
        sock = self._transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:
            return 0
        return int.from_bytes(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    def _check_arrival(self, now: float) -> None:
        """Give the room up that is reserved for a frame, if others wait for it and little of the frame arrives."""
        since, before = self._arrival
        arrived = self._reader.held
        if arrived - before >= max(PROGRESS_BYTES, self._reserved // ARRIVAL_PART):
            self._arrival = (now, arrived)
        elif now - since >= STALLED_BEHIND_SECONDS and self._owner.hinders(self):
            self.wanted, self._wanted_at = self._reserved - arrived, now
            self._reserved = 0
            self._account()
            self._owner.wants_room(self)
            self._pace()

    def _drop(self) -> None:
        self._stop()
        self._drop_queue()
        if self._lost is not None:
            self._loop.call_soon(self._end)

    def _stop(self) -> None:
        """Nothing more is read."""
        self.ended = True
        self._frames = []
        if self.wanted is not None:
            self.wanted = None
            self._owner.wants_none(self)
        self._reserved = 0
        self._reader = FrameReader(0)

    def _drop_queue(self) -> None:
        """Nothing more is sent."""
        self._deaf = True
        senders: set[ServerLink] = set()
        if self._rest:
            self._taken(self._begun, senders)
            self._rest = memoryview(b"")
        for message in self._messages.clear():
            self._taken(message, senders)
        self._answers.clear()
        self._queued = self._own = 0
        self._account()
        self._account_own()
        for sender in senders:
            sender._pace()
        self._release()

    def _account(self) -> None:
        before, now = self.held, self.input + self._charged
        if now != before and (before or now > SLACK_BYTES):
            self.held = now
            self._owner.room.charge(self.identity, self.group, now - before)
            if now < before:
                self._owner.has_room()
        before = self._to_arrive
        now = max(0, self._reserved - self._reader.held) if self._reserved else 0
        if now != before:
            self._to_arrive = now
            self._owner.room.reserve(self.identity, self.group, now - before)
            if now < before:
                self._owner.has_room()

    def _account_own(self) -> None:
        before, now = self._held_own, self._own
        if now != before and (before or now > SLACK_BYTES):
            self._held_own = now
            self._owner.holds(now - before)
