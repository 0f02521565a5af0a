"""Connection groups: which of a connector's connections is the way to the neighbour.

Both routers label the connections of one connector by its correlation id and by an ordinal that only rises (the
generation of the credentials). Of a group, the control connection with the greatest ordinal is the current one,
and data connections of that same ordinal carry its streams. A control connection with a greater ordinal is pending
until it is fit to take over. What was replaced stays open for what it has under way, and is never used again; so
does what was passed over while it was pending, or opened too late, as the peer may have begun to use it before.

A pure state machine: every event returns the actions that follow, in their order.

Source: "Inter-Router Connection Upgrade" of the skupper-router documentation; docs/rotation.md.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Generic, TypeVar

C = TypeVar("C")
"""A connection: any object, known by its identity."""
_SHOWN_LENGTH = 15


def shown_correlator(correlator: str) -> str:
    """What management shows in its place, the same at both ends: who knows a correlator can take the group over."""
    return urlsafe_b64encode(sha256(correlator.encode()).digest()).decode()[:_SHOWN_LENGTH]


@dataclass(frozen=True, slots=True)
class Label:
    """What the connector's open frame says of the group; no correlator: a group of its own."""

    correlator: str | None = None
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class Begin(Generic[C]):
    """The group has no connection, so this one becomes the current one: a new way to a neighbour."""

    connection: C


@dataclass(frozen=True, slots=True)
class Wait(Generic[C]):
    """The connection will take over from the current one once it is fit to; until then it is not used."""

    connection: C
    current: C


@dataclass(frozen=True, slots=True)
class Resume(Generic[C]):
    """What was to take over from the current connection is gone; it stays as it is."""

    connection: C


