"""How members came to the view that they have: what lets a leader complete what others have installed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.views import View, ViewId

LENGTH = 8
"""Views that a member remembers; nobody who goes on with the others is that far behind."""


MOST_STEPS = 256
"""In INSTALL: those that members of several parts have missed."""

MOST_POOL_MEMBERS = 65_536
"""In all views that a leader learns of for one change of view. Further steps are ignored."""


class Step(NamedTuple):
    """From a view to the next."""

    bases: tuple[ViewId, ...]
    """Which views it leads from: one, or those of the parts that came together; none where a group begins. Whoever has
    another view must not take it, or survivors would differ in what they installed between."""
    view: View


class History:
    """The last steps of one member, oldest first."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._steps: deque[Step] = deque(steps, maxlen=LENGTH)

    def add(self, step: Step) -> None:
        """It has been taken."""
        self._steps.append(step)

    def __iter__(self) -> Iterator[Step]:
        return iter(self._steps)


class Pool:
    """The steps that members have told of: who needs which to get to the last view of its part."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self._steps: dict[ViewId, Step] = {}
        self._by_base: dict[ViewId, list[Step]] = {}
        self._members = 0
        self.add(steps)

    def add(self, steps: Iterable[Step]) -> None:
        """Steps that somebody has taken."""
        for step in steps:
            members = self._members + len(step.view.ids)
            if step.view.id not in self._steps and members <= MOST_POOL_MEMBERS:
                self._members = members
                self._steps[step.view.id] = step
                for base in set(step.bases):
                    self._by_base.setdefault(base, []).append(step)

    @property
    def ids(self) -> tuple[ViewId, ...]:
        """Of the views that the steps lead to."""
        return tuple(self._steps)

    def path(self, member: MemberId, at: ViewId) -> list[Step]:
        """What leads the member on from the view that it has."""
        path: list[Step] = []
        while steps := [
            step for step in self._by_base.get(at, ()) if step.view.id > at and member in step.view
        ]:
            path.append(max(steps, key=lambda step: step.view.id))
            at = path[-1].view.id
        return path

    def passed(self, view: ViewId) -> bool:
        """Whether others have gone on from that view."""
        return view in self._by_base

    def knows(self, view: ViewId) -> bool:
        """Whether any step leads to or from that view."""
        return view in self._steps or self.passed(view)

    def view(self, view: ViewId) -> View | None:
        """Who is in it."""
        step = self._steps.get(view)
        return None if step is None else step.view
