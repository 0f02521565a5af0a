"""Membership of one member: joining, views, leaving. See the package for the protocol."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from random import Random

from isthmus_router.groups.frames import FrameError, Kind, encode_body
from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.membership import messages
from isthmus_router.groups.membership.agreements import Agreements
from isthmus_router.groups.membership.detector import Detector
from isthmus_router.groups.membership.follower import Follower
from isthmus_router.groups.membership.history import History, Pool, Step
from isthmus_router.groups.membership.joining import Joining
from isthmus_router.groups.membership.leader import Leader
from isthmus_router.groups.membership.merging import Merging, leads
from isthmus_router.groups.membership.messages import Agree, Install, NotAMember, Propose
from isthmus_router.groups.membership.port import FoundMember, MembershipSettings, MembershipUser
from isthmus_router.groups.port import MemberPort
from isthmus_router.groups.views import View, ViewId


class Phase(Enum):
    """Of a membership."""

    IDLE = auto()
    JOINING = auto()
    MEMBER = auto()
    LEAVING = auto()
    LEFT = auto()


class Membership:
    """Driven by events; see the package for which."""

    def __init__(
        self,
        self_info: MemberInfo,
        settings: MembershipSettings,
        port: MemberPort,
        user: MembershipUser,
        random: Random,
    ) -> None:
        self.info = self_info
        self.phase = Phase.IDLE
        self.view: View | None = None
        """The last that was installed."""
        self._settings = settings
        self._port = port
        self._user = user
        self._random = random
        self._detector = Detector(self_info.id, settings, port)
        self._merging = Merging(settings, random)
        self._agreements = Agreements()
        self._leader = Leader(
            self_info, settings, port, user, self._detector, self._merging, self._agreements, random
        )
        self._follower = Follower(
            self_info.id, settings, port, user, self._merging, self._leader, self._agreements
        )
        self._joining: Joining | None = None
        self._history = History()
        self._installed_at = 0.0
        self._baseline: bytes | None = None
        """What came with the present view, for those who have yet to get it."""
        self._told: tuple[MemberId, frozenset[MemberId]] | None = None
        """Whom it has told of which suspects."""
        self._tell_at = math.inf
        self._leave_at = math.inf
        self._left_at = math.inf

    # What the member does

    def join(self, now: float) -> None:
        """Start: find the group, or be its first member."""
        assert self.phase is Phase.IDLE
        self.phase = Phase.JOINING
        self._joining = Joining(now, self.info.id, self._settings, self._random)
        self.on_time(now)

    def leave(self, now: float) -> None:
        """Leave in good order: `user.left` is told at the end, at the latest after `leave_timeout`."""
        if self.phase is Phase.MEMBER and self.view is not None and len(self.view.ids) > 1:
            self.phase = Phase.LEAVING
            self._left_at = now + self._settings.leave_timeout
            self._leader.leaving.add(self.info.id)
            self._leave(now)
            self._act(now)
        elif self.phase in {Phase.IDLE, Phase.JOINING, Phase.MEMBER}:
            if self._follower.promise is not None:
                self._port.send(now, self._follower.promise.view.ids[0], Kind.LEAVE, encode_body())
            self._end(now)

    @property
    def coordinates(self) -> bool:
        """Whether this member is the coordinator of its view."""
        return self.view is not None and self.view.ids[0] == self.info.id

    def expects(self, member: MemberId) -> bool:
        """Whether it is in the view that this member has agreed to and waits for."""
        promise = self._follower.promise
        return promise is not None and member in promise.view

    @property
    def leaving(self) -> bool:
        """Whether it is to be found by nobody any more."""
        return self.phase in {Phase.LEAVING, Phase.LEFT}

    # What the member is told

    def found(self, now: float, answers: Sequence[FoundMember]) -> None:
        """Discovery has found somebody; `answers` may repeat those of the same round."""
        answers = [answer for answer in answers if answer.info.id != self.info.id]
        if self._joining is not None:
            to = self._joining.found(now, answers)
            if to is not None:
                self._port.send(now, to, Kind.JOIN, encode_body(messages.encode_member(self.info)))
        elif self._may_merge() and self.view is not None:
            for answer in answers:
                coordinator = answer.coordinator
                if (
                    answer.is_member
                    and coordinator not in {None, self.info.id}
                    and answer.view_id != self.view.id
                    and self._merging.ask(now, coordinator)
                ):
                    self._port.send(now, coordinator, Kind.MERGE, self._steps())

    def heard(self, now: float, member: MemberId) -> None:
        """Any frame has come from a member."""
        if self._detector.heard(now, member):
            self._act(now)

    def connection_lost(self, now: float, member: MemberId, *, refused: bool) -> None:
        """The connection to a member has ended, or could not be made (`refused`: nobody listens there)."""
        if refused:
            self._detector.confirm(now, member)
            self._act(now)
        else:
            self._detector.verify(now, member)

    def suspect(self, now: float, member: MemberId) -> None:
        """Somebody else says that it may have failed."""
        self._detector.verify(now, member)

    def on_frame(self, now: float, kind: Kind, sender: MemberId, frame: bytes) -> None:
        """A frame of one of membership's kinds, for this member. Raises FrameError."""
        if self.phase in {Phase.IDLE, Phase.LEFT} or sender == self.info.id:
            return
        match kind:
            case Kind.JOIN:
                self._on_join(now, sender, messages.decode_join(frame))
            case Kind.LEAVE:
                self._on_leave(now, sender)
            case Kind.PROPOSE:
                self._on_propose(now, sender, messages.decode_propose(frame))
            case Kind.AGREE:
                self._on_agree(now, sender, messages.decode_agree(frame))
            case Kind.INSTALL:
                self._on_install(now, sender, messages.decode_install(frame))
            case Kind.HEARTBEAT | Kind.ARE_YOU_ALIVE:
                self._on_sign_of_life(now, kind, sender, messages.decode_view_id(frame))
            case Kind.SUSPECT:
                self._on_suspect(now, sender, messages.decode_suspect(frame))
            case Kind.MERGE | Kind.MERGE_AGREE:
                self._on_merge(now, kind, sender, messages.decode_steps(frame))
            case Kind.NOT_A_MEMBER:
                self._on_not_a_member(now, sender, messages.decode_not_a_member(frame))
            case _:
                pass

    @property
    def deadline(self) -> float:
        """When `on_time` is due next."""
        if self.phase in {Phase.IDLE, Phase.LEFT}:
            return math.inf
        if self._joining is not None:
            give_up = self._joining.gives_up_at if self._follower.promise is None else math.inf
            return min(self._joining.find_at, give_up, self._follower.deadline)
        return min(
            self._detector.deadline,
            self._merging.find_at,
            self._merging.follows_until,
            math.inf if self._led_by_another() else self._leader.deadline,
            self._follower.deadline,
            self._tell_at,
            self._leave_at,
            self._left_at,
        )

    def on_time(self, now: float) -> None:
        """The deadline is due."""
        if now >= self._follower.deadline:
            self._follower.on_time(now, self.view, self._history)
        if self._joining is not None:
            self._look_for_group(now)
        elif now >= self._left_at:
            self._end(now)
        elif self.view is not None:
            if now >= self._leave_at:
                self._leave(now)
            self._detector.on_time(now)
            self._merging.on_time(now)
            if now >= self._merging.find_at:
                self._merging.schedule(now)
                self._user.find(now, initial=False)
            self._act(now)

    # Joining and leaving

    def _look_for_group(self, now: float) -> None:
        joining = self._joining
        assert joining is not None
        if now >= joining.gives_up_at and self._follower.promise is None:
            self._merging.alone(now)
            self._install(now, Step((), View(self._leader.next_id(), (self.info,))))
            self._act(now)
        elif now >= joining.find_at:
            joining.find_at = now + self._settings.find_interval
            self._user.find(now, initial=True)

    def _on_join(self, now: float, sender: MemberId, info: MemberInfo) -> None:
        if self.view is None or info.id == self.info.id or self._leader.has_left(now, info.id):
            return
        if sender != info.id and sender not in self.view:
            return  # only members of the view pass on what others ask for
        acting = self._leader.acting(self.view)
        if info.id in self.view:
            if acting == self.info.id and not self._leader.repeat(now, info.id):
                # It has lost its view on the way, and who made that is gone. Only its own word counts.
                if sender == info.id:
                    self._detector.depart(now, info.id)
                    self._act(now)
                else:
                    self._detector.verify(now, info.id)
        elif acting == self.info.id:
            for member in self.view.members:
                if not set(info.addresses).isdisjoint(member.addresses):
                    self._detector.verify(now, member.id)
            self._leader.add_joiner(now, info)
        elif acting is not None and sender == info.id:
            self._port.send(now, acting, Kind.JOIN, encode_body(messages.encode_member(info)))

    def _leave(self, now: float) -> None:
        self._leave_at = now + self._settings.find_interval
        self._port.send_all(now, Kind.LEAVE, encode_body())

    def _on_leave(self, now: float, sender: MemberId) -> None:
        self._leader.gone_for_good(now, sender)
        if self.view is None:
            return
        if sender in self.view:
            self._leader.leaving.add(sender)
            self._act(now)
        elif self.coordinates:
            self._port.send(now, sender, Kind.INSTALL, self._catch_up())

    def _end(self, now: float) -> None:
        self.phase = Phase.LEFT
        self._joining = None
        self._user.left(now)

    # Changes of view, at those who do not lead them

    def _on_propose(self, now: float, sender: MemberId, message: Propose) -> None:
        view = message.view
        if view.id.coordinator != sender or self.info.id not in view:
            return
        if self.phase is Phase.LEAVING:
            self._port.send(now, sender, Kind.LEAVE, encode_body())
            return
        self._follower.on_propose(now, message, self.view, self._history)

    def _on_install(self, now: float, sender: MemberId, message: Install) -> None:
        last = message.steps[-1]
        self._leader.numbers.check(now, last.view.id.number, joins=self.view is None)
        if self.info.id not in last.view:
            if self.phase is Phase.LEAVING:
                self._end(now)
            return
        promise = self._follower.promise
        if promise is not None and promise.view.id > last.view.id:
            return
        if self.view is None or last.view.id > self.view.id:
            self._agreed_to(last)
        if self.view is None:
            if message.baseline is not None:
                self._user.take_baseline(now, message.baseline)
                self._install(now, last, message.baseline)
                self._act(now)
        elif last.view.id > self.view.id:
            path = Pool(message.steps).path(self.info.id, self.view.id)
            for step in path:
                self._agreed_to(step)
            if message.baseline is not None and any(step.view.merged for step in path):
                self._user.take_baseline(now, message.baseline)
            for step in path:
                self._install(now, step, message.baseline if step.view.merged else None)
            if self.view.id == last.view.id:
                self._act(now)
            else:
                # Those have gone on from another view than this member's.
                self._depart(now, sender, last.view.ids)

    def _agreed_to(self, step: Step) -> None:
        if not self._agreements.cover(step.view):
            raise FrameError(f"INSTALL of view {step.view.id}, which this member has not agreed to")

    def _install(self, now: float, step: Step, baseline: bytes | None = None) -> None:
        old, view = self.view, step.view
        self._leader.numbers.raise_to(now, view.id.number, joins=old is None)
        self._agreements.add(view)
        self.view = view
        self._history.add(step)
        self._installed_at = now
        self._baseline = baseline
        self._joining = None
        if self.phase is Phase.JOINING:
            self.phase = Phase.MEMBER
        self._follower.view_installed(view)
        self._user.known(now, view.members)
        self._detector.view_installed(now, view)
        self._merging.coordinates(now, coordinates=self.coordinates)
        self._leader.view_installed(view)
        left = tuple(member for member in old.ids if member not in view) if old is not None else ()
        self._user.view_installed(now, view, left)

    # Changes of view, at who leads them

    def _act(self, now: float) -> None:
        """Do what the one who is to lead the next change of view has to do, or tell that one of suspects."""
        view = self.view
        if view is None or self.phase is Phase.LEFT:
            return
        acting = self._leader.acting(view)
        if acting == self.info.id:
            self._told, self._tell_at = None, math.inf
            if not self._led_by_another():
                self._take(now, self._leader.act(now, view, self._history))
        elif acting is None and self.phase is Phase.LEAVING:
            self._end(now)
        else:
            self._leader.stop()
            self._tell_suspects(now, acting)

    def _led_by_another(self) -> bool:
        """Whether this member's part is about to be merged by the leader of another."""
        merges = self.view is not None and self._follower.merges(self.view)
        return merges or self._merging.follows_until < math.inf

    def _take(self, now: float, steps: tuple[Step, ...]) -> None:
        """Install the views that the leader has found this member to have missed, or its own new one."""
        for step in steps:
            self._install(now, step, self._leader.baseline if step.view.merged else None)
        if steps:
            self._act(now)

    def _tell_suspects(self, now: float, acting: MemberId | None) -> None:
        suspects = frozenset(self._detector.suspects)
        if acting is None or not suspects:
            self._told, self._tell_at = None, math.inf
        elif self._told != (acting, suspects) or now >= self._tell_at:
            self._told, self._tell_at = (acting, suspects), now + self._settings.retell
            self._port.send(now, acting, Kind.SUSPECT, encode_body(list(suspects)))

    def _on_agree(self, now: float, sender: MemberId, agree: Agree) -> None:
        view = self.view
        if view is None:
            return
        if agree.agreed and agree.proposal == view.id:
            self._leader.repeat(now, sender)
            return
        if self._leader.acting(view) == self.info.id and not self._led_by_another():
            self._take(now, self._leader.on_agree(now, sender, agree))
            self._act(now)

    def _on_suspect(self, now: float, sender: MemberId, suspects: Iterable[MemberId]) -> None:
        if self.view is None or sender not in self.view:
            return
        for member in suspects:
            self._detector.verify(now, member)

    # Signs of life, and of other views

    def _on_sign_of_life(self, now: float, kind: Kind, sender: MemberId, theirs: ViewId | None) -> None:
        view = self.view
        if view is None or sender not in view:
            if self._follower.promise is None:
                ids = view.ids if view is not None else ()
                body = messages.encode_not_a_member(NotAMember(view.id if view is not None else None, ids))
                self._port.send(now, sender, Kind.NOT_A_MEMBER, body)
        elif kind is Kind.ARE_YOU_ALIVE:
            self._port.send(now, sender, Kind.ALIVE, messages.encode_view_id(view.id))
        elif theirs is not None and theirs < view.id and now > self._installed_at + 2 * self._settings.resend:
            self._port.send(now, sender, Kind.INSTALL, self._catch_up())

    def _on_not_a_member(self, now: float, sender: MemberId, message: NotAMember) -> None:
        view = self.view
        if view is None or self.info.id in message.members:
            return
        older = message.view is None or message.view < view.id
        if older and now < self._installed_at + self._settings.settle:
            return
        if message.view is not None and Pool(self._history).knows(message.view):
            # It has yet to hear that its part and this one came together.
            self._port.send(now, sender, Kind.INSTALL, self._catch_up())
        else:
            self._depart(now, sender, message.members)

    def _depart(self, now: float, sender: MemberId, members: Iterable[MemberId]) -> None:
        """The sender has another view than this member, by its own word; the others of that view are asked."""
        self._detector.depart(now, sender)
        for member in members:
            if member not in self._detector.departed:
                self._detector.verify(now, member)
        self._merging.alone(now)
        self._act(now)

    def _catch_up(self) -> bytes:
        return messages.encode_install(Install(tuple(self._history), self._baseline))

    # Merging

    def _may_merge(self) -> bool:
        return (
            self.phase is Phase.MEMBER
            and self.view is not None
            and self.coordinates
            and self._leader.acting(self.view) == self.info.id
            and not self._led_by_another()
        )

    def _steps(self) -> bytes:
        return encode_body(messages.encode_steps(self._history))

    def _on_merge(self, now: float, kind: Kind, sender: MemberId, steps: tuple[Step, ...]) -> None:
        other = steps[-1].view
        view = self.view
        if view is None or not self._may_merge() or other.id == view.id or other.ids[0] != sender:
            return
        if kind is Kind.MERGE_AGREE and not self._merging.asked(now, sender):
            return
        self._leader.numbers.raise_to(now, other.id.number, joins=False)
        self._user.known(now, (other.coordinator,))
        if not set(view.ids).isdisjoint(other.ids):
            body = messages.encode_not_a_member(NotAMember(view.id, view.ids))
            self._port.send(now, sender, Kind.NOT_A_MEMBER, body)
        elif kind is Kind.MERGE_AGREE or leads(view, other):
            self._merging.add(sender, steps)
            self._leader.bundle(now)
        elif self._merging.follow(now, sender):
            self._leader.abort()
            self._port.send(now, sender, Kind.MERGE_AGREE, self._steps())
