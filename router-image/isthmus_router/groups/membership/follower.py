"""What everybody but the leader does in a change of view: answer proposals, and wait for the view."""

from __future__ import annotations

import math
from typing import NamedTuple

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.membership import messages
from isthmus_router.groups.membership.agreements import Agreements
from isthmus_router.groups.membership.history import History
from isthmus_router.groups.membership.leader import Leader
from isthmus_router.groups.membership.merging import Merging
from isthmus_router.groups.membership.messages import Agree, Propose
from isthmus_router.groups.membership.port import MembershipSettings, MembershipUser
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import View, ViewId


class Promise(NamedTuple):
    """The highest proposal that a member has agreed to: it waits for that view, and takes no lower one."""

    view: View
    until: float
    known: tuple[ViewId, ...]
    """Views that the leader knows."""


class Follower:
    """Of one member; `promise` is None unless it waits for a view."""

    def __init__(
        self,
        self_id: MemberId,
        settings: MembershipSettings,
        port: MemberPort,
        user: MembershipUser,
        merging: Merging,
        leader: Leader,
        agreements: Agreements,
    ) -> None:
        self._self_id = self_id
        self._settings = settings
        self._port = port
        self._user = user
        self._merging = merging
        self._leader = leader
        self._agreements = agreements
        self.promise: Promise | None = None
        self.deadline = math.inf
        """When `on_time` is due."""

    def merges(self, view: View) -> bool:
        """Whether it waits for the leader of another part than its own."""
        return self.promise is not None and self.promise.view.ids[0] not in view

    def view_installed(self, view: View) -> None:
        """That is what it waited for, or more."""
        if self.promise is not None and self.promise.view.id <= view.id:
            self._forget()

    def on_propose(self, now: float, message: Propose, view: View | None, history: History) -> None:
        """`view`: that of this member, None while it joins. Raises FrameError."""
        proposal = message.view.id
        numbers = self._leader.numbers
        numbers.check(now, proposal.number, joins=view is None)
        agreed = self._follows(now, message, view)
        if agreed or (view is not None and proposal.coordinator in view):
            numbers.raise_to(now, proposal.number, joins=view is None)
        if agreed:
            self._leader.abort()
            self._agreements.add(message.view)
            self.promise = Promise(message.view, now + self._settings.promise, message.known)
            self.deadline = now + 2 * self._settings.resend
        self._user.known(now, (message.view.coordinator,))
        self._answer(now, proposal, message.known, view, history, agreed=agreed)

    def on_time(self, now: float, view: View | None, history: History) -> None:
        """Agree again, in case that the view was lost on its way; in the end, forget it."""
        promise = self.promise
        if promise is None or now >= promise.until:
            self._forget()
        else:
            self.deadline = now + 2 * self._settings.resend
            self._answer(now, promise.view.id, promise.known, view, history, agreed=True)

    def _forget(self) -> None:
        self.promise = None
        self.deadline = math.inf

    def _follows(self, now: float, message: Propose, view: View | None) -> bool:
        """Whether it is one to make the next view of this member."""
        leader, promise = message.view.id.coordinator, self.promise
        if promise is not None and message.view.id < promise.view.id:
            return False
        if view is not None:
            if message.view.id.number <= view.id.number:
                return False
            if leader in view:
                return True
            coordinates = view.ids[0] == self._self_id
            if view.id not in message.known or (coordinates and not self._merging.consents(now, leader)):
                return False
        # Only one at a time may take a joiner or a part, or the next one in its view: others would not know of that.
        return promise is None or leader in promise.view

    def _answer(
        self,
        now: float,
        proposal: ViewId,
        known: tuple[ViewId, ...],
        view: View | None,
        history: History,
        *,
        agreed: bool,
    ) -> None:
        steps = tuple(step for step in history if step.view.id not in known)
        state = self._user.state(now) if view is not None else b""
        installed = view.id if view is not None else None
        body = messages.encode_agree(
            Agree(proposal, agreed, installed, self._leader.numbers.highest, steps, state)
        )
        self._port.send(now, proposal.coordinator, Kind.AGREE, body)
