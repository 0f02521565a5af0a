"""What membership asks of and tells to the member that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.views import View, ViewId


class FoundMember(Protocol):
    """Somebody who has answered to discovery."""

    @property
    def info(self) -> MemberInfo:
        """Who."""

    @property
    def is_member(self) -> bool:
        """Whether it has a view; else it is looking for one."""

    @property
    def view_id(self) -> ViewId | None:
        """Its view."""

    @property
    def coordinator(self) -> MemberId | None:
        """Of that view."""


class MembershipUser(Protocol):
    """The layers above. None of these may call membership back before it returns."""

    def find(self, now: float, *, initial: bool) -> None:
        """Start a round of discovery; what it finds comes by `Membership.found`. `initial`: to join; else to merge."""

    def known(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """Frames to these members are about to be sent: where they are reached, by others' word."""

    def state(self, now: float) -> bytes:
        """What to tell the leader of a view change: the positions of all streams."""

    def states(self, now: float, states: Mapping[MemberId, bytes]) -> None:
        """At the leader of a view change, before `baseline`: the states of all other members of the new view that have
        been members before."""

    def baseline(self, now: float) -> bytes:
        """At the leader: where streams start for those who join."""

    def take_baseline(self, now: float, baseline: bytes) -> None:
        """At those who join, before `view_installed`. After a partition at everybody but the leader: streams that the
        member knows already are not to be changed by it."""

    def view_installed(self, now: float, view: View, left: tuple[MemberId, ...]) -> None:
        """There is a new view. `left`: members of the one before that are not in it."""

    def left(self, now: float) -> None:
        """The others go on without this member, as it wanted, or nobody has said so in time. Nothing follows."""


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """Times in seconds."""

    join_timeout: float = 1.0
    """Nobody found so long: a view of its own."""
    find_interval: float = 0.25
    """Between rounds of discovery, and requests to join, until there is a view."""
    join_give_up: float = 10.0
    """Members found, but no coordinator of them has let it in: a view of its own, to be merged."""
    bundle: float = 0.02
    """Those who join, or merge, within that time do so in one view."""
    resend: float = 0.1
    """Of frames of a view change that are not answered."""
    silent_joiner: float = 0.4
    """Who wants to join or merge but does not answer so long, is left out of the view."""
    silent_member: float = 0.4
    """A member that does not answer a proposal so long is suspected (and verified)."""
    stubborn_member: float = 3.0
    """A member that lives, but does not answer proposals so long, is left out."""
    promise: float = 1.0
    """For so long a member waits for the view that it has agreed to, or the merge that it has asked for."""
    heartbeat: float = 0.5
    silence: float = 3.0
    """A watched member of which nothing was heard so long is suspected."""
    verify: float = 0.2
    """A suspect that does not answer within that time is confirmed."""
    retell: float = 1.0
    """Confirmed suspects that are still in the view are told again to who is to act."""
    settle: float = 1.0
    """A member with an older view is given so long to get the new one, before its word counts that we are no member."""
    merge_interval: tuple[float, float] = (2.0, 4.0)
    """A coordinator looks for other parts of the group each random time in between."""
    first_merges: tuple[float, float] = (0.1, 0.3)
    """The same, for the first `eager_merges` times after it made a view of its own."""
    eager_merges: int = 3
    tombstone: float = 10.0
    """A member that has left is not let in again for so long, as its last frames may come late."""
    leave_timeout: float = 1.0
