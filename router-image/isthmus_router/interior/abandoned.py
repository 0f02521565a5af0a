"""Connections that the peer has abandoned: it has closed their control links, and nothing replaces them.

So does a router that leaves the network, and then finishes what is under way; and one that has taken the connection
of somebody else for a newer one of the same group, and has lost that. The router that has connected gives such a
connection up, and connects anew as another group: there the peer cannot know of a greater ordinal. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus_router.core.model import Connection
from isthmus_router.core.port import CallLater, Port
from isthmus_router.core.terms import Condition
from isthmus_router.upgrade.groups import ConnectionGroups

LEAST_SECONDS = 12.0
"""A connection is not given up before, though nothing is under way on it: an Isthmus router leaves within that."""
LONGEST_SECONDS = 60.0
"""After that it is given up in any case."""
LOOK_SECONDS = 1.0

ABANDONED = Condition(
    "amqp:connection:forced",
    "the peer has closed the links for routing, and nothing has replaced the connection",
)


class AbandonedConnections:
    """Those of one router; they are given up when it is time, unless something replaces them before."""

    def __init__(
        self,
        port: Callable[[], Port],
        groups: ConnectionGroups[Connection],
        call_later: CallLater,
        regroup: Callable[[Connection], None],
    ) -> None:
        """`regroup`: let the connector of a connection connect anew, as another group."""
        self._port = port
        self._groups = groups
        self._call_later = call_later
        self._regroup = regroup
        self._watched: set[Connection] = set()

    def add(self, connection: Connection) -> None:
        """The peer has closed a control link of this connection, which is current and was made by this router."""
        if connection not in self._watched:
            self._watched.add(connection)
            self._look_later(connection, 0.0)

    def forget(self) -> None:
        """Give none of them up: this router leaves the network itself."""
        self._watched.clear()

    def _look_later(self, connection: Connection, seconds: float) -> None:
        self._call_later(LOOK_SECONDS, lambda: self._look(connection, seconds + LOOK_SECONDS))

    def _look(self, connection: Connection, seconds: float) -> None:
        """After so many `seconds`."""
        if connection not in self._watched:
            return
        group = self._groups.group_of(connection)
        if group is None or group.current is not connection or None not in connection.control_links:
            self._watched.discard(connection)
            return
        data = [
            member for ordinal in group.data if ordinal >= group.ordinal for member in group.data[ordinal]
        ]
        members = [connection, *data]
        busy = any(member.under_way or member.has_routed_links for member in members)
        if group.pending or seconds < LEAST_SECONDS or (busy and seconds < LONGEST_SECONDS):
            self._look_later(connection, seconds)
            return
        self._watched.discard(connection)
        self._regroup(connection)
        for member in members:
            self._port().close_connection(member, ABANDONED)
