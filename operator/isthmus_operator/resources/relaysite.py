"""The `RelaySite` kind: a site of a group, whose members are the replicas of a Router."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .addresses import PARTIAL_WILDCARD, TOKEN
from .base import PEER_NAME, ListMap, Metadata, Model, NodePort, ObjectName, Port, Rule, Text
from .relaysite_status import RelaySiteStatus
from .tls import GossipTls, PeerTls

SITE_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LABEL = r"[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?"
HOST = rf"({_LABEL}(\.{_LABEL})*\.?|\[[0-9a-fA-F:.]+\])"
_PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
ENDPOINT = rf"^{HOST}(:{_PORT})?$"
MULTICAST = r"^(22[4-9]|23[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}$"
_NOT_OF_CLIENTS = r"^[./]*([$_]|relay([./]|$))"
"""Addresses of routers, and those that are the groups' own."""
PLAIN_ADDRESS = r"^[^_$/.\s*#\x00]([^\s*#\x00]{0,149}[^\s*#/.\x00])?$"

SiteName = Annotated[str, Field(min_length=1, max_length=63, pattern=SITE_NAME)]
HostAndPort = Annotated[str, Field(min_length=1, max_length=262, pattern=ENDPOINT)]
PlainAddress = Annotated[str, Field(min_length=1, max_length=151, pattern=PLAIN_ADDRESS)]
PeerName = Annotated[str, Field(min_length=1, max_length=256, pattern=PEER_NAME)]


class RouterRef(Model):
    """A Router in the same namespace."""

    name: ObjectName
    """Name of the Router."""


class GossipRouterRef(Model):
    """A GossipRouter in the same namespace."""

    name: ObjectName
    """Name of the GossipRouter."""


class RelaySiteRef(Model):
    """A RelaySite in the same namespace."""

    name: ObjectName
    """Name of the RelaySite."""


class Multicast(Model):
    """UDP multicast."""

    address: Annotated[str, Field(min_length=1, max_length=15, pattern=MULTICAST)] = "239.192.78.0"
    """IPv4 group."""

    port: Port = 7800
    """UDP port."""

    accept_insecure: bool = False
    """The condition `Insecure` does not report that multicast messages have no authentication."""


