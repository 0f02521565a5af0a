"""At coordinators: finding other parts of the group, and agreeing who leads when they come together.

The larger part leads, so that few members get another coordinator; of equal ones that of the lower coordinator. Who
asks another to merge says what it leads, and consents to be led.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.membership.history import MOST_POOL_MEMBERS, Step
from isthmus_router.groups.membership.port import MembershipSettings
from isthmus_router.groups.views import View

_MOST_PARTS = 128


def leads(view: View, other: View) -> bool:
    """Whether the coordinator of `view` makes the view in which both come together."""
    return (-len(view.ids), view.ids[0]) < (-len(other.ids), other.ids[0])


class Merging:
    """What one coordinator has asked and agreed to."""

    def __init__(self, settings: MembershipSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._eager = 0
        self._asked: dict[MemberId, float] = {}
        self._following: tuple[MemberId, float] | None = None
        self.parts: dict[MemberId, tuple[Step, ...]] = {}
        """By coordinator: how it came to its view. They are to be in the next view."""
        self.find_at = math.inf
        """When to look for other parts."""

    def alone(self, now: float) -> None:
        """This member has made a view of its own, or others have gone on without it: there are likely to be others."""
        self._eager = self._settings.eager_merges
        if self.find_at < math.inf:
            self.schedule(now)

    def coordinates(self, now: float, *, coordinates: bool) -> None:
        """There is a new view, which this member coordinates or not."""
        self._following = None
        self._asked.clear()
        if not coordinates:
            self._eager = 0
            self.parts.clear()
            self.find_at = math.inf
        elif self.find_at == math.inf:
            self.schedule(now)

    def schedule(self, now: float) -> None:
        """Of the next time to look around."""
        if self._eager:
            self._eager -= 1
            self.find_at = now + self._random.uniform(*self._settings.first_merges)
        else:
            self.find_at = now + self._random.uniform(*self._settings.merge_interval)

    def soon(self, now: float) -> None:
        """A merge was refused: by then it may succeed."""
        self.find_at = min(self.find_at, now + self._random.uniform(*self._settings.first_merges))

    def ask(self, now: float, coordinator: MemberId) -> bool:
        """Whether it is time to ask it to merge: not twice within the time of a consent."""
        self._asked = {asked: until for asked, until in self._asked.items() if until > now}
        if coordinator in self._asked or len(self._asked) >= _MOST_PARTS:
            return False
        self._asked[coordinator] = now + self._settings.promise
        return True

    def asked(self, now: float, coordinator: MemberId) -> bool:
        """Whether it was asked to merge, and has time to answer."""
        return self._asked.get(coordinator, 0.0) > now

    def follow(self, now: float, leader: MemberId) -> bool:
        """Agree to be led by it, unless that was agreed to another just before."""
        if self._following is not None and self._following[0] != leader:
            return False
        self._following = (leader, now + self._settings.promise)
        self.parts.clear()
        return True

    @property
    def follows_until(self) -> float:
        """This part waits for the merge of whom it follows, and makes no view of its own until then."""
        return math.inf if self._following is None else self._following[1]

    def consents(self, now: float, leader: MemberId) -> bool:
        """Whether it may lead this part into its view."""
        following = self._following is not None and self._following[0] == leader
        return following or self.asked(now, leader)

    def on_time(self, now: float) -> None:
        """Nobody has to wait for ever."""
        if now >= self.follows_until:
            self._following = None

    def add(self, coordinator: MemberId, steps: tuple[Step, ...]) -> None:
        """A part that is to be led by this one."""
        others = {part: its for part, its in self.parts.items() if part != coordinator}
        members = sum(len(step.view.ids) for its in (steps, *others.values()) for step in its)
        if len(others) < _MOST_PARTS and members <= MOST_POOL_MEMBERS:
            self.parts[coordinator] = steps

    def drop(self, members: Iterable[MemberId]) -> None:
        """Parts with any of those are not merged, or already are."""
        out = set(members)
        self.parts = {
            coordinator: steps
            for coordinator, steps in self.parts.items()
            if out.isdisjoint(steps[-1].view.ids)
        }

    def members(self) -> list[MemberInfo]:
        """Of all parts, the largest first."""
        views = sorted(
            (steps[-1].view for steps in self.parts.values()), key=lambda v: (-len(v.ids), v.ids[0])
        )
        return [info for view in views for info in view.members]
