"""Views that this member may install: those that it has agreed to, or made.

A leader installs a view only once every member of it has agreed to the proposal. So a view with this member in it that
this member has not agreed to comes from nobody who may send one.
"""

from __future__ import annotations

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.views import View, ViewId

_MOST = 256
"""Views that are remembered; a view is installed, or given up, within a few proposals."""


class Agreements:
    """Of one member."""

    def __init__(self) -> None:
        self._members: dict[ViewId, tuple[MemberId, ...]] = {}
        """The oldest first."""

    def add(self, view: View) -> None:
        """This member has agreed to the view, or has made or installed it."""
        self._members[view.id] = view.ids
        while len(self._members) > _MOST:
            del self._members[next(iter(self._members))]

    def cover(self, view: View) -> bool:
        """Whether it is one of those views, with the same members."""
        return self._members.get(view.id) == view.ids
