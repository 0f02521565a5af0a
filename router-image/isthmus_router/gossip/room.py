"""The room that a gossip router has for bytes of its clients, and the shares in it. Sans-IO.

A share belongs to an identity or to a group. Each may hold as much as is still free (a group half as much), so that
some room is always left for those that hold less, however many bytes others send.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

MOST_PART = 4
"""A frame counts as at most this part of the room, so that a frame longer than the room has its turn."""


class Holder(Hashable, Protocol):
    """A connection that holds bytes, or waits for room."""

    identity: str
    group: bytes


H = TypeVar("H", bound=Holder)


class Room:
    """Bytes that clients hold: what they have sent, and what is not complete."""

    def __init__(self, most: int) -> None:
        """`most`: bytes."""
        self.most = most
        self.held = 0
        self._of_identity: dict[str, int] = {}
        self._of_group: dict[bytes, int] = {}

    @property
    def hard(self) -> int:
        """Bytes beyond which connections are cut off: many that are read at the same time can exceed `most`."""
        return self.most + self.most // MOST_PART

    @property
    def ample(self) -> bool:
        """Whether less than half of it is in use, so that nobody has to be refused anything small."""
        return 2 * self.held < self.most

    def of_identity(self, identity: str) -> int:
        """Bytes that its connections hold."""
        return self._of_identity.get(identity, 0)

    def charge(self, identity: str, group: bytes, more: int) -> None:
        """So many bytes more are held, or fewer."""
        self.held += more
        if held := self._of_identity.get(identity, 0) + more:
            self._of_identity[identity] = held
        else:
            self._of_identity.pop(identity, None)
        if held := self._of_group.get(group, 0) + more:
            self._of_group[group] = held
        else:
            self._of_group.pop(group, None)

    def fits(self, holder: Holder, size: int) -> bool:
        """Whether the holder may have so many bytes more."""
        free = self.most - self.held
        size = min(size, self.most // MOST_PART)
        return (
            self.of_identity(holder.identity) + size <= free
            and 2 * self._of_group.get(holder.group, 0) + size <= free
        )

    def takes(self, holder: Holder, size: int) -> bool:
        """Whether there is room for a message that was received without a reservation, or with one that is over."""
        size = min(size, self.most // MOST_PART)
        return (
            self.held + size <= self.hard
            and self.of_identity(holder.identity) + size <= self.most - self.most // MOST_PART
        )

    def next(self, waiting: Iterable[H]) -> H:
        """The one whose turn it is: of the identity, and then of the group, that hold least; the first of these."""
        return min(
            waiting, key=lambda each: (self.of_identity(each.identity), self._of_group.get(each.group, 0))
        )
