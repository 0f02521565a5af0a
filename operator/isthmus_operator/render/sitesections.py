"""The sections `relaySite`, `relayRemote` and `relayAddress` of a router's configuration, for any platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from ..names import base_name
from ..resources.relaysite import RemoteSite
from .instances import GossipTarget, RouterInstance, SiteInstance, SiteTarget, Value

_ANY_NAME = "*"
"""Of a certificate. The condition `Insecure` reports it."""


class SiteResolver(Protocol):
    """Addresses of members, bridges and gossip routers on one platform. Texts are `host` or `host:port`."""

    def member(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, int]:
        """Host and port that the member binds; an empty host is every address."""

    def bridge(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, int]:
        """Host and port that it binds for other sites."""

    def members(self, instance: RouterInstance, site: SiteInstance) -> tuple[str, list[str]]:
        """How members find each other with discovery `dns` or `hostList`: the way, and whom it asks."""

    def bridges(self, target: SiteTarget) -> list[str]:
        """Where other sites reach a RelaySite."""

    def gossip(self, target: GossipTarget) -> list[str]:
        """Where members reach a GossipRouter."""


def site_sections(
    instance: RouterInstance, site: SiteInstance, resolver: SiteResolver
) -> Iterator[tuple[str, dict[str, Value]]]:
    """The sections of a member."""
    spec, found = site.spec, site.spec.discovery
    member_host, member_port = resolver.member(instance, site)
    bridge_host, bridge_port = resolver.bridge(instance, site)
    kind, hosts = found.type, list(found.gossip_routers or ())
    way: str = kind
    if kind in {"dns", "hostList"}:
        way, hosts = resolver.members(instance, site)
    elif site.gossip is not None:
        hosts = resolver.gossip(site.gossip)
    ways: Mapping[str, Value | None] = site.earlier_discovery or {
        "discovery": way,
        "discoveryHosts": ", ".join(hosts) or None,
        "portRange": found.port_range or None if hosts == found.hosts else None,
        "multicastAddress": found.multicast.address if found.multicast is not None else None,
        "multicastPort": found.multicast.port if found.multicast is not None else None,
    }
    plain = None in (site.tls, site.bridge_tls, *((site.gossip_tls,) if site.through_gossip else ()))
    optional: dict[str, Value | None] = {
        **ways,
        "sslProfile": site.tls,
        "peerNames": ", ".join(_peer_names(site)) or None,
        "gossipSslProfile": site.gossip_tls if site.through_gossip else None,
        "bridgeSslProfile": site.bridge_tls,
        "stateAddress": spec.state_address,
        "plainText": plain or None,
        # Certificates of users have names of their own; peerNames states which.
        "bindNames": False if site.tls is not None and not site.own_tls else None,
    }
    yield (
        "relaySite",
        {
            "group": spec.group,
            "site": spec.site,
            "domain": site.domain,
            "memberName": instance.id,
            "memberHost": member_host,
            "memberPort": member_port,
            "bridgeHost": bridge_host,
            "bridgePort": bridge_port,
            "initialMembers": max(1, site.replicas),
            "relays": spec.relays,
            "copies": spec.copies,
            "bufferMessages": spec.buffer.messages,
            "bufferBytes": spec.buffer.bytes,
            "bufferSeconds": spec.buffer.seconds,
            "maxMessageBytes": spec.max_message_bytes,
            **{name: value for name, value in optional.items() if value is not None},
        },
    )
    for remote in spec.remote_sites or ():
        yield "relayRemote", _remote(site, remote, resolver)
    for address in spec.addresses or ():
        sites = "*" if address.sites is None else ", ".join(address.sites)
        yield "relayAddress", {"pattern": address.pattern, "sites": sites}


def _peer_names(site: SiteInstance) -> Iterator[str]:
    """Names in the certificates that members show to each other and, with `tunnel`, to gossip routers."""
    spec = site.spec
    yield from spec.peer_names or ()
    tunnelled = spec.discovery.type == "tunnel" and site.gossip_tls is not None
    own_gossip_tls = tunnelled and spec.discovery.gossip_tls is None
    if site.own_tls or (spec.peer_names is not None and own_gossip_tls):
        yield base_name(site.router)


def _remote(site: SiteInstance, remote: RemoteSite, resolver: SiteResolver) -> dict[str, Value]:
    section: dict[str, Value] = {"site": remote.site}
    target = site.targets.get(remote.site)
    endpoints = resolver.bridges(target) if target is not None else list(remote.endpoints or ())
    if endpoints:
        section["endpoints"] = ", ".join(endpoints)
    if remote.over is not None:
        section["over"] = remote.over
    if remote.peer_names is not None:
        section["peerNames"] = ", ".join(remote.peer_names)
    elif remote.over is None and site.own_bridge_tls:
        section["peerNames"] = site.own_bridges.get(remote.site, remote.site)
    elif remote.over is None and site.bridge_tls is not None:
        section["peerNames"] = _ANY_NAME
    return section
