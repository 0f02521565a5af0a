"""A receiver that wants the state first: it is asked for, and what is multicast meanwhile is held back.

The state comes with the positions that it contains. What was held back up to them is dropped; the rest follows the
state. From the first message that was held back on, this member has everything; whoever gives the state has at least
what this member had before (`Ask.positions`); so the receiver gets each message once, in the state or behind it.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import ref

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.terms import Condition
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.identity import MemberId
from isthmus_router.message.rewriting import Annotation, annotated
from isthmus_router.message.sections import SectionError
from isthmus_router.sites.port import SiteMember, SitePort
from isthmus_router.sites.receivers import Receivers
from isthmus_router.sites.silence import when_silent
from isthmus_router.sites.state_giver import ANSWER_SECONDS
from isthmus_router.sites.state_messages import (
    MOST_PART_BYTES,
    REQUEST_BYTES,
    STATE,
    Ask,
    No,
    Part,
    Positions,
    encode_state,
)

MEMBER_SECONDS = ANSWER_SECONDS + 3.0
"""For a member to say anything; then the next one is asked."""
ALL_SECONDS = 60.0
MOST_HELD = 200_000
MOST_HELD_BYTES = 64 * 1024 * 1024
"""Of messages held back for one receiver."""
MOST_STATE_BYTES = MOST_PART_BYTES
MOST_PARTS = 200_000
"""Messages of a state."""
MOST_ASKING = 64
"""Receivers of this member that wait for the state at the same time."""
TURN_SECONDS = 0.005
TURN_MESSAGES = 1_000
"""Given to a receiver for which fewer than so many wait."""
AT_ONCE = 10
"""Messages made ready between two looks at how much of a turn is left."""
_REASONS = 5
_MORE, _LAST = Annotation("x-opt-isthmus.state", "more"), Annotation("x-opt-isthmus.state", "last")


@dataclass(slots=True)
class _Held:
    origin: MemberId | None
    """None: not of a stream (the state itself, or that messages are lost)."""
    number: int
    payloads: list[bytes]


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Asking:
    link: Link
    address: Address
    candidates: deque[SiteMember] = field(default_factory=deque)
    asked: SiteMember | None = None
    request: bytes = b""
    """Of this attempt; what belongs to another one does not count."""
    before: Positions = field(default_factory=dict)
    """What was delivered here when it was asked."""
    held: deque[_Held] = field(default_factory=deque)
    held_messages: int = 0
    held_bytes: int = 0
    begun: dict[MemberId, int] = field(default_factory=dict)
    """Of streams that are not in `before`, the first number that was held back."""
    parts: list[bytes] = field(default_factory=list)
    part_bytes: int = 0
    reasons: list[str] = field(default_factory=list)

    def count(self, payloads: list[bytes], sign: int) -> None:
        """These are held back, or no more."""
        self.held_messages += sign * len(payloads)
        self.held_bytes += sign * sum(map(len, payloads))

    def has_hole(self, positions: Positions) -> bool:
        """Whether a stream that was unknown here when the state was asked for has begun behind what it contains."""
        return any(number > positions.get(origin, 0) + 1 for origin, number in self.begun.items())


class StateTaker:
    """At one member, for applications attached to it."""

    def __init__(
        self,
        site: SitePort,
        receivers: Receivers,
        members: Callable[[], Sequence[SiteMember]],
        later: CallLater,
        work: Callable[[Iterator[None]], None],
    ) -> None:
        """`members`: who may be asked, in this order. `work` carries out what takes long in steps."""
        self.asking: dict[Link, _Asking] = {}
        """Receivers that get nothing directly as yet."""
        self._site = site
        self._receivers = receivers
        self._members = members
        self._later = later
        self._work = work

    def begin(self, link: Link, address: Address) -> None:
        """A receiver has attached that wants the state."""
        asking = self.asking[link] = _Asking(link, address)
        if len(self.asking) > MOST_ASKING:
            self._later(0.0, partial(self._fail, asking, f"{MOST_ASKING} receivers wait for the state here"))
        else:
            self._later(0.0, partial(self._start, asking))
            self._later(ALL_SECONDS, partial(self._too_long, ref(asking)))

    def close(self) -> None:
        """Nobody can be asked any more."""
        for asking in list(self.asking.values()):
            self._fail(asking, "this router has left the group")

    def link_gone(self, link: Link) -> None:
        """A receiver is gone."""
        self.asking.pop(link, None)

    def hold(
        self,
        address: Address,
        origin: MemberId | None,
        number: int,
        payloads: list[bytes],
        links: Collection[Link],
    ) -> None:
        """These would go to these receivers of the address now."""
        for asking in list(self.asking.values()):
            if asking.address is not address or asking.link not in links:
                continue
            asking.held.append(_Held(origin, number, payloads))
            asking.count(payloads, 1)
            if origin is not None and origin not in asking.before:
                asking.begun.setdefault(origin, number)
            if asking.held_messages > MOST_HELD or asking.held_bytes > MOST_HELD_BYTES:
                reason = "Too many messages wait behind the state; attach again"
                self._detach(asking, Condition("amqp:resource-limit-exceeded", reason))

    def refused(self, sender: SiteMember, answer: No) -> None:
        """A member cannot give it."""
        asking = self._of(sender, answer.request)
        if asking is not None:
            self._next(asking, answer.reason)

    def part(self, sender: SiteMember, part: Part) -> None:
        """A member gives a message of it."""
        asking = self._of(sender, part.request)
        if asking is None:
            return
        asking.parts.append(part.payload)
        asking.part_bytes += len(part.payload)
        if asking.part_bytes > MOST_STATE_BYTES or len(asking.parts) > MOST_PARTS:
            reason = f"The state has more than {MOST_STATE_BYTES} bytes, or {MOST_PARTS} messages"
            self._detach(asking, Condition("amqp:resource-limit-exceeded", reason))
        elif part.last and asking.has_hole(part.positions):
            self._start(asking)
        elif part.last:
            asking.asked = None
            self._work(self._take(asking, part.positions))

    def members_changed(self) -> None:
        """Whoever is asked may be gone."""
        present = {member.id for member in self._members()}
        for asking in list(self.asking.values()):
            if asking.asked is not None and asking.asked.id not in present:
                self._next(asking, "it has gone")

    # Within

    def _start(self, asking: _Asking) -> None:
        """Ask everybody in turn."""
        if self.asking.get(asking.link) is not asking:
            return
        asking.held.clear()
        asking.begun.clear()
        asking.held_messages = asking.held_bytes = 0
        asking.before = self._site.positions()
        asking.candidates = deque(self._members())
        asking.reasons.clear()
        self._next(asking, "")

    def _next(self, asking: _Asking, reason: str) -> None:
        """Ask the next member, as there is nothing from the one before."""
        if reason and asking.asked is not None:
            asking.reasons.append(f"{asking.asked.label}: {reason}")
        asking.parts.clear()
        asking.part_bytes = 0
        if not asking.candidates:
            asking.asked = None
            more = len(asking.reasons) - _REASONS
            told = "; ".join(asking.reasons[:_REASONS]) + (f"; and {more} more" if more > 0 else "")
            self._fail(asking, told)
            return
        asking.asked = asking.candidates.popleft()
        asking.request = secrets.token_bytes(REQUEST_BYTES)
        self._await(asking)
        ask = encode_state(Ask(asking.request, asking.before))
        self._site.send_to(asking.asked.id, GroupMessage(STATE, ask), None)

    def _await(self, asking: _Asking) -> None:
        parts = partial(self._parts, ref(asking), asking.request)
        when_silent(self._later, MEMBER_SECONDS, parts, partial(self._overdue, ref(asking)))

    def _parts(self, of: ref[_Asking], request: bytes) -> int | None:
        asking = self._waiting(of)
        return len(asking.parts) if asking is not None and asking.request == request else None

    def _overdue(self, of: ref[_Asking]) -> None:
        asking = self._waiting(of)
        if asking is not None:
            self._next(asking, f"nothing came within {MEMBER_SECONDS:g} s")

    def _too_long(self, of: ref[_Asking]) -> None:
        asking = self._waiting(of)
        if asking is not None:
            self._fail(asking, f"nobody gave it within {ALL_SECONDS:g} s")

    def _waiting(self, of: ref[_Asking]) -> _Asking | None:
        """Timers do not hold what a receiver waits for, which may be much, and the receiver gone."""
        asking = of()
        if asking is None or asking.asked is None or self.asking.get(asking.link) is not asking:
            return None
        return asking

    def _of(self, sender: SiteMember, request: bytes) -> _Asking | None:
        for asking in self.asking.values():
            if asking.asked is not None and asking.asked.id == sender.id and asking.request == request:
                return asking
        return None

    def _take(self, asking: _Asking, positions: Positions) -> Iterator[None]:
        """The state is here: it is given first, then what it does not contain."""
        parts, asking.parts = asking.parts, []
        ready: deque[_Held] = deque()
        messages, size = len(parts), 0
        for start in range(0, len(parts), AT_ONCE):
            payloads = [_marked(payload, _MORE) for payload in parts[start : start + AT_ONCE]]
            if start + AT_ONCE >= len(parts):
                payloads[-1] = _marked(parts[-1], _LAST)
            ready.append(_Held(None, 0, payloads))
            size += sum(map(len, payloads))
            yield
            if self.asking.get(asking.link) is not asking:
                return
        behind: deque[_Held] = deque()
        while asking.held:
            for held in [asking.held.popleft() for _ in range(min(AT_ONCE, len(asking.held)))]:
                if held.origin is None or held.number > positions.get(held.origin, 0):
                    behind.append(held)
                else:
                    asking.count(held.payloads, -1)
            yield
            if self.asking.get(asking.link) is not asking:
                return
        asking.held = ready + behind
        asking.held_messages += messages
        asking.held_bytes += size
        self._give(asking)

    def _give(self, asking: _Asking) -> None:
        """As much as the receiver takes; when nothing is left, it gets the rest directly."""
        if self.asking.get(asking.link) is not asking:
            return
        given: list[bytes] = []
        while asking.held and asking.link.waiting + len(given) < TURN_MESSAGES:
            payloads = asking.held.popleft().payloads
            given += payloads
            asking.count(payloads, -1)
        if not asking.held:
            del self.asking[asking.link]
        else:
            self._later(TURN_SECONDS, partial(self._give, asking))
        self._receivers.give(asking.address, given, [asking.link])

    def _fail(self, asking: _Asking, told: str) -> None:
        reason = f"No application gives the state: {told or 'there is no other member'}"
        self._detach(asking, Condition("amqp:not-found", reason))

    def _detach(self, asking: _Asking, condition: Condition) -> None:
        if self.asking.pop(asking.link, None) is not None:
            self._receivers.detach(asking.link, condition)


def _marked(payload: bytes, annotation: Annotation) -> bytes:
    try:
        return annotated(payload, annotation, None)
    except SectionError:
        return payload
