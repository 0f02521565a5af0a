"""How far the other members have a stream: eight bytes for each member, as there may be thousands of streams."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import NamedTuple

from isthmus_router.groups.identity import MemberId

_NONE = bytes(8)


class Move(NamedTuple):
    """To other places."""

    size: int
    """Places that there were, and one that was nobody's."""
    pick: Callable[[Sequence[int]], tuple[int, ...]]
    """What is in the new places, and two zeros."""


class Places:
    """Where the numbers of each member are, in those of every stream: first of the others in the view."""

    def __init__(self) -> None:
        self.others: tuple[MemberId, ...] = ()
        self._of: dict[MemberId, int] = {}

    def find(self, member: MemberId) -> int | None:
        """None: nothing has been noted of it."""
        return self._of.get(member)

    def give(self, member: MemberId) -> int:
        """The place of a member that may be in no view yet."""
        return self._of.setdefault(member, len(self._of))

    def view_installed(self, others: tuple[MemberId, ...]) -> Move:
        """These have the first places from now on; the numbers of each stream have to be moved."""
        nobody = len(self._of)
        before = [self._of.get(member, nobody) for member in others]
        self.others = others
        self._of = {member: place for place, member in enumerate(others)}
        return Move(nobody + 1, itemgetter(*before, nobody, nobody))


class Positions:
    """Of one stream: highest contiguous numbers, as the members said."""

    __slots__ = ("_numbers", "_places")

    def __init__(self, places: Places) -> None:
        self._places = places
        self._numbers = array("Q")

    def of(self, member: MemberId) -> int:
        """0: it has not said any."""
        place = self._places.find(member)
        return self._numbers[place] if place is not None and place < len(self._numbers) else 0

    def note(self, member: MemberId, number: int) -> None:
        """A member says that it has everything up to a number."""
        place = self._places.give(member)
        self._grow(place + 1)
        self._numbers[place] = max(self._numbers[place], number)

    def lowest(self) -> int | None:
        """Of all others in the view; None: there are none."""
        count = len(self._places.others)
        if not count:
            return None
        return min(self._numbers[:count]) if len(self._numbers) >= count else 0

    def highest(self) -> tuple[int, MemberId | None]:
        """Of the others in the view, and of whom: the first one."""
        numbers = self._numbers[: len(self._places.others)]
        best = max(numbers, default=0)
        return best, self._places.others[numbers.index(best)] if best else None

    def move(self, to: Move) -> None:
        """The places have changed."""
        if not self._numbers:
            return
        self._grow(to.size)
        moved = array("Q", to.pick(self._numbers))
        used = -(-len(moved.tobytes().rstrip(b"\0")) // len(_NONE))
        self._numbers = moved[:used]

    def _grow(self, size: int) -> None:
        lacking = size - len(self._numbers)
        if lacking > 0:
            self._numbers.frombytes(_NONE * lacking)
