"""Auto-links: links that the routers of a Connector keep attached to the broker it goes to."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .base import Model, Text, client_address

MAX_PHASE = 9

Phase = Annotated[int, Field(ge=0, le=MAX_PHASE)]
LinkDirection = Literal["in", "out"]


class AutoLink(Model):
    """A link of each replica to the broker, attached while the connection is open."""

    address: Text
    """Address in the network."""

    direction: LinkDirection
    """`out`: what comes to the address is sent to the broker; `in`: what the broker has goes to the address."""

    external_address: Text | None = None
    """Name of the queue or topic on the broker; the same as `address` when absent."""

    phase: Phase | None = None
    """Phase of the address that the link is in; when absent 1 for direction `in` if the Router's `addresses` give
    the address phases (`waypoint`), else 0."""

    rules: ClassVar = (client_address("address"),)


class AutoLinkStatus(Model):
    """What became of an auto-link."""

    address: Annotated[str, Field(max_length=256)]
    """Address in the network."""

    direction: LinkDirection
    """As in the specification."""

    phase: Phase | None = None
    """As in the specification; else the phase that the routers have chosen."""

    external_address: Annotated[str, Field(max_length=256)] | None = None
    """As in the specification."""

    attached: Annotated[int, Field(ge=0)] = 0
    """Routers whose link is attached."""

    message: Annotated[str, Field(max_length=1024)] | None = None
    """Why another router's is not: what the broker said."""
