"""Who may reach the ports of pods: the rules of NetworkPolicies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from ..names import LABEL_NAME, flow_log_selector
from .workload import RenderSettings

Source = Literal["anywhere", "cluster", "namespace", "routers", "routers of the namespace"]
Rule = dict[str, Any]

_ROUTERS = {"podSelector": {"matchLabels": {LABEL_NAME: "isthmus-router"}}}
_PEERS: dict[Source, list[dict[str, Any]]] = {
    "cluster": [{"namespaceSelector": {}}],
    "namespace": [{"podSelector": {}}],
    "routers": [{"namespaceSelector": {}, **_ROUTERS}],
    "routers of the namespace": [_ROUTERS],
}
NAMESPACE = "kubernetes.io/metadata.name"
"""Label with its name that Kubernetes gives each namespace."""


def rules(ports: Iterable[tuple[Source, int, str]]) -> list[Rule]:
    """A rule for each source with its ports; each port comes with its protocol."""
    grouped: dict[Source, list[dict[str, Any]]] = {}
    for source, port, protocol in ports:
        grouped.setdefault(source, []).append({"port": port, "protocol": protocol})
    return [
        {"ports": admitted, **({"from": _PEERS[source]} if source != "anywhere" else {})}
        for source, admitted in grouped.items()
    ]


def collectors_rule(port: int, flow_logs: Iterable[str]) -> Rule:
    """The port for collectors of flow records: pods of these FlowLogs of the namespace reach it."""
    peers = [{"podSelector": {"matchLabels": flow_log_selector(name)}} for name in flow_logs]
    return {"ports": [{"port": port, "protocol": "TCP"}], "from": peers}


def health_rule(port: int, settings: RenderSettings) -> Rule:
    """The port of probes, metrics and status.

    Any source may reach it, as the API server does for `isthmus status`, unless the installation names the namespaces
    that collect metrics.
    """
    admitted: Rule = {"ports": [{"port": port, "protocol": "TCP"}]}
    if not settings.monitoring_namespaces:
        return admitted
    others = sorted({*settings.monitoring_namespaces, *filter(None, (settings.operator_namespace,))})
    named = {"matchExpressions": [{"key": NAMESPACE, "operator": "In", "values": others}]}
    return {**admitted, "from": [{"podSelector": {}}, {"namespaceSelector": named}]}