class SiteDiscovery(Model):
    """How the members find each other."""

    type: Literal["dns", "hostList", "multicast", "gossipRouter", "tunnel"] = "dns"
    """`dns`: the pods' addresses behind a headless Service. `hostList`: fixed hosts. `multicast`: UDP multicast, which
    most pod networks do not carry. `gossipRouter`: gossip routers tell the addresses of members. `tunnel`: gossip
    routers carry everything between members, where those cannot reach each other."""

    hosts: Annotated[list[HostAndPort], Field(min_length=1, max_length=64)] | None = None
    """`hostList`: the members, as `host` or `host:port`, `memberPort` if not given. A replica is
    `<router>-<number>.<router>-mesh`; `isthmus local` asks the ports of its own processes instead."""

    port_range: Annotated[int, Field(ge=0, le=100)] = 0
    """`hostList`: ports after each one given that are tried as well."""

    multicast: Multicast | None = None
    """`multicast`: group and port, if not the default."""

    gossip_router_ref: GossipRouterRef | None = None
    """`gossipRouter` and `tunnel`: a GossipRouter in the same namespace, all of its replicas."""

    gossip_routers: Annotated[list[HostAndPort], Field(min_length=1, max_length=16)] | None = None
    """`gossipRouter` and `tunnel`: gossip routers elsewhere, as `host` or `host:port`, port 12001 if not given."""

    gossip_tls: GossipTls | None = None
    """Transport security towards gossip routers. When absent, connections to `gossipRouterRef` use certificates of the
    namespace's own authority, or clear text where `tls.disabled` of the GossipRouter states it. `gossipRouters` need
    it. With `tunnel` its certificates must have one of `spec.peerNames`. Without `spec.tls` they must have the name of
    the Router."""

    rules: ClassVar = (
        Rule(
            "(has(self.type) && self.type == 'hostList') == has(self.hosts)",
            "discovery.hosts goes with discovery.type hostList, which needs it",
            ".hosts",
            lambda self: (self.type == "hostList") == (self.hosts is not None),
        ),
        Rule(
            "!has(self.portRange) || self.portRange == 0 || (has(self.type) && self.type == 'hostList')",
            "discovery.portRange needs discovery.type hostList",
            ".portRange",
            lambda self: self.port_range == 0 or self.type == "hostList",
        ),
        Rule(
            "!has(self.multicast) || (has(self.type) && self.type == 'multicast')",
            "discovery.multicast needs discovery.type multicast",
            ".multicast",
            lambda self: self.multicast is None or self.type == "multicast",
        ),
        Rule(
            "(has(self.type) && self.type in ['gossipRouter', 'tunnel'])"
            " == (has(self.gossipRouterRef) || has(self.gossipRouters))",
            "discovery.gossipRouterRef or gossipRouters goes with discovery.type gossipRouter or tunnel, which need it",
            ".gossipRouterRef",
            lambda self: (
                self.through_gossip == (self.gossip_router_ref is not None or self.gossip_routers is not None)
            ),
        ),
        Rule(
            "!(has(self.gossipRouterRef) && has(self.gossipRouters))",
            "only one of discovery.gossipRouterRef and discovery.gossipRouters may be set",
            ".gossipRouters",
            lambda self: self.gossip_router_ref is None or self.gossip_routers is None,
        ),
        Rule(
            "!has(self.gossipTls) || has(self.gossipRouterRef) || has(self.gossipRouters)",
            "discovery.gossipTls needs discovery.gossipRouterRef or gossipRouters",
            ".gossipTls",
            lambda self: (
                self.gossip_tls is None
                or self.gossip_router_ref is not None
                or self.gossip_routers is not None
            ),
        ),
    )

    @property
    def through_gossip(self) -> bool:
        """Gossip routers are asked."""
        return self.type in {"gossipRouter", "tunnel"}


class Bridge(Model):
    """Where other sites reach this one."""

    port: Port = 7900
    """Port of the members for other sites."""

    expose: Literal["ClusterIP", "NodePort", "LoadBalancer", "None"] = "ClusterIP"
    """How it is reached: by a headless Service `<name>-bridge` (`ClusterIP`), by a Service of type `NodePort` or
    `LoadBalancer` of that name, or not at all (`None`), for a site that only dials. The installation must allow
    `NodePort` and `LoadBalancer` (`restrictions.allowedExposures` of the chart); the site has `ClusterIP` otherwise."""

    node_port: NodePort | None = None
    """Fixed node port with `expose` `NodePort` or `LoadBalancer`; chosen by the cluster when absent."""

    service_annotations: (
        Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] | None
    ) = None
    """Annotations of the Service, for example for a cloud load balancer. Keys with a domain need
    `restrictions.allowedMetadata` of the chart."""

    tls: PeerTls | None = None
    """Transport security between sites, with certificates on both ends; those of the namespace's own authority when
    absent, which only sites of the same namespace trust."""

    rules: ClassVar = (
        Rule(
            "!has(self.nodePort) || (has(self.expose) && self.expose in ['NodePort', 'LoadBalancer'])",
            "bridge.nodePort needs bridge.expose NodePort or LoadBalancer",
            ".nodePort",
            lambda self: self.node_port is None or self.expose in {"NodePort", "LoadBalancer"},
        ),
        Rule(
            "!has(self.serviceAnnotations) || !has(self.expose) || self.expose != 'None'",
            "bridge.serviceAnnotations needs a Service; bridge.expose is None",
            ".serviceAnnotations",
            lambda self: self.service_annotations is None or self.expose != "None",
        ),
    )


