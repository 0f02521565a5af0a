"""Clients and containers at the ends of a network in memory, and the ends of its connections."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from isthmus_router.core.model import Connection
from isthmus_router.core.terms import Condition, Direction, Terminus

if TYPE_CHECKING:
    from tests.unit.linkroute.network import Network, Router

IN, OUT = Direction.IN, Direction.OUT
ABSENT = Terminus(absent=True)


@dataclass(eq=False)
class End:
    """One end of a connection; `inbox` is what the other end has sent."""

    node: Router | Peer
    connection: Connection | None = None
    """The router's view of it; None at the ends of clients and containers."""
    inbox: deque[tuple[Any, ...]] = field(default_factory=deque)
    links: dict[int, Any] = field(default_factory=dict)
    """What is attached on it, as this end knows it."""
    broken: bool = False
    other: End = field(init=False)

    def send(self, what: str, *details: Any) -> None:
        """Queue a frame for the other end."""
        if not self.other.broken:
            self.other.inbox.append((what, *details))


@dataclass(eq=False)
class PeerLink:
    """A link as a client or a container knows it."""

    end: End
    number: int
    name: str
    sends: bool
    source: Terminus
    target: Terminus
    answered: bool = False
    told: bool = False
    heard: bool = False
    condition: Condition | None = None
    """What the other end has said in its detach."""
    credit: int = 0
    """Granted and not used."""
    deliveries: int = 0
    unsettled: dict[int, None] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)

    @property
    def peer(self) -> Peer:
        """Whose link it is."""
        assert isinstance(self.end.node, Peer)
        return self.end.node

    address: str | None = field(init=False)
    """Of the node that it was attached to."""

    def __post_init__(self) -> None:
        self.address = self.target.address or self.source.address

    @property
    def attached(self) -> bool:
        """By both ends."""
        return self.answered and not self.told and not self.heard and not self.end.broken


class Peer:
    """A client or a container with one connection. Answers wait in `due` until a test lets it give them."""

    def __init__(self, network: Network, name: str, endpoint: str) -> None:
        self.network = network
        self.name = name
        self.endpoint = endpoint
        """The listener that it has connected to."""
        self.end = End(self)
        self.links: list[PeerLink] = []
        self.due: deque[PeerLink] = deque()
        """Links on which it is to answer an attach or a detach."""
        self.open = True

    def opened(self, end: End) -> None:
        """Both sides have opened."""

    def lost(self, end: End) -> None:
        """The connection is gone, and all links."""
        self.open = False
        self.due.clear()

    def attach(
        self, address: str | None, *, sends: bool, name: str | None = None, terminus: Terminus | None = None
    ) -> PeerLink:
        """A link of its own."""
        number = next(self.network.numbers)
        terminus = terminus or Terminus(address)
        source, target = (Terminus(), terminus) if sends else (terminus, Terminus())
        link = PeerLink(self.end, number, name or f"link-{number}", sends, source, target)
        self.links.append(link)
        self.end.links[number] = link
        self.end.send("attach", number, link.name, IN if sends else OUT, source, target)
        return link

    def detach(self, link: PeerLink, condition: Condition | None = None, *, closed: bool = True) -> None:
        """Say that a link is over, unless it has been said."""
        if not link.told and self.open:
            link.told = True
            self.end.send("detach", link.number, condition, closed)

    def act(self, refusal: Condition | None = None) -> None:
        """Give the oldest answer that is due; attaches are refused with `refusal`, if there is one."""
        link = self.due.popleft()
        if link.heard and link.answered:
            self.detach(link)
            return
        link.answered = True
        termini = (ABSENT, ABSENT) if refusal else (link.source, link.target)
        self.end.send("answer", link.number, *termini)
        if refusal is not None:
            self.detach(link, refusal)

    def die(self, arriving: int = 0) -> None:
        """Its connection breaks."""
        self.network.cut(self.end, arriving)

    # What is on the links

    def grant(self, link: PeerLink, credit: int) -> None:
        """As a receiver."""
        if link.attached:
            link.credit += credit
            self.end.send("flow", link.number, credit)

    def send(self, link: PeerLink, *, settled: bool) -> None:
        """As a sender, if there is credit."""
        if link.attached and link.credit:
            link.credit -= 1
            link.deliveries += 1
            if not settled:
                link.unsettled[link.deliveries] = None
            self.end.send("transfer", link.number, link.deliveries, settled)

    def settle(self, link: PeerLink) -> None:
        """As either, the oldest delivery that is unsettled here."""
        if link.attached and link.unsettled:
            number = next(iter(link.unsettled))
            del link.unsettled[number]
            link.settled.add(number)
            self.end.send("settle", link.number, number)

    # What arrives

    def on_attach(
        self, end: End, number: int, name: str, direction: Direction, source: Terminus, target: Terminus
    ) -> None:
        names = {(link.sends, link.name) for link in end.links.values() if not (link.told and link.heard)}
        assert (direction is OUT, name) not in names, "the name of a link is that of no other one"
        link = PeerLink(end, number, name, direction is OUT, source, target)
        self.links.append(link)
        end.links[number] = link
        self.due.append(link)

    def on_answer(self, end: End, number: int, source: Terminus, target: Terminus) -> None:
        link: PeerLink = end.links[number]
        assert not link.answered, "a link is answered once"
        link.answered = True
        link.source, link.target = source, target

    def on_detach(self, end: End, number: int, condition: Condition | None, closed: bool) -> None:
        link: PeerLink = end.links[number]
        assert not link.heard, "a link is detached once"
        link.heard, link.condition = True, condition
        if not link.told:
            self.due.append(link)

    def on_flow(self, end: End, number: int, credit: int) -> None:
        end.links[number].credit += credit

    def on_transfer(self, end: End, number: int, delivery: int, settled: bool) -> None:
        link: PeerLink = end.links[number]
        assert link.credit > 0, "no more than there is credit for"
        link.credit -= 1
        link.deliveries += 1
        assert delivery == link.deliveries, "each once, and in order"
        if not settled:
            link.unsettled[delivery] = None

    def on_settle(self, end: End, number: int, delivery: int) -> None:
        link: PeerLink = end.links[number]
        if delivery in link.settled:
            return  # both at once
        del link.unsettled[delivery]
        link.settled.add(delivery)
