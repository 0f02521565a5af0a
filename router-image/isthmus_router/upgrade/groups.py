"""Connection groups: which of a connector's connections is the way to the neighbour.

Both routers label the connections of one connector by its correlation id and by an ordinal that only rises (the
generation of the credentials). Of a group, the control connection with the greatest ordinal is the current one,
and data connections of that same ordinal carry its streams. A control connection with a greater ordinal waits as
the pending one until it is fit to take over. What was replaced stays open for what it has under way, and is never
used again.

A pure state machine: every event returns the actions that follow, in their order.

Source: "Inter-Router Connection Upgrade" of the skupper-router documentation; docs/rotation.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

C = TypeVar("C")
"""A connection: any object, known by its identity."""


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
    """The connection is the current one from now on, in the place of `replaced`, which may be gone already."""

    connection: C
    replaced: C


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
        self.pending: C | None = None
        self.pending_ordinal = -1
        self.data: dict[int, list[C]] = {}
        """Open data connections by ordinal, whether or not their control connection is there."""
        self.replaced: list[C] = []
        """Control connections that are open for what they still have under way."""

    @property
    def empty(self) -> bool:
        """Nothing of it is open."""
        return self.current is None and self.pending is None and not self.data and not self.replaced


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
        return group is not None and group.pending is connection

    def control_opened(self, connection: C, label: Label) -> list[Action[C]]:
        """A connection of role inter-router has opened."""
        group = self._join(connection, label)
        if group.current is None and group.pending is None:
            if label.ordinal < group.ordinal:
                return self._refuse(connection, f"ordinal {label.ordinal} was replaced by {group.ordinal}")
            group.current, group.ordinal = connection, label.ordinal
            return [Begin(connection), *self._carry(group)]
        if group.pending is not None:
            if label.ordinal <= group.pending_ordinal:
                return self._refuse(
                    connection, f"a connection of ordinal {group.pending_ordinal} is there already"
                )
            overtaken = group.pending
            group.pending, group.pending_ordinal = connection, label.ordinal
            assert group.current is not None
            return [
                *self._refuse(overtaken, f"overtaken by a connection of ordinal {label.ordinal}"),
                Wait(connection, group.current),
            ]
        if label.ordinal <= group.ordinal:
            return self._refuse(connection, f"a connection of ordinal {group.ordinal} is there already")
        assert group.current is not None
        group.pending, group.pending_ordinal = connection, label.ordinal
        return [Wait(connection, group.current)]

    def control_fit(self, connection: C) -> list[Action[C]]:
        """Both control links of a connection are attached, and those for messages: it can do all of its work."""
        group = self.group_of(connection)
        if group is None or group.pending is not connection:
            return []
        return self._take_over(group)

    def data_opened(self, connection: C, label: Label) -> list[Action[C]]:
        """A connection of role inter-router-data has opened, before or after its control connection."""
        group = self._join(connection, label)
        if label.ordinal < group.ordinal:
            return self._refuse(connection, f"ordinal {label.ordinal} was replaced by {group.ordinal}")
        group.data.setdefault(label.ordinal, []).append(connection)
        return self._carry(group) if label.ordinal == group.ordinal else []

    def closed(self, connection: C) -> list[Action[C]]:
        """A connection, of either role, is gone. It may have been refused before."""
        member = self._members.pop(connection, None)
        if member is None:
            return []
        group, label = member
        actions: list[Action[C]] = []
        if connection is group.current:
            if group.pending is not None:
                # There is nothing to be disturbed any more, so nothing to wait for.
                actions = self._take_over(group)
                group.replaced.remove(connection)
            else:
                group.current = None
                actions = [End(connection)]
        elif connection is group.pending:
            group.pending, group.pending_ordinal = None, -1
            assert group.current is not None
            actions = [Resume(group.current)]
        elif connection in group.replaced:
            group.replaced.remove(connection)
        elif connection in group.data.get(label.ordinal, ()):
            group.data[label.ordinal].remove(connection)
            if not group.data[label.ordinal]:
                del group.data[label.ordinal]
            if label.ordinal == group.ordinal:
                actions = self._carry(group)
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

    def _take_over(self, group: Group[C]) -> list[Action[C]]:
        assert group.current is not None
        assert group.pending is not None
        replaced, group.current, group.ordinal = group.current, group.pending, group.pending_ordinal
        group.pending, group.pending_ordinal = None, -1
        group.replaced.append(replaced)
        self.upgrades += 1
        return [TakeOver(group.current, replaced), *self._carry(group)]

    def _carry(self, group: Group[C]) -> list[Action[C]]:
        """Tell which data connections serve the current connection."""
        if group.current is None:
            return []
        return [Carry(group.current, tuple(group.data.get(group.ordinal, ())))]