class RemoteSite(Model):
    """Another site of the group. Without `endpoints`, `relaySiteRef` and `over`, that site dials this one."""

    site: SiteName
    """Its name."""

    endpoints: Annotated[list[HostAndPort], Field(min_length=1, max_length=16)] | None = None
    """Where it is reached, as `host` or `host:port`, port 7900 if not given: the address of its bridge Service. All
    addresses of a name are tried."""

    relay_site_ref: RelaySiteRef | None = None
    """A RelaySite of the same namespace, in place of endpoints."""

    over: PlainAddress | None = None
    """Address at which the relays meet where the routers of both sites are one network, in place of endpoints. It has
    no wildcards, and does not begin with `relay/`, `$` or `_`. There are no certificates: anyone who may attach to an
    address below it can act as the site. Exclude these addresses in `policy` of all Routers of the network; the
    condition `Insecure` reports the site (`UnauthenticatedSite`) unless `acceptInsecure` is set."""

    peer_names: Annotated[list[PeerName], Field(min_length=1, max_length=16)] | None = None
    """Names, one of which the certificate of its relays must have. `*.` stands for one label. When absent, certificates
    of the namespace's own authority must have the name of the Router of that site. Any certificate of the authority of
    `bridge.tls` is accepted, and the condition `Insecure` reports it (`UnboundNames`)."""

    accept_insecure: bool = False
    """The condition `Insecure` does not report that a site with `over` is reached without certificates."""

    rules: ClassVar = (
        Rule(
            "!has(self.acceptInsecure) || !self.acceptInsecure || has(self.over)",
            "acceptInsecure of a remote site needs over",
            ".acceptInsecure",
            lambda self: not self.accept_insecure or self.over is not None,
        ),
        Rule(
            "(has(self.endpoints) ? 1 : 0) + (has(self.relaySiteRef) ? 1 : 0) + (has(self.over) ? 1 : 0) <= 1",
            "only one of endpoints, relaySiteRef and over may be set for a remote site",
            ".endpoints",
            lambda self: [self.endpoints, self.relay_site_ref, self.over].count(None) >= 2,
        ),
        Rule(
            f"!has(self.over) || !self.over.matches('{_NOT_OF_CLIENTS}')",
            "over must not be an address below relay/, which are the group's own; take another, as bridges/trades",
            ".over",
            lambda self: self.over is None or not re.search(_NOT_OF_CLIENTS, self.over),
        ),
    )


class SiteAddress(Model):
    """Addresses that are multicast to sites."""

    pattern: Text
    """Tokens separated by `.` or `/`; `*` is one token, `#` any number. The most specific match counts."""

    sites: Annotated[list[SiteName], Field(max_length=32)] | None = None
    """Remote sites that get the messages too; none of them if empty, all when absent."""

    rules: ClassVar = (
        Rule(
            f"!self.pattern.matches('{PARTIAL_WILDCARD}')",
            "a wildcard in pattern must be a whole token, as in orders/# or a/*/b",
            ".pattern",
            lambda self: not re.search(PARTIAL_WILDCARD, self.pattern),
        ),
        Rule(
            f"self.pattern.matches('{TOKEN}')",
            "pattern has nothing but separators; use # for all addresses",
            ".pattern",
            lambda self: re.search(TOKEN, self.pattern) is not None,
        ),
        Rule(
            f"!self.pattern.matches('{_NOT_OF_CLIENTS}')",
            "pattern must not begin with relay/ (relay/<group> is multicast anyway), $ or _ (addresses of routers)",
            ".pattern",
            lambda self: not re.search(_NOT_OF_CLIENTS, self.pattern),
        ),
    )


class Buffer(Model):
    """What is kept for remote sites that have not acknowledged it. Beyond the first bound that is reached, the oldest
    is dropped, counted, and told to them as a gap."""

    messages: Annotated[int, Field(ge=1, le=2_147_483_647)] = 65_536
    """Number of messages."""

    bytes: Annotated[int, Field(ge=1024, le=2**40)] = 64 * 1024 * 1024
    """Their size."""

    seconds: Annotated[int, Field(ge=0, le=604_800)] = 60
    """Their age; 0 is any."""


