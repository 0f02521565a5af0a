"""Messages to one member, of this site or another: in order, exactly once, or reported as failed.

Who sends numbers its messages for each receiver, and sends them again until that one, at the other end, acknowledges:
so it does not matter which relays are on the way, or that one of them crashes. A *connection* is what is numbered
as one; it ends when the receiver is gone, or has not been sent to for long, and the next one has a higher number.

```
 UNICAST       connection (8) | number (8) | first that is not acknowledged (8) | message
 UNICAST_ACK   connection (8) | highest number up to which all are received (8)
 UNICAST_LOST  empty: its sender, as whom a relay speaks, is no member
```
Sans-IO. Nothing is reported from within `send`.
"""

from __future__ import annotations

import math
import struct
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from isthmus_router.groups.frames import FrameError, Kind, check_numbers
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.port import MemberPort

_UNICAST = struct.Struct(">QQQ")
_ACK = struct.Struct(">QQ")
_AT_ONCE = 64
"""Messages that are repeated before another one is acknowledged;"""
_FIRST_AT_ONCE = 8
"""before the first one is."""
STEP_BYTES = 128 * 1024
"""Repeated to all members before others have their turn."""
MOST_STEP = 1 << 32
"""The number of a connection is at most so far above that of the one before, or above 0."""
NO_SUCH_MEMBER = "no such member"
_MESSAGE_BYTES = 256
"""What a message that waits takes beside its content, about."""


@dataclass(frozen=True, slots=True)
class UnicastSettings:
    """For each receiver or sender, but for `most_members` and what has bytes of all of them. Times in seconds."""

    window_messages: int = 1_024
    """Sent and not acknowledged."""
    window_bytes: int = 4 * 1024 * 1024
    queue_messages: int = 8_192
    """Sent or waiting to be; more is refused."""
    queue_bytes: int = 16 * 1024 * 1024
    together_bytes: int = 64 * 1024 * 1024
    """Of messages to all receivers; what one source has given may take as many as remain free beside it."""
    repeat_after: float = 0.2
    """Doubled with each time, up to:"""
    repeat_longest: float = 2.0
    idle: float = 120.0
    """A connection without messages is forgotten; by its receiver after twice as long."""
    most_members: int = 10_000
    early_bytes: int = 32 * 1024 * 1024
    """Of messages of all senders that wait for earlier ones; more is dropped, and repeated by its sender."""


class UnicastUser(Protocol):
    """May send from within."""

    def received(self, now: float, sender: MemberId, message: bytes) -> None:
        """The next message of the sender, once."""

    def outcome(self, now: float, token: object, delivered: bool, reason: str) -> None:
        """Of a message that was sent: the receiver has it, or nobody knows whether it had it, as it is gone."""


@dataclass(slots=True)
class _Message:
    body: bytes
    token: object
    source: object

    @property
    def size(self) -> int:
        return len(self.body) + _MESSAGE_BYTES


@dataclass(slots=True)
class _Outgoing:
    connection: int
    messages: deque[_Message] = field(default_factory=deque)
    """Those not acknowledged, the first with number `base`."""
    base: int = 1
    sent: int = 0
    """The first so many of them are on their way,"""
    sent_bytes: int = 0
    bytes: int = 0
    repeated: int = 0
    """Messages with numbers up to this one were sent again,"""
    repeat_to: int = 0
    """of so many as must be."""
    due: float = math.inf
    """When to repeat; if there are no messages, when to forget it."""
    wait: float = 0.0


@dataclass(slots=True)
class _Incoming:
    connection: int
    next: int
    early: dict[int, bytes] = field(default_factory=dict)
    early_bytes: int = 0
    heard: float = 0.0


