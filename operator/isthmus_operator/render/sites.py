"""RelaySites become sections of the routers that are their members. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..admitted_sites import admitted_sites
from ..authority import router_profile
from ..model import NamespaceModel
from ..names import base_name
from ..resources import RelaySite, Router
from ..resources.relaysite import RemoteSite
from ..resources.tls import GossipTls, PeerTls, given
from .instances import Finding, GossipTarget, SiteInstance, SiteTarget
from .material import Material, MaterialError, Used, sections_of

_DISCOVERY = ("discovery", "discoveryHosts", "portRange", "multicastAddress", "multicastPort")


@dataclass(frozen=True)
class Membership:
    """A RelaySite that its Router is to be in, before its certificates have been looked for."""

    site: RelaySite
    targets: Mapping[str, SiteTarget]
    gossip: GossipTarget | None
    gossip_tls: PeerTls | GossipTls | None
    """The certificates for connections with gossip routers; None: clear text, or there are no such connections."""
    earlier_discovery: Mapping[str, Any] | None
    files: Mapping[str, bytes]
    """What the routers have now."""
    own: PeerTls | None
    """The certificate of the Router by the namespace's own authority; None where there is no such authority."""
    neighbors: Mapping[str, RelaySite]
    """The remote sites of the same group that are RelaySites of the same namespace and not refused, by site."""


def memberships(model: NamespaceModel) -> tuple[Mapping[str, Membership], list[Finding]]:
    """By Router, and what stands in the way of others."""
    admitted, refused = admitted_sites(model.relay_sites.values(), model.routers, model.hints)
    findings = [Finding("RelaySite", name, *problem) for name, problem in refused.items()]
    found: dict[str, Membership] = {}
    by_site = {(site.spec.group, site.spec.site): site for site in admitted}
    for site in admitted:
        spec = site.spec
        targets, troubles = _targets(site, model)
        replicas = model.routers[spec.router_ref.name].spec.replicas
        if spec.relays > replicas > 0:
            message = (
                f'spec.relays is {spec.relays}, but Router "{spec.router_ref.name}" (spec.routerRef) has '
                f"{replicas} replicas; lower it, or have more replicas"
            )
            troubles = [*troubles, ("InvalidSpec", message)]
        files = model.delivered.get(spec.router_ref.name, {})
        gossip, unusable = _gossip(site, model)
        profile = router_profile(spec.router_ref.name)
        own = PeerTls.model_construct(ssl_profile=profile) if profile in model.own else None
        gossip_tls = _gossip_tls(site, model, own)
        earlier_discovery = None
        if unusable is not None:
            reason, trouble = unusable
            earlier = _earlier(site, model.namespace, files)
            if not earlier:
                findings.append(Finding("RelaySite", site.name, reason, trouble))
                continue
            earlier_discovery = {name: earlier[name] for name in _DISCOVERY if name in earlier}
            if "gossipSslProfile" not in earlier:
                gossip_tls = None
            troubles = [*troubles, (reason, f"{trouble}; the members find each other as before")]
        findings += [Finding("RelaySite", site.name, *item, in_effect=True) for item in troubles]
        neighbors = {
            remote.site: by_site[spec.group, remote.site]
            for remote in spec.remote_sites or ()
            if (spec.group, remote.site) in by_site
        }
        found[spec.router_ref.name] = Membership(
            site, targets, gossip, gossip_tls, earlier_discovery, files, own, neighbors
        )
    return found, findings


def site_instance(
    membership: Membership, router: Router, namespace: str, material: Material
) -> tuple[SiteInstance, list[tuple[str, str]]]:
    """The instance, and why it goes on with certificates it had before, or without as before: reasons and messages.
    Raises MaterialError at a new site: that never runs without those it is to have."""
    site, spec = membership.site, membership.site.spec
    peers = ("ca.crt", "tls.crt", "tls.key")
    used: dict[str, Used] = {}
    kept: list[tuple[str, str]] = []
    own = membership.own
    for attribute, tls, needed in (
        ("sslProfile", _peer_tls(spec.tls, own), peers),
        ("bridgeSslProfile", _peer_tls(spec.bridge.tls, own), peers),
        ("gossipSslProfile", membership.gossip_tls, peers),
    ):
        if tls is None:
            continue
        try:
            found = used[attribute] = material.profile(("relaySite", attribute), tls, needed, dialled=False)
        except MaterialError as missing:
            earlier = _earlier(site, namespace, membership.files)
            if not earlier or attribute in earlier:
                raise
            kept.append((missing.reason, f"{missing}; the members go on without TLS, as they have"))
        else:
            if found.complaint is not None:
                kept.append((found.complaint.reason, found.complaint.kept("certificates")))
    names = {attribute: item.name for attribute, item in used.items()}
    instance = SiteInstance(
        name=site.name,
        router=router.name,
        domain=f"{namespace}/{site.name}",
        replicas=router.spec.replicas,
        spec=spec,
        targets=membership.targets,
        gossip=membership.gossip,
        earlier_discovery=membership.earlier_discovery,
        tls=names.get("sslProfile"),
        bridge_tls=names.get("bridgeSslProfile"),
        gossip_tls=names.get("gossipSslProfile"),
        own_tls="sslProfile" in names and spec.tls is None,
        own_bridges={
            other: base_name(item.spec.router_ref.name)
            for other, item in membership.neighbors.items()
            if "bridgeSslProfile" in names and spec.bridge.tls is None and item.spec.bridge.tls is None
        },
        own_bridge_tls="bridgeSslProfile" in names and spec.bridge.tls is None,
    )
    return instance, kept


