"""A routed link through one router in memory, between two ends that speak proton and do only what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cproton import pn_data_clear, pn_delivery_local, pn_disposition_annotations, pn_disposition_data
from proton import Condition, Delivery, Endpoint, Event, Link
from tests.unit.amqp.rig import Peer, Rig

from isthmus_router.config.model import LinkRouteConfig, LinkRouteDirection
from isthmus_router.core import model
from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting, Routed
from isthmus_router.message.types import decode

LINK_ROUTE = LinkRouteConfig(
    name=None,
    prefix="b2",
    pattern=None,
    direction=LinkRouteDirection.BOTH,
    container_id="shelf",
    connection=None,
    distribution="linkBalanced",
    add_external_prefix=None,
    del_external_prefix=None,
)
EXTENSION = 0x34
"""A state that is not one of the core's."""


class OwnEnd(Peer):
    """Answers what the router begins and attaches; everything else is left to the test."""

    def __init__(
        self, rig: Rig, name: str, role: Role, *, capacity: int = 0, frame: int = 0, **settings: Any
    ) -> None:
        """`capacity` of the sessions in bytes, largest `frame` that it takes; 0: the engine's."""
        super().__init__(rig, name, role, **settings)
        self.capacity = capacity
        if frame:
            self.transport.max_frame_size = frame
        self.begin(self.session)
        self.attached: list[Link] = []
        """By the router."""
        self.over: dict[str, Condition | None] = {}
        """Links that the router has detached, with what it said."""

    def begin(self, session: Any) -> None:
        """Open a session, or answer that it is open."""
        if self.capacity:
            session.incoming_capacity = self.capacity
        session.open()

    def accept(self, link: Link) -> None:
        """Answer the attach of a link."""
        answer(link)

    def detached(self, link: Link) -> None:
        """Note what the router has said at the end of a link."""
        self.over[link.name] = link.remote_condition

    def _events(self) -> None:
        while (event := self.collector.peek()) is not None:
            if event.type == Event.SESSION_REMOTE_OPEN and event.session.state & Endpoint.LOCAL_UNINIT:
                self.begin(event.session)
            elif event.type == Event.LINK_REMOTE_OPEN and event.link.state & Endpoint.LOCAL_UNINIT:
                self.attached.append(event.link)
                self.accept(event.link)
            elif event.type in (Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH):
                self.detached(event.link)
                if event.type == Event.LINK_REMOTE_CLOSE:
                    event.link.close()
                else:
                    event.link.detach()
            elif event.type == Event.SESSION_REMOTE_CLOSE:
                event.session.close()
            self.collector.pop()


def performatives(heard: bytes, code: int) -> Iterator[list[Any]]:
    """The fields of each frame of a kind in what a peer has heard."""
    at = 0
    while at + 8 <= len(heard):
        if heard[at : at + 4] == b"AMQP":
            at += 8
            continue
        size, offset = int.from_bytes(heard[at : at + 4]), heard[at + 4] * 4
        if heard[at + 5] == 0 and size > offset and heard[at + offset + 2] == code:
            described: Any = decode(heard, at + offset)[0]
            yield described.value
        at += size


def answer(link: Link) -> None:
    """As the peer has attached it."""
    link.source.copy(link.remote_source)
    link.target.copy(link.remote_target)
    link.snd_settle_mode, link.rcv_settle_mode = link.remote_snd_settle_mode, link.remote_rcv_settle_mode
    link.open()


@dataclass
class Known:
    """A delivery as one end knows it."""

    delivery: Any
    """None once this end has settled it: the engine's own books are wrong while anyone refers to one that is done."""
    tag: str
    data: bytes = b""
    complete: bool = False
    state: Any = None
    """What this end has said."""

    @property
    def settled(self) -> bool:
        """Whether this end has settled it."""
        return self.delivery is None

    def settle(self) -> None:
        """This end knows no more of it."""
        self.delivery.settle()
        self.delivery = None


def said(disposition: Any) -> Any:
    """A state with its details, in a form that can be compared."""
    kind = int(disposition.type)
    if kind == Delivery.RECEIVED:
        return kind, disposition.section_number, disposition.section_offset
    if kind == Delivery.REJECTED:
        condition = disposition.condition
        return kind, condition and (condition.name, condition.description, condition.info)
    if kind == Delivery.MODIFIED:
        return kind, disposition.failed, disposition.undeliverable, disposition.annotations
    if kind == EXTENSION:
        return kind, disposition.data
    return (kind,)


def say(delivery: Delivery, kind: int, detail: int) -> Any:
    """Give a delivery a state; `said` of it."""
    local = delivery.local
    said_before = pn_delivery_local(delivery._impl)
    pn_data_clear(pn_disposition_data(said_before))  # the binding would put further data after it
    pn_data_clear(pn_disposition_annotations(said_before))
    if kind == Delivery.RECEIVED:
        local.section_number, local.section_offset = detail, detail << 33
    elif kind == Delivery.REJECTED:
        local.condition = Condition("test:reason", f"for {detail}")
    elif kind == Delivery.MODIFIED:
        local.failed, local.undeliverable = bool(detail & 1), bool(detail & 2)
        local.annotations = {"detail": detail}
    elif kind == EXTENSION:
        local.data = [f"transaction {detail}"]
    delivery.update(kind)
    if kind == Delivery.RECEIVED:
        return kind, detail, detail << 33
    if kind == Delivery.REJECTED:
        return kind, ("test:reason", f"for {detail}", None)
    if kind == Delivery.MODIFIED:
        return kind, bool(detail & 1), bool(detail & 2), {"detail": detail}
    if kind == EXTENSION:
        return kind, [f"transaction {detail}"]
    return (kind,)


