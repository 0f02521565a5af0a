"""What the core asks of its driver.

The core decides; the driver (`isthmus_router.amqp`, or a recording one in tests) carries out. Every call
returns at once and none of them calls back into the core before it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition, Direction, LinkType, Outcome, Terminus

CallLater = Callable[[float, Callable[[], None]], object]
"""Calls back once after a delay in seconds."""


class SessionClass(Enum):
    """Links of one class on a connection share a session, so that they share its flow-control window."""

    CONTROL = "control"
    PRIORITY = "priority"
    STREAMING = "streaming"
    ENDPOINT = "endpoint"
    PROXY = "proxy"
    """As many sessions as the number of links asks for."""
    EDGE_CORE = "edge-core"


class Port(Protocol):
    """Commands to the driver."""

    def open_link(
        self,
        connection: Connection,
        direction: Direction,
        *,
        link_type: LinkType,
        source: Terminus,
        target: Terminus,
        session: SessionClass,
        priority: int = 4,
        capacity: int | None = None,
        origin: Link | None = None,
    ) -> Link:
        """Attach a link that this router initiates; `capacity`: credit to grant, if not the usual; `origin`: where the
        stream comes in that it is for."""

    def accept_link(self, link: Link, source: Terminus, target: Terminus) -> None:
        """Answer a peer's attach with these termini."""

    def refuse_link(self, link: Link, condition: Condition) -> None:
        """Answer a peer's attach with a null terminus and close the link with `condition`."""

    def detach_link(self, link: Link, condition: Condition | None = None) -> None:
        """Close an attached link."""

    def route_link(
        self, link: Link, connection: Connection, name: str, address: str | None
    ) -> Link | Condition:
        """Attach the other half of a link that a peer has attached, with everything as the peer has it.

        `address` takes the place of that of source (of a receiver's link) or target, None leaves it. A condition if
        the attach is too large for a frame there, or if the peer there allows no more links.
        """

    def answer_routed(self, link: Link, address: str | None) -> None:
        """Answer the attach of a routed link with what its partner was answered; `address` as in `route_link`.

        The link is detached if that is too large for a frame there.
        """

    def detach_routed(self, link: Link, condition: Condition | None, *, closed: bool) -> None:
        """Detach a routed link, or answer its peer's detach; the link is there until `end_routed`."""

    def end_routed(self, link: Link) -> None:
        """Both ends have detached a routed link."""

    def abandon_routed(self, link: Link) -> bool:
        """The peer does not answer a routed link's detach: the session ends, if the link has it for itself.

        Returns whether it does.
        """

    def top_up(self, link: Link) -> None:
        """Raise the credit of an IN link to its capacity (less what is in flight, where that counts)."""

    def drain(self, link: Link) -> None:
        """Ask the sender of an IN link to use or give back its credit."""

    def hand_over(self, pairs: Sequence[tuple[Link, Link]]) -> None:
        """The second OUT link of each pair follows the first, on another connection to the same router.

        What waits on the first moves to the second; nothing leaves there before the peer has taken what was sent
        on the first (or that connection is gone), so that the order is kept. What is unsettled stays.
        """

    def has_credit(self, link: Link) -> bool:
        """Whether the sender of an IN link still holds credit."""

    def release_parked(self, link: Link) -> None:
        """Release the deliveries that wait for credit on an OUT link: no one will give any."""

    def send(self, link: Link, payload: bytes, *, settled: bool) -> None:
        """Send a message that originates in the router on an OUT link; queued while there is no credit."""

    def forward(self, route: Route, payload: bytes, *, priority: int) -> None:
        """Send a pre-settled message that originates in the router along a route."""

    def settle(
        self, deliveries: Sequence[object], outcome: Outcome, condition: Condition | None = None
    ) -> None:
        """Settle what a consumer inside the router has taken; each once. `condition` is of REJECTED."""

    def read_on(self) -> None:
        """Read the links again on which a consumer inside the router wanted no more for a while."""

    def at_end_of_turn(self, callback: Callable[[], None]) -> None:
        """Call back once, when all that has arrived in this turn is dealt with."""

    def work(self, job: Iterator[None]) -> None:
        """Carry out a long piece of work, step by step between other things."""

    def deliver(self, link: Link, payloads: Sequence[bytes], annotations: bytes) -> bool:
        """Send messages in this order on an OUT link, unsettled, though nobody waits for their outcomes.

        `annotations` is the router annotation section for other routers. What cannot leave at once waits. False: too
        many wait or are unsettled, or too many bytes; the link, which lacks some of the messages now, is to be
        detached.
        """

    def close_connection(self, connection: Connection, condition: Condition | None) -> None:
        """Close a connection; without a condition the close is clean."""


class Observer(Protocol):
    """A system that follows the core's state: edge tracking, the address proxy, inter-router routing."""

    def connection_opened(self, connection: Connection) -> None:
        """Both sides have opened."""

    def connection_closed(self, connection: Connection) -> None:
        """The connection is gone; all of its links were unbound before."""

    def link_bound(self, link: Link) -> None:
        """An endpoint link now produces to or consumes from its address."""

    def link_unbound(self, link: Link) -> None:
        """The link no longer does; `link.address` still names the address."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Deliveries on this IN link have become deliverable, or are no longer. On one of an edge also said again."""
