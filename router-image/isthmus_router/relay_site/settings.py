"""What the configuration's sections relaySite, relayRemote and relayAddress mean for a member and its sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from isthmus_router.config.model import Configuration, SslProfileConfig
from isthmus_router.config.relay_model import ALL_SITES, Discovery, RelayRemoteConfig, RelaySiteConfig
from isthmus_router.gossip.binding import Binding
from isthmus_router.groups.discovery.dns import Dns
from isthmus_router.groups.discovery.gossip import Gossip
from isthmus_router.groups.discovery.host_list import Host, HostList
from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.discovery.multicast import Multicast
from isthmus_router.groups.discovery.tunnel import Tunnel
from isthmus_router.groups.identity import GroupName, PhysicalAddress
from isthmus_router.groups.port import NetworkPort
from isthmus_router.groups.resolver import ResolverSettings
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.relay.over_network import bridge_address
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite
from isthmus_router.sites.filters import Filter, Filters
from isthmus_router.sites.settings import MemberSettings
from isthmus_router.transport.interfaces import own_networks
from isthmus_router.transport.settings import MulticastSettings, TransportSettings

ANY_NAME = "*"
"""In `peerNames` of a remote site: every certificate of the authorities."""


def transport_settings(configuration: Configuration, config: RelaySiteConfig) -> TransportSettings:
    """Of the member's sockets."""

    def profile(name: str | None) -> SslProfileConfig | None:
        return None if name is None else configuration.ssl_profiles[name]

    tunnel = config.discovery is Discovery.TUNNEL
    asks_routers = config.discovery in (Discovery.GOSSIP_ROUTER, Discovery.TUNNEL)
    return TransportSettings(
        host=config.member_host,
        port=config.member_port,
        profile=profile(config.ssl_profile),
        peer_names=config.peer_names,
        bind_names=config.bind_names and config.ssl_profile is not None,
        bridge_host=config.bridge_host,
        bridge_port=config.bridge_port,
        bridge_profile=profile(config.bridge_ssl_profile),
        multicast=MulticastSettings(
            config.multicast_address,
            config.multicast_port,
            config.multicast_hops,
            config.multicast_interfaces,
        )
        if config.discovery is Discovery.MULTICAST
        else None,
        gossip_routers=tuple(PhysicalAddress(host, port) for host, port in config.whom_to_ask)
        if asks_routers
        else (),
        gossip_profile=profile(config.gossip_ssl_profile),
        tunnel=tunnel,
        gossip_binding=Binding(config.peer_names, config.bind_names)
        if tunnel and config.gossip_ssl_profile is not None
        else None,
    )


def _discovery(config: RelaySiteConfig) -> Callable[[NetworkPort], DiscoveryKind]:
    hosts = config.whom_to_ask
    match config.discovery:
        case Discovery.DNS:
            return partial(Dns, *hosts[0])
        case Discovery.HOST_LIST:
            return partial(HostList, [Host(host, port, 1 + config.port_range) for host, port in hosts])
        case Discovery.MULTICAST:
            return Multicast
        case Discovery.GOSSIP_ROUTER:
            return Gossip
        case Discovery.TUNNEL:
            return Tunnel


def member_settings(
    configuration: Configuration, config: RelaySiteConfig, bridges: tuple[Endpoint, ...]
) -> MemberSettings:
    """Of the member itself; `bridges` are where relays of other sites reach it."""
    return MemberSettings(
        group_name(config),
        (_discovery(config),),
        RelaySettings(
            config.group,
            config.site,
            group_name(config).domain,
            {
                remote.site: RemoteSite(_endpoints(config, remote), _names(config, remote))
                for remote in configuration.relay_remotes
            },
            own_endpoints=bridges,
            own_certificate_names=config.peer_names
            if config.ssl_profile == config.bridge_ssl_profile
            else (),
            initial_members=config.initial_members,
            relays=config.relays,
            copies=config.copies,
            buffer_messages=config.buffer_messages,
            buffer_bytes=config.buffer_bytes,
            buffer_seconds=config.buffer_seconds or float("inf"),
        ),
        filters=Filters(
            Filter(address.pattern, None if ALL_SITES in address.sites else address.sites)
            for address in configuration.relay_addresses
        ),
        resolver=ResolverSettings(chooser=config.address_choice.value, networks=own_networks()),
        streams=replace(
            StreamsSettings(),
            relays=config.relays,
            copies=config.copies,
            relayed_bytes=config.buffer_bytes,
        ),
    )


def _endpoints(config: RelaySiteConfig, remote: RelayRemoteConfig) -> tuple[Endpoint, ...]:
    if remote.over:
        return (Endpoint(bridge_address(remote.over, config.group, remote.site), 0),)
    return tuple(Endpoint(host, port) for host, port in remote.bridges)


def _names(config: RelaySiteConfig, remote: RelayRemoteConfig) -> tuple[str, ...]:
    """In the certificates of the other site's relays; none: any will do, or there are none."""
    if ANY_NAME in remote.peer_names:
        return ()
    bound = config.bind_names and config.bridge_ssl_profile is not None and not remote.over
    return remote.peer_names or ((remote.site,) if bound else ())


def addresses(configuration: Configuration) -> tuple[str, ...]:
    """Further addresses of the group."""
    return tuple(address.pattern for address in configuration.relay_addresses)


def group_name(config: RelaySiteConfig) -> GroupName:
    """Without a domain of its own, a site is told from others by group and name only."""
    return GroupName(config.group, config.site, config.domain or f"{config.group}/{config.site}")
