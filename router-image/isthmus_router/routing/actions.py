"""What the routing engine asks of its owner: messages to send, and changes to take over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from .messages import MobileAddress

# --- messages: complete from header to body; the owner puts the router annotation section in front ----------


@dataclass(frozen=True, slots=True)
class SendHello:
    """Send on the control link ``link``, and nowhere else."""

    link: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class SendUnicast:
    """Route to ``router`` as to any address of class R; always over control links."""

    router: str
    address: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class SendMulticast:
    """Route to every router by the normal rules for addresses of class T; always over control links."""

    address: str
    payload: bytes


# --- state --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one reachable router."""

    router: str
    link: int
    """Control link (mask bit) of the next hop."""
    next_hop: str
    """The neighbour on that link; ``router`` itself if it is one."""
    cost: int
    valid_origins: frozenset[str]
    """Forward a message to this router only if it entered the network at one of these."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Every reachable router, and what multicast and loop prevention need. Replaces the table before."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    neighbours: Mapping[str, int] = field(default_factory=dict)
    """Control link by neighbour."""
    radius: int = 0
    """Most links on any path; a message whose trace is longer than this plus one is looping."""


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    table: RouteTable


@dataclass(frozen=True, slots=True)
class RemoteAddressesChanged:
    """Consumers for ``added`` appeared (or changed) at ``router``, those for ``removed`` went."""

    router: str
    added: Mapping[str, MobileAddress]
    removed: frozenset[str]


@dataclass(frozen=True, slots=True)
class RouterFlushed:
    """Forget every address of ``router``: it restarted, or stayed unreachable."""

    router: str


# --- events, for logs, metrics and flow records -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NeighbourUp:
    router: str
    link: int


@dataclass(frozen=True, slots=True)
class NeighbourMoved:
    """The neighbour is now reached over ``link`` instead of ``previous``."""

    router: str
    link: int
    previous: int


@dataclass(frozen=True, slots=True)
class NeighbourLost:
    router: str
    link: int
    reason: str


@dataclass(frozen=True, slots=True)
class RouterAdded:
    """A router got a place in the table; ``index`` is its mask bit."""

    router: str
    index: int


@dataclass(frozen=True, slots=True)
class RouterRemoved:
    """Nobody refers to the router any more."""

    router: str
    index: int


@dataclass(frozen=True, slots=True)
class RouterRestarted:
    router: str
    instance: int
    previous: int


@dataclass(frozen=True, slots=True)
class LinkStateExpired:
    """The router was not heard of for too long."""

    router: str


@dataclass(frozen=True, slots=True)
class DuplicateRouterId:
    """Two live routers share an id: ours, or another one that keeps changing its instance back and forth."""

    router: str
    instances: frozenset[int]


@dataclass(frozen=True, slots=True)
class TooManyRouters:
    """``router`` is ignored: the table is full. Reported once per router."""

    router: str
    limit: int


@dataclass(frozen=True, slots=True)
class VersionUnsupported:
    """Messages of ``router`` in this protocol version are ignored. Reported once per router."""

    router: str
    version: int


@dataclass(frozen=True, slots=True)
class MessageRefused:
    """A control message that came in on ``link`` was ignored."""

    link: int
    reason: str


Action: TypeAlias = (
    SendHello
    | SendUnicast
    | SendMulticast
    | RoutesChanged
    | RemoteAddressesChanged
    | RouterFlushed
    | NeighbourUp
    | NeighbourMoved
    | NeighbourLost
    | RouterAdded
    | RouterRemoved
    | RouterRestarted
    | LinkStateExpired
    | DuplicateRouterId
    | TooManyRouters
    | VersionUnsupported
    | MessageRefused
)
