"""Copies of multicast messages to many receivers, made in steps between other work.

A turn makes as many copies as take a few milliseconds. Any other message waits here once for all of its receivers, and
the connections on which messages came have their steps one after the other. A message stays behind earlier ones from
its link to its address. A client gets no credit for a message that waits, and its link is not read while too many bytes
wait. The link of another router is read on, since it carries messages of many clients: what waits from its connection
is bounded, and the router gives up messages beyond that.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from isthmus_router.amqp.kernel.delivery import Fanout, Postponed
from isthmus_router.core.address import Address
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.receivers import Sink
from isthmus_router.core.routes import Route

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

log = logging.getLogger("ROUTER")

AT_ONCE = 1024
"""Units of work that a turn does at once, about 4 microseconds each: a copy, and each 16 KiB of it."""
UNIT_BYTES = 16 * 1024
STEP = 32
"""Units of work of a step."""
MOST_WAITING_BYTES = 16 * 1024 * 1024
"""Of messages from one connection of another router, and of all messages whose senders are gone."""
PLACE_BYTES = 512
"""What a message that waits takes besides its own bytes and its list of receivers."""


class Piece(Protocol):
    """A piece of work that is done in steps."""

    route: Route
    size: int
    """Bytes of memory that it takes."""

    def step(self) -> bool:
        """Do some of it; whether more is left."""

    def orphan(self) -> bool:
        """The link on which it came is gone; whether it goes on without."""

    def give_up(self) -> None:
        """Leave it: there is no room for it."""


class Copying:
    """A whole message, some of whose copies are not made yet."""

    __slots__ = (
        "_at",
        "_copies",
        "_link",
        "_payload",
        "_record",
        "_shared",
        "_sinks",
        "_skip",
        "route",
        "size",
    )

    def __init__(
        self, copies: Copies, link: Link, route: Route, payload: bytes, skip: int, record: Fanout | None
    ) -> None:
        self._copies = copies
        self._link: Link | None = link
        self._payload = payload
        self._skip = skip
        self._record = record
        self._shared: dict[bool, bytes] = {}
        self._at = 0
        self._sinks = route.sinks
        self.route = route
        self.size = PLACE_BYTES + len(payload)

    def step(self) -> bool:
        """As `Piece`."""
        copies, payload, first = self._copies, self._payload, self._at
        forwarder, size = copies.forwarder, len(payload)
        self._at += max(1, STEP // (1 + size // UNIT_BYTES))
        sinks = copies.present(self._sinks[first : self._at])
        forwarder.view[:size] = payload
        forwarder.copy(sinks, self.route, size, self._skip, self._record, self._link, self._shared)
        if self._at < len(self._sinks):
            return True
        self._end()
        return False

    def orphan(self) -> bool:
        """As `Piece`."""
        self._link = None
        return True

    def give_up(self) -> None:
        """As `Piece`."""
        if self._record is None and self._link is not None:
            self._link.dropped_presettled += 1
        self._end()

    def _end(self) -> None:
        settlement, link, record = self._copies.forwarder.settlement, self._link, self._record
        if record is not None:
            settlement.all_copied(record)
        elif link is not None and not link.replenish_on_arrival:
            settlement.replenish(link)


class Originated:
    """A message of the router itself, some of whose copies are not made yet."""

    __slots__ = ("_at", "_copies", "_payload", "_priority", "_sinks", "route", "size")

    def __init__(self, copies: Copies, route: Route, payload: bytes, priority: int) -> None:
        self._copies = copies
        self._payload = payload
        self._priority = priority
        self._at = 0
        self._sinks = route.sinks
        self.route = route
        self.size = PLACE_BYTES + len(payload)

    def step(self) -> bool:
        """As `Piece`."""
        copies, first = self._copies, self._at
        self._at += max(1, STEP // (1 + len(self._payload) // UNIT_BYTES))
        sinks = copies.present(self._sinks[first : self._at])
        copies.forwarder.originate(sinks, self.route, self._payload, self._priority)
        return self._at < len(self._sinks)

    def orphan(self) -> bool:
        """As `Piece`."""
        return True

    def give_up(self) -> None:
        """As `Piece`."""


class _Line:
    """The pieces of work of one connection."""

    __slots__ = ("links", "size")

    def __init__(self) -> None:
        self.links: OrderedDict[object, OrderedDict[Address | None, deque[Piece]]] = OrderedDict()
        """By link and address: the next step is that of the first of both."""
        self.size = 0


class Copies:
    """The copies of one router process that are made in steps."""

    def __init__(self, forwarder: Forwarder) -> None:
        self.forwarder = forwarder
        self._lines: dict[Connection | None, _Line] = {}
        """None has the messages whose senders are gone, and those of the router itself."""
        self._successors: dict[Sink, Link] = {}
        """OUT links that have taken over from others while messages wait."""

    def has_to_wait(self, link: Link | None, route: Route, size: int) -> bool:
        """Whether a message of `size` bytes has to wait for its turn. If not, its work is counted."""
        if self._lines:
            line = self._lines.get(None if link is None else link.connection)
            if line is not None and route.address in line.links.get(link, ()):
                return True
        forwarder = self.forwarder
        spent = forwarder.spent + len(route.sinks) * (1 + size // UNIT_BYTES)
        if spent > AT_ONCE:
            return True
        forwarder.spent = spent
        return False

    def put(self, link: Link, route: Route, size: int, skip: int, record: Fanout | None) -> None:
        """Make the copies of the message in the buffer later."""
        piece = Copying(self, link, route, bytes(self.forwarder.view[:size]), skip, record)
        self._add(link.connection, link, piece)

    def originate(self, route: Route, payload: bytes, priority: int) -> None:
        """Make the copies of a message of the router itself later."""
        self._add(None, None, Originated(self, route, payload, priority))

    def queue(self, link: Link | None, piece: Piece) -> None:
        """Do another piece of work that takes no memory here, for an IN link or, when it is gone, without."""
        self._add(None if link is None else link.connection, link or piece, piece)

    def present(self, sinks: Sequence[Sink]) -> list[Sink]:
        """Those that are still there, or what has taken over from them."""
        found = []
        for sink in sinks:
            if sink in self._successors:
                sink = self._last_successor(sink)
            if not isinstance(sink, Link) or (
                sink in sink.connection.links and (sink.address is None or sink in sink.address.consumers)
            ):
                found.append(sink)
        return found

    def _last_successor(self, sink: Sink) -> Link:
        """What has taken over last; remembered, so that the way there is not taken again."""
        link, passed = self._successors[sink], [sink]
        while (later := self._successors.get(link)) is not None:
            passed.append(link)
            link = later
        for each in passed:
            self._successors[each] = link
        return link

    def hand_over(self, pairs: Sequence[tuple[Link, Link]]) -> None:
        """The second OUT link of each pair follows the first."""
        if self._lines:
            for old, new in pairs:
                self._successors.pop(new, None)  # a link between routers may take over again
                self._successors[old] = new

    def wait_from(self, connection: Connection) -> bool:
        """Whether messages that came on the connection wait."""
        return connection in self._lines

    def hold_up(self, link: Link) -> bool:
        """Whether messages that came on the IN link wait."""
        line = self._lines.get(link.connection)
        return line is not None and link in line.links

    def sender_lost(self, link: Link) -> None:
        """An IN link is gone: its messages still get to their receivers."""
        line = self._lines.get(link.connection)
        addresses = None if line is None else line.links.pop(link, None)
        if line is None or addresses is None:
            return
        nobody = object()
        for pieces in addresses.values():
            for piece in pieces:
                line.size -= piece.size
                if piece.orphan():
                    self._add(None, nobody, piece)

    def _add(self, connection: Connection | None, link: object, piece: Piece) -> None:
        line = self._lines.get(connection)
        if line is None:
            line = self._lines[connection] = _Line()
            self.forwarder.core.port.work(self._work(connection, line))
        address = piece.route.address
        pieces = line.links.get(link, _NOTHING).get(address)
        if piece.size and (pieces is None or pieces[-1].route is not piece.route):
            piece.size += 8 * len(piece.route.sinks)
        bounded = connection is None or connection.role.is_between_routers
        if bounded and piece.size and line.size + piece.size > MOST_WAITING_BYTES:
            piece.give_up()
            return
        line.size += piece.size
        if pieces is None:
            pieces = line.links.setdefault(link, OrderedDict())[address] = deque()
        pieces.append(piece)
        if not bounded:
            self.forwarder.parking.wait(cast("Link", link), piece.size)

    def _work(self, connection: Connection | None, line: _Line) -> Iterator[None]:
        while line.links:
            self._step(line)
            yield
        del self._lines[connection]
        if not self._lines:
            self._successors.clear()
        if connection is not None:
            self.forwarder.settlement.touch(connection)  # markers may have waited for it

    def _step(self, line: _Line) -> None:
        link, addresses = next(iter(line.links.items()))
        address, pieces = next(iter(addresses.items()))
        line.links.move_to_end(link)
        addresses.move_to_end(address)
        piece, more = pieces[0], False
        try:
            more = piece.step()
        except Exception as error:
            piece.give_up()
            if isinstance(link, Link):
                link.connection.io.broken(error)
            else:
                log.error("internal error", exc_info=error)
        # The step may have ended the link, whose other pieces are elsewhere then.
        if more or line.links.get(link) is not addresses:
            return
        pieces.popleft()
        line.size -= piece.size
        if not pieces:
            del addresses[address]
        if not addresses:
            del line.links[link]
            if isinstance(link, Link) and link.stream.__class__ is Postponed:
                self.forwarder.go_on(link)  # it has waited for the messages before it
        if isinstance(link, Link) and not link.connection.role.is_between_routers:
            self.forwarder.parking.wait_no_more(link, piece.size)


_NOTHING: OrderedDict[Address | None, deque[Piece]] = OrderedDict()
