"""Which frames of a router the engine is given: those that a router sends to a collector, and no more of them than
the collector has asked for.

The engine trusts its peer. It makes deliveries of transfers for which there is no credit, also on links on which it
sends itself, copies the state of a disposition to all deliveries that this names, makes sessions and links that nobody
wants, and uses links and deliveries that it has freed. So each frame is examined before the engine has it, and one that
no router sends ends the connection.

Only what matters here is read. Fields of which the engine would read something else than this module are refused: those
of other types, lists with more or less than they say, other descriptors.

Sans-IO. Source: AMQP 1.0 part 2, 2.3 (frames), 2.6 (links), 2.7 (performatives); `core/transport.c` of qpid-proton.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from isthmus_flowlog.collector.session import MOST_SOURCES
from isthmus_router.message.sections import skip_any
from isthmus_router.scram import excess_of

NOT_ASKED: Final = "the router begins sessions or attaches links that the collector has not asked for"

LEAST_HANDLES: Final = 3 * MOST_SOURCES + 1
"""That the router has to allow in a session. The engine writes nothing more when it is to attach a link beyond them."""
LEAST_IDLE_MS: Final = 200
"""The shortest time without a frame after which the router may end the connection. Each is a frame of the collector."""
MOST_RETAINED: Final = 4096
"""Bytes of what the engine retains of an attach, a detach, or a transfer without its payload."""
MOST_TAG_BYTES: Final = 32
"""Of a delivery tag, as AMQP has it."""
MOST_COPIED: Final = 16 * 1024 * 1024
"""The bytes of a disposition times the deliveries that it names."""
MOST_CHALLENGES: Final = 10
"""In a login; SCRAM has two."""
NAMED_AGAIN, NAMED_EACH = 1000, 4
"""How often dispositions may name deliveries: so often, and each delivery of the collector so many times on average."""

_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _DETACH, _END, _CLOSE = range(0x10, 0x19)
_MECHANISMS, _CHALLENGE, _OUTCOME = 0x40, 0x42, 0x44
_HEADER_BYTES = 8
_MOST_FIELDS = 20
_ULONG = {0x53: 1, 0x80: 8}
_UINT = {0x43: 0, 0x52: 1, 0x70: 4}
_USHORT = {0x60: 2}
_NULL, _TRUE, _FALSE, _BOOLEAN, _EMPTY_LIST, _LIST8, _LIST32 = 0x40, 0x41, 0x42, 0x56, 0x45, 0xC0, 0xD0
_BINARY = {0xA0: 1, 0xB0: 4}
_STRING = {0xA1: 1, 0xB1: 4}
_NUMBERS = 1 << 32


class RefusedError(Exception):
    """The frame is none that the engine may have. The text is of bounded size."""


@dataclass(slots=True)
class _Link:
    """One that the collector has attached."""

    name: bytes
    receives: bool
    """The collector does."""
    credit: int = 0
    """Messages that may still begin."""
    count: int = 0
    """The number of the next message, as the router counts: the `delivery-count`."""
    unfinished: int | None = None
    """The delivery-id of a message of which more is to come."""


class _Performative:
    """The body of a frame, with what is behind it left out."""

    __slots__ = ("_at", "_frame", "code", "size")

    def __init__(self, frame: bytes, start: int) -> None:
        """Raises RefusedError, IndexError, and what `skip_any` raises."""
        width = _ULONG.get(frame[start + 1], 0)
        at = start + 2 + width
        if frame[start] != 0 or not width:
            raise RefusedError("a frame without a performative")
        self.code = int.from_bytes(frame[start + 2 : at])
        self._frame = frame
        self._at: list[int] = []
        """Where each field begins."""
        kind, count = frame[at], 0
        if kind == _LIST8:
            end, count, at = at + 2 + frame[at + 1], frame[at + 2], at + 3
        elif kind == _LIST32:
            end = at + 5 + int.from_bytes(frame[at + 1 : at + 5])
            count, at = int.from_bytes(frame[at + 5 : at + 9]), at + 9
        elif kind == _EMPTY_LIST:
            end = at = at + 1
        else:
            raise RefusedError("a performative that is no list")
        if end > len(frame) or count > _MOST_FIELDS:
            raise RefusedError("a performative with too many fields")
        for _ in range(count):
            self._at.append(at)
            at = skip_any(frame, at, end)
        if at != end:
            raise RefusedError("a performative with more or less than its fields")
        self.size = end - start

    def _number(self, field: int, widths: dict[int, int]) -> int | None:
        if field >= len(self._at):
            return None
        at = self._at[field]
        kind = self._frame[at]
        if kind == _NULL:
            return None
        width = widths.get(kind)
        if width is None:
            raise RefusedError(f"field {field} of performative {self.code} is no number of its type")
        return int.from_bytes(self._frame[at + 1 : at + 1 + width])

    def number(self, field: int) -> int | None:
        """An `uint`."""
        return self._number(field, _UINT)

    def short(self, field: int) -> int | None:
        """An `ushort`."""
        return self._number(field, _USHORT)

    def needed(self, field: int) -> int:
        """An `uint` that must be there."""
        number = self.number(field)
        if number is None:
            raise RefusedError(f"no field {field} in performative {self.code}")
        return number

    def flag(self, field: int) -> bool:
        """A `boolean`; False if there is none."""
        if field >= len(self._at):
            return False
        at = self._at[field]
        kind = self._frame[at]
        if kind == _BOOLEAN and self._frame[at + 1] < 2:
            return self._frame[at + 1] == 1
        if kind not in {_NULL, _TRUE, _FALSE}:
            raise RefusedError(f"field {field} of performative {self.code} is no boolean")
        return kind == _TRUE

    def octets(self, field: int, heads: dict[int, int]) -> bytes | None:
        """The content of a string, or of another type with these heads."""
        if field >= len(self._at):
            return None
        at = self._at[field]
        kind = self._frame[at]
        if kind == _NULL:
            return None
        head = heads.get(kind)
        if head is None:
            raise RefusedError(f"field {field} of performative {self.code} has another type")
        begin = at + 1 + head
        return self._frame[begin : begin + int.from_bytes(self._frame[at + 1 : begin])]


class Login:
    """The frames of a login, which come before all others."""

    def __init__(self) -> None:
        self.is_over = False
        self._chosen = False
        self._challenges = 0

    def examine(self, frame: bytes, mechanism: str) -> None:
        """Raises RefusedError if the engine is not to have a frame: the connection has to end.

        `mechanism`: the one of the login, or empty as long as it has none.
        """
        try:
            self._examine(frame, mechanism)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError("a frame that is not according to AMQP") from error

    def _examine(self, frame: bytes, mechanism: str) -> None:
        start = 4 * frame[4]
        if not _HEADER_BYTES <= start < len(frame) or frame[5] != 1:
            raise RefusedError("a frame that is none of a login")
        body = _Performative(frame, start)
        if body.code == _MECHANISMS and not self._chosen:
            self._chosen = True
        elif body.code == _CHALLENGE and self._chosen and self._challenges < MOST_CHALLENGES:
            self._challenges += 1
            challenge = body.octets(0, _BINARY) or b""
            if mechanism.upper().startswith("SCRAM-") and (reason := excess_of(challenge)):
                raise RefusedError(reason)
        elif body.code == _OUTCOME and self._chosen:
            self.is_over = True
        else:
            raise RefusedError("frames of a login that are out of turn, or too many")


class Frames:
    """Those of one connection. The collector has one session on it."""

    def __init__(self) -> None:
        self._opened = self._closed = False
        self._channel: int | None = None
        """That of the session, once the router has begun it."""
        self._ended = False
        self._unanswered: dict[bytes, _Link] = {}
        self._links: dict[bytes, _Link] = {}
        self._by_handle: dict[int, _Link] = {}
        self._next_delivery: int | None = None
        self._sent = 0
        self._named = 0

    # What the collector does

    def attached(self, name: str, *, receives: bool) -> None:
        """The collector attaches a link, of a name that no other one has had."""
        link = _Link(name.encode(), receives)
        self._unanswered[link.name] = self._links[link.name] = link

    def granted(self, name: str, credit: int) -> None:
        """The collector gives credit for more messages."""
        link = self._links.get(name.encode())
        if link is not None:
            link.credit += credit

    def sent(self) -> None:
        """The collector sends a message."""
        self._sent += 1

    # What the router does

    def admits(self, frame: bytes) -> bool:
        """Whether the engine is to have a frame. Raises RefusedError: the connection has to end."""
        try:
            return self._admits(frame)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError("a frame that is not according to AMQP") from error

    def _admits(self, frame: bytes) -> bool:
        start = 4 * frame[4]
        if not _HEADER_BYTES <= start <= len(frame) or frame[5] != 0:
            raise RefusedError("a frame that is none of AMQP")
        if self._closed:
            raise RefusedError("a frame behind the close")
        if start == len(frame):
            return True
        body = _Performative(frame, start)
        if body.code == _OPEN:
            self._open(body)
            return True
        if not self._opened:
            raise RefusedError("a frame before the open")
        if body.code == _CLOSE:
            self._closed = True
            return True
        channel = int.from_bytes(frame[6:8])
        if body.code == _BEGIN:
            self._begin(body, channel)
            return True
        if channel != self._channel or self._ended:
            raise RefusedError("a frame of no session")
        match body.code:
            case 0x12:
                self._attach(body)
            case 0x13:
                self._flow(body)
            case 0x14:
                self._transfer(body)
            case 0x15:
                return self._disposition(body, len(frame))
            case 0x16:
                self._detach(body)
            case 0x17:
                self._ended = True
            case _:
                raise RefusedError("an unknown performative")
        return True

    def _open(self, body: _Performative) -> None:
        if self._opened:
            raise RefusedError("a second open")
        idle = body.number(4)
        if idle and idle < LEAST_IDLE_MS:
            raise RefusedError(f"an idle-time-out of {idle} ms, which is less than {LEAST_IDLE_MS}")
        self._opened = True

    def _begin(self, body: _Performative, channel: int) -> None:
        if body.short(0) is None or self._channel is not None:
            raise RefusedError(NOT_ASKED)
        handle_max = body.number(4)
        if handle_max is not None and handle_max + 1 < LEAST_HANDLES:
            raise RefusedError(f"a session for {handle_max + 1} links, which is less than {LEAST_HANDLES}")
        self._channel = channel

    def _attach(self, body: _Performative) -> None:
        if body.size > MOST_RETAINED:
            raise RefusedError(f"an attach of {body.size} bytes")
        link = self._unanswered.pop(body.octets(0, _STRING) or b"", None)
        handle, of_receiver = body.needed(1), body.flag(2)
        if link is None or link.receives == of_receiver:
            raise RefusedError(NOT_ASKED)
        if handle in self._by_handle:
            raise RefusedError("a handle that another link has")
        self._by_handle[handle] = link
        if link.receives:
            link.count = body.number(9) or 0

    def _link(self, body: _Performative) -> _Link:
        link = self._by_handle.get(body.needed(0))
        if link is None:
            raise RefusedError("a handle of no link")
        return link

    def _flow(self, body: _Performative) -> None:
        handle, count = body.number(4), body.number(5) or 0
        if handle is None:
            return
        link = self._by_handle.get(handle)
        if link is None:
            raise RefusedError("a handle of no link")
        if not link.receives:
            return
        # Routers that count a message at its end are one behind.
        ahead = (count - link.count + 1) % _NUMBERS - 1
        if ahead > link.credit:
            raise RefusedError("a delivery-count beyond the credit")
        if ahead > 0:
            link.credit -= ahead
            link.count = count

    def _transfer(self, body: _Performative) -> None:
        link = self._link(body)
        if not link.receives:
            raise RefusedError("a transfer on a link on which the collector sends")
        if body.size > MOST_RETAINED or len(body.octets(2, _BINARY) or b"") > MOST_TAG_BYTES:
            raise RefusedError("a transfer with a long tag or state")
        number = body.number(1)
        if link.unfinished is None:
            self._message(link, number)
        elif number is not None and number != link.unfinished:
            raise RefusedError("a message before the end of another one")
        more, aborted = body.flag(5), body.flag(9)
        if not more or aborted:
            link.unfinished = None
        elif link.unfinished is None:
            link.unfinished = number

    def _message(self, link: _Link, number: int | None) -> None:
        """A message begins."""
        if number is None or self._next_delivery not in {None, number}:
            raise RefusedError("a delivery-id that is not the next one")
        if link.credit < 1:
            raise RefusedError("a message without credit")
        self._next_delivery = (number + 1) % _NUMBERS
        link.credit -= 1
        link.count = (link.count + 1) % _NUMBERS

    def _disposition(self, body: _Performative, size: int) -> bool:
        """Those about messages of the router say nothing to the collector: it settles each of them itself."""
        if not body.flag(0):
            return False
        first, last = body.needed(1), body.number(2)
        if last is None:
            last = first
        if not first <= last < self._sent:
            raise RefusedError("a disposition of messages that the collector has not sent")
        named = last - first + 1
        self._named += named
        if self._named > NAMED_AGAIN + NAMED_EACH * self._sent or named * size > MOST_COPIED:
            raise RefusedError("dispositions that name too many messages")
        return True

    def _detach(self, body: _Performative) -> None:
        if body.size > MOST_RETAINED:
            raise RefusedError(f"a detach of {body.size} bytes")
        link = self._link(body)
        del self._by_handle[body.needed(0)], self._links[link.name]
