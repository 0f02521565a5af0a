"""The room that a process has for bytes of its peers, the shares in it, and the connections that wait for it. Sans-IO.

It serves gossip routers, and the ports for members and other sites. A share belongs to an identity or to a group. Each
may hold as much as is still free (a group half as much). So some room is always left for those that hold less, however
many bytes others send. Room that is reserved for bytes before they arrive costs its holder nothing. So an identity or a
group may reserve only a small part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

MOST_PART = 4
"""A frame counts as at most this part of the room, so that a frame longer than the room has its turn."""
RESERVED_BY_IDENTITY = 8
RESERVED_BY_GROUP = 4
"""An identity, or a group, reserves at most this part of the room for bytes that have not arrived, or one frame."""


class Holder(Hashable, Protocol):
    """A connection that holds bytes, or waits for room."""

    @property
    def identity(self) -> str:
        """Of the peer."""

    @property
    def group(self) -> bytes | None:
        """None: what it holds belongs to no group."""


H = TypeVar("H", bound=Hashable)
W = TypeVar("W", bound=Holder)


class Room:
    """Bytes that peers hold: what they have sent, and what is not complete."""

    def __init__(self, most: int) -> None:
        """`most`: bytes."""
        self.most = most
        self.held = 0
        self._of_identity: dict[str, int] = {}
        self._of_group: dict[bytes, int] = {}
        self._reserved_identity: dict[str, int] = {}
        self._reserved_group: dict[bytes, int] = {}
        """Of these, bytes that have not arrived."""

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

    def of_group(self, group: bytes | None) -> int:
        """Bytes of messages of the group."""
        return 0 if group is None else self._of_group.get(group, 0)

    def charge(self, identity: str, group: bytes | None, more: int) -> None:
        """So many bytes more are held, or fewer; those that are reserved included."""
        self.held += more
        _add(self._of_identity, identity, more)
        if group is not None:
            _add(self._of_group, group, more)

    def reserve(self, identity: str, group: bytes | None, more: int) -> None:
        """So many more of the bytes that are held have not arrived, or fewer."""
        _add(self._reserved_identity, identity, more)
        if group is not None:
            _add(self._reserved_group, group, more)

    def fits(self, holder: Holder, size: int) -> bool:
        """Whether the holder may have so many bytes more."""
        return self.fits_identity(holder.identity, size) and self.fits_group(holder.group, size)

    def fits_identity(self, identity: str, size: int, kept: int = 0) -> bool:
        """Whether the identity may have so many bytes more. `kept`: free bytes that others are to have."""
        size = self._counted(size)
        return self.of_identity(identity) + size <= self.most - self.held - kept and _may_reserve(
            self._reserved_identity.get(identity, 0), size, self.most // RESERVED_BY_IDENTITY
        )

    def fits_group(self, group: bytes | None, size: int, kept: int = 0) -> bool:
        """The same for a group."""
        if group is None:
            return True
        size = self._counted(size)
        return 2 * self.of_group(group) + size <= self.most - self.held - kept and _may_reserve(
            self._reserved_group.get(group, 0), size, self.most // RESERVED_BY_GROUP
        )

    def lacks(self, size: int) -> bool:
        """Whether so many bytes do not fit whatever their holder has: all connections together hold too much."""
        return self._counted(size) > self.most - self.held

    def _counted(self, size: int) -> int:
        return min(size, self.most // MOST_PART)

    def takes(self, holder: Holder, size: int) -> bool:
        """Whether there is room for a message that was received without a reservation, or with one that is over."""
        size = self._counted(size)
        return (
            self.held + size <= self.hard
            and self.of_identity(holder.identity) + size <= self.most - self.most // MOST_PART
        )


def _add(to: dict[H, int], key: H, more: int) -> None:
    if now := to.get(key, 0) + more:
        to[key] = now
    else:
        to.pop(key, None)


def _may_reserve(reserved: int, size: int, most: int) -> bool:
    return not size or not reserved or reserved + size <= most


class Hindered(NamedTuple):
    """Whose frames wait, and so who has to make progress."""

    everybody: bool
    """A frame waits that would fit if anybody held less."""
    identities: frozenset[str]
    groups: frozenset[bytes | None]

    def by(self, holder: Holder) -> bool:
        """Whether a frame waits that may fit once this connection holds less."""
        return (
            self.everybody
            or holder.identity in self.identities
            or (holder.group is not None and holder.group in self.groups)
        )


class Waiting(Generic[W]):
    """Connections that wait for room. Those of one identity and group have their turns in the order in which they came.

    A connection that waits because its identity, or its group, has too much holds back only others of the same
    identity, or of the same group, that hold more.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._queues: dict[tuple[str, bytes | None], dict[W, int]] = {}
        """By identity and group; none is empty. With the bytes that each one waits for."""
        self._keys: dict[W, tuple[str, bytes | None]] = {}
        """A connection can send for another group while it waits."""

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, holder: W, size: int) -> None:
        """It waits for so many bytes."""
        self.discard(holder)
        key = self._keys[holder] = (holder.identity, holder.group)
        self._queues.setdefault(key, {})[holder] = size

    def discard(self, holder: W) -> None:
        """It waits no longer, if it did."""
        key = self._keys.pop(holder, None)
        if key is not None:
            queue = self._queues[key]
            del queue[holder]
            if not queue:
                del self._queues[key]

    def serve(self, admit: Callable[[W], None], most: int) -> bool:
        """Admit up to so many for which there is room: of the identity, and then of the group, that hold least.

        At most one of each identity and group. Returns whether any was admitted. `admit` adds the bytes to the room.
        """
        room = self._room
        kept = admitted = 0
        full: set[str | bytes | None] = set()
        for key in sorted(self._queues, key=lambda key: (room.of_identity(key[0]), room.of_group(key[1]))):
            queue = self._queues.get(key)
            if queue is None:
                continue  # `admit` has ended others
            identity, group = key
            if identity in full or group in full:
                continue
            holder, size = next(iter(queue.items()))
            fits_identity = room.fits_identity(identity, size, kept)
            fits_group = room.fits_group(group, size, kept)
            if fits_identity and fits_group:
                self.discard(holder)
                admit(holder)
                admitted += 1
                if admitted == most:
                    break
                continue
            if not fits_identity:
                full.add(identity)
            if not fits_group:
                full.add(group)
            if not kept and room.lacks(size):
                # Others go on with half of what is free, so that the other half grows until the frame fits.
                kept = (room.most - room.held) // 2
        return admitted > 0

    def hindered(self) -> Hindered:
        """Who waits now."""
        return Hindered(
            any(self._room.lacks(next(iter(queue.values()))) for queue in self._queues.values()),
            frozenset(identity for identity, _ in self._queues),
            frozenset(group for _, group in self._queues),
        )
