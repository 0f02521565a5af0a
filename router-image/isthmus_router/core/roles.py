"""Connection roles, and what their connections do with router annotations."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class Role(IntEnum):
    """What a connection is used for.

    The role comes from the local listener or connector, never from the peer. The values are the
    integers of the open property `qd.inter-router-role`.
    """

    NORMAL = 0
    INTER_ROUTER = 1
    ROUTE_CONTAINER = 2
    EDGE = 3
    INTER_ROUTER_DATA = 4
    """Carries streaming links only; never configured, chosen by the connecting router's open property."""

    @property
    def label(self) -> str:
        """The name used in configuration, management and metrics, e.g. `inter-router`."""
        return self.name.lower().replace("_", "-")

    @property
    def is_between_routers(self) -> bool:
        """Whether the peer is a router: inter-router (control and data) or edge."""
        return self in (Role.INTER_ROUTER, Role.INTER_ROUTER_DATA, Role.EDGE)

    @property
    def is_between_interiors(self) -> bool:
        """Whether both ends are interior routers."""
        return self in (Role.INTER_ROUTER, Role.INTER_ROUTER_DATA)

    @classmethod
    def from_label(cls, label: str) -> Role:
        """The role with that configuration name; ValueError when there is none."""
        try:
            return cls[label.upper().replace("-", "_")]
        except KeyError:
            raise ValueError(f"no connection role {label!r}") from None


class StripAnnotations(StrEnum):
    """On which side of a normal connection router annotations are removed."""

    IN = "in"
    OUT = "out"
    BOTH = "both"
    NO = "no"

    @property
    def strips_in(self) -> bool:
        """Annotations of arriving messages are removed."""
        return self in (StripAnnotations.IN, StripAnnotations.BOTH)

    @property
    def strips_out(self) -> bool:
        """Annotations of leaving messages are removed."""
        return self in (StripAnnotations.OUT, StripAnnotations.BOTH)
