"""The typed form of the sections of a site: relaySite, relayRemote, relayAddress.

As in `model.py`; meaning, default and limits of each field are in `tables/relay.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

MEMBER_PORT = 7800
BRIDGE_PORT = 7900
GOSSIP_PORT = 12001
ALL_SITES = "*"


class Discovery(StrEnum):
    """How the members of a site find each other."""

    DNS = "dns"
    HOST_LIST = "hostList"
    MULTICAST = "multicast"
    GOSSIP_ROUTER = "gossipRouter"
    TUNNEL = "tunnel"


class PhysicalChoice(StrEnum):
    """Which physical address of a member with several is used."""

    FIRST = "first"
    ROTATE = "rotate"
    SAME_NETWORK = "same-network"


class Endpoint(NamedTuple):
    """A host and a port, as in `host:port`, `host`, `[::1]:port` or `::1`."""

    host: str
    port: int | None = None
    """None: not given."""

    def __str__(self) -> str:
        if self.port is None:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def on(self, port: int) -> tuple[str, int]:
        """Host and port; `port` where none was given."""
        return self.host, port if self.port is None else self.port


@dataclass(frozen=True, slots=True)
class RelaySiteConfig:
    """Section `relaySite`."""

    group: str
    site: str
    domain: str
    member_name: str | None
    """None: the router's id."""
    member_host: str
    """Empty string: every local address."""
    member_port: int
    announce: tuple[Endpoint, ...]
    address_choice: PhysicalChoice
    discovery: Discovery
    discovery_hosts: tuple[Endpoint, ...]
    port_range: int
    initial_members: int
    multicast_address: str
    multicast_port: int
    multicast_hops: int
    multicast_interfaces: tuple[str, ...]
    plain_text: bool
    ssl_profile: str | None
    peer_names: tuple[str, ...]
    bind_names: bool
    gossip_ssl_profile: str | None
    bridge_host: str
    bridge_port: int
    announce_bridge: tuple[Endpoint, ...]
    bridge_ssl_profile: str | None
    relays: int
    copies: int
    buffer_messages: int
    buffer_bytes: int
    buffer_seconds: int
    """0: without limit."""
    max_message_bytes: int
    state_address: str | None

    @property
    def without_tls(self) -> tuple[str, ...]:
        """Kinds of connections without TLS: `members`, `bridge` (to other sites), `gossip` (to gossip routers)."""
        asks_routers = self.discovery in (Discovery.GOSSIP_ROUTER, Discovery.TUNNEL)
        kinds = (
            ("members", self.ssl_profile, True),
            ("bridge", self.bridge_ssl_profile, True),
            ("gossip", self.gossip_ssl_profile, asks_routers),
        )
        return tuple(kind for kind, profile, used in kinds if used and profile is None)

    @property
    def announced(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each physical address; none given: those of the listening socket."""
        return tuple(item.on(self.member_port) for item in self.announce)

    @property
    def announced_bridges(self) -> tuple[tuple[str, int], ...]:
        """Where relays of other sites reach this router."""
        hosts = self.announce_bridge or tuple(Endpoint(item.host) for item in self.announce)
        return tuple(item.on(self.bridge_port) for item in hosts)

    @property
    def whom_to_ask(self) -> tuple[tuple[str, int], ...]:
        """`discovery_hosts` with their ports."""
        gossip = self.discovery in (Discovery.GOSSIP_ROUTER, Discovery.TUNNEL)
        return tuple(item.on(GOSSIP_PORT if gossip else self.member_port) for item in self.discovery_hosts)


@dataclass(frozen=True, slots=True)
class RelayRemoteConfig:
    """Section `relayRemote`; at most one of `endpoints` and `over` is there. With neither, the site dials."""

    site: str
    endpoints: tuple[Endpoint, ...]
    over: str | None
    peer_names: tuple[str, ...]

    @property
    def bridges(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each endpoint."""
        return tuple(item.on(BRIDGE_PORT) for item in self.endpoints)


@dataclass(frozen=True, slots=True)
class RelayAddressConfig:
    """Section `relayAddress`."""

    pattern: str
    sites: tuple[str, ...]
    """`(ALL_SITES,)`: all."""
