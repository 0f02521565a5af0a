"""Periods of the routing protocol, in seconds."""

from dataclasses import dataclass

_FEW_ROUTERS = 32
"""In networks up to this size paths are computed, and addresses announced, at the shortest interval; in larger
ones less often."""


@dataclass(frozen=True, slots=True)
class Timers:
    """The first six are attributes of the ``router`` section: ``helloIntervalSeconds`` and so on."""

    hello_interval: float = 1.0
    """Period of HELLO on every control link."""
    hello_max_age: float = 3.0
    """A neighbour is lost, and a router no longer reported as heard, when no HELLO came for this long."""
    ra_interval: float = 30.0
    """Period of the router advertisement while the topology is stable."""
    ra_interval_flux: float = 4.0
    """Period of the router advertisement for twice this time after a topology change."""
    remote_ls_max_age: float = 60.0
    """A link state that was not refreshed by its router for this long is forgotten."""
    unreachable_holdoff: float = 1.0
    """How long the addresses of a router outlive the last path to it."""

    ra_interval_news: float = 0.1
    """Shortest time before a router advertisement caused by a change here."""
    ra_interval_repeat: float = 0.25
    """Time after which such an advertisement is repeated, then twice, four times ... until it is periodic."""
    mobile_update_interval: float = 0.02
    """Shortest time between two announcements of changed addresses, in a network of a few routers."""
    request_retry: float = 0.5
    """An unanswered request is repeated after this, then twice, four times ... up to ``ra_interval``."""
    path_interval: float = 0.05
    """Shortest time between two path computations caused by other routers; local changes do not wait."""
    forget_delay: float = 3.0
    """How long a router that nobody refers to any more keeps its place in the table."""

    def path_interval_among(self, routers: int) -> float:
        """Grows with the work, which in a mesh is the square of the number of routers at least."""
        return self.path_interval * max(1.0, (routers / _FEW_ROUTERS) ** 2)

    def mobile_update_interval_among(self, routers: int) -> float:
        """Grows with the number of routers, each of which has to read the announcements of all others."""
        return self.mobile_update_interval * max(1.0, routers / _FEW_ROUTERS)
