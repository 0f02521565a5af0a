"""Before a member has a view: looking for members that have one, and for others that look."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.membership.port import FoundMember, MembershipSettings

_MOST_ROUNDS = 2
"""Rounds of `join_timeout` in which somebody with a lower identity, who looks as well, may make the first view."""


class Joining:
    """Decides whom to ask, and when to make a view of one's own."""

    def __init__(self, now: float, self_id: MemberId, settings: MembershipSettings, random: Random) -> None:
        self._self_id = self_id
        self._settings = settings
        self._random = random
        self._started = now
        self._lowest = self_id
        self._members_found = False
        self._asked_at = -1.0
        self.find_at = now
        """When to start the next round of discovery."""

    @property
    def gives_up_at(self) -> float:
        """When to make a view of one's own."""
        if self._members_found:
            return self._started + self._settings.join_give_up
        rounds = 1 if self._lowest == self._self_id else _MOST_ROUNDS
        return self._started + self._settings.join_timeout * rounds

    def found(self, now: float, answers: Sequence[FoundMember]) -> MemberId | None:
        """Whom to ask to let this member in; None: nobody, or not yet again."""
        members = [answer for answer in answers if answer.is_member]
        self._lowest = min((self._lowest, *(answer.info.id for answer in answers)))
        if not members:
            return None
        self._members_found = True
        if now < self._asked_at + self._settings.find_interval:
            return None
        self._asked_at = now
        answer = self._random.choice(members)
        # Its coordinator may be gone: the next time, who has answered may know better.
        return (
            answer.info.id
            if answer.coordinator is None or self._random.random() < 0.25
            else answer.coordinator
        )
