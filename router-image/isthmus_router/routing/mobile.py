"""Mobile addresses: what this router advertises, and what it knows of each other router.

Changes travel as numbered differences to every router; whoever misses one asks the router for the whole set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from .messages import MobileAddress, MobileAddressUpdate

MAX_ADDRESSES = 200_000
"""Of one router; what it announces beyond that is ignored."""


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

    def announce(self, router: str) -> MobileAddressUpdate | None:
        """The difference to what was announced last, under the next number; None if there is none."""
        present: list[MobileAddress] = []
        gone: list[str] = []
        for key in sorted(self._touched):
            address = self._current.get(key)
            if address == self._announced.get(key):
                continue
            if address is None:
                gone.append(key)
                del self._announced[key]
            else:
                present.append(address)
                self._announced[key] = address
        self._touched.clear()
        if not present and not gone:
            return None
        self.sequence += 1
        return MobileAddressUpdate(
            router, self.sequence, absolute=False, present=tuple(present), gone=tuple(gone)
        )

    def snapshot(self, router: str) -> MobileAddressUpdate:
        """The whole set as announced: unannounced changes belong to the next number."""
        return MobileAddressUpdate(
            router, self.sequence, absolute=True, present=tuple(self._announced.values())
        )


@dataclass(frozen=True, slots=True)
class AddressChanges:
    """Difference made by one update. ``added`` also holds known addresses whose attributes changed."""

    added: tuple[MobileAddress, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


@dataclass(slots=True)
class RemoteAddresses:
    """What one other router advertises, up to ``sequence``; 0 and empty until an update came."""

    sequence: int = 0
    addresses: dict[str, MobileAddress] = field(default_factory=dict)

    def apply(self, update: MobileAddressUpdate) -> AddressChanges | None:
        """Take over an update; None if it is a difference that does not follow on what is known."""
        if update.absolute:
            present = {address.key for address in update.present}
            gone: Iterable[str] = [key for key in self.addresses if key not in present]
        elif update.sequence == self.sequence + 1:
            gone = update.gone
        else:
            return None
        self.sequence = update.sequence
        removed = tuple(key for key in gone if self.addresses.pop(key, None) is not None)
        added = tuple(address for address in update.present if self.addresses.get(address.key) != address)
        room = MAX_ADDRESSES - len(self.addresses)
        if len(added) > room:
            known = [address for address in added if address.key in self.addresses]
            others = (address for address in added if address.key not in self.addresses)
            added = (*known, *islice(others, max(room, 0)))
        self.addresses.update((address.key, address) for address in added)
        return AddressChanges(added, removed)

    @property
    def is_full(self) -> bool:
        """Whether no further address would be taken over."""
        return len(self.addresses) >= MAX_ADDRESSES

    def clear(self) -> bool:
        """Forget everything; returns whether there was any address."""
        had_any = bool(self.addresses)
        self.addresses.clear()
        self.sequence = 0
        return had_any
