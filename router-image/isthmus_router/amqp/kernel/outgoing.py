"""What waits in the engine to be written: how much of it a session may have, and all sessions of a connection.

A peer that does not read, or that closes the windows of its sessions, makes deliveries wait. Each session has a share
that is its own, whatever the others have: so none keeps another one from sending. Beyond the shares, sessions hold
what the connection has left, up to a bound for each. A session with nothing waiting may send one message beyond that,
if it leaves at once, or if few others have such a message.

The engine walks over all deliveries that wait whenever it writes. So few may wait in a session of a client that has
closed its window: the engine can send none of them.

Deliveries count with the bytes that the engine needs for each. It goes on counting what is discarded with a link; so
what is counted in a session while no link there has anything to send is discounted.

Source: `pn_session_t` of qpid-proton, `core/engine-internal.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer, library

if TYPE_CHECKING:
    from isthmus_router.core.model import Link

SESSION_OUTGOING_HIGH = 1024 * 1024
"""Bytes in one session."""
QUEUED_HIGH = 10_000
"""Deliveries in one session; they may have no bytes to speak of."""
MOST_SHUT_IN, LEAST_SHUT_IN = 4096, 4
"""Deliveries in all sessions of a client's connection whose windows are too small for them, and at least in each."""
CONNECTION_OUTGOING_HIGH, ROUTER_OUTGOING_HIGH = 16 * 1024 * 1024, 128 * 1024 * 1024
"""Bytes in all sessions of a connection, beyond the shares of those that begin later; between routers for many."""
FEW_SESSIONS = 16
"""As many have such a part of that as their shares; with more, the shares are of what is left."""
LEAST_SHARE = 16 * 1024
"""Bytes that each session may have, whatever the others have."""
DELIVERY_BYTES = 576
"""Of the engine, for each delivery."""
MOST_BEYOND = 8
"""Sessions of a connection that may have a message beyond the bound that does not leave at once."""

_WORDS = 72
"""Words of 4 bytes of a session that are searched for its counts. It has no fewer."""
_FRAME_OVERHEAD = 512
_NO_FRAME_LIMIT = 2**31


def _places() -> tuple[int, int]:
    """Which words of a session count bytes and deliveries; ImportError when that cannot be found out."""
    connection = lib.pn_connection()
    session = lib.pn_session(connection)
    link = lib.pn_sender(session, b"probe")
    words = ffi.cast("uint32_t *", session)
    before = ffi.unpack(words, _WORDS)
    for number in range(3):
        tag = ffi.new("pn_bytes_t *")
        text = ffi.new("char[]", b"%d" % number)
        tag.start, tag.size = text, 1
        lib.pn_delivery(link, tag[0])
        lib.pn_link_send(link, bytes(1000), 1000)
        lib.pn_link_advance(link)
    after = ffi.unpack(words, _WORDS)
    grown = {place: after[place] - before[place] for place in range(_WORDS) if after[place] != before[place]}
    right = lib.pn_session_outgoing_bytes(session) == 3000
    lib.pn_link_free(link)
    lib.pn_session_free(session)
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)
    octets = [place for place, difference in grown.items() if difference == 3000]
    deliveries = [place for place, difference in grown.items() if difference == 3]
    if not right or len(octets) != 1 or len(deliveries) != 1:
        raise ImportError("the sessions of the engine are laid out in another way than expected")
    return octets[0], deliveries[0]


OUTGOING_BYTES, OUTGOING_DELIVERIES = _places()
"""Words of a session."""

_cast = ffi.cast
_window: Callable[[int], int] = library.pn_session_remote_incoming_window
_window.restype, _window.argtypes = ctypes.c_ssize_t, [ctypes.c_void_p]  # type: ignore[attr-defined]
_waits: Callable[[int], bool] = library.pn_delivery_buffered
_waits.restype, _waits.argtypes = ctypes.c_bool, [ctypes.c_void_p]  # type: ignore[attr-defined]


