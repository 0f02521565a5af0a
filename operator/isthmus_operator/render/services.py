"""The Services of a Router: one for all listeners, one per listener exposed outside, one for the mesh."""

from __future__ import annotations

from typing import Any

from ..names import base_name, labels, listener_service, mesh_service, selector
from ..resources import Listener, Router


def services(router: Router) -> list[dict[str, Any]]:
    """All Services of `router`."""
    listeners = router.spec.effective_listeners()
    out = []
    inside = [listener for listener in listeners if listener.exposure != "None"]
    if inside:
        out.append(_service(router, base_name(router.name), inside, type="ClusterIP"))
    out += [_exposed(router, item) for item in listeners if item.exposure in {"NodePort", "LoadBalancer"}]
    if router.spec.mode == "interior":
        out.append(_mesh(router, [item for item in listeners if item.role == "inter-router"]))
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


def _mesh(router: Router, listeners: list[Listener]) -> dict[str, Any]:
    """Names for pods that are not ready too: a router is ready only after it has met the others."""
    return _service(
        router,
        mesh_service(router.name),
        listeners,
        type="ClusterIP",
        clusterIP="None",
        publishNotReadyAddresses=True,
    )


def _service(router: Router, name: str, listeners: list[Listener], **spec: Any) -> dict[str, Any]:
    ports = [
        {
            "name": listener.name,
            "port": listener.port,
            "targetPort": listener.port,
            "protocol": "TCP",
            "appProtocol": "amqps" if listener.tls is not None else "amqp",
        }
        for listener in listeners
    ]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels(router.name, router.spec.mode)},
        "spec": {**spec, "selector": selector(router.name), **({"ports": ports} if ports else {})},
    }
