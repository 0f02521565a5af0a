"""Views: the members of a group as its coordinator has installed them, oldest first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from isthmus_router.groups.identity import MemberId, MemberInfo, short

MOST_MEMBERS = 1_024
"""Of one view."""


class ViewId(NamedTuple):
    """Ordered by number, then by the coordinator that made the view."""

    number: int
    coordinator: MemberId

    def __str__(self) -> str:
        return f"{self.number}|{short(self.coordinator)}"


@dataclass(frozen=True, slots=True)
class View:
    """Members by age; the first is the coordinator, the second would be the next."""

    id: ViewId
    members: tuple[MemberInfo, ...]
    merged: tuple[ViewId, ...] = ()
    """The views of the parts that came together, if this view ended a partition."""
    ids: tuple[MemberId, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(member.id for member in self.members))

    @property
    def coordinator(self) -> MemberInfo:
        """The oldest member."""
        return self.members[0]

    def __contains__(self, member: object) -> bool:
        return member in self.ids

    def __str__(self) -> str:
        return f"{self.id} [{', '.join(member.name for member in self.members)}]"
