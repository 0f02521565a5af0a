"""Bridge sessions over the network of routers that both sites are in: each frame is an AMQP message, pre-settled.

A site listens at its *bridge address* as long as its member is a relay; who dials sends HELLO there. From then on the
two ends send to each other's *inbox*, an address of one router. Messages may be lost or overtake each other, which is
what frames of the bridge are made for, so there is nothing here that repeats them: an outcome for each would cost a
message back and say nothing that ACK does not. A session ends when the routers know no way to the other end, when that
does not know the session any more, or when nothing comes of it (which the relay sees).

What a message carries: version, kind, the session at each end, bytes sent and seen (so that each end knows how much is
under way), the inbox of who sends, and the frame.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol

from isthmus_router.groups.frames import FrameError
from isthmus_router.relay.port import BridgePort
from isthmus_router.relay.settings import Endpoint

INBOX = "$relay-bridge"
"""Name of a router's inbox among its own addresses."""
MOST_ACCEPTED = 256
"""Sessions that others have dialled."""
MOST_BACKLOG = 32 << 20
"""Bytes under way in one session, beyond which frames are dropped."""
_VERSION = 1
_FRAME, _CLOSE = 1, 2
_HEAD = struct.Struct(">BBQQQQB")
_DATA = b"\x00\x53\x75\xb0"
"""Begins a data section (AMQP 1.0 part 3, 3.2.6) of a four-byte length."""
_FIRST_ACCEPTED = -(1 << 62)
"""Numbers of those that others have dialled go down from here, apart from those of other bridges."""
_AN_INBOX = re.compile(rf"_topo/0/[^/]+/{re.escape(INBOX)}")


def bridge_address(over: str, group: str, site: str) -> str:
    """Where a site listens in a network in which sites meet at `over`."""
    return f"{over}/{group}/{site}"


def inbox_of(router: str) -> str:
    """Where a router gets what is for its sessions."""
    return f"_topo/0/{router}/{INBOX}"


class NetworkPort(Protocol):
    """The router."""

    def send(self, to: str, message: bytes) -> bool:
        """Send a pre-settled message to an address; False: there is no way to anybody."""

    def wake(self) -> None:
        """Call `tell` soon, not before this returns."""


class NetworkBridgeEvents(Protocol):
    """Who hears of what happens, as with `transport.bridge`."""

    def bridge_opened(self, session: int, names: tuple[str, ...]) -> None:
        """A session is there. Nothing is known of its other end."""

    def bridge_frame(self, session: int, frame: bytes) -> None:
        """A frame of it."""

    def bridge_closed(self, session: int, reason: str) -> None:
        """It has ended."""


@dataclass(slots=True)
class _Session:
    number: int
    token: int
    """What this end calls it."""
    to: str
    """Where the other end is; a bridge address until it has answered."""
    peer: int = 0
    """What the other end calls it; 0: not known yet."""
    sent: int = 0
    """Bytes."""
    seen_there: int = 0
    seen: int = 0
    """Of what the other end has sent, how far it was when it sent what has come last."""


