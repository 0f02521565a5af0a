"""What guards a Router's pods: identity without rights, disruption budget, network policy."""

from __future__ import annotations

from typing import Any

from ..names import base_name, labels, selector
from ..resources import Listener, Router
from ..resources.relaysite import Multicast
from .flows.listener import CollectorsListener
from .ingress import Source, collectors_rule, health_rule, rules
from .instances import SiteInstance
from .workload import RenderSettings


def _metadata(router: Router) -> dict[str, Any]:
    return {"name": base_name(router.name), "labels": labels(router.name, router.spec.mode)}


def service_account(router: Router, settings: RenderSettings) -> dict[str, Any]:
    """An account of its own, so that policies can name it; no token is ever mounted."""
    account: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(router),
        "automountServiceAccountToken": False,
    }
    if settings.image_pull_secrets:
        account["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return account


def disruption_budget(router: Router) -> list[dict[str, Any]]:
    """One pod at a time. None for a single replica, which could otherwise never be evicted."""
    if router.spec.replicas < 2:
        return []
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _metadata(router),
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": selector(router.name)},
            },
        }
    ]


def network_policy(
    router: Router,
    settings: RenderSettings,
    site: SiteInstance | None = None,
    collectors: CollectorsListener | None = None,
) -> list[dict[str, Any]]:
    """Each port of the listeners and of `site` accepts connections from where its peers are, and no other port any."""
    if router.spec.network_policy == "Disabled":
        return []
    ports = [(_source(item), item.port, "TCP") for item in router.spec.effective_listeners()]
    if site is not None:
        ports += _ports_of_site(site)
    ingress = rules(ports)
    if collectors is not None:
        ingress.append(collectors_rule(collectors.port, collectors.flow_logs))
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _metadata(router),
            "spec": {
                "podSelector": {"matchLabels": selector(router.name)},
                "policyTypes": ["Ingress"],
                "ingress": [*ingress, health_rule(router.spec.health_port, settings)],
            },
        }
    ]


def _source(listener: Listener) -> Source:
    if listener.exposure in {"NodePort", "LoadBalancer"}:
        return "anywhere"
    if listener.own_tls:
        return "routers of the namespace"
    if listener.role in {"inter-router", "edge"}:
        return "routers"
    return "cluster" if listener.exposure == "ClusterIP" else "namespace"


def _ports_of_site(site: SiteInstance) -> list[tuple[Source, int, str]]:
    """Members are replicas of one Router, however they find each other, and need no port of each other in a tunnel.
    Nobody connects to a bridge that is not exposed."""
    bridge = site.spec.bridge
    members: Source = "routers of the namespace"
    ports: list[tuple[Source, int, str]] = []
    if site.discovery != "tunnel":
        ports.append((members, site.spec.member_port, "TCP"))
    if site.discovery == "multicast":
        earlier = (site.earlier_discovery or {}).get("multicastPort")
        stated = site.spec.discovery.multicast or Multicast()
        ports.append((members, earlier or stated.port, "UDP"))
    if bridge.expose in {"NodePort", "LoadBalancer"}:
        ports.append(("anywhere", bridge.port, "TCP"))
    elif bridge.expose == "ClusterIP":
        others: Source = members if site.own_bridge_tls else "routers"
        ports.append((others, bridge.port, "TCP"))
    return ports
