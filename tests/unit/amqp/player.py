"""A peer of a `Rig` that keeps to the rules, frame by frame: windows, credit, handles. A frame that it has not allowed
fails the test.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.integration.support.raw import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    TRANSFER,
    Arrived,
    _any_frame,
    frame,
)
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig

from isthmus_router.core.roles import Role
from isthmus_router.message.types import Described, UInt, ULong, UShort

LARGE = UInt(2**30)
FRAME = 16_000
MOST_LINKS = 99
ACCEPTED = Described(ULong(0x24), [])


class Link:
    """As one peer has it; `theirs` is the handle of the router, while the router has it attached."""

    def __init__(self, session: Session, handle: int, name: str, *, sender: bool) -> None:
        self.session, self.handle, self.name, self.sender = session, handle, name, sender
        self.theirs: int | None = None
        self.answered = False
        self.count = self.limit = self.left = self.number = 0


class Session:
    """As one peer has it: frames that have come and may come, and those that it has sent and may send."""

    def __init__(self, channel: int, allowed: int) -> None:
        self.channel, self.allowed = channel, allowed
        self.links: dict[int, Link] = {}
        self.came = self.out = self.until = self.deliveries = 0
        self.unsettled: list[int] = []
        self.gone: list[Link] = []
        """Detached by this end, and not yet by the router."""
        self.is_begun = False

    def link(self, theirs: int) -> Link:
        """The one with such a handle of the router's."""
        return next(link for link in [*self.links.values(), *self.gone] if link.theirs == theirs)

    def window(self) -> list[Any]:
        return [UInt(self.came), UInt(self.allowed - self.came), UInt(self.out), LARGE]


