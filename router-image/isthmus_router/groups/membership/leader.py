"""What the leader of changes of view does: who is to be in the next view, and the rounds that lead to it."""

from __future__ import annotations

import math
from collections import deque
from random import Random

from isthmus_router.groups.frames import FrameError, Kind
from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.membership import messages
from isthmus_router.groups.membership.agreements import Agreements
from isthmus_router.groups.membership.detector import Detector
from isthmus_router.groups.membership.history import History, Pool, Step
from isthmus_router.groups.membership.merging import Merging
from isthmus_router.groups.membership.messages import Agree, Install, Propose
from isthmus_router.groups.membership.numbers import ViewNumbers
from isthmus_router.groups.membership.port import MembershipSettings, MembershipUser
from isthmus_router.groups.membership.round import Round
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId

_MOST_TOMBSTONES = 1024
_MOST_PROPOSED_BYTES = 1 << 20
"""Proposals that newcomers have not answered: another part may state members that do not exist."""


class Leader:
    """Of one member; idle while somebody else is to lead."""

    def __init__(
        self,
        info: MemberInfo,
        settings: MembershipSettings,
        port: MemberPort,
        user: MembershipUser,
        detector: Detector,
        merging: Merging,
        agreements: Agreements,
        random: Random,
    ) -> None:
        self._info = info
        self._settings = settings
        self._port = port
        self._user = user
        self._detector = detector
        self._merging = merging
        self._agreements = agreements
        self._random = random
        self.numbers = ViewNumbers()
        self.leaving: set[MemberId] = set()
        """Members of the view that want to leave."""
        self._tombstones: dict[MemberId, float] = {}
        """Who has left, oldest first, and until when late frames do not bring them back. Not for good: a member that
        is there after all, as another has spoken in its name, comes back."""
        self.baseline: bytes | None = None
        """Of the last view that this member has made."""
        self._joiners: dict[MemberId, MemberInfo] = {}
        self._excluded: set[MemberId] = set()
        """Those to be merged who do not answer."""
        self._bundle_at = math.inf
        self._retry_at = math.inf
        self._round: Round | None = None
        self._since: dict[MemberId, float] = {}
        """Since when members have not answered proposals, over all rounds to the next view."""
        self._installs: dict[MemberId, bytes] = {}
        """What was sent to the others of the last view that this member has made."""

    @property
    def deadline(self) -> float:
        """When `act` is due."""
        return min(self._retry_at, self._bundle_at if self._round is None else self._round.resend_at)

    def acting(self, view: View) -> MemberId | None:
        """Who is to lead the next change: the first that neither has failed nor leaves."""
        out = self._out()
        return next((member for member in view.ids if member not in out), None)

    def next_id(self) -> ViewId:
        """One that nobody has used."""
        return ViewId(self.numbers.next(), self._info.id)

    def add_joiner(self, now: float, info: MemberInfo) -> None:
        """It is to be in the next view."""
        if info.id in self._joiners or len(self._joiners) < MOST_MEMBERS:
            self._joiners[info.id] = info
            self.bundle(now)

    def bundle(self, now: float) -> None:
        """Somebody is to come in: others may be about to."""
        self._bundle_at = min(self._bundle_at, now + self._settings.bundle)

    def gone_for_good(self, now: float, member: MemberId) -> None:
        """It has left, by its own word."""
        self._tombstones.pop(member, None)
        self._tombstones[member] = now + self._settings.tombstone
        while len(self._tombstones) > _MOST_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        self._joiners.pop(member, None)

    def has_left(self, now: float, member: MemberId) -> bool:
        """Whether it has left not long ago."""
        return now < self._tombstones.get(member, -math.inf)

    def view_installed(self, view: View) -> None:
        """Who was to come or go has done so."""
        self.abort()
        self.leaving &= set(view.ids)
        self._joiners = {member: info for member, info in self._joiners.items() if member not in view}
        self._merging.drop(view.ids)
        self._excluded.clear()
        if view.id.coordinator != self._info.id:
            self._installs = {}

    def stop(self) -> None:
        """Another is to lead: who wants to join will ask that one."""
        self.abort()
        self._joiners.clear()
        self._bundle_at = math.inf

    def abort(self) -> None:
        """Nothing comes of the present round."""
        self._round = None
        self._since.clear()
        self._retry_at = math.inf

    def repeat(self, now: float, member: MemberId) -> bool:
        """Send the last view again to a member that has not got it; whether this member has made it."""
        body = self._installs.get(member)
        if body is not None:
            self._port.send(now, member, Kind.INSTALL, body)
        return body is not None

    def act(self, now: float, view: View, history: History) -> tuple[Step, ...]:
        """Start or go on with the change of view that is due; the steps to take, if this member is alone in it."""
        gone = self._out() & set(view.ids)
        current = self._round
        if current is not None and current.gone == gone and now < self._retry_at:
            if now >= current.resend_at:
                self._resend(now, current)
            return ()
        coming = current is not None or now >= min(self._bundle_at, self._retry_at)
        self._round, self._retry_at = None, math.inf
        if not gone and not coming:
            return ()
        self._bundle_at = math.inf
        new = self._newcomers(now, view)
        if not new:
            self._merging.parts.clear()
            self._excluded.clear()
            if not gone:
                return ()
        self._propose(now, view, history, gone, new)
        return self._completed(now)

    def on_agree(self, now: float, sender: MemberId, agree: Agree) -> tuple[Step, ...]:
        """An answer to the proposal; the steps to take once all have agreed. Raises FrameError."""
        current = self._round
        if current is None or agree.proposal != current.view.id or sender not in current.view:
            return ()
        if any(self._info.id in step.view and not self._agreements.cover(step.view) for step in agree.steps):
            raise FrameError("AGREE with a view that this member has not agreed to")
        self.numbers.raise_to(now, agree.highest, joins=False)
        current.learn(sender, agree)
        if agree.agreed:
            current.agree(sender, agree)
            current.asked.discard(sender)
            self._ask_newcomers(now, current)
            return self._completed(now)
        theirs = None if agree.installed is None else current.pool.view(agree.installed)
        if sender not in current.own:
            # Somebody else is about to take it in, or its part has gone on: another time.
            self._joiners.pop(sender, None)
            self._merging.drop((sender,))
            self._merging.soon(now)
        elif theirs is not None and self._info.id not in theirs:
            self._detector.depart(now, sender)
        # Else it follows another's proposal: the higher one of the two that come next wins.
        self._retry_at = now + self._random.uniform(0.2, 1.0) * self._settings.resend
        return ()

    def _out(self) -> set[MemberId]:
        return self._detector.gone | self.leaving

    def _newcomers(self, now: float, view: View) -> list[MemberInfo]:
        coming = {info.id: info for info in (*self._merging.members(), *self._joiners.values())}
        newcomers = [
            info
            for member, info in coming.items()
            if member not in view and member not in self._excluded and not self.has_left(now, member)
        ]
        room = messages.MOST_MEMBERS_VALUES - sum(map(messages.count_member_values, view.members))
        fitting: list[MemberInfo] = []
        for info in newcomers[: MOST_MEMBERS - len(view.ids)]:
            room -= messages.count_member_values(info)
            if room < 0:
                break
            fitting.append(info)
        return fitting

    def _propose(
        self, now: float, view: View, history: History, gone: set[MemberId], new: list[MemberInfo]
    ) -> None:
        members = (*(info for info in view.members if info.id not in gone), *new)
        pool = Pool(history)
        for steps in self._merging.parts.values():
            pool.add(steps)
        proposal = View(self.next_id(), members)
        body = messages.encode_propose(Propose(proposal, pool.ids))
        unasked = deque(info.id for info in new)
        self._round = Round(proposal, view, gone, pool, body, now + self._settings.resend, unasked)
        self._user.known(now, new)
        for member in proposal.ids[1 : len(members) - len(new)]:
            self._since.setdefault(member, now)
            self._port.send(now, member, Kind.PROPOSE, body)
        self._ask_newcomers(now, self._round)

    def _ask_newcomers(self, now: float, current: Round) -> None:
        """Propose to further newcomers, of which a bounded number may leave the proposal unanswered."""
        most = max(1, _MOST_PROPOSED_BYTES // len(current.body))
        while current.unasked and len(current.asked) < most:
            member = current.unasked.popleft()
            current.asked.add(member)
            self._since.setdefault(member, now)
            self._port.send(now, member, Kind.PROPOSE, current.body)

    def _resend(self, now: float, current: Round) -> None:
        """Propose again to those who have not answered; give up those who never do."""
        settings = self._settings
        current.resend_at = now + settings.resend
        for member in current.waiting:
            newcomer = member not in current.own
            if newcomer and member not in current.asked:
                continue
            silent = now - self._since[member]
            if newcomer:
                if silent >= settings.silent_joiner:
                    self._joiners.pop(member, None)
                    self._excluded.add(member)
                    self._merging.drop(current.unasked)
                    self._retry_at = now
                    continue
            elif silent >= settings.stubborn_member:
                self._detector.depart(now, member)
            elif silent >= settings.silent_member:
                self._detector.verify(now, member)
            self._port.send(now, member, Kind.PROPOSE, current.body)

    def _completed(self, now: float) -> tuple[Step, ...]:
        """What is to be done once everybody has agreed."""
        current = self._round
        if current is None or current.waiting:
            return ()
        missed = current.missed()
        if missed:
            self.abort()
            self._bundle_at = now
            return tuple(missed)
        tips = current.tips()
        stale = current.stale()
        if stale or max(tips.values()).number >= current.view.id.number:
            for member in stale:
                self._detector.depart(now, member)
            self._retry_at = now
            return ()
        self._install(now, current, tips)
        return current.steps()[-1:]

    def _install(self, now: float, current: Round, tips: dict[MemberId, ViewId]) -> None:
        steps = current.steps()
        view = steps[-1].view
        states = {member: agree.state for member, agree in current.agreed.items() if member in tips}
        self._user.states(now, states)
        fresh = set(view.ids) if any(step.view.merged for step in steps) else set(view.ids) - set(tips)
        self.baseline = self._user.baseline(now) if fresh else None
        plain = messages.encode_install(Install(steps, None))
        full = messages.encode_install(Install(steps, self.baseline)) if fresh else plain
        self._installs = {member: full if member in fresh else plain for member in view.ids[1:]}
        for member, body in self._installs.items():
            self._port.send(now, member, Kind.INSTALL, body)
        for member in self.leaving - {self._info.id}:
            if member in current.gone:
                self._port.send(now, member, Kind.INSTALL, plain)
