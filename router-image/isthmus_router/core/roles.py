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

    # Attributes, not properties: each attach asks several times, and to name a member takes Python 3.11 half a
    # microsecond.
    is_between_routers: bool
    """Whether the peer is a router: inter-router (control and data) or edge."""
    is_between_interiors: bool
    """Whether both ends are interior routers."""

    @classmethod
    def from_label(cls, label: str) -> Role:
        """The role with that configuration name; ValueError when there is none."""
        try:
            return cls[label.upper().replace("-", "_")]
        except KeyError:
            raise ValueError(f"no connection role {label!r}") from None


for _role in Role:
    _role.is_between_interiors = _role in {Role.INTER_ROUTER, Role.INTER_ROUTER_DATA}
    _role.is_between_routers = _role.is_between_interiors or _role is Role.EDGE


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