class OwningConnection(Protocol):
    """The connection as far as it concerns what waits there."""

    outgoing_share: int
    outgoing_shut_in: int
    write_blocked: bool
    transport: Pointer


def has_room(out: Link, size: int, high: int = SESSION_OUTGOING_HIGH) -> bool:
    """Whether `size` more bytes may be given to the engine on an OUT link whose session may have `high`."""
    counts = _cast("uint32_t *", out.session)
    waiting, deliveries = counts[OUTGOING_BYTES], counts[OUTGOING_DELIVERIES]
    connection = out.connection.io
    if (
        waiting <= high
        and deliveries <= QUEUED_HIGH
        and (deliveries < connection.outgoing_shut_in or not _is_shut(out.session, deliveries))
        and waiting + deliveries * DELIVERY_BYTES + size <= connection.outgoing_share
    ):
        return True
    admitted: bool = connection.outgoing.admits(out, size, high)
    return admitted


def _is_shut(session: Pointer, deliveries: int) -> bool:
    """Whether the peer's window has no room for one more than so many deliveries that wait."""
    return _window(int(_cast("uintptr_t", session))) <= deliveries


def is_shut_session(session: Pointer) -> bool:
    """Whether the peer takes nothing at the moment in a session."""
    return _is_shut(session, 0)


def is_sent(pn: Pointer) -> bool:
    """Whether the engine has sent all of a delivery on an OUT link."""
    return not lib.pn_delivery_partial(pn) and not _waits(int(_cast("uintptr_t", pn)))


