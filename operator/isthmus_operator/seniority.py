"""Which resource gets an object or a port that several resources claim: the oldest one. Pure and deterministic.

Times of creation have whole seconds. Of two resources of the same second, the one that controls the object keeps it.
The operator never takes an object of another resource over, so with any other rule neither of the two could get it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from .names import (
    base_name,
    bridge_service,
    certificates_secret,
    config_secret,
    driver_binding,
    flow_analysis_name,
    flow_log_name,
    gossip_exposed_service,
    gossip_name,
    listener_service,
    mesh_service,
    store_keys,
)
from .resources import FlowAnalysis, FlowLog, GossipRouter, RelaySite, Router

Owner = Router | GossipRouter | FlowLog | FlowAnalysis
T = TypeVar("T", bound=Owner)

Claim = tuple[str, str]
"""Kind and name of an object; or `nodePort` and a port of all nodes."""

NODE_PORT = "nodePort"

_KINDS = tuple(kind.kind_name for kind in (Router, GossipRouter, FlowLog, FlowAnalysis))
_NAMES = dict(zip(_KINDS, (base_name, gossip_name, flow_log_name, flow_analysis_name), strict=True))
_ALWAYS = ("ServiceAccount", "NetworkPolicy")
_OF_THE_NAME = {
    Router.kind_name: (*_ALWAYS, "Service", "PodDisruptionBudget", "StatefulSet", "Deployment"),
    GossipRouter.kind_name: (*_ALWAYS, "Secret", "Service", "PodDisruptionBudget", "StatefulSet"),
    FlowLog.kind_name: (*_ALWAYS, "Secret", "PersistentVolumeClaim", "Deployment"),
    FlowAnalysis.kind_name: (*_ALWAYS, "Secret", "CronJob"),
}
"""By kind of a resource, the kinds of its objects that have the one name."""


def oldest_first(owners: Iterable[T], juniors: Collection[str]) -> list[T]:
    """`owners` in the order in which they get the objects that they claim. `juniors` are the uids from the function of
    this name. Where nothing else decides, the order is that of kinds and names."""
    return sorted(
        owners,
        key=lambda item: (
            item.metadata.creation_timestamp,
            item.metadata.uid in juniors,
            _KINDS.index(item.kind_name),
            item.name,
        ),
    )


def juniors(
    owners: Iterable[Owner], sites: Iterable[RelaySite], controllers: Mapping[Claim, str]
) -> frozenset[str]:
    """The uids of the `owners` that claim an object or a port which another one of the same second claims and controls.
    `sites` are the RelaySites that count, `controllers` the uids of the controllers of objects and ports."""
    groups: dict[str, list[Owner]] = {}
    for owner in owners:
        groups.setdefault(owner.metadata.creation_timestamp, []).append(owner)
    site_of = {site.spec.router_ref.name: site for site in sites}
    found: set[str] = set()
    for group in groups.values():
        if len(group) > 1:
            wanted = {
                item.metadata.uid: frozenset(claim for claim in claims(item, site_of) if claim in controllers)
                for item in group
            }
            for uid, mine in wanted.items():
                others = ((claim, controllers[claim]) for claim in mine)
                if any(other != uid and claim in wanted.get(other, ()) for claim, other in others):
                    found.add(uid)
    return frozenset(found)


def claims(owner: Owner, site_of: Mapping[str, RelaySite]) -> Iterator[Claim]:
    """All objects that the operator may make for `owner`, except runs of analyses, and the ports of all nodes that it
    states. `site_of`: Router to the RelaySite that it is in."""
    base = _NAMES[owner.kind_name](owner.name)
    yield from ((kind, base) for kind in _OF_THE_NAME[owner.kind_name])
    if isinstance(owner, Router | GossipRouter) or (isinstance(owner, FlowLog) and owner.own_tls):
        yield "Secret", certificates_secret(base)
    if isinstance(owner, Router):
        yield "Secret", config_secret(owner.name)
        yield from _claims_of_router(owner, site_of.get(owner.name))
    elif isinstance(owner, GossipRouter):
        if owner.spec.expose != "ClusterIP":
            yield "Service", gossip_exposed_service(owner.name)
            yield from _node_port(owner.spec.node_port)
    else:
        yield "Secret", store_keys(base)
        if isinstance(owner, FlowAnalysis):
            yield from (("RoleBinding", driver_binding(owner.name, kind)) for kind in ("Role", "ClusterRole"))


def services_of_members(router: Router, site: RelaySite | None) -> Iterator[str]:
    """The names of the Services by which other replicas and other sites reach the pods of `router`, which is in
    `site`."""
    if router.spec.mode == "interior":
        yield mesh_service(router.name)
    if site is not None and site.spec.bridge.expose != "None":
        yield bridge_service(site.name)


def _claims_of_router(router: Router, site: RelaySite | None) -> Iterator[Claim]:
    yield from (("Service", name) for name in services_of_members(router, site))
    for listener in router.spec.effective_listeners():
        if listener.exposure in {"NodePort", "LoadBalancer"}:
            yield "Service", listener_service(router.name, listener.name)
            yield from _node_port(listener.node_port)
    if site is not None:
        yield from _node_port(site.spec.bridge.node_port)


def _node_port(port: int | None) -> Iterator[Claim]:
    if port is not None:
        yield NODE_PORT, str(port)
