"""What an operator may set for the sockets of a member. Times are seconds, sizes bytes."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus_router.config.model import SslProfileConfig
from isthmus_router.gossip.binding import Binding
from isthmus_router.groups.batch import MOST_MESSAGE_BYTES
from isthmus_router.groups.identity import PhysicalAddress

LONGEST_FRAME_BYTES = MOST_MESSAGE_BYTES + (1 << 20)
"""Of a batch with the longest message and all that may be with it, or of the longest part of a state."""


@dataclass(frozen=True, slots=True)
class MulticastSettings:
    """UDP multicast (IPv4), for discovery."""

    group: str = "239.192.78.0"
    port: int = 7800
    ttl: int = 1
    interfaces: tuple[str, ...] = ()
    """Names; none: every interface that is up and can multicast."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Of one member."""

    host: str = ""
    """To listen on for members; empty: every local address."""
    port: int = 0
    """0: one that is free."""
    profile: SslProfileConfig | None = None
    """Mutual TLS between members; None: clear."""
    peer_names: tuple[str, ...] = ()
    """Members' certificates have one of them, `*.` standing for one label; none: any will do."""
    bind_names: bool = False
    """A member's certificate must be for its logical name."""
    bridge_host: str = ""
    bridge_port: int | None = None
    """To listen on for other sites; None: this site is not dialled."""
    bridge_profile: SslProfileConfig | None = None
    multicast: MulticastSettings | None = None
    gossip_routers: tuple[PhysicalAddress, ...] = ()
    gossip_profile: SslProfileConfig | None = None
    tunnel: bool = False
    """Frames of members go through the gossip routers; otherwise such frames are refused."""
    gossip_binding: Binding | None = None
    """Which certificates other members have to show at the gossip routers; None: any."""
    longest_frame: int = LONGEST_FRAME_BYTES
    queue_bytes: int = 32 << 20
    """For a peer that reads slowly; beyond it messages to it are dropped and counted."""
    connect_timeout: float = 2.0
    handshake_timeout: float = 5.0
    user_timeout: float = 2.0
    """A connection ends when the peer's system acknowledges nothing of what was sent for so long. Between members less
    than what their failure detection takes, so that another address can be tried before."""
    bridge_user_timeout: float = 10.0
    backoff_least: float = 0.05
    backoff_most: float = 1.0
    """Between attempts to connect to an address that did not answer."""
    most_connections: int = 1024
    """That others may have to this member, and to its bridge each."""