class NetworkBridge:
    """All such sessions; implements BridgePort for endpoints whose port is 0 (`Endpoint.is_address`)."""

    def __init__(self, router: str, port: NetworkPort, events: NetworkBridgeEvents, random: Random) -> None:
        """`random` makes up what a stranger should not guess."""
        self._inbox = inbox_of(router).encode()
        self._port = port
        self._events = events
        self._random = random
        self._numbers = count(_FIRST_ACCEPTED, -1)
        self._sessions: dict[int, _Session] = {}
        self._by_token: dict[int, _Session] = {}
        self._accepted: dict[tuple[str, int], _Session] = {}
        """By the other end's inbox and name for it."""
        self._to_tell: deque[tuple[int, str | None]] = deque()
        """Sessions that are open (None), or have ended and why."""
        self.malformed = 0
        self.dropped = 0
        """Frames that were too much."""

    def __contains__(self, session: int) -> bool:
        """Whether it is one of these."""
        return session in self._sessions

    # BridgePort

    def dial(self, session: int, site: str, endpoint: Endpoint) -> None:
        """Implements BridgePort: there is nothing to make, so the session is open at once."""
        self._add(session, endpoint.host)
        self._tell_soon(session, None)

    def send(self, session: int, frame: bytes) -> None:
        """Implements BridgePort."""
        known = self._sessions.get(session)
        if known is None:
            return
        if known.sent - known.seen_there > MOST_BACKLOG:
            self.dropped += 1
            return
        known.sent += len(frame)
        if not self._send(known.to, _FRAME, known, frame):
            self._tell_soon(session, f"no way to {known.to}")

    def close(self, session: int, reason: str) -> None:
        """Implements BridgePort."""
        known = self._forget(session)
        if known is not None and known.peer:
            self._send(known.to, _CLOSE, known)

    def backlog(self, session: int) -> int:
        """Implements BridgePort: what the other end has not been seen to have, so also what was lost."""
        known = self._sessions.get(session)
        return 0 if known is None else known.sent - known.seen_there

    def splice(self, session: int, endpoint: Endpoint, first: bytes) -> None:
        """Implements BridgePort. Who is no relay does not listen: who dials again reaches the one that does."""
        self.close(session, f"the relay is not here but at {endpoint}")

    # What the router tells

    def tell(self) -> None:
        """What was put off is told."""
        while self._to_tell:
            session, reason = self._to_tell.popleft()
            if reason is None:
                if session in self._sessions:
                    self._events.bridge_opened(session, ())
            elif self._forget(session) is not None:
                self._events.bridge_closed(session, reason)

    def on_message(self, message: bytes) -> None:
        """A message has come to the inbox or the bridge address."""
        try:
            kind, sender, receiver, sent, seen, inbox, frame = _decode(message)
        except FrameError:
            self.malformed += 1
            return
        known = self._by_token.get(receiver) if receiver else self._accept(inbox, sender)
        if known is None or known.peer not in (0, sender):
            if kind == _FRAME:
                stranger = _Session(0, receiver, inbox, sender)
                self._send(inbox, _CLOSE, stranger)
            return
        if not known.peer:
            known.to, known.peer = inbox, sender
        known.seen, known.seen_there = max(known.seen, sent), max(known.seen_there, seen)
        if kind == _FRAME:
            self.tell()
            self._events.bridge_frame(known.number, frame)
        else:
            self._tell_soon(known.number, "closed by the other end")

    # Within

    def _accept(self, inbox: str, sender: int) -> _Session | None:
        """The session of who does not know yet what it is called here."""
        known = self._accepted.get((inbox, sender))
        if known is None and len(self._accepted) < MOST_ACCEPTED:
            known = self._add(next(self._numbers), inbox)
            known.peer = sender
            self._accepted[inbox, sender] = known
            self._tell_soon(known.number, None)
        return known

    def _add(self, number: int, to: str) -> _Session:
        token = self._random.getrandbits(64) or 1
        session = self._sessions[number] = self._by_token[token] = _Session(number, token, to)
        return session

    def _forget(self, number: int) -> _Session | None:
        session = self._sessions.pop(number, None)
        if session is not None:
            del self._by_token[session.token]
            if number < 0:
                del self._accepted[session.to, session.peer]
        return session

    def _tell_soon(self, session: int, reason: str | None) -> None:
        self._to_tell.append((session, reason))
        self._port.wake()

    def _send(self, to: str, kind: int, session: _Session, frame: bytes = b"") -> bool:
        head = _HEAD.pack(
            _VERSION, kind, session.token, session.peer, session.sent, session.seen, len(self._inbox)
        )
        size = len(head) + len(self._inbox) + len(frame)
        return self._port.send(to, b"".join((_DATA, size.to_bytes(4, "big"), head, self._inbox, frame)))


def _decode(message: bytes) -> tuple[int, int, int, int, int, str, bytes]:
    """Kind, session at who sent it and here, bytes sent and seen, inbox, frame. Raises FrameError."""
    start = len(_DATA) + 4
    if (
        not message.startswith(_DATA)
        or int.from_bytes(message[len(_DATA) : start], "big") != len(message) - start
    ):
        raise FrameError("not a message of a bridge")
    try:
        version, kind, sender, receiver, sent, seen, length = _HEAD.unpack_from(message, start)
        behind = start + _HEAD.size + length
        inbox = message[start + _HEAD.size : behind].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(str(error)) from None
    if version != _VERSION or kind not in (_FRAME, _CLOSE) or not sender or not _AN_INBOX.fullmatch(inbox):
        raise FrameError(f"version {version}, kind {kind} from {inbox}")
    return kind, sender, receiver, sent, seen, inbox, message[behind:]


class Bridges:
    """Sessions by connections of their own and over the network; implements BridgePort."""

    def __init__(self, direct: BridgePort, network: NetworkBridge) -> None:
        self._direct = direct
        self._network = network

    def dial(self, session: int, site: str, endpoint: Endpoint) -> None:
        """Implements BridgePort."""
        bridge: BridgePort = self._network if endpoint.is_address else self._direct
        bridge.dial(session, site, endpoint)

    def send(self, session: int, frame: bytes) -> None:
        """Implements BridgePort."""
        self._of(session).send(session, frame)

    def close(self, session: int, reason: str) -> None:
        """Implements BridgePort."""
        self._of(session).close(session, reason)

    def backlog(self, session: int) -> int:
        """Implements BridgePort."""
        return self._of(session).backlog(session)

    def splice(self, session: int, endpoint: Endpoint, first: bytes) -> None:
        """Implements BridgePort."""
        self._of(session).splice(session, endpoint, first)

    def _of(self, session: int) -> BridgePort:
        return self._network if session in self._network else self._direct
