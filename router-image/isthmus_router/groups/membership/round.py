"""One change of view, at its leader."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.membership.history import Pool, Step
from isthmus_router.groups.membership.messages import Agree
from isthmus_router.groups.views import View, ViewId

MOST_STATES_BYTES = 32 << 20
"""Of all answers. Members whose states are ignored report the same after the change of view."""


@dataclass(slots=True)
class Round:
    """From the proposal to the agreement of everybody in it."""

    view: View
    """As it is proposed; what it merges is known at the end."""
    own: View
    """The leader's view at that time."""
    gone: set[MemberId]
    """Members of that which are not in the new one."""
    pool: Pool
    body: bytes
    """Of the proposal."""
    resend_at: float
    unasked: deque[MemberId]
    """Newcomers to which the proposal is not sent yet."""
    asked: set[MemberId] = field(default_factory=set)
    """Newcomers to which it is sent, and that have not answered."""
    agreed: dict[MemberId, Agree] = field(default_factory=dict)
    """Without steps, which are in the pool; with the states of those that have a view."""
    answered: set[tuple[MemberId, bool]] = field(default_factory=set)
    """The members that have agreed or refused. The steps of each are taken once."""
    states_bytes: int = 0

    @property
    def waiting(self) -> list[MemberId]:
        """Who has yet to agree."""
        return [member for member in self.view.ids[1:] if member not in self.agreed]

    def learn(self, sender: MemberId, agree: Agree) -> None:
        """Take the steps of an answer."""
        if (sender, agree.agreed) not in self.answered:
            self.answered.add((sender, agree.agreed))
            self.pool.add(agree.steps)

    def agree(self, sender: MemberId, agree: Agree) -> None:
        """A member agrees."""
        if sender in self.agreed:
            self.states_bytes -= len(self.agreed[sender].state)
        state = agree.state if agree.installed is not None else b""
        if self.states_bytes + len(state) > MOST_STATES_BYTES:
            state = b""
        self.states_bytes += len(state)
        self.agreed[sender] = agree._replace(steps=(), state=state)

    def missed(self) -> list[Step]:
        """Views that the leader itself has missed."""
        return self.pool.path(self.view.ids[0], self.own.id)

    def tips(self) -> dict[MemberId, ViewId]:
        """Which view each has, after the steps that it missed; joiners have none."""
        tips = {self.view.ids[0]: self.own.id}
        for member, agree in self.agreed.items():
            if agree.installed is not None:
                path = self.pool.path(member, agree.installed)
                tips[member] = path[-1].view.id if path else agree.installed
                if member not in self.own and self.pool.passed(tips[member]):
                    # It never got a view that it was meant to be in, and the others have gone on without it.
                    tips[member] = agree.installed
        return tips

    def stale(self) -> list[MemberId]:
        """Who is in the leader's view, but came to another one from which nothing leads there."""
        return [
            member
            for member, tip in self.tips().items()
            if member in self.agreed and member in self.own and tip != self.own.id
        ]

    def steps(self) -> tuple[Step, ...]:
        """All that somebody needs, and the one to the new view."""
        bases = tuple(sorted(set(self.tips().values())))
        missed = {
            step.view.id: step
            for member, agree in self.agreed.items()
            if agree.installed is not None
            for step in self.pool.path(member, agree.installed)
        }
        last = Step(bases, replace(self.view, merged=bases if len(bases) > 1 else ()))
        return (*(missed[view] for view in sorted(missed)), last)
