"""What an operator may set for the relay of a site. Times are seconds, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Endpoint(NamedTuple):
    """Where a site listens for bridge sessions; the host may be a DNS name.

    With port 0 it is an address of the network of routers that both sites are in.
    """

    host: str
    port: int

    @property
    def is_address(self) -> bool:
        """Whether it is an address of the network of routers."""
        return self.port == 0

    def __str__(self) -> str:
        if self.is_address:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RemoteSite:
    """Another site of the group."""

    endpoints: tuple[Endpoint, ...] = ()
    """None: it cannot be dialled. What is for it goes over the sessions that it dials."""
    certificate_names: tuple[str, ...] = ()
    """Its certificate has one of them as subject alternative name, `*.` standing for one label; none: any will do."""

    @property
    def over_network(self) -> bool:
        """Whether it is reached in the network of routers that both sites are in."""
        return bool(self.endpoints) and self.endpoints[0].is_address


class Window(NamedTuple):
    """What may be sent to a site and not yet acknowledged by it."""

    bytes: int
    least: int = 0
    """A batch counts for so many at least, so that there are not too many either."""


WINDOW = Window(4 << 20)
NETWORK_WINDOW = Window(1 << 20, 1 << 12)
"""Where more than 1 MiB or 250 pre-settled messages wait for their way, routers drop the oldest; these have to be asked
for then."""


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """Of one group in one site; the same at all of its members."""

    group: str
    site: str
    domain: str
    """Which RelaySite the site is: "namespace/name". Two sites of one name are told apart by it."""
    sites: dict[str, RemoteSite] = field(default_factory=dict)
    """The other sites by name."""
    own_endpoints: tuple[Endpoint, ...] = ()
    """Where this member is reached by other sites, told to them when it is a relay."""
    own_certificate_names: tuple[str, ...] = ()
    """In the certificates of this site's members, for sessions that one of them passes through."""
    initial_members: int = 1
    initial_timeout: float = 10.0
    """Who is the first of its site is no relay before the site has so many members, or for so long: what comes from
    other sites is for all who start with it."""
    relays: int = 1
    """Members that relay at the same time; each origin is relayed by one of them."""
    copies: int = 2
    """Members that a message is not lost with, all but one: so many keep what is for other sites."""
    window: Window = WINDOW
    network_window: Window = NETWORK_WINDOW
    """For sites in the network of routers."""
    buffer_messages: int = 65_536
    buffer_bytes: int = 64 << 20
    buffer_seconds: float = 60.0
    """What some site has not acknowledged is kept up to these three; beyond the first that is hit, the oldest is
    dropped, counted, and marked as a gap."""
    grace: float = 2.0
    """A site without a session is suspect for so long, then unreachable."""
    backoff_least: float = 0.1
    backoff_most: float = 2.0
    """Between attempts to dial."""
    handshake_timeout: float = 5.0
    ping_interval: float = 1.0
    silence: float = 3.0
    """A session that nothing came by for so long is closed."""
    goodbye_timeout: float = 2.0
    """A member that leaves waits no longer for other sites to acknowledge what it has published, or sent as a relay."""
