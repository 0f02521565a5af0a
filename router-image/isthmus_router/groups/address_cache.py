"""Where members are: their physical addresses, which of them is in use, and how long it is kept.

What a member says of itself overwrites; what others say of it is taken if nothing is known, or if none of the known
addresses could be reached. Members of the view stay; others are forgotten some time after they were last told of, as
what is for a member that has just left still has to get there. Who has said that it is gone does not come back: an id
lasts as long as its connect.

Source: the logical address design (cache of the transport, chooser, INVALIDATE).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from isthmus_router.groups.choosers import Chooser
from isthmus_router.groups.identity import MemberId, PhysicalAddress

MOST_FORGOTTEN = 64
"""Members in one step."""


@dataclass(slots=True)
class Entry:
    """One member."""

    addresses: tuple[PhysicalAddress, ...]
    choice: PhysicalAddress
    """The one to send to."""
    lost: dict[PhysicalAddress, float] = field(default_factory=dict)
    """When connections to them ended; those are avoided for a while."""
    doubtful: bool = False
    """None of its addresses could be reached since they were told."""
    told: int = 0
    """The last of this member's own changes of addresses that it was told."""


class AddressCache:
    """Id to physical addresses; at most `limit` members, and those of the view."""

    def __init__(self, chooser: Chooser, *, limit: int, expire_after: float, avoid_for: float) -> None:
        """`expire_after`: seconds that who is not in the view is kept; `avoid_for`: that a lost address is avoided."""
        self._chooser = chooser
        self._limit = limit
        self._expire_after = expire_after
        self._avoid_for = avoid_for
        self._entries: dict[MemberId, Entry] = {}
        self._there: dict[PhysicalAddress, dict[MemberId, None]] = {}
        """The members at each address of the entries."""
        self._kept: frozenset[MemberId] = frozenset()
        self._removable: dict[MemberId, float] = {}
        """When they are forgotten, soonest first."""
        self._gone: dict[MemberId, float] = {}
        """Until when it is remembered that they are, soonest first."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[MemberId]:
        return iter(tuple(self._entries))

    def __contains__(self, member: object) -> bool:
        return member in self._entries

    @property
    def deadline(self) -> float:
        """When something is to be forgotten."""
        return min(next(iter(self._removable.values()), inf), next(iter(self._gone.values()), inf))

    def get(self, member: MemberId) -> Entry | None:
        """What is known of it."""
        return self._entries.get(member)

    def is_gone(self, member: MemberId) -> bool:
        """Whether it has said so."""
        return member in self._gone

    def users(self, address: PhysicalAddress) -> list[MemberId]:
        """Who is said to be there."""
        return list(self._there.get(address, ()))

    def learn(
        self, now: float, member: MemberId, addresses: tuple[PhysicalAddress, ...], *, own_word: bool
    ) -> tuple[PhysicalAddress, ...]:
        """A member is there, it says itself or others say; the addresses where now nobody is any more."""
        if member in self._gone or not addresses:
            return ()
        entry = self._entries.get(member)
        if entry is not None and not own_word and not entry.doubtful:
            return ()
        before = () if entry is None else entry.addresses
        if entry is None:
            if not self._make_room(member):
                return ()
            entry = self._entries[member] = Entry((), self._chooser.choose(addresses))
            self._place(member, entry, addresses)
        elif before != addresses:
            self._place(member, entry, addresses)
            entry.choice = self._chooser.choose(addresses)
        if own_word:
            entry.lost.clear()
            if before != addresses:
                self._displace(member, addresses)
        entry.doubtful = False
        self._touch(now, member)
        return tuple(each for each in before if each not in addresses and each not in self._there)

    def lost(self, now: float, address: PhysicalAddress) -> None:
        """A connection to that address could not be made, or has ended."""
        for member in self.users(address):
            entry = self._entries[member]
            entry.told = 0
            entry.lost[address] = now
            left = [each for each in entry.addresses if entry.lost.get(each, -inf) + self._avoid_for <= now]
            if left:
                if entry.choice not in left:
                    entry.choice = self._chooser.choose(left)
            else:
                entry.doubtful = True
                entry.choice = min(entry.addresses, key=lambda each: entry.lost.get(each, -inf))

    def keep(self, now: float, members: Collection[MemberId]) -> None:
        """They are the view: they stay, others may go."""
        self._kept = frozenset(members)
        for member in self._kept:
            self._removable.pop(member, None)
        for member in self._entries:
            if member not in self._kept and member not in self._removable:
                self._touch(now, member)

    def remove(self, member: MemberId) -> tuple[PhysicalAddress, ...]:
        """Forget it; the addresses that it had and nobody else has."""
        self._removable.pop(member, None)
        entry = self._entries.pop(member, None)
        if entry is None:
            return ()
        addresses = entry.addresses
        self._place(member, entry, ())
        return tuple(each for each in addresses if each not in self._there)

    def end(self, now: float, member: MemberId) -> tuple[PhysicalAddress, ...]:
        """It has said that it is gone: forget it for good; the addresses that it had and nobody else has."""
        self._gone.pop(member, None)
        if len(self._gone) >= self._limit:
            del self._gone[next(iter(self._gone))]
        self._gone[member] = now + self._expire_after
        return self.remove(member)

    def expire(self, now: float) -> list[tuple[MemberId, PhysicalAddress]]:
        """Forget what is due, a bounded number of members; who was the last that is known to be at an address. What
        is left is due immediately."""
        while self._gone and (first := next(iter(self._gone))) and self._gone[first] <= now:
            del self._gone[first]
        free: list[tuple[MemberId, PhysicalAddress]] = []
        for first in list(islice(self._removable, MOST_FORGOTTEN)):
            if self._removable[first] > now:
                break
            free += ((first, address) for address in self.remove(first))
        return free

    def _place(self, member: MemberId, entry: Entry, addresses: tuple[PhysicalAddress, ...]) -> None:
        """It has these addresses from now on."""
        for address in entry.addresses:
            there = self._there.get(address)
            if there is not None:
                there.pop(member, None)
                if not there:
                    del self._there[address]
        for address in addresses:
            self._there.setdefault(address, {})[member] = None
        entry.addresses = addresses
        entry.lost = {address: at for address, at in entry.lost.items() if address in addresses}

    def _touch(self, now: float, member: MemberId) -> None:
        self._removable.pop(member, None)
        if member not in self._kept:
            self._removable[member] = now + self._expire_after

    def _make_room(self, member: MemberId) -> bool:
        if len(self._entries) >= self._limit:
            if self._removable:
                self.remove(next(iter(self._removable)))
            elif member not in self._kept:
                return False
        return True

    def _displace(self, member: MemberId, addresses: tuple[PhysicalAddress, ...]) -> None:
        """Who was there before is there no more, unless the view has it still: it was that one's former self."""
        for address in addresses:
            for other in self.users(address):
                if other != member and other not in self._kept:
                    self._lose_address(other, address)

    def _lose_address(self, member: MemberId, address: PhysicalAddress) -> None:
        entry = self._entries[member]
        left = tuple(each for each in entry.addresses if each != address)
        if not left:
            self.remove(member)
            return
        self._place(member, entry, left)
        if entry.choice == address:
            entry.choice = self._chooser.choose(left)
