"""What guards a Router's pods: identity without rights, disruption budget, network policy."""

from __future__ import annotations

from typing import Any

from ..names import base_name, labels, selector
from ..resources import Router
from ..resources.relaysite import Multicast
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


def network_policy(router: Router, site: SiteInstance | None = None) -> list[dict[str, Any]]:
    """Only the listeners, the health port and those of `site` accept connections."""
    if router.spec.network_policy == "Disabled":
        return []
    ports = [*(item.port for item in router.spec.effective_listeners()), router.spec.health_port]
    if site is not None:
        ports += [site.spec.member_port, site.spec.bridge.port]
    admitted = [{"port": port, "protocol": "TCP"} for port in ports]
    if site is not None and site.spec.discovery.type == "multicast":
        admitted.append({"port": (site.spec.discovery.multicast or Multicast()).port, "protocol": "UDP"})
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": _metadata(router),
            "spec": {
                "podSelector": {"matchLabels": selector(router.name)},
                "policyTypes": ["Ingress"],
                "ingress": [{"ports": admitted}],
            },
        }
    ]
