"""Names and labels of everything the operator makes.

Derived names must be DNS labels of at most 63 characters (a Service's, a pod's), while a resource's own
name may be a DNS subdomain of 253. A name that does not fit is cut and gets a hash of the full one, so
two long names that begin alike stay different.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterable

from .resources.base import GROUP

MANAGER = "isthmus-operator"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_USE = f"{GROUP}/use"
"""On a Secret, with the value `true`: Isthmus resources of its namespace may use it."""
LABEL_ROUTER = f"{GROUP}/router"
LABEL_PROFILE = f"{GROUP}/sslprofile"
LABEL_FLOW_LOG = f"{GROUP}/flowlog"
LABEL_FLOW_ANALYSIS = f"{GROUP}/flowanalysis"
ANNOTATION_RUN = f"{GROUP}/run"
ANNOTATION_GENERATED = f"{GROUP}/generated"
"""On a Secret of the operator: the key whose value the operator makes at random, once."""
ANNOTATION_APPLIED = f"{GROUP}/applied-hash"
ANNOTATION_RESTART = f"{GROUP}/restart-hash"
ANNOTATION_SYNC = f"{GROUP}/config-sync"

CHILD_KINDS = (
    "ServiceAccount",
    "Secret",
    "Service",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "RoleBinding",
    "StatefulSet",
    "Deployment",
    "Job",
    "CronJob",
)
"""Kinds of objects that the operator makes."""

MAX_LABEL = 63
MAX_BASE = 40
"""Room for `-<listener>` (25) in a Service's name, and for the revision hash that the StatefulSet
controller appends to the set's name in a label."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def base_name(router: str) -> str:
    """The name that all objects of the Router `router` derive from: its own where that is possible."""
    if _LABEL.fullmatch(router) and len(router) <= MAX_BASE:
        return router
    label = re.sub(r"[^a-z0-9-]", "-", router.lower())
    if not label[0].isalpha():
        label = f"r-{label}"
    return bounded(label, MAX_BASE, router)


def derived(base: str, suffix: str) -> str:
    """`base-suffix`, cut to a label."""
    name = f"{base}-{suffix}"
    return name if len(name) <= MAX_LABEL else bounded(name, MAX_LABEL, name)


def mesh_service(router: str) -> str:
    """The headless Service that gives every interior pod a DNS name."""
    return derived(base_name(router), "mesh")


def config_secret(router: str) -> str:
    """The Secret with the configuration and key material of a Router's pods."""
    return derived(base_name(router), "config")


def ledger_secret(profile: str) -> str:
    """The Secret with the certificates in service of an SslProfile, and its ordinals."""
    return derived(base_name(profile), "sslprofile")


def certificates_secret(base: str) -> str:
    """The same for the certificates of a Router or GossipRouter that the namespace's own authority has signed; `base`
    is the name that its objects derive from."""
    return derived(base, "certificates")


def listener_service(router: str, listener: str) -> str:
    """The NodePort or LoadBalancer Service of one listener."""
    return derived(base_name(router), listener)


def bridge_service(site: str) -> str:
    """The Service by which other sites reach a RelaySite."""
    return derived(base_name(site), "bridge")


def gossip_name(gossip_router: str) -> str:
    """The StatefulSet of a GossipRouter, its headless Service and everything else it is made of."""
    return derived(base_name(gossip_router), "gossip")


def gossip_exposed_service(gossip_router: str) -> str:
    """The NodePort or LoadBalancer Service of a GossipRouter."""
    return derived(gossip_name(gossip_router), "exposed")


def gossip_selector(gossip_router: str) -> dict[str, str]:
    """Labels that select a GossipRouter's pods. Never to change: selectors are immutable."""
    return {LABEL_NAME: "isthmus-gossip-router", LABEL_INSTANCE: base_name(gossip_router)}


def gossip_labels(gossip_router: str) -> dict[str, str]:
    """Labels of every object of a GossipRouter."""
    return {
        **gossip_selector(gossip_router),
        LABEL_COMPONENT: "gossip-router",
        LABEL_PART_OF: "isthmus",
        LABEL_MANAGED_BY: MANAGER,
    }


def flow_log_name(flow_log: str) -> str:
    """The collector of a FlowLog and everything else it is made of."""
    return derived(base_name(flow_log), "flowlog")


def flow_log_selector(flow_log: str) -> dict[str, str]:
    """Labels that select a FlowLog's collector. Never to change: selectors are immutable."""
    return {LABEL_NAME: "isthmus-flow-collector", LABEL_INSTANCE: base_name(flow_log)}


def flow_log_labels(flow_log: str) -> dict[str, str]:
    """Labels of every object of a FlowLog."""
    return {
        **flow_log_selector(flow_log),
        LABEL_COMPONENT: "flow-collector",
        LABEL_PART_OF: "isthmus",
        LABEL_MANAGED_BY: MANAGER,
        LABEL_FLOW_LOG: base_name(flow_log),
    }


def flow_analysis_name(analysis: str) -> str:
    """The objects of a FlowAnalysis; those of its runs begin with it."""
    return derived(base_name(analysis), "analysis")