class Player(RawPeer):
    """A client or a container that keeps to the windows and the credit of the router."""

    def __init__(self, rig: Rig, name: str, role: Role, chance: random.Random) -> None:
        self.chance, self.is_paused = chance, False
        self.sessions: dict[int, Session] = {}
        self.theirs: dict[int, Session] = {}
        self.attaches: list[Callable[[], None]] = []
        self.detaches: list[Callable[[], None]] = []
        """Answers to attaches and detaches that it owes."""
        self._unread = b""
        super().__init__(rig, name, role, max_session_frames=chance.choice((2, 4, 8)), link_capacity=5)

    def begin(self, channel: int, answers: int | None = None) -> None:
        session = self.sessions[channel] = Session(channel, self.chance.choice((1, 2, 4, 1000)))
        named = None if answers is None else UShort(answers)
        self.say(
            frame(BEGIN, [named, UInt(0), UInt(session.allowed), LARGE, UInt(MOST_LINKS)], channel=channel)
        )

    def turn(self) -> bool:
        moved = self._say()
        try:
            while not self.is_paused:
                self._unread += self.socket.recv(1 << 16)
                moved = True
                assert self._unread, self.router_side.close_reason
        except BlockingIOError:
            pass
        while len(self._unread) >= 8:
            size = 8 if self._unread.startswith(b"AMQP") else int.from_bytes(self._unread[:4])
            if len(self._unread) < size:
                break
            if size > 8:
                self._take(_any_frame(self._unread[:size]))
            self._unread = self._unread[size:]
        return moved

    def _take(self, one: Arrived) -> None:
        if one.code == BEGIN:
            channel = one.field(0)
            if channel is None:
                channel = next(number for number in range(10, 99) if number not in self.sessions)
                self.begin(channel, one.channel)
            session = self.theirs[one.channel] = self.sessions[channel]
            session.is_begun, session.until = True, one.field(2)
        elif one.code == FLOW and one.field(4) is not None and one.field(4) > MOST_LINKS:
            raise AssertionError("the router has no link with the handle of a flow frame")
        elif one.code == END:
            session = self.theirs.pop(one.channel)
            if self.sessions.get(session.channel) is session:
                self.leave_session(session)
        elif one.code not in {OPEN, DISPOSITION} and self.has(self.theirs[one.channel]):
            takers = {FLOW: self._flow, TRANSFER: self._transfer, ATTACH: self._attach, DETACH: self._detach}
            takers[one.code](self.theirs[one.channel], one)

    def _attach(self, session: Session, one: Arrived) -> None:
        link = next((link for link in session.links.values() if link.name == one.field(0)), None)
        if link is None:
            handle = next(number for number in range(MOST_LINKS) if number not in session.links)
            link = session.links[handle] = Link(session, handle, one.field(0), sender=one.field(2))
            self.attaches.append(partial(self.answer, link))
        link.theirs = one.field(1)

    def _detach(self, session: Session, one: Arrived) -> None:
        link = session.link(one.field(0))
        link.theirs, link.left = None, 0
        if link in session.gone:
            session.gone.remove(link)
        self.detaches.append(partial(self.leave, link))

    def _flow(self, session: Session, one: Arrived) -> None:
        session.until = (one.field(0) or 0) + one.field(1)
        assert session.until >= session.out
        if one.field(4) is not None:
            link = session.link(one.field(4))
            if link.sender:
                link.limit = (one.field(5) or 0) + one.field(6)
            else:
                link.count = one.field(5)

    def _transfer(self, session: Session, one: Arrived) -> None:
        session.came += 1
        assert session.came <= session.allowed
        link = session.link(one.field(0))
        if not one.field(5):
            link.count += 1
            session.unsettled.append(one.field(1) if one.field(1) is not None else session.unsettled[-1] + 1)

    def answer(self, link: Link) -> None:
        if not link.answered and link.session.links.get(link.handle) is link and self.has(link.session):
            self.attach_link(link, "b2.c")

    def has(self, session: Session) -> bool:
        return self.sessions.get(session.channel) is session

    def attach_link(self, link: Link, address: str) -> None:
        link.answered = True
        source, target = (None, address) if link.sender else (address, None)
        termini = [Described(ULong(0x28), [source]), Described(ULong(0x29), [target])]
        fields = [link.name, UInt(link.handle), not link.sender, None, None, *termini, None, None, UInt(0)]
        self.say(frame(ATTACH, fields, channel=link.session.channel))

    def add(self, session: Session, address: str, *, sender: bool) -> Link:
        handle = next(number for number in range(MOST_LINKS) if number not in session.links)
        self._names += 1
        link = session.links[handle] = Link(session, handle, f"{self.name} {self._names}", sender=sender)
        self.attach_link(link, address)
        return link

    def leave(self, link: Link) -> None:
        if self.has(link.session) and link.session.links.get(link.handle) is link:
            self.answer(link)
            self.say(frame(DETACH, [UInt(link.handle), True], channel=link.session.channel))
            link.left = 0
            del link.session.links[link.handle]
            if link.theirs is not None:
                link.session.gone.append(link)

    def leave_session(self, session: Session) -> None:
        del self.sessions[session.channel]
        self.end(session.channel)

    def all_links(self) -> list[Link]:
        """Links that both ends have attached."""
        return [
            link
            for session in self.sessions.values()
            for link in session.links.values()
            if link.theirs is not None and link.answered
        ]

    def can_send(self, link: Link) -> bool:
        """A frame; not in the middle of another message of the session."""
        session = link.session
        begins = link.limit > link.count and not any(other.left for other in session.links.values())
        return link.sender and session.out < session.until and bool(link.left or begins)

    def send(self, link: Link, size: int, *, abort: bool = False) -> None:
        """A frame of the message that has begun, or the first of one of `size` bytes."""
        session, head = link.session, b""
        if not link.left:
            link.left, link.number, head = size, session.deliveries, b"\x00\x53\x75\xb0" + size.to_bytes(4)
            session.deliveries += 1
            link.count += 1
        payload = b"" if abort else bytes(min(link.left, FRAME))
        link.left = 0 if abort else link.left - len(payload)
        session.out += 1
        tag = str(link.number).encode()
        fields = [
            UInt(link.handle),
            UInt(link.number),
            tag,
            UInt(0),
            False,
            link.left > 0,
            None,
            None,
            None,
            abort,
        ]
        self.say(frame(TRANSFER, fields, head + payload, channel=session.channel))

    def allow(self, session: Session, frames: int) -> None:
        """Let so many frames in."""
        session.allowed = max(session.allowed, session.came + frames)
        self.say(frame(FLOW, session.window(), channel=session.channel))

    def give(self, link: Link, credit: int, *, drain: bool = False) -> None:
        fields = [*link.session.window(), UInt(link.handle), UInt(link.count), UInt(credit), None, drain]
        self.say(frame(FLOW, fields, channel=link.session.channel))

    def settle(self, session: Session) -> None:
        """Accept what has come."""
        for number in session.unsettled:
            fields = [True, UInt(number), UInt(number), True, ACCEPTED]
            self.say(frame(DISPOSITION, fields, channel=session.channel))
        session.unsettled.clear()
