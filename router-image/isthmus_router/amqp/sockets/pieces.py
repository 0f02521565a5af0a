"""How much of a connection's input the engine is given before its events are looked at.

One disposition can name every unsettled delivery of its session, and the engine makes an event for each delivery and
frame before the router sees the first one. So it is given pieces: the more deliveries a connection may have, the
smaller ones. As long as few events come of them, they follow each other within a turn. Input that the engine decrypts
passes in pieces behind the decryption (`layers.py`).

For a disposition of more deliveries than there are, the engine walks over the table of all deliveries of the session,
which never becomes smaller. So less is read in a turn of a peer that has ever had many.

Source: AMQP 1.0 part 2, 2.7.6 (disposition); `core/event.h` and `core/event.c` of qpid-proton.
"""

from __future__ import annotations

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer

MOST_EVENTS, MOST_EVENTS_OF_ROUTERS = 262_144, 2_097_152
"""That one piece can make, in about 140 bytes each."""
FEW_EVENTS = 8192
"""Beyond so many, no further piece is given in the same turn."""
LEAST_PIECE = 64
GATED_PIECE = 16 * 1024
"""Of input that the engine decrypts, smaller pieces pass a gate, behind which so much is read at a time."""
FRAME_BYTES = 20
"""The shortest frames with deliveries have more."""
LINK_BYTES = 64
"""Must have passed for each link before deliveries are counted again, which means to look at every link."""
MOST_SHARES = 64
"""Connections with many events share what they may have, down to such a part."""
READ_BYTES = 64 * 1024
"""In one turn."""
LEAST_READ_BYTES = 512
"""The lowest limit of reads in one turn, for a peer with many links or deliveries."""
MOST_WALKED = 20_000_000
"""Places in the table of deliveries that the engine walks over in one turn; one place takes 1 to 2 ns."""

_EVENT_WORDS = 6


def _place_of_next() -> int:
    """Which word of an event of the engine's points to the next one; ImportError when that cannot be found out."""
    collector, connection = lib.pn_collector(), lib.pn_connection()
    lib.pn_connection_collect(connection, collector)
    lib.pn_connection_open(connection)
    lib.pn_connection_close(connection)
    places = set(range(_EVENT_WORDS))
    for _ in range(2):
        event = lib.pn_collector_peek(collector)
        words = ffi.unpack(ffi.cast("uintptr_t *", event), _EVENT_WORDS)
        lib.pn_collector_pop(collector)
        following = int(ffi.cast("uintptr_t", lib.pn_collector_peek(collector)))
        places = {place for place in places if words[place] == following}
    lib.pn_connection_collect(connection, ffi.NULL)
    lib.pn_collector_release(collector)
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)
    lib.pn_collector_free(collector)
    if len(places) != 1:
        raise ImportError("the events of the engine are laid out in another way than expected")
    return places.pop()


NEXT_EVENT = _place_of_next()


class Intake:
    """What decides on the pieces of one connection."""

    def __init__(self, pn: Pointer, collector: Pointer, *, between_routers: bool) -> None:
        self._pn = pn
        self._collector = collector
        self._most = MOST_EVENTS_OF_ROUTERS if between_routers else MOST_EVENTS
        self._known = self._links = 0
        """Deliveries and links when they were counted."""
        self.moved = 0
        """Bytes read and written since: each delivery has taken some."""
        self.held_up = False
        """Not all has been written: the engine keeps deliveries that the router has settled."""
        self._largest = 0
        """Most deliveries that were counted at a time."""
        self._uncounted = 0
        """Bytes read and written since the last count; they bound the deliveries that have come since then."""

    def passed(self, size: int) -> None:
        """Record that `size` bytes were read or written, and count the deliveries if there were enough bytes."""
        self.moved += size
        self._uncounted += size
        if self._uncounted >= max(READ_BYTES, LINK_BYTES * (8 + self._links)):
            deliveries, self._links = self._found()
            self._largest, self._uncounted = max(self._largest, deliveries), 0

    def most_read(self) -> int:
        """Return how many bytes may be read in one turn."""
        most = self._largest + max(READ_BYTES, LINK_BYTES * (8 + self._links)) // FRAME_BYTES
        return max(LEAST_READ_BYTES, min(READ_BYTES, MOST_WALKED * FRAME_BYTES // most))

    def piece(self, heavy: int) -> int:
        """Bytes that the engine may be given next; `heavy` connections have many events to deal with."""
        most = self._most // min(1 + heavy, MOST_SHARES)
        deliveries = self.deliveries
        if deliveries * READ_BYTES > most * FRAME_BYTES and self.moved >= LINK_BYTES * (8 + self._links):
            deliveries = self._count(deliveries)
        return max(LEAST_PIECE, min(READ_BYTES, most * FRAME_BYTES // max(1, deliveries)))

    @property
    def deliveries(self) -> int:
        """How many the connection has, or more."""
        return self._known + self.moved // FRAME_BYTES

    def _count(self, expected: int) -> int:
        deliveries, self._links = self._found()
        self._known = max(deliveries, expected) if self.held_up else deliveries
        self.moved = 0
        return self._known

    def _found(self) -> tuple[int, int]:
        """How many deliveries are unsettled, and how many links there are."""
        deliveries = links = 0
        link = lib.pn_link_head(self._pn, 0)
        while link:
            deliveries += lib.pn_link_unsettled(link)
            links += 1
            link = lib.pn_link_next(link, 0)
        return deliveries, links

    def events(self) -> int:
        """How many wait; no more are counted than are many."""
        count = 0
        event = ffi.cast("void **", lib.pn_collector_peek(self._collector))
        while event and count <= FEW_EVENTS:
            count += 1
            event = ffi.cast("void **", event[NEXT_EVENT])
        return count
