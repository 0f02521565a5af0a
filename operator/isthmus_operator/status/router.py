"""Status of a Router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..names import base_name, selector
from ..render import RouterInstance
from ..render.flows.listener import PORT_NAME
from ..render.instances import mesh_connector_name
from ..report import RouterReport, UplinkReport
from ..resources.router_status import MAX_INSTANCE_STATUSES
from .conditions import INSECURE, Verdict, conditions, joined, no, ready, unknown, yes
from .inputs import PodView, RouterFacts
from .insecure import router_insecure, shared_with_collectors, until_in_effect


def router_status(
    facts: RouterFacts, previous: Mapping[str, Any] | None, version: str, now: str
) -> dict[str, Any]:
    """The complete `status` of a Router."""
    router = facts.router
    configured, available, meshed = _configured(facts), _available(facts), _meshed(facts)
    verdicts = {
        "Configured": configured,
        "Available": available,
        "Meshed": meshed,
        "Ready": ready(_telling_order(configured, available, meshed)),
        INSECURE: until_in_effect(
            router_insecure(router, shared_with_collectors(facts.instances[:1])),
            previous,
            behind=facts.is_behind,
        ),
    }
    ids = {instance.id for instance in facts.instances} | {pod.name for pod in facts.pods}
    reports = [report for pod in facts.serving if (report := facts.report(pod)) is not None]
    status: dict[str, Any] = {
        "observedGeneration": router.metadata.generation,
        "conditions": conditions(verdicts, previous, router.metadata.generation, now),
        "replicas": len(facts.serving),
        "readyReplicas": sum(pod.ready for pod in facts.serving),
        "selector": ",".join(f"{key}={value}" for key, value in selector(router.name).items()),
        "neighbors": len({peer for report in reports for peer in report.neighbors} - ids),
        "instances": [_instance(facts, pod) for pod in facts.serving[:MAX_INSTANCE_STATUSES]],
        "endpoints": _endpoints(facts),
        "operatorVersion": version,
    }
    return status


def _telling_order(configured: Verdict, available: Verdict, meshed: Verdict) -> list[Verdict]:
    """A configuration that has not arrived is explained by the pods, when these are the trouble."""
    if configured.reason in {"ConfigPending", "RolloutInProgress"}:
        return [available, configured, meshed]
    return [configured, available, meshed]


# -- Configured


def _configured(facts: RouterFacts) -> Verdict:
    if facts.router.metadata.paused:
        return unknown("ReconciliationPaused", "the annotation isthmus.dev/paused is set")
    if facts.blocked is not None:
        return facts.blocked
    if facts.problems:
        return no(facts.problems[0].reason, (problem.message for problem in facts.problems))
    refused = [
        f"{pod.name}: {report.config_error}"
        for pod in facts.serving
        if (report := facts.report(pod)) is not None and report.config_error
    ]
    if refused:
        return no("ConfigRejected", refused)
    failed = [
        f'{pod.name}: listener "{name}": {message}'
        for pod in facts.serving
        if (report := facts.report(pod)) is not None
        for name, message in sorted(report.failed_listeners.items())
    ]
    if failed:
        return no("ListenerFailed", failed)
    if facts.rollout:
        return no("RolloutInProgress", facts.rollout)
    outdated = facts.outdated
    if outdated:
        return no("ConfigPending", outdated)
    return yes("Applied")


# -- Available


def _available(facts: RouterFacts) -> Verdict:
    wanted = facts.router.spec.replicas
    if wanted == 0:
        return yes("ScaledToZero", "no replicas are wanted")
    up = sum(pod.ready for pod in facts.serving)
    if up >= wanted:
        return yes("AllReplicasReady", f"{up} of {wanted} replicas are ready")
    reasons = [f"{up} of {wanted} replicas are ready"]
    reasons += [f"{pod.name}: {pod.trouble or 'not ready'}" for pod in facts.serving if not pod.ready]
    if facts.why_no_pods:
        reasons.append(facts.why_no_pods)
    return no("NoReplicaReady" if up == 0 else "ReplicasMissing", reasons)


# -- Meshed


def _meshed(facts: RouterFacts) -> Verdict:
    if facts.router.spec.replicas == 0:
        return yes("ScaledToZero", "no replicas are wanted")
    return _uplinks(facts) if facts.router.spec.mode == "edge" else _mesh(facts)


def _mesh(facts: RouterFacts) -> Verdict:
    """Every interior replica reaches every other one."""
    pods = {pod.name: pod for pod in facts.serving}
    expected = {instance.id: instance.ordinal for instance in facts.instances}
    missing = []
    for instance in facts.instances:
        pod = pods.get(instance.id)
        report = facts.report(pod) if pod is not None else None
        if report is None:
            missing.append(facts.silence(pod) if pod is not None else f"{instance.id} has no pod")
            continue
        seen = {instance.id, *report.nodes, *report.neighbors}
        missing += [
            _unseen(facts, instance, report, peer, ordinal)
            for peer, ordinal in expected.items()
            if peer not in seen
        ]
    if missing:
        return no("PeersMissing", missing)
    return yes("AllPeersSeen" if len(expected) > 1 else "SingleReplica")


def _unseen(
    facts: RouterFacts, instance: RouterInstance, report: RouterReport, peer: str, ordinal: int
) -> str:
    text = f"{instance.id} does not see {peer}"
    connector = report.connectors.get(mesh_connector_name(facts.router.name, ordinal))
    return f"{text} ({connector.message})" if connector is not None and connector.message else text


def _uplinks(facts: RouterFacts) -> Verdict:
    """Every edge replica has an open connection to an interior router."""
    uplinks = {
        item.name for instance in facts.distinct for item in instance.connectors if item.role == "edge"
    }
    if not uplinks:
        return no("NoUplink", "no Connector of role edge is in effect for this Router")
    missing = []
    for pod in facts.serving:
        report = facts.report(pod)
        if report is None:
            missing.append(facts.silence(pod))
            continue
        states = {name: report.connectors[name] for name in sorted(uplinks) if name in report.connectors}
        if not any(item.state == "open" for item in states.values()):
            detail = [
                f'connector "{name}": {item.state}{", " + item.message if item.message else ""}'
                for name, item in states.items()
            ]
            missing.append(f"{pod.name} has no uplink" + (f" ({joined(detail)})" if detail else ""))
    if len(facts.serving) < facts.router.spec.replicas:
        missing.append(f"{len(facts.serving)} of {facts.router.spec.replicas} pods exist")
    return no("UplinkMissing", missing) if missing else yes("UplinksOpen")


# -- the rest


def _instance(facts: RouterFacts, pod: PodView) -> dict[str, Any]:
    report = facts.report(pod)
    out: dict[str, Any] = {"id": pod.name, "ready": pod.ready and report is not None and report.ready}
    if report is None:
        out["message"] = joined(facts.silence(pod))
        return out
    if report.version:
        out["version"] = report.version[:64]
    out["neighbors"] = list(report.neighbors[:512])
    if report.edge is not None:
        if report.edge.active is not None:
            out["uplink"] = _open_uplink(report.edge.active)
        out["standbys"] = [_open_uplink(item) for item in report.edge.standbys[:16]]
        out["proxiedAddresses"] = report.edge.proxied_addresses
    if facts.router.spec.policy is not None:
        out["policyDenials"] = report.policy_denials
    if report.config_error:
        out["message"] = joined(report.config_error)
    return out


def _open_uplink(uplink: UplinkReport) -> dict[str, Any]:
    out: dict[str, Any] = {"connector": uplink.connector, "router": uplink.router[:253]}
    return out if uplink.ordinal is None else {**out, "ordinal": uplink.ordinal}


def _endpoints(facts: RouterFacts) -> list[dict[str, Any]]:
    """Where the listeners are reached, from the live Services."""
    namespace = facts.router.metadata.namespace
    mesh = f"{base_name(facts.router.name)}-mesh"
    out = []
    for service in sorted(facts.services, key=lambda item: str(item["metadata"]["name"])):
        name, spec = service["metadata"]["name"], service["spec"]
        if name == mesh or spec.get("clusterIP") == "None":
            continue
        exposure = spec.get("type", "ClusterIP")
        hosts = [f"{name}.{namespace}.svc"]
        if exposure == "LoadBalancer":
            ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
            hosts = [str(item.get("ip") or item.get("hostname")) for item in ingress]
        elif exposure == "NodePort":
            hosts = ["*"]
        for port in spec.get("ports") or ():
            if port.get("name") in {None, PORT_NAME}:
                continue  # somebody else's, or for collectors alone
            number = port.get("nodePort") if exposure == "NodePort" else port["port"]
            out += [
                {"listener": port["name"], "host": host, "port": number, "exposure": exposure}
                for host in hosts
                if number
            ]
    return out[:64]