def _peer_tls(stated: PeerTls | None, own: PeerTls | None) -> PeerTls | None:
    """The certificates to use: those stated, else those of the namespace's own authority; None in clear text."""
    if stated is None:
        return own
    return None if stated.disabled else stated


def _earlier(site: RelaySite, namespace: str, files: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Attributes of the section of this RelaySite that its routers have now. A reference to what is not there does not
    take a running site away from them."""
    own = (site.spec.group, site.spec.site, f"{namespace}/{site.name}")
    for kind, attributes in sections_of(files):
        if kind == "relaySite" and tuple(map(attributes.get, ("group", "site", "domain"))) == own:
            return attributes
    return {}


def _targets(
    site: RelaySite, model: NamespaceModel
) -> tuple[Mapping[str, SiteTarget], Sequence[tuple[str, str]]]:
    """The remote sites of the same model, and what is wrong with others, which are left out."""
    targets: dict[str, SiteTarget] = {}
    troubles: list[tuple[str, str]] = []
    for remote in site.spec.remote_sites or ():
        if remote.relay_site_ref is None:
            continue
        other = model.relay_sites.get(remote.relay_site_ref.name)
        problem = _mismatch(site, remote, other)
        router = model.routers.get(other.spec.router_ref.name) if other is not None else None
        if problem is not None or other is None:
            troubles.append(problem or ("Pending", ""))
        elif router is None:
            name = other.spec.router_ref.name
            troubles.append(("Pending", f'Router "{name}" of RelaySite "{other.name}" does not exist'))
        else:
            targets[remote.site] = SiteTarget(
                other.name, router.name, router.spec.replicas, other.spec.bridge.port
            )
    return targets, troubles


def _mismatch(site: RelaySite, remote: RemoteSite, other: RelaySite | None) -> tuple[str, str] | None:
    assert remote.relay_site_ref is not None
    name, where = remote.relay_site_ref.name, f'remote site "{remote.site}"'
    if other is None:
        return "Pending", f'{where}: RelaySite "{name}" (relaySiteRef) does not exist'
    if other.spec.group != site.spec.group:
        own, its = site.spec.group, other.spec.group
        return "GroupMismatch", f'{where}: RelaySite "{name}" is of group "{its}", this one of "{own}"'
    if other.spec.site != remote.site:
        return "SiteMismatch", f'{where}: RelaySite "{name}" is site "{other.spec.site}"; name that one'
    ends = [item.spec.bridge.tls for item in (site, other)]
    if any(tls is not None and tls.disabled for tls in ends):
        if not all(tls is not None and tls.disabled for tls in ends):
            return "TlsMismatch", f'{where}: RelaySite "{name}": only one of both has bridge.tls.disabled'
    elif (other.spec.bridge.tls is None) != (site.spec.bridge.tls is None):
        has, lacks = ("this one", "that one") if other.spec.bridge.tls is None else ("that one", "this one")
        return "TlsMismatch", f'{where}: RelaySite "{name}": {has} has bridge.tls, {lacks} has not'
    if other.spec.bridge.expose == "None":
        return (
            "NotExposed",
            f'{where}: RelaySite "{name}" has bridge.expose None, so it has no Service to dial',
        )
    return None


def _gossip_tls(site: RelaySite, model: NamespaceModel, own: PeerTls | None) -> PeerTls | GossipTls | None:
    """The certificates for connections with gossip routers: those stated, else the own ones, unless the GossipRouter
    states clear text."""
    discovery = site.spec.discovery
    if not discovery.through_gossip:
        return None
    if discovery.gossip_tls is not None:
        return given(discovery.gossip_tls)
    reference = discovery.gossip_router_ref
    found = model.gossip_routers.get(reference.name) if reference is not None else None
    return None if found is not None and found.spec.tls is not None else own


def _gossip(site: RelaySite, model: NamespaceModel) -> tuple[GossipTarget | None, tuple[str, str] | None]:
    """The GossipRouter of the same model, or the reason and the message why the gossip routers cannot be used."""
    discovery = site.spec.discovery
    reference = discovery.gossip_router_ref
    if reference is None:
        if discovery.through_gossip and discovery.gossip_tls is None:
            message = (
                "connections with spec.discovery.gossipRouters need TLS; set gossipTls there, or "
                "gossipTls.disabled to allow clear text"
            )
            return None, ("TlsRequired", message)
        return None, None
    problem = _unfit_gossip(reference.name, site, model)
    if problem is not None:
        return None, problem
    found = model.gossip_routers[reference.name]
    return GossipTarget(found.name, found.spec.replicas, found.spec.port), None


def _unfit_gossip(name: str, site: RelaySite, model: NamespaceModel) -> tuple[str, str] | None:
    """Why members cannot use the GossipRouter `name` of the same model: reason and message."""
    found, stated = model.gossip_routers.get(name), site.spec.discovery.gossip_tls
    if found is None:
        return "Pending", f'GossipRouter "{name}" (spec.discovery.gossipRouterRef) does not exist'
    if found.spec.replicas == 0:
        return "Pending", f'GossipRouter "{name}" (spec.discovery.gossipRouterRef) is scaled to zero'
    if found.own_tls:
        if stated is not None:
            whose = "uses certificates of the namespace's own authority"
            fix = "remove spec.discovery.gossipTls, or set spec.tls of the GossipRouter as well"
            return "TlsMismatch", f'GossipRouter "{name}" {whose}; {fix}'
    elif given(found.spec.tls) is None:
        if given(stated) is not None:
            return "TlsMismatch", f'GossipRouter "{name}" does not use TLS; remove spec.discovery.gossipTls'
    elif given(stated) is None:
        return "TlsMismatch", f'GossipRouter "{name}" uses TLS; set spec.discovery.gossipTls'
    return None
