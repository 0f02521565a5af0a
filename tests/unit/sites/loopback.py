"""A group of one member, moved by a test; and clients of its router that keep what they get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proton import Message
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.identity import MemberId
from isthmus_router.sites.face import RelayFace
from isthmus_router.sites.port import FaceSettings, SiteMember

A = SiteMember(MemberId(b"A" * 16), "nyc", "A")
B = SiteMember(MemberId(b"B" * 16), "nyc", "B")
D = SiteMember(MemberId(b"D" * 16), "sfo", "D")
EVERYBODY = (A, B, D)


class LoopbackSite:
    """The member A: what it is given stays here until the test goes on with it."""

    def __init__(self) -> None:
        self.room = 1 << 20
        self.published: list[tuple[list[GroupMessage], object | None]] = []
        self.sent: list[tuple[MemberId, GroupMessage, object | None]] = []
        self.face: RelayFace | None = None
        self.delivered: dict[MemberId, int] = {}
        self.contacts = {"nyc", "sfo"}
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def positions(self) -> dict[MemberId, int]:
        return dict(self.delivered)

    def awaits(self, origin: MemberId) -> bool:
        return origin in self.delivered

    def in_contact(self, site: str) -> bool:
        return site in self.contacts

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append((seconds, callback))

    def pass_time(self, seconds: float) -> None:
        """What is due by then is called; what that puts off as well."""
        while due := min(
            (each for each in self.timers if each[0] <= seconds), key=lambda t: t[0], default=None
        ):
            self.timers.remove(due)
            at, callback = due
            before, self.timers = self.timers, []
            callback()
            self.timers = before + [(at + more, call) for more, call in self.timers]
        self.timers = [(at - seconds, call) for at, call in self.timers]

    def publish(self, messages: Sequence[GroupMessage], token: object | None) -> None:
        self.published.append((list(messages), token))

    def send_to(
        self, member: MemberId, message: GroupMessage, token: object | None, source: object = None
    ) -> None:
        self.sent.append((member, message, token))

    def answer(self, member: MemberId, message: GroupMessage) -> None:
        self.send_to(member, message, None)

    def texts(self) -> list[str]:
        """Bodies of all that was published."""
        return [body(message.payload) for messages, _ in self.published for message in messages]

    def protect(self) -> None:
        """All that was published or sent is safe."""
        assert self.face is not None
        tokens = [token for *_, token in (*self.published, *self.sent) if token is not None]
        self.published, self.sent = [(messages, None) for messages, _ in self.published], []
        for token in tokens:
            self.face.protected(token)

    def fail(self, outcome: Outcome) -> None:
        """Nothing that was sent to one got there."""
        assert self.face is not None
        for _, _, token in self.sent:
            if token is not None:
                self.face.failed(token, outcome)
        self.sent = []


def body(payload: bytes) -> str:
    """Of an encoded message."""
    message = Message()
    message.decode(payload)
    return str(message.body)


class Client(Peer):
    """A client of the router; `got` has the messages of each receiver by its name."""

    def __init__(self, rig: Rig, name: str, role: Role = Role.NORMAL, **settings: Any) -> None:
        super().__init__(rig, name, role, **settings)
        rig.peers.append(self)
        self.got: dict[str, list[Message]] = {}
        self._numbers = 0

    def _read(self, link: Any) -> None:
        while (delivery := link.current) is not None and not delivery.partial:
            message = Message()
            message.decode(link.recv(delivery.pending))
            self.got.setdefault(link.name, []).append(message)
            link.advance()
            if link.name.startswith("settles"):
                delivery.update(delivery.ACCEPTED)
                delivery.settle()

    def texts(self, receiver: str) -> list[str]:
        """Bodies of what a receiver got."""
        return [str(message.body) for message in self.got.get(receiver, [])]

    def receiver(self, name: str, address: str, *, credit: int = 1000, gaps: bool = False) -> Any:
        """Attached when the rig has settled down."""
        link = self.session.receiver(name)
        link.source.address = address
        if gaps:
            link.source.capabilities.put_array(False, link.source.capabilities.SYMBOL)
            link.source.capabilities.enter()
            link.source.capabilities.put_symbol("isthmus.relay-gaps")
            link.source.capabilities.exit()
        link.open()
        link.flow(credit)
        self.rig.settle_down()
        return link

    def sender(self, address: str | None, *, name: str = "s") -> Any:
        """Attached, with credit if there is somebody."""
        link = self.session.sender(name)
        if address is not None:
            link.target.address = address
        link.open()
        self.rig.settle_down()
        return link

    def send(self, link: Any, message: Message | str, *, settled: bool = False) -> Any:
        """One delivery; it leaves when the rig moves on."""
        if isinstance(message, str):
            message = Message(body=message)
        self._numbers += 1
        delivery = link.delivery(f"{self.container}-{self._numbers}")
        link.send(message.encode())
        link.advance()
        if settled:
            delivery.settle()
        return delivery

    @property
    def container(self) -> str:
        """Its name."""
        return str(self.connection.container)


def member_of(rig: Rig, **settings: Any) -> tuple[LoopbackSite, RelayFace]:
    """The rig's router is member A of group trades."""
    site = LoopbackSite()
    site.face = RelayFace(rig.core, FaceSettings("trades", A, **settings), site, site.later)
    site.face.members_changed(EVERYBODY)
    return site, site.face
