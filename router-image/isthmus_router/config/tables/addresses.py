"""Sections about addresses: address, linkRoute, autoLink."""

from __future__ import annotations

from isthmus_router.config.attributes import Attribute, Kind, Section
from isthmus_router.config.model import Direction, Distribution, LinkRouteDirection
from isthmus_router.core.address import MAX_PHASE

_NAME = Attribute("name", Kind.STRING, "Unique name.")
_PREFIX = Attribute(
    "prefix",
    Kind.STRING,
    "Address prefix: `a.b` matches `a.b` and everything below it. Exactly one of prefix and pattern.",
)
_PATTERN = Attribute(
    "pattern",
    Kind.STRING,
    "Address pattern of tokens separated by `.` or `/`; `*` is one token, `#` any number. "
    "Exactly one of prefix and pattern.",
    keeps_hash=True,
)
_CONTAINER_ID = Attribute(
    "containerId", Kind.STRING, "Applies to route-container connections from this AMQP container."
)
_CONNECTION = Attribute(
    "connection", Kind.STRING, "Applies to connections of the listener or connector with this name."
)

ADDRESS = Section(
    "address",
    "Treatment of the addresses that a prefix or pattern matches. The most specific match counts.",
    (
        _PREFIX,
        _PATTERN,
        Attribute(
            "distribution",
            Kind.ENUM,
            "`closest`: nearest consumers only; `balanced`: by load over the whole network; `multicast`: "
            "every consumer; `unavailable`: links to the address are refused.",
            default=Distribution.BALANCED,
            choices=tuple(Distribution),
            result=Distribution,
        ),
        Attribute(
            "priority",
            Kind.INTEGER,
            "Priority between routers of all messages to the address, 0 to 9. Absent or -1: their own, or 4.",
            absent=-1,
            minimum=-1,
            maximum=9,
        ),
        Attribute(
            "waypoint",
            Kind.BOOLEAN,
            "Messages pass a queue on a broker, which `autoLink` sections attach to, on their way from senders "
            "(phase 0) to receivers (phase 1). The same on every router.",
            default=False,
        ),
        Attribute(
            "ingressPhase",
            Kind.INTEGER,
            "The phase that clients send in, if several waypoints follow each other. Absent: 0.",
            minimum=0,
            maximum=MAX_PHASE,
        ),
        Attribute(
            "egressPhase",
            Kind.INTEGER,
            "The phase that clients receive from. Absent: 1 for a waypoint, else 0.",
            minimum=0,
            maximum=MAX_PHASE,
        ),
        Attribute(
            "resendReleased",
            Kind.BOOLEAN,
            "A message that a consumer releases is sent to another one before it comes back to its sender, as for "
            "senders whose target has the capability `qd.resend-released`.",
            default=False,
        ),
        Attribute(
            "enableFallback",
            Kind.BOOLEAN,
            "Undeliverable messages go to fallback consumers.",
            default=False,
            aliases=("fallback",),
            unsupported="fallback destinations are not supported",
        ),
        _NAME,
    ),
    entity_type="router.config.address",
)

LINK_ROUTE = Section(
    "linkRoute",
    "Hands links to matching addresses, end to end, to an AMQP container (a broker) on a route-container "
    "connection. Without containerId and connection: to containers that other routers have; while they have none, "
    "links are refused.",
    (
        _PREFIX,
        _PATTERN,
        Attribute(
            "direction",
            Kind.ENUM,
            "`in`: links of senders, messages enter the network; `out`: links of receivers; `both`.",
            required=True,
            choices=tuple(LinkRouteDirection),
            result=LinkRouteDirection,
            aliases=("dir",),
        ),
        _CONTAINER_ID,
        _CONNECTION,
        Attribute(
            "distribution",
            Kind.ENUM,
            "Links go to the nearest containers, the same number to each.",
            default="linkBalanced",
            choices=("linkBalanced",),
        ),
        Attribute("addExternalPrefix", Kind.STRING, "Put before the address on links to the container."),
        Attribute("delExternalPrefix", Kind.STRING, "Removed from the address on links to the container."),
        _NAME,
    ),
    entity_type="router.config.linkRoute",
)

AUTO_LINK = Section(
    "autoLink",
    "Attaches a link to an AMQP container (a broker) as soon as its route-container connection is up.",
    (
        Attribute(
            "address",
            Kind.STRING,
            "Address inside the network. Absent: an anonymous link.",
            aliases=("addr",),
        ),
        Attribute(
            "direction",
            Kind.ENUM,
            "`in`: the router receives from the container; `out`: the router sends to it.",
            required=True,
            choices=tuple(Direction),
            result=Direction,
            aliases=("dir",),
        ),
        _CONTAINER_ID,
        _CONNECTION,
        Attribute(
            "externalAddress",
            Kind.STRING,
            "Address on the container. Absent: the same as `address`.",
            aliases=("externalAddr",),
        ),
        Attribute(
            "phase",
            Kind.INTEGER,
            "Phase of the address that the link is in. Absent: 1 for direction `in` if the address has "
            "phases (`waypoint`), else 0.",
            minimum=0,
            maximum=MAX_PHASE,
        ),
        Attribute(
            "fallback",
            Kind.BOOLEAN,
            "The container takes undeliverable messages.",
            default=False,
            unsupported="fallback destinations are not supported",
        ),
        _NAME,
    ),
    entity_type="router.config.autoLink",
)