class RelaySiteSpec(Model):
    """Desired state of a site."""

    router_ref: RouterRef
    """The interior Router whose replicas are the members of the site."""

    group: SiteName
    """Name of the group: what is sent to `relay/<group>` reaches every receiver of it in every site."""

    site: SiteName
    """Name of the site, which no other one of the group has."""

    member_port: Port = 7800
    """Port of the members for each other."""

    discovery: SiteDiscovery = SiteDiscovery()
    """How the members find each other."""

    tls: PeerTls | None = None
    """Transport security between the members, with certificates on both ends; those of the namespace's own authority
    when absent."""

    peer_names: Annotated[list[PeerName], Field(min_length=1, max_length=16)] | None = None
    """Names, one of which a member's certificate must have. `*.` stands for one label. When absent, any certificate of
    the authority of `tls` is accepted, and the condition `Insecure` reports it (`UnboundNames`)."""

    bridge: Bridge = Bridge()
    """Where other sites reach this one."""

    remote_sites: Annotated[list[RemoteSite], Field(max_length=32), ListMap("site")] | None = None
    """The other sites of the group. Each site names all others that its messages are for."""

    addresses: Annotated[list[SiteAddress], Field(max_length=64), ListMap("pattern")] | None = None
    """Addresses that are multicast beside `relay/<group>`."""

    relays: Annotated[int, Field(ge=1, le=8)] = 1
    """Members, the oldest ones, that carry messages to other sites at the same time."""

    copies: Annotated[int, Field(ge=1, le=3)] = 2
    """Members that must have a message before its sender learns that it is accepted."""

    buffer: Buffer = Buffer()
    """What is kept for remote sites that cannot be reached or are slow."""

    max_message_bytes: Annotated[int, Field(ge=1024, le=15 * 1024 * 1024)] = 1024 * 1024
    """Largest message taken for the group; a larger one is rejected."""

    state_address: PlainAddress | None = None
    """Address at which applications receive that give their state to those that come later, say `trades/state`; no
    state when absent. It has no wildcards, and does not begin with `relay/`, `$` or `_`."""

    rules: ClassVar = (
        Rule(
            "!has(self.remoteSites) || self.remoteSites.all(r, r.site != self.site)",
            "remoteSites must not name the own site (spec.site)",
            ".remoteSites",
            lambda self: all(item.site != self.site for item in self.remote_sites or ()),
        ),
        Rule(
            "!has(self.addresses) || self.addresses.all(a, !has(a.sites)"
            " || a.sites.all(s, has(self.remoteSites) && self.remoteSites.exists(r, r.site == s)))",
            "addresses[].sites must be sites of remoteSites",
            ".addresses",
            lambda self: (
                {name for item in self.addresses or () for name in item.sites or ()}
                <= {item.site for item in self.remote_sites or ()}
            ),
        ),
        Rule(
            "(has(self.bridge) && has(self.bridge.port) ? self.bridge.port : 7900)"
            " != (has(self.memberPort) ? self.memberPort : 7800)",
            "bridge.port must not be memberPort",
            ".bridge.port",
            lambda self: self.bridge.port != self.member_port,
        ),
        Rule(
            f"!has(self.stateAddress) || !self.stateAddress.matches('{_NOT_OF_CLIENTS}')",
            "stateAddress must not be an address below relay/, where others receive; take another, as trades/state",
            ".stateAddress",
            lambda self: self.state_address is None or not re.search(_NOT_OF_CLIENTS, self.state_address),
        ),
        Rule(
            "!has(self.peerNames) || has(self.tls)",
            "peerNames needs tls: without it there are no certificates",
            ".peerNames",
            lambda self: self.peer_names is None or self.tls is not None,
        ),
        Rule(
            "!has(self.remoteSites) || self.remoteSites.all(r, !has(r.peerNames))"
            " || (has(self.bridge) && has(self.bridge.tls))",
            "remoteSites[].peerNames needs bridge.tls: without it there are no certificates",
            ".remoteSites",
            lambda self: (
                self.bridge.tls is not None
                or all(item.peer_names is None for item in self.remote_sites or ())
            ),
        ),
    )


class RelaySite(Model):
    """A site of a group: routers that multicast among themselves and, through relays, to the other sites."""

    kind_name: ClassVar = "RelaySite"

    metadata: Metadata
    spec: RelaySiteSpec
    """Desired state."""

    status: RelaySiteStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name
