"""How many deliveries may be unsettled on the routed links of one client.

The router retains each until the sender or the receiver settles it. At the bound it reads no more of what the client's
links bring, from either end: the windows of their sessions close, and the links go on when something is settled.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from weakref import WeakValueDictionary

from cproton_ffi import ffi

from isthmus_router.core.model import Connection, Link

log = logging.getLogger("ROUTER")

MOST_OF_CLIENT = 100_000
"""Deliveries on all routed links of a client; each takes 1.5 KB."""


class Allowance:
    """Of one client."""

    __slots__ = ("__weakref__", "cell", "reported", "waiting")

    def __init__(self) -> None:
        self.cell = ffi.new("int64_t[2]", (0, MOST_OF_CLIENT))
        """`unsettled` and `most`, where compiled code counts without making an object for each number."""
        self.reported = False
        """The log has that links wait."""
        self.waiting: dict[Link, None] = {}
        """IN halves of links that are not read until something is settled, oldest first."""

    @property
    def unsettled(self) -> int:
        """Deliveries, those of detached links included until the engine has freed these."""
        return int(self.cell[0])

    @unsettled.setter
    def unsettled(self, deliveries: int) -> None:
        self.cell[0] = deliveries

    @property
    def most(self) -> int:
        """How many there may be."""
        return int(self.cell[1])

    @most.setter
    def most(self, deliveries: int) -> None:
        self.cell[1] = deliveries

    @property
    def is_used_up(self) -> bool:
        """Whether no further delivery may begin."""
        return self.unsettled >= self.most

    def wait(self, link: Link, out: Link) -> None:
        """The IN half of a routed link is not read until something is settled."""
        self.waiting[link] = None
        if not self.reported:
            self.reported = True
            connection = (link if link.by_peer else out).connection
            log.warning(
                "routed links wait until deliveries are settled",
                extra={
                    "event": "client.unsettled",
                    "connection": connection.id,
                    "client": connection.client,
                    "unsettled": self.unsettled,
                },
            )

    def take_waiting(self) -> Iterator[Link]:
        """The IN halves that may be read again: one for each delivery that may begin. They wait no more."""
        for _ in range(min(self.most - self.unsettled, len(self.waiting))):
            link = next(iter(self.waiting))
            del self.waiting[link]
            yield link


class Allowances:
    """Those of all clients."""

    def __init__(self) -> None:
        self._by_client: WeakValueDictionary[str | Connection, Allowance] = WeakValueDictionary()

    def of(self, connection: Connection) -> Allowance:
        """The allowance for a link that the peer attaches: its client's, or the link's own if a router attaches it.

        The router at which the client is has counted the deliveries of a link that another router attaches.
        """
        if connection.role.is_between_routers:
            return Allowance()
        return self._by_client.setdefault(connection.client or connection, Allowance())