def driver_binding(analysis: str, kind: str = "Role") -> str:
    """The RoleBinding that gives the drivers of a FlowAnalysis a Role or a ClusterRole. Kubernetes lets no RoleBinding
    give another one, and it depends on the installation which of the two it is."""
    name = flow_analysis_name(analysis)
    return name if kind == "Role" else derived(name, "cluster-role")


def store_keys(owner: str) -> str:
    """The Secret with the keys of an object store, for the pods of a FlowLog or FlowAnalysis whose objects are called
    `owner`."""
    return derived(owner, "store-keys")


def objects_of(resource: str) -> frozenset[str]:
    """The names of the objects that the operator makes for resources with this name, of any kind, other than Secrets,
    Services and Jobs."""
    return frozenset((*_bases(resource), driver_binding(resource, "ClusterRole")))


def secrets_of(resource: str) -> frozenset[str]:
    """The Secrets that the operator makes for resources with this name, of any kind."""
    found = {config_secret(resource), ledger_secret(resource)}
    for owner in _bases(resource):
        found |= {owner, certificates_secret(owner), store_keys(owner)}
    return frozenset(found)


def _bases(resource: str) -> list[str]:
    return [name(resource) for name in (base_name, gossip_name, flow_log_name, flow_analysis_name)]


def flow_analysis_labels(analysis: str, component: str = "flow-analysis") -> dict[str, str]:
    """Labels of every object of a FlowAnalysis; `component` tells driver and executors."""
    return {
        LABEL_NAME: "isthmus-flow-analysis",
        LABEL_INSTANCE: base_name(analysis),
        LABEL_COMPONENT: component,
        LABEL_PART_OF: "isthmus",
        LABEL_MANAGED_BY: MANAGER,
        LABEL_FLOW_ANALYSIS: base_name(analysis),
    }


def annotation_of_file(name: str) -> str:
    """The annotation of a driver's pod that has the content of the file of this name."""
    return f"{GROUP}/{name}"


def scraped(port: int) -> dict[str, str]:
    """Annotations by which a Prometheus without its operator finds the metrics of a pod."""
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


def instance_id(router: str, ordinal: int) -> str:
    """Router id of an interior replica, and its pod's name."""
    return f"{base_name(router)}-{ordinal}"


def selector(router: str) -> dict[str, str]:
    """Labels that select a Router's pods. Never to change: selectors are immutable."""
    return {LABEL_NAME: "isthmus-router", LABEL_INSTANCE: base_name(router)}


def labels(router: str, mode: str) -> dict[str, str]:
    """Labels of every object of a Router."""
    return {
        **selector(router),
        LABEL_COMPONENT: mode,
        LABEL_PART_OF: "isthmus",
        LABEL_MANAGED_BY: MANAGER,
        LABEL_ROUTER: base_name(router),
    }


def digest(text: str | bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()


def bounded(name: str, limit: int, full: str) -> str:
    """`name` cut to at most `limit` characters, the last nine of them a hash of `full`."""
    return f"{name[: limit - 9].rstrip('-')}-{digest(full)[:8]}"


MAX_HINT_NAME = 64
"""Longer names have no hint: a comparison takes time in the square of the length."""
MAX_HINT_NAMES = 200
MAX_COMPARISONS = 2_000
"""Names that one rendering compares at most."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that was probably meant by `name`. None if names are too long or too many to compare."""
    return next(iter(difflib.get_close_matches(name, _candidates(name, known), n=1, cutoff=0.6)), None)


def _candidates(name: str, known: Iterable[str]) -> list[str]:
    if len(name) > MAX_HINT_NAME:
        return []
    found = list(itertools.islice((item for item in known if len(item) <= MAX_HINT_NAME), MAX_HINT_NAMES + 1))
    return sorted(found) if len(found) <= MAX_HINT_NAMES else []


class Hints:
    """Suggestions of names for one rendering. After `MAX_COMPARISONS` comparisons there are no more."""

    def __init__(self) -> None:
        self._left = MAX_COMPARISONS

    def nearest(self, name: str, known: Iterable[str]) -> str | None:
        if self._left <= 0:
            return None
        candidates = _candidates(name, known)
        self._left -= 1 + len(candidates)
        return nearest(name, candidates)


def no_room(secret: str) -> str:
    """What to do about a Secret for whose content there is no room."""
    return (
        f'Secret "{secret}" is not read, as the Secrets that Isthmus resources of the namespace name have more than '
        "16 MiB; remove keys and shorten bundles of authorities in Secrets, or name fewer Secrets. The oldest Secrets "
        "are read first"
    )


def failure(error: Exception) -> str:
    """The message about a resource of which the operator fails to make something. The text of the error may contain
    what is in a Secret."""
    return f"the operator failed with {type(error).__name__}; its log has the details"


def reserved(secret: str) -> str:
    """What to do about a Secret of the operator."""
    return f'Secret "{secret}" is the operator\'s own, and resources must not name it; name another Secret'


def not_allowed(secret: str) -> str:
    """What to do about a Secret without the label that resources need to use it."""
    return (
        f'Secret "{secret}" has no label {LABEL_USE}=true, without which Isthmus resources may not use it; the owner '
        f"of the Secret can run: kubectl label secret {secret} {LABEL_USE}=true"
    )
