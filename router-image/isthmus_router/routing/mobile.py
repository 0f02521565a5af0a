"""Mobile addresses: what this router advertises, and what it knows of each other router.

Changes travel as numbered differences to every router; whoever misses one asks the router for the whole set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from isthmus_router.core.claims import MOST_ADDRESSES, MOST_CHARACTERS

from .messages import (
    LONGEST_KEY,
    AddressSnapshot,
    MobileAddress,
    MobileAddressUpdate,
    encode_descriptors,
    encode_list,
)

MAX_ADDRESSES_OF_ALL = 1_000_000
"""Of all other routers, counted for each one; beyond that, a router has no more than its share."""
MAX_CHARACTERS_OF_ALL = 2**27
SHARE_OF_ADDRESSES = 8_000
"""Addresses for which each router has room, whatever others announce: 1/128 of all."""
SHARE_OF_CHARACTERS = 2**20
MOST_ANNOUNCED = 2_000
"""Changed addresses in one update, which is encoded in one piece: some milliseconds."""


class LocalAddresses:
    """The addresses with consumers on this router, and how far they were announced."""

    def __init__(self) -> None:
        self.sequence = 0
        self._current: dict[str, MobileAddress] = {}
        self._announced: dict[str, MobileAddress] = {}
        self._touched: set[str] = set()

    def put(self, address: MobileAddress) -> None:
        """Advertise an address from now on, or its changed attributes."""
        self._current[address.key] = address
        self._touched.add(address.key)

    def remove(self, key: str) -> None:
        """Stop advertising an address; unknown keys are ignored."""
        if self._current.pop(key, None) is not None:
            self._touched.add(key)

    @property
    def has_news(self) -> bool:
        """Whether `announce` may find a difference."""
        return bool(self._touched)

    def announce(self, router: str) -> MobileAddressUpdate | None:
        """The difference to what was announced last, under the next number; None if there is none.

        It is that of at most `MOST_ANNOUNCED` changed addresses; the others have numbers after that.
        """
        present: list[MobileAddress] = []
        gone: list[str] = []
        for key in sorted(self._touched.pop() for _ in range(min(len(self._touched), MOST_ANNOUNCED))):
            address = self._current.get(key)
            if address == self._announced.get(key):
                continue
            if address is None:
                gone.append(key)
                del self._announced[key]
            else:
                present.append(address)
                self._announced[key] = address
        if not present and not gone:
            return None
        self.sequence += 1
        return MobileAddressUpdate(
            router, self.sequence, absolute=False, present=tuple(present), gone=tuple(gone)
        )

    def snapshot(self) -> SnapshotMaker:
        """The whole set as announced: unannounced changes belong to the next number."""
        return SnapshotMaker(self.sequence, tuple(self._announced.values()))


class SnapshotMaker:
    """Encodes, in steps, the addresses that were announced up to a sequence number. The result serves all requests."""

    def __init__(self, sequence: int, addresses: Sequence[MobileAddress]) -> None:
        self.sequence = sequence
        self.count = len(addresses)
        self._left = iter(addresses)
        self._elements: list[bytes] = []
        self._encoded: bytes | None = None

    @property
    def is_complete(self) -> bool:
        """Whether `message` is there."""
        return self._encoded is not None

    def go_on(self, most: int) -> None:
        """Encode at most that many addresses."""
        part = tuple(islice(self._left, most))
        if part:
            self._elements.append(encode_descriptors(part))
        if len(part) < most:
            self._encoded = encode_list(self._elements, self.count)
            self._elements = []

    def message(self, router: str) -> AddressSnapshot:
        """The answer of this router."""
        assert self._encoded is not None
        return AddressSnapshot(router, self.sequence, self._encoded)


@dataclass(frozen=True, slots=True)
class AddressChanges:
    """Difference made by one update. ``added`` also holds known addresses whose attributes changed."""

    added: tuple[MobileAddress, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(slots=True)
class AddressRoom:
    """What the addresses of all other routers take up."""

    addresses: int = 0
    characters: int = 0
    refused: int = 0
    """Announced addresses that found no room, so far."""


@dataclass(slots=True)
class RemoteAddresses:
    """What one other router advertises, up to ``sequence``; 0 and empty until an update came."""

    room: AddressRoom = field(default_factory=AddressRoom)
    """Shared with the other routers."""
    sequence: int = 0
    addresses: dict[str, MobileAddress] = field(default_factory=dict)
    characters: int = 0
    doubtful: bool = False
    """Two different updates had the same number: only the whole set settles what is right."""
    life: int = 0
    """How often everything has been forgotten."""
    incomplete: bool = False
    """Addresses were refused for want of room."""

    def apply(self, update: MobileAddressUpdate) -> AddressChanges | None:
        """Take over an update; None if it is a difference that does not follow on what is known."""
        if update.absolute:
            present = {address.key for address in update.present}
            gone: Iterable[str] = [key for key in self.addresses if key not in present]
            self.doubtful = self.incomplete = False
        elif not self.doubtful and update.sequence == self.sequence + 1:
            gone = update.gone
        else:
            self.doubtful = self.doubtful or (update.sequence == self.sequence and not self._has(update))
            return None
        self.sequence = update.sequence
        removed = tuple(key for key in gone if self._remove(key))
        added = tuple(address for address in update.present if self._put(address))
        return AddressChanges(added, removed)

    def in_steps(self, update: MobileAddressUpdate, most: int) -> Iterator[AddressChanges]:
        """As `apply`, with at most so many addresses in a step. No other update may come in between."""
        known = self.addresses
        present: set[str] = set()
        gone: Sequence[str] = update.gone
        if update.absolute:
            for part in _parts(update.present, most):
                present.update(address.key for address in part)
                yield AddressChanges()
            gone = list(known)
            self.doubtful = self.incomplete = False
        elif self.doubtful or update.sequence != self.sequence + 1:
            if update.sequence == self.sequence and not (self.doubtful or self.incomplete):
                for part in _parts(update.present, most):
                    self.doubtful |= any(known.get(address.key) != address for address in part)
                    yield AddressChanges()
                for keys in _parts(gone, most):
                    self.doubtful |= any(key in known for key in keys)
                    yield AddressChanges()
            return
        self.sequence = update.sequence
        for keys in _parts(gone, most):
            yield AddressChanges(
                removed=tuple(key for key in keys if key not in present and self._remove(key))
            )
        for part in _parts(update.present, most):
            yield AddressChanges(added=tuple(address for address in part if self._put(address)))

    def omit(self, count: int) -> None:
        """Addresses were announced beyond those that one router may have."""
        self.incomplete = True
        self.room.refused += count

    def _has(self, update: MobileAddressUpdate) -> bool:
        """Whether a difference has been applied, as far as its outcome shows."""
        known = self.addresses
        return self.incomplete or (
            all(known.get(address.key) == address for address in update.present)
            and not any(key in known for key in update.gone)
        )

    def _put(self, address: MobileAddress) -> bool:
        """Whether that is a change, and there is room for it."""
        known = self.addresses.get(address.key)
        if known == address:
            return False
        if known is None:
            length = len(address.key)
            if not self._has_room(length):
                self.incomplete = True
                self.room.refused += 1
                return False
            self.characters += length
            self.room.characters += length
            self.room.addresses += 1
        self.addresses[address.key] = address
        return True

    def _remove(self, key: str) -> bool:
        if self.addresses.pop(key, None) is None:
            return False
        self.characters -= len(key)
        self.room.characters -= len(key)
        self.room.addresses -= 1
        return True

    def _has_room(self, characters: int) -> bool:
        """Whether an address of that length may be added."""
        count, length = len(self.addresses), self.characters + characters
        if count >= MOST_ADDRESSES or length > MOST_CHARACTERS:
            return False
        within_share = count < SHARE_OF_ADDRESSES and length <= SHARE_OF_CHARACTERS
        return within_share or (
            self.room.addresses < MAX_ADDRESSES_OF_ALL
            and self.room.characters + characters <= MAX_CHARACTERS_OF_ALL
        )

    @property
    def may_be_completed(self) -> bool:
        """Whether addresses were refused for which there may be room now."""
        return self.incomplete and self._has_room(LONGEST_KEY)

    def clear(self) -> bool:
        """Forget everything; returns whether there was any address."""
        had_any = bool(self.addresses)
        self.life += 1
        self.room.addresses -= len(self.addresses)
        self.room.characters -= self.characters
        self.addresses.clear()
        self.characters = self.sequence = 0
        self.doubtful = self.incomplete = False
        return had_any


_T = TypeVar("_T")


def _parts(items: Sequence[_T], most: int) -> Iterator[Sequence[_T]]:
    return (items[at : at + most] for at in range(0, len(items), most))
