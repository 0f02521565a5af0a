"""What frames say of links: their directions, kinds, capabilities and termini, and error conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """Direction of a link seen from this router: deliveries arrive on IN links and leave on OUT links."""

    IN = "in"
    OUT = "out"


class LinkType(StrEnum):
    """What a link is for, as management names it."""

    ENDPOINT = "endpoint"
    CONTROL = "router-control"
    ROUTER = "inter-router"
    EDGE_DOWNLINK = "edge-downlink"


class Outcome(StrEnum):
    """What becomes of a delivery (AMQP 1.0 part 3, 3.4)."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    RELEASED = "released"
    MODIFIED = "modified"
    """It has failed, and may be tried again."""


RESERVED_PREFIX = "_$qd."
"""Of the addresses of links between an edge and an interior router that are not for messages."""
COORDINATOR = "$coordinator"
"""The address by which links to a transaction coordinator are routed."""
CAPABILITY_CONTROL = "qd.router"
CAPABILITY_ROUTER = "qd.router-data"
CAPABILITY_EDGE_DOWNLINK = "qd.router-edge-downlink"
CAPABILITY_STREAMING_LINKS = "qd.streaming-links"
CAPABILITY_STREAMING_DELIVERIES = "qd.streaming-deliveries"
CAPABILITY_RESEND_RELEASED = "qd.resend-released"
CAPABILITY_LINK_ROUTES = "isthmus.link-routes"
"""Offered on edge connections by routers that tell each other of link routes."""
CAPABILITY_TRUNKING = "qd.connection_trunking"
CAPABILITY_FALLBACK = "qd.fallback"
CAPABILITY_WAYPOINT = "qd.waypoint"
"""So begin all capabilities of waypoints."""
CAPABILITY_RELAY_STATE = "isthmus.relay-state"
"""Of the source of a receiver that wants the state first."""
CAPABILITY_RELAY_GAPS = "isthmus.relay-gaps"
"""Of the source of a receiver that wants reports of lost messages."""
CAPABILITIES_BETWEEN_ROUTERS = frozenset({CAPABILITY_CONTROL, CAPABILITY_ROUTER, "qd.router-inter-edge"})
NO_CAPABILITIES: frozenset[str] = frozenset()

_KNOWN = CAPABILITIES_BETWEEN_ROUTERS | {
    CAPABILITY_EDGE_DOWNLINK,
    CAPABILITY_STREAMING_LINKS,
    CAPABILITY_STREAMING_DELIVERIES,
    CAPABILITY_RESEND_RELEASED,
    CAPABILITY_LINK_ROUTES,
    CAPABILITY_TRUNKING,
    CAPABILITY_FALLBACK,
    CAPABILITY_RELAY_STATE,
    CAPABILITY_RELAY_GAPS,
}
_WAYPOINTS = frozenset(
    {CAPABILITY_WAYPOINT, *(f"{CAPABILITY_WAYPOINT}{mark}{phase}" for mark in "._" for phase in range(1, 10))}
)
_OTHER_WAYPOINT = f"{CAPABILITY_WAYPOINT}-other"
"""In place of all that begin like a waypoint's and name no phase. A policy refuses them as well."""


def known_capabilities(symbols: Iterable[str]) -> frozenset[str]:
    """Return those that the router acts on, and at most one of a waypoint.

    A link retains them as long as it is attached, and a peer can send a thousand others.
    """
    given = frozenset(symbols)
    known = given & _KNOWN
    waypoint = min(given & _WAYPOINTS, default=None)
    if waypoint is None and any(symbol.startswith(CAPABILITY_WAYPOINT) for symbol in given):
        waypoint = _OTHER_WAYPOINT
    if waypoint is not None:
        known |= {waypoint}
    return known or NO_CAPABILITIES


@dataclass(frozen=True, slots=True)
class Condition:
    """An AMQP error condition; `info` is its map of further details."""

    name: str
    description: str = ""
    info: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Terminus:
    """Source or target of an attach, as far as routing reads it."""

    address: str | None = None
    dynamic: bool = False
    capabilities: frozenset[str] = NO_CAPABILITIES
    coordinator: bool = False
    absent: bool = False
    """True for the null terminus that refuses a link."""
    outlives: bool = False
    """It is to stay for a while after its link, or for ever (expiry policy and timeout)."""
    node_address: str | None = None
    """Of a dynamic one: the address by which its link is routed (dynamic node property `x-opt-qd.address`)."""
