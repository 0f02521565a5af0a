"""The Services of a Router: one for all listeners, one per listener exposed outside, one for the mesh."""

from __future__ import annotations

from typing import Any

from ..names import base_name, bridge_service, labels, listener_service, mesh_service, selector
from ..resources import Listener, Router
from .flows.listener import PORT_NAME, CollectorsListener
from .instances import SiteInstance

MEMBER_PORT_NAME = "members-of-the-relay-site"
"""Of the mesh Service. No listener's is as long."""


def services(
    router: Router, site: SiteInstance | None = None, collectors: CollectorsListener | None = None
) -> list[dict[str, Any]]:
    """All Services of `router`, which has the members of `site` and a listener for `collectors`."""
    listeners = router.spec.effective_listeners()
    out = []
    inside = [listener for listener in listeners if listener.exposure != "None"]
    if inside or collectors is not None:
        service = _service(router, base_name(router.name), inside, type="ClusterIP")
        if collectors is not None:
            service["spec"].setdefault("ports", []).append(_port(PORT_NAME, collectors.port, "amqps"))
        out.append(service)
    out += [_exposed(router, item) for item in listeners if item.exposure in {"NodePort", "LoadBalancer"}]
    if router.spec.mode == "interior":
        out.append(_mesh(router, [item for item in listeners if item.role == "inter-router"], site))
    if site is not None and site.spec.bridge.expose != "None":
        out.append(_bridge(router, site))
    return out


def _exposed(router: Router, listener: Listener) -> dict[str, Any]:
    service = _service(
        router, listener_service(router.name, listener.name), [listener], type=listener.exposure
    )
    if listener.node_port is not None:
        service["spec"]["ports"][0]["nodePort"] = listener.node_port
    if listener.service_annotations:
        service["metadata"]["annotations"] = dict(listener.service_annotations)
    return service


def _bridge(router: Router, site: SiteInstance) -> dict[str, Any]:
    """Where other sites reach `site`. Headless, they see each member by itself, ready or not: whichever is a relay."""
    bridge = site.spec.bridge
    port: dict[str, Any] = {
        "name": "bridge",
        "port": bridge.port,
        "targetPort": bridge.port,
        "protocol": "TCP",
    }
    metadata: dict[str, Any] = {
        "name": bridge_service(site.name),
        "labels": labels(router.name, router.spec.mode),
    }
    spec: dict[str, Any] = {"type": bridge.expose}
    if bridge.expose == "ClusterIP":
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    elif bridge.node_port is not None:
        port["nodePort"] = bridge.node_port
    if bridge.service_annotations:
        metadata["annotations"] = dict(bridge.service_annotations)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {**spec, "selector": selector(router.name), "ports": [port]},
    }


def _mesh(router: Router, listeners: list[Listener], site: SiteInstance | None) -> dict[str, Any]:
    """Names for pods that are not ready too: a router is ready only after it has met the others. Members of a site
    find each other by it as well."""
    service = _service(
        router,
        mesh_service(router.name),
        listeners,
        type="ClusterIP",
        clusterIP="None",
        publishNotReadyAddresses=True,
    )
    if site is not None:
        member = {"name": MEMBER_PORT_NAME, "port": site.spec.member_port, "protocol": "TCP"}
        member["targetPort"] = site.spec.member_port
        service["spec"].setdefault("ports", []).append(member)
    return service


def _service(router: Router, name: str, listeners: list[Listener], **spec: Any) -> dict[str, Any]:
    ports = [
        _port(listener.name, listener.port, "amqps" if listener.encrypted else "amqp")
        for listener in listeners
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels(router.name, router.spec.mode)},
        "spec": {**spec, "selector": selector(router.name), **({"ports": ports} if ports else {})},
    }


def _port(name: str, port: int, protocol: str) -> dict[str, Any]:
    return {"name": name, "port": port, "targetPort": port, "protocol": "TCP", "appProtocol": protocol}