class Unicasts:
    """Of one member, to and from all others."""

    def __init__(
        self, self_id: MemberId, settings: UnicastSettings, port: MemberPort, user: UnicastUser
    ) -> None:
        self._self_id = self_id
        self._settings = settings
        self._port = port
        self._user = user
        self._out: dict[MemberId, _Outgoing] = {}
        self._in: dict[MemberId, _Incoming] = {}
        self._connections = 0
        self._to_ack: set[MemberId] = set()
        self._to_self: deque[_Message] = deque()
        self._held: Counter[object] = Counter()
        """By source: the bytes of its messages that are not acknowledged;"""
        self._held_bytes = 0
        """those of all."""
        self._early_bytes = 0
        """Of messages of all senders that wait for earlier ones."""
        self._gone: dict[MemberId, None] = {}
        """Senders that are no members any more, longest ago first."""
        self._forget_at = math.inf
        self._repeat_at = math.inf
        self._due: deque[MemberId] = deque()
        """Members whose turn to be repeated to comes in this step or in the next ones."""
        self.repeated = 0
        """Messages sent again, ever."""

    @property
    def deadline(self) -> float:
        """When `on_time` is due; `math.inf`: never."""
        return min(self._repeat_at, self._forget_at)

    @property
    def waiting(self) -> int:
        """Messages that their receivers have not acknowledged."""
        return sum(len(out.messages) for out in self._out.values())

    def send(self, now: float, to: MemberId, body: bytes, token: object, source: object = None) -> bool:
        """Send; `outcome` will be told with the token. False: refused, as too much waits for that member, for all
        members, or of what this source has given."""
        settings = self._settings
        message = _Message(body, token, source)
        if self._held[source] + message.size > settings.together_bytes - self._held_bytes:
            return False
        if to == self._self_id:
            if len(self._to_self) >= settings.queue_messages:
                return False
            self._hold(message)
            self._to_self.append(message)
            self._repeat_at = now
            return True
        out = self._out.get(to)
        if out is None:
            if len(self._out) >= settings.most_members:
                return False
            self._connections += 1
            out = self._out[to] = _Outgoing(self._connections, wait=settings.repeat_after)
        if len(out.messages) >= settings.queue_messages or out.bytes + len(body) > settings.queue_bytes:
            return False
        self._hold(message)
        out.messages.append(message)
        out.bytes += len(body)
        self._fill_window(now, to, out)
        return True

    def on_frame(self, now: float, kind: Kind, sender: MemberId, body: bytes) -> None:
        """The body of a frame of one of the kinds of unicast, however it came. Raises FrameError."""
        if kind is Kind.UNICAST_LOST:
            self.gone(now, sender, NO_SUCH_MEMBER)
            return
        try:
            if kind is Kind.UNICAST:
                connection, number, base = _UNICAST.unpack_from(body)
                check_numbers(connection, number, base)
                if not 1 <= base <= number:
                    raise FrameError(f"message {number} to one member where {base} is the first")
                self._on_unicast(now, sender, connection, number, base, body[_UNICAST.size :])
            else:
                connection, number = _ACK.unpack_from(body)
                check_numbers(connection, number)
                self._on_ack(now, sender, connection, number)
        except struct.error as error:
            raise FrameError(f"malformed {kind.name}: {error}") from error

    def gone(self, now: float, member: MemberId, reason: str) -> None:
        """It is no member any more, or its site is out of reach: what it has not acknowledged has failed."""
        if incoming := self._in.get(member):
            # Not acknowledged: if it is there after all, it repeats them.
            self._drop_early(incoming)
            self._gone[member] = None
        if out := self._out.pop(member, None):
            for message in out.messages:
                self._end(now, message, delivered=False, reason=reason)

    def close(self, now: float) -> None:
        """Nobody is sent anything more: what is not acknowledged has failed."""
        for member in list(self._out):
            self.gone(now, member, "this member has left")
        while self._to_self:
            self._end(now, self._to_self.popleft(), delivered=False, reason="this member has left")

    def route_changed(self, now: float, members: Iterable[MemberId] | None = None) -> None:
        """What was on its way to these, or to all, may be lost: it is repeated from now on."""
        for to in self._out if members is None else members:
            out = self._out.get(to)
            if out is not None and out.sent:
                out.wait = 0.0
                out.due = self._repeat_at = now

    def flush(self, now: float) -> None:
        """The turn ends: acknowledge what came in it."""
        for _ in range(len(self._to_self)):
            message = self._to_self.popleft()
            self._user.received(now, self._self_id, message.body)
            self._end(now, message)
        for sender in self._to_ack:
            if incoming := self._in.get(sender):
                body = _ACK.pack(incoming.connection, incoming.next - 1)
                self._port.send(now, sender, Kind.UNICAST_ACK, body)
        self._to_ack.clear()

    def on_time(self, now: float) -> None:
        """Repeat what is not acknowledged, forget what is idle."""
        self.flush(now)
        if now >= self._repeat_at:
            self._repeat_due(now)
        if now >= self._forget_at:
            idle = self._settings.idle * 2
            for sender, incoming in list(self._in.items()):
                if incoming.heard + idle <= now:
                    self._forget(sender)
            self._forget_at = min((i.heard + idle for i in self._in.values()), default=math.inf)

    def _repeat_due(self, now: float) -> None:
        """To as many members as a step has room for."""
        settings = self._settings
        if not self._due:
            self._due.extend(to for to, out in self._out.items() if out.due <= now)
        left = STEP_BYTES
        while self._due and left > 0:
            to = self._due.popleft()
            out = self._out.get(to)
            if out is None or out.due > now:
                continue
            if out.messages:
                out.wait = min(max(out.wait * 2, settings.repeat_after), settings.repeat_longest)
                left -= self._repeat(now, to, out)
            else:
                del self._out[to]
        self._repeat_at = now if self._due else min((out.due for out in self._out.values()), default=math.inf)

    def _hold(self, message: _Message) -> None:
        self._held[message.source] += message.size
        self._held_bytes += message.size

    def _end(self, now: float, message: _Message, *, delivered: bool = True, reason: str = "") -> None:
        """It waits no more."""
        self._held[message.source] -= message.size
        if not self._held[message.source]:
            del self._held[message.source]
        self._held_bytes -= message.size
        self._user.outcome(now, message.token, delivered, reason)

    def _fill_window(self, now: float, to: MemberId, out: _Outgoing) -> None:
        settings = self._settings
        idle = not out.sent
        for message in islice(out.messages, out.sent, None):
            if out.sent >= settings.window_messages or (
                out.sent and out.sent_bytes + len(message.body) > settings.window_bytes
            ):
                break
            self._put(now, to, out, out.base + out.sent, message)
            out.sent += 1
            out.sent_bytes += len(message.body)
        if idle:
            self._wait(now, out)

    def _put(self, now: float, to: MemberId, out: _Outgoing, number: int, message: _Message) -> None:
        head = _UNICAST.pack(out.connection, number, out.base)
        self._port.send(now, to, Kind.UNICAST, head + message.body)

    def _wait(self, now: float, out: _Outgoing) -> None:
        out.due = now + (out.wait if out.messages else self._settings.idle)
        self._repeat_at = min(self._repeat_at, out.due)

    def _repeat(self, now: float, to: MemberId, out: _Outgoing) -> int:
        """The first ones again, the others as these are acknowledged. Return how many bytes that takes."""
        out.repeated, out.repeat_to = out.base - 1, out.base + out.sent - 1
        size = self._go_on_repeating(now, to, out, _FIRST_AT_ONCE)
        self._wait(now, out)
        return size

    def _go_on_repeating(self, now: float, to: MemberId, out: _Outgoing, count: int) -> int:
        first = max(out.repeated + 1, out.base)
        last = min(out.repeat_to, out.base + count - 1)
        size = 0
        for number, message in zip(
            range(first, last + 1), islice(out.messages, first - out.base, None), strict=False
        ):
            self._put(now, to, out, number, message)
            self.repeated += 1
            size += len(message.body) + _MESSAGE_BYTES
        out.repeated = max(out.repeated, last)
        return size

    def _on_ack(self, now: float, sender: MemberId, connection: int, number: int) -> None:
        out = self._out.get(sender)
        if out is None or connection != out.connection or not out.base <= number < out.base + out.sent:
            return
        done = [out.messages.popleft() for _ in range(number - out.base + 1)]
        size = sum(len(message.body) for message in done)
        out.bytes -= size
        out.sent_bytes -= size
        out.sent -= len(done)
        out.base = number + 1
        out.wait = self._settings.repeat_after
        self._go_on_repeating(now, sender, out, _AT_ONCE)
        self._fill_window(now, sender, out)
        self._wait(now, out)
        for message in done:
            self._end(now, message)

    def _on_unicast(
        self, now: float, sender: MemberId, connection: int, number: int, base: int, message: bytes
    ) -> None:
        settings = self._settings
        incoming = self._in.get(sender)
        if connection > (incoming.connection if incoming is not None else 0) + MOST_STEP:
            raise FrameError(f"connection {connection} is too far above the one before")
        if incoming is None and len(self._in) >= settings.most_members:
            if not self._gone:
                return
            self._forget(next(iter(self._gone)))
        if incoming is None or connection > incoming.connection:
            # All before `base` was acknowledged, by what has been forgotten since.
            if incoming is not None:
                self._drop_early(incoming)
            incoming = self._in[sender] = _Incoming(connection, base)
        elif connection < incoming.connection:
            return
        incoming.heard = now
        self._gone.pop(sender, None)
        self._forget_at = min(self._forget_at, now + settings.idle * 2)
        self._to_ack.add(sender)
        if number < incoming.next or number in incoming.early:
            return
        if number > incoming.next:
            size = len(message) + _MESSAGE_BYTES
            if (
                number < incoming.next + settings.window_messages
                and incoming.early_bytes + len(message) <= settings.window_bytes
                and self._early_bytes + size <= settings.early_bytes
            ):
                incoming.early[number] = message
                incoming.early_bytes += len(message)
                self._early_bytes += size
            return
        incoming.next += 1
        self._user.received(now, sender, message)
        for body in self._in_order(incoming):
            self._user.received(now, sender, body)

    def _in_order(self, incoming: _Incoming) -> Iterator[bytes]:
        while (body := incoming.early.pop(incoming.next, None)) is not None:
            incoming.next += 1
            incoming.early_bytes -= len(body)
            self._early_bytes -= len(body) + _MESSAGE_BYTES
            yield body

    def _drop_early(self, incoming: _Incoming) -> None:
        self._early_bytes -= incoming.early_bytes + len(incoming.early) * _MESSAGE_BYTES
        incoming.early.clear()
        incoming.early_bytes = 0

    def _forget(self, sender: MemberId) -> None:
        self._drop_early(self._in.pop(sender))
        self._gone.pop(sender, None)