@dataclass(frozen=True, slots=True)
class TakeOver(Generic[C]):
    """The connection is the current one from now on, in the place of `replaced`, which may be gone already.

    Those that were `passed` over have waited for the same, with lesser ordinals.
    """

    connection: C
    replaced: C
    passed: tuple[C, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse(Generic[C]):
    """Close the connection; `reason` is for people at both ends."""

    connection: C
    reason: str


@dataclass(frozen=True, slots=True)
class End(Generic[C]):
    """The current connection is gone and none follows: the neighbour is lost."""

    connection: C


@dataclass(frozen=True, slots=True)
class Carry(Generic[C]):
    """From now on exactly `data` carry the streams of the current connection, in the order in which they opened."""

    connection: C
    data: tuple[C, ...]


Action = Begin[C] | Wait[C] | Resume[C] | TakeOver[C] | Refuse[C] | End[C] | Carry[C]


class Group(Generic[C]):
    """The connections of one connector, as one of the two routers sees them."""

    def __init__(self) -> None:
        self.ordinal = -1
        """The greatest that was ever current; what comes later must not be less."""
        self.current: C | None = None
        self.pending: list[C] = []
        """By ordinal; no two have the same."""
        self.data: dict[int, list[C]] = {}
        """Open data connections by ordinal, whether or not their control connection is there."""
        self.replaced: list[C] = []
        """Control connections that are open for what they still have under way."""

    @property
    def empty(self) -> bool:
        """Nothing of it is open."""
        return self.current is None and not self.pending and not self.data and not self.replaced


class ConnectionGroups(Generic[C]):
    """All groups of a router."""

    def __init__(self) -> None:
        self.upgrades = 0
        """How often a connection has taken over."""
        self._groups: dict[str, Group[C]] = {}
        self._members: dict[C, tuple[Group[C], Label]] = {}

    def group_of(self, connection: C) -> Group[C] | None:
        """The group of a connection that is open and was not refused."""
        member = self._members.get(connection)
        return member[0] if member is not None else None

    def is_current(self, connection: C) -> bool:
        """Whether it is the way to its neighbour."""
        group = self.group_of(connection)
        return group is not None and group.current is connection

    def is_pending(self, connection: C) -> bool:
        """Whether it waits to take over."""
        group = self.group_of(connection)
        return group is not None and connection in group.pending

    def control_opened(self, connection: C, label: Label) -> list[Action[C]]:
        """A connection of role inter-router has opened."""
        group = self._join(connection, label)
        if group.current is None:
            if label.ordinal < group.ordinal:
                return self._refuse(connection, f"ordinal {label.ordinal} was replaced by {group.ordinal}")
            group.current, group.ordinal = connection, label.ordinal
            return [Begin(connection), *self._carry(group)]
        greatest = self._ordinal(group.pending[-1]) if group.pending else group.ordinal
        if label.ordinal <= greatest:
            return self._refuse(connection, f"a connection of ordinal {greatest} is there already")
        group.pending.append(connection)
        return [Wait(connection, group.current)]

    def control_fit(self, connection: C) -> list[Action[C]]:
        """Both control links of a connection are attached, and those for messages: it can do all of its work."""
        group = self.group_of(connection)
        if group is None or connection not in group.pending:
            return []
        return self._take_over(group, connection)

    def control_closed(self, connection: C) -> list[Action[C]]:
        """The peer has closed a control link of an open connection: one that is pending was passed over there."""
        group = self.group_of(connection)
        if group is None or connection not in group.pending:
            return []
        group.replaced.append(connection)
        return self._pending_lost(group, connection)

    def data_opened(self, connection: C, label: Label) -> list[Action[C]]:
        """A connection of role inter-router-data has opened, before or after its control connection.

        One that has come too late to be used is left as it is: the peer may have it in use.
        """
        group = self._join(connection, label)
        group.data.setdefault(label.ordinal, []).append(connection)
        return self._carry(group) if label.ordinal == group.ordinal else []

    def closed(self, connection: C) -> list[Action[C]]:
        """A connection, of either role, is gone. It may have been refused before."""
        member = self._members.get(connection)
        if member is None:
            return []
        group, label = member
        actions: list[Action[C]] = []
        if connection is group.current:
            if group.pending:
                # There is nothing to be disturbed any more, so nothing to wait for.
                actions = self._take_over(group, group.pending[-1])
                group.replaced.remove(connection)
            else:
                group.current = None
                actions = [End(connection)]
        elif connection in group.pending:
            actions = self._pending_lost(group, connection)
        elif connection in group.replaced:
            group.replaced.remove(connection)
        elif connection in group.data.get(label.ordinal, ()):
            group.data[label.ordinal].remove(connection)
            if not group.data[label.ordinal]:
                del group.data[label.ordinal]
            if label.ordinal == group.ordinal:
                actions = self._carry(group)
        del self._members[connection]
        if group.empty and label.correlator is not None:
            self._groups.pop(label.correlator, None)
        return actions

    def _join(self, connection: C, label: Label) -> Group[C]:
        group = Group[C]() if label.correlator is None else self._groups.setdefault(label.correlator, Group())
        self._members[connection] = (group, label)
        return group

    def _refuse(self, connection: C, reason: str) -> list[Action[C]]:
        del self._members[connection]
        return [Refuse(connection, reason)]

    def _ordinal(self, connection: C) -> int:
        return self._members[connection][1].ordinal

    def _pending_lost(self, group: Group[C], connection: C) -> list[Action[C]]:
        group.pending.remove(connection)
        assert group.current is not None
        return [] if group.pending else [Resume(group.current)]

    def _take_over(self, group: Group[C], connection: C) -> list[Action[C]]:
        assert group.current is not None
        replaced, at = group.current, group.pending.index(connection)
        passed, group.pending = group.pending[:at], group.pending[at + 1 :]
        group.current, group.ordinal = connection, self._ordinal(connection)
        group.replaced += [replaced, *passed]
        self.upgrades += 1
        return [
            TakeOver(connection, replaced, tuple(passed)),
            *(Wait(pending, connection) for pending in group.pending),
            *self._carry(group),
        ]

    def _carry(self, group: Group[C]) -> list[Action[C]]:
        """Tell which data connections serve the current connection."""
        if group.current is None:
            return []
        return [Carry(group.current, tuple(group.data.get(group.ordinal, ())))]