class Outgoing:
    """What waits on one connection."""

    def __init__(
        self,
        connection: OwningConnection,
        links_of: Callable[[Pointer], Collection[Link]],
        closed_have_unsent: Callable[[Pointer], bool],
        clock: Callable[[], int],
        *,
        between_routers: bool,
    ) -> None:
        """`links_of` returns the links that are attached in a session, `closed_have_unsent` whether messages wait on
        others there, which the router has closed and the peer has not; `clock` is of the router's turns."""
        self._connection = connection
        self._links_of = links_of
        self._closed_have_unsent = closed_have_unsent
        self._clock = clock
        self._between_routers = between_routers
        self._most = ROUTER_OUTGOING_HIGH if between_routers else CONNECTION_OUTGOING_HIGH
        self._sessions: dict[Pointer, None] = {}
        self._left = 0
        """Bytes that sessions may have beyond their shares, as long as none of the others uses more than its own."""
        self._reserve = self._most
        """Bytes that may be given to the engine beyond the bound before the next write, as they leave with it."""
        self._counted_at = -1
        self._discarded: dict[Pointer, tuple[int, int]] = {}
        """Bytes and deliveries that the engine counts in a session though they are gone."""
        self._doubtful: dict[Pointer, int] = {}
        """Sessions in which such may have come, with the turn in which they were last examined."""
        self._beyond: set[Pointer] = set()
        self._next: dict[Link, None] = {}
        """Links that go first after the next write, in the order in which they found no room."""

    def began(self, session: Pointer) -> None:
        """There is one session more."""
        self._sessions[session] = None
        self._divide()

    def ended(self, session: Pointer) -> None:
        """A session is gone, and what waited there."""
        if session in self._sessions:
            del self._sessions[session]
            self._discarded.pop(session, None)
            self._doubtful.pop(session, None)
            self._beyond.discard(session)
            self._divide()

    def _divide(self) -> None:
        """The shares while it is unknown how much waits."""
        few = len(self._sessions) <= FEW_SESSIONS
        self._connection.outgoing_share = self._most // FEW_SESSIONS if few else LEAST_SHARE
        self._connection.outgoing_shut_in = (
            QUEUED_HIGH + 1
            if self._between_routers
            else max(LEAST_SHUT_IN, min(QUEUED_HIGH, MOST_SHUT_IN // max(1, len(self._sessions))))
        )
        self._left, self._counted_at = 0, -1

    def link_gone(self, link: Link) -> None:
        """An OUT link is gone, maybe with what it had to send."""
        if lib.pn_session_outgoing_bytes(link.session) and link.session in self._sessions:
            self._doubtful.setdefault(link.session, -1)

    def waiting(self, session: Pointer) -> tuple[int, int]:
        """Bytes and deliveries that wait in a session."""
        counts = _cast("uint32_t *", session)
        waiting, deliveries = counts[OUTGOING_BYTES], counts[OUTGOING_DELIVERIES]
        now = self._clock()
        if self._doubtful.get(session, now) != now:
            self._doubtful[session] = now
            if not self._closed_have_unsent(session) and not any(map(_has_unsent, self._links_of(session))):
                del self._doubtful[session]
                self._discarded[session] = waiting, deliveries
        discarded = self._discarded.get(session)
        if discarded is None:
            return waiting, deliveries
        discarded = min(discarded[0], waiting), min(discarded[1], deliveries)
        self._discarded[session] = discarded
        return waiting - discarded[0], deliveries - discarded[1]

    def _count(self) -> None:
        """Find out how much waits in all sessions, once in a turn, and divide the rest."""
        now = self._clock()
        if self._counted_at == now:
            return
        self._counted_at = now
        waiting = [
            octets + deliveries * DELIVERY_BYTES for octets, deliveries in map(self.waiting, self._sessions)
        ]
        share = self._most // FEW_SESSIONS
        if len(waiting) > FEW_SESSIONS:
            share = max(LEAST_SHARE, min(share, (self._most - sum(waiting)) // (2 * len(waiting))))
            self._connection.outgoing_share = share
        self._left = self._most - sum(max(own, share) for own in waiting)

    def admits(self, out: Link, size: int, high: int) -> bool:
        """Whether `size` bytes may be given to the engine on an OUT link, though that is more than the share."""
        waiting, deliveries = self.waiting(out.session)
        if waiting > high or deliveries > QUEUED_HIGH or self._is_full(out.session, deliveries):
            return False
        size += DELIVERY_BYTES
        own = waiting + deliveries * DELIVERY_BYTES
        if self._left < size:
            self._count()
        if own + size <= self._connection.outgoing_share:
            return True
        if self._left >= size:
            self._left -= size
            return True
        if own:
            return False
        if self._leaves_at_once(out.session, size):
            self._reserve -= size
            return True
        self._beyond = {session for session in self._beyond if any(self.waiting(session))}
        if len(self._beyond) < MOST_BEYOND:
            self._beyond.add(out.session)
            return True
        self._next[out] = None
        return False

    def is_full(self, session: Pointer) -> bool:
        """Whether the engine may be given no more in a session until something has been written there."""
        return self._is_full(session, _cast("uint32_t *", session)[OUTGOING_DELIVERIES])

    def _is_full(self, session: Pointer, deliveries: int) -> bool:
        return deliveries >= self._connection.outgoing_shut_in and _is_shut(session, deliveries)

    def _leaves_at_once(self, session: Pointer, size: int) -> bool:
        connection = self._connection
        if connection.write_blocked or size > self._reserve:
            return False
        frame = lib.pn_transport_get_remote_max_frame(connection.transport) or _NO_FRAME_LIMIT
        return _window(int(_cast("uintptr_t", session))) * max(1, frame - _FRAME_OVERHEAD) >= size

    def written(self) -> list[Link]:
        """All has been written that could be: the links that go first of those that had no room, in their order."""
        self._counted_at = -1
        self._reserve = self._most
        first, self._next = list(self._next), {}
        return first


def _has_unsent(link: Link) -> bool:
    """Whether an OUT link has something to send in the engine."""
    if link.incoming:
        return False
    if lib.pn_link_queued(link.io) > 0:
        return True
    begun = lib.pn_link_current(link.io)  # of a message that is passed on while it arrives
    return bool(begun) and lib.pn_delivery_pending(begun) > 0
