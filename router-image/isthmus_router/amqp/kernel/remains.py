"""What the engine of a connection retains of routed links that are lost, until it has freed it.

The engine frees the deliveries of a link when both ends have detached the link, when its session ends, or with the
connection. It frees a delivery before that when the router has settled it. All that happens when it writes the next
time. A peer that answers no detach, or that does not read, makes the engine retain deliveries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from isthmus_router.amqp.engine import Pointer

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.amqp.kernel.allowance import Allowance
    from isthmus_router.core.model import Link


@dataclass(slots=True, eq=False)
class Rest:
    """Deliveries that were unsettled when a routed link was lost. One counts until the engine has freed both halves of
    it."""

    allowance: Allowance
    of_halves: dict[Link, int]
    """How many the engine retains of each half."""

    def free(self, half: Link, deliveries: int) -> None:
        """The engine has freed so many of a half."""
        before = max(self.of_halves.values())
        self.of_halves[half] -= deliveries
        self.allowance.unsettled -= before - max(self.of_halves.values())


class Remains:
    """Those of one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._retained: dict[Pointer, dict[Pointer, tuple[Link, Rest]]] = {}
        """Halves that the engine has not freed, by session and link."""
        self._leaving: dict[Link, tuple[Rest, int]] = {}
        """How many deliveries of a half the engine frees with the next write."""

    def retain(self, half: Link, rest: Rest) -> None:
        """A half of a routed link is lost, and the engine has something of it."""
        self._retained.setdefault(half.session, {})[half.io] = half, rest

    def settled(self, half: Link, deliveries: int) -> None:
        """The router has settled so many deliveries of a half, all of which had been sent."""
        _, rest = self._retained.get(half.session, {}).get(half.io, (half, None))
        if rest is not None and deliveries:
            _, leaving = self._leaving.get(half, (rest, 0))
            self._leave(half, rest, leaving + deliveries)

    def link_freed(self, session: Pointer, link: Pointer) -> None:
        """The engine has nothing of a link after the next write."""
        links = self._retained.get(session)
        if links is None or link not in links:
            return
        half, rest = links.pop(link)
        if not links:
            del self._retained[session]
        self._leave(half, rest, rest.of_halves[half])

    def session_ended(self, session: Pointer) -> None:
        """The engine has nothing of the links of a session after the next write."""
        for half, rest in self._retained.pop(session, {}).values():
            self._leave(half, rest, rest.of_halves[half])

    def _leave(self, half: Link, rest: Rest, deliveries: int) -> None:
        self._leaving[half] = rest, deliveries
        self._connection.after_write = True
        self._connection.driver.touch(self._connection)

    def written(self) -> bool:
        """The engine has written; whether there is still something that it frees with the next write."""
        if not self._connection.dirty:
            self._free()
        return bool(self._leaving)

    def connection_freed(self) -> None:
        """The engine has nothing more of the connection."""
        for session in list(self._retained):
            self.session_ended(session)
        self._free()

    def _free(self) -> None:
        freed, self._leaving = self._leaving, {}
        for half, (rest, deliveries) in freed.items():
            rest.free(half, deliveries)
            self._connection.driver.forwarder.routed.go_on(rest.allowance)
