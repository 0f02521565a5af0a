"""The `LinkRoute` kind: addresses whose links are handed to a broker, end to end."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .addresses import PREFIX_OR_PATTERN
from .base import Condition, ListMap, Metadata, Model, ObjectName, Rule, Text, Time, client_address

Direction = Literal["in", "out", "both"]


class LinkRouteSpec(Model):
    """Which links go to which container."""

    prefix: Text | None = None
    """The address and everything below it: `b2` routes the links of `b2`, `b2.queues` and `b2/queues`, not those of
    `b2x`."""

    pattern: Text | None = None
    """Tokens separated by `.` or `/`; `*` is one token, `#` any number. Where several LinkRoutes match, the most
    specific one counts."""

    direction: Direction = "both"
    """`in`: links of clients that send; `out`: links of clients that receive."""

    connector: ObjectName | None = None
    """Name of a Connector of role `route-container`: what it connects to takes the links."""

    container_id: Text | None = None
    """Container id of the broker that takes the links, over whatever `route-container` connection it has: of a
    Connector, or to a listener of that role. Of several as near, the one with the fewest links takes the next."""

    routers: (
        Annotated[
            list[ObjectName],
            Field(min_length=1, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
        ]
        | None
    ) = None
    """Routers that know the LinkRoute, beside the connector's own: they refuse links to its addresses while there is
    no container. When absent, those that Connectors between Routers join to the connector's; with `containerId` all of
    the namespace. A router that does not know it routes messages to its addresses while there is no container."""

    add_external_prefix: Text | None = None
    """Put before the address, towards the container."""

    del_external_prefix: Text | None = None
    """Taken off the address, towards the container."""

    rules: ClassVar = (
        *PREFIX_OR_PATTERN,
        client_address("prefix", coordinator=True),
        client_address("pattern", coordinator=True),
        Rule(
            "has(self.connector) != has(self.containerId)",
            "exactly one of connector and containerId must be set",
            ".connector",
            lambda self: (self.connector is None) != (self.container_id is None),
        ),
        Rule(
            "!has(self.routers) || self.routers.all(r, self.routers.exists_one(s, s == r))",
            "routers must not repeat one",
            ".routers",
            lambda self: self.routers is None or len(set(self.routers)) == len(self.routers),
        ),
    )


class LastRefusal(Model):
    """A link that was refused."""

    router: Annotated[str, Field(max_length=256)]
    """The router that the client had attached to."""

    address: Annotated[str, Field(max_length=1024)]
    """The address that it asked for."""

    description: Annotated[str, Field(max_length=1024)]
    """Why, in the words that the client was given."""

    time: Time
    """When, to a few seconds."""


class LinkRouteStatus(Model):
    """Observed state of a LinkRoute, from the routers that know it."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the specification this status is about."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Configured` (its references resolve, no other LinkRoute says the same, and the routers run it), `Matched`
    (a container is attached, in this namespace or elsewhere in the network), `Ready` (both)."""

    addresses: Annotated[str, Field(max_length=256)] | None = None
    """The prefix or pattern, for display."""

    active_destinations: Annotated[int, Field(ge=0)] = 0
    """Connections of containers, to the routers that know it, that take its links now."""

    attached_links: Annotated[int, Field(ge=0)] = 0
    """Links attached to those containers through it."""

    refusals: Annotated[int, Field(ge=0)] = 0
    """Links refused since the routers have started."""

    last_refusal: LastRefusal | None = None
    """The latest of them."""


class LinkRoute(Model):
    """Addresses whose links are handed to a broker, end to end, from any router of the network."""

    kind_name: ClassVar = "LinkRoute"

    metadata: Metadata
    spec: LinkRouteSpec
    """Desired state."""

    status: LinkRouteStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name