@dataclass
class Bridge:
    """A sender and a receiver, attached to each other by way of a router."""

    compiled: bool
    client_sends: bool = True
    frame: int = 0
    """Largest frame that anyone takes."""
    window: int = 0
    """Frames of that size that a session holds unread."""
    number: int = 0
    sent: list[Known] = field(default_factory=list)
    got: list[Known] = field(default_factory=list)
    gone: int = 0
    """Deliveries that the sender has aborted."""

    def __post_init__(self) -> None:
        self.rig = Rig(compiled=self.compiled)
        self.routing = LinkRouting(self.rig.core, lambda: 0.0, lambda *_: None)
        self.routing.configure([LINK_ROUTE])
        settings: dict[str, Any] = {}
        if self.frame:
            settings = {
                "frame": self.frame,
                "capacity": self.frame * self.window,
                "max_frame_size": self.frame,
                "max_session_frames": self.window,
            }
        self.client = OwnEnd(self.rig, "client", Role.NORMAL, **settings)
        self.container = OwnEnd(self.rig, "shelf", Role.ROUTE_CONTAINER, **settings)
        self.rig.peers += [self.client, self.container]
        self.rig.settle_down()
        self.join("mine")

    def join(self, name: str) -> None:
        """The client attaches a link, and the container answers."""
        attach = self.client.session.sender if self.client_sends else self.client.session.receiver
        link = attach(name)
        (link.target if self.client_sends else link.source).address = "b2.orders"
        link.open()
        self.rig.settle_down()
        other = self.container.attached[-1]
        self.sender, self.receiver = (link, other) if self.client_sends else (other, link)
        self.sending, self.receiving = (
            (self.client, self.container) if self.client_sends else (self.container, self.client)
        )
        self.routed: Routed = next(iter(self.routing.routed.values()))
        self.into, self.out = (
            (self.routed.near, self.routed.far) if self.client_sends else (self.routed.far, self.routed.near)
        )

    @property
    def halves(self) -> tuple[model.Link, model.Link]:
        """IN and OUT."""
        return self.into, self.out

    # What the sender does

    def send(self, size: int, *, settled: bool = False, state: int | None = None) -> None:
        """A whole delivery, if there is credit and none is under way."""
        if self.begin(size, state=state):
            self.finish(0, settled=settled)

    @property
    def open(self) -> Known | None:
        """The delivery that is being sent."""
        last = self.sent[-1] if self.sent else None
        return None if last is None or last.complete else last

    def begin(self, size: int, *, state: int | None = None) -> bool:
        """The first part of a delivery."""
        if self.open is not None or self.sender.credit <= 0:
            return False
        self.number += 1
        delivery = self.sender.delivery(f"tag {self.number}")
        self.sent.append(Known(delivery, delivery.tag))
        if state is not None:
            self.sent[-1].state = say(delivery, state, self.number)
        self.more(size)
        return True

    def more(self, size: int) -> None:
        """A further part."""
        if (sent := self.open) is not None and size:
            data = bytes((self.number + at) % 251 for at in range(min(size, 64))) * (size // 64 + 1)
            sent.data += data[:size]
            self.sender.send(data[:size])

    def finish(self, size: int, *, settled: bool = False) -> None:
        """The last part."""
        if (sent := self.open) is not None:
            self.more(size)
            self.sender.advance()
            sent.complete = True
            if settled:
                sent.settle()

    def abort(self) -> None:
        """No further part."""
        if self.open is not None:
            self.sent.pop().delivery.abort()
            self.gone += 1

    # What both do

    def read(self) -> None:
        """The receiver takes all that has come."""
        while (delivery := self.receiver.current) is not None:
            if not self.got or self.got[-1].complete:
                self.got.append(Known(delivery, delivery.tag))
            got = self.got[-1]
            if delivery.aborted:
                self.got.pop()
                self.receiver.advance()
                delivery.settle()
                continue
            if delivery.pending:
                got.data += self.receiver.recv(delivery.pending) or b""
            if delivery.partial:
                return
            got.complete = True
            self.receiver.advance()

    def say(self, which: int, kind: int | None, *, by_sender: bool, settle: bool) -> None:
        """Give a delivery a state, or none, and settle it or not."""
        items = [item for item in (self.sent if by_sender else self.got) if not item.settled]
        if settle:
            items = [item for item in items if item.complete]
        if not items:
            return
        item = items[which % len(items)]
        if kind is not None:
            if by_sender and item.tag not in {got.tag for got in self.got if got.complete}:
                return  # the engine reads no states in transfers, but for the first one
            self.number += 1
            item.state = say(item.delivery, kind, self.number)
        if settle:
            item.settle()

    def drained(self) -> None:
        """The sender gives back what is asked back; the engine would forget it with messages left to be sent."""
        if self.sender.drain_mode and not self.sender.queued and self.open is None:
            self.sender.drained()

    def move(self, who: str) -> None:
        """One end says what it has to say, and hears what there is to hear."""
        (self.sending if who == "sender" else self.receiving).turn()

    def quiet(self) -> None:
        """Until nobody has any more to say; the receiver reads, the sender drains."""
        for _ in range(10_000):
            self.rig.settle_down()
            self.read()
            self.drained()
            if not sum(peer.turn() for peer in self.rig.peers):
                return
        raise AssertionError("it never comes to rest")

    def close(self) -> None:
        """Give everything back."""
        self.rig.close()
