"""What the kernel and the poller look at in a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isthmus_router.amqp.engine import Pointer

if TYPE_CHECKING:
    from isthmus_router.core.model import Link


class ConnectionState:
    """The part of an `AmqpConnection` that compiled code reads and writes in place."""

    __slots__ = (
        "after_write",
        "closed",
        "collector",
        "costly",
        "dirty",
        "fd",
        "fresh_sessions",
        "links",
        "outgoing_share",
        "outgoing_shut_in",
        "stalled",
        "stirred",
        "transport",
        "unfinished",
        "unwritten",
        "writable",
        "write_blocked",
    )

    def __init__(self, fd: int, transport: Pointer, collector: Pointer) -> None:
        self.fd = fd
        self.transport = transport
        self.collector = collector
        self.links: dict[Pointer, Link] = {}
        self.outgoing_share = 0
        """Bytes that each session may have waiting, whatever the others have (`Outgoing`)."""
        self.outgoing_shut_in = 0
        """Deliveries that each session may have waiting though the peer's window is too small for them."""
        self.costly = 0
        """For so many turns, it comes after connections with 0: one of its last turns has taken long (`charges`)."""
        self.dirty = False
        """There may be something to write; it is in the driver's list."""
        self.stirred = False
        """Something may have moved since the links were last looked at."""
        self.write_blocked = False
        self.writable = False
        """The socket takes more again; until then the engine is asked for nothing, for it would encode all it has."""
        self.stalled: set[Link] = set()
        """OUT links that could send more once written bytes have left."""
        self.fresh_sessions: list[Pointer] = []
        """Begun by this router, but nothing of them is written yet."""
        self.unwritten: dict[Any, None] = {}
        """Deliveries with large buffers, to be given back once these are written (`buffers`)."""
        self.after_write = False
        """Something waits until all is written, or read."""
        self.closed = False
        self.unfinished = False
        """Events wait for the connection's next slice; it is not read meanwhile."""
