"""Resources for the operator's tests, in the short form a person would write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.resources import API_VERSION


def router(name: str, *, meta: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    return {"apiVersion": API_VERSION, "kind": "Router", "metadata": metadata, "spec": spec}


def connector(name: str, source: str, to: str | tuple[str, int], role: str, **spec: Any) -> dict[str, Any]:
    """`to` is the name of a Router, or a host and port."""
    destination = {"routerRef": {"name": to}} if isinstance(to, str) else {"host": to[0], "port": to[1]}
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1}
    body = {"from": {"routerRef": {"name": source}}, "to": destination, "role": role, **spec}
    return {"apiVersion": API_VERSION, "kind": "Connector", "metadata": metadata, "spec": body}


def tls_secret(name: str, *keys: str) -> SecretView:
    return SecretView(
        name, {key: f"{name} {key}".encode() for key in keys or ("ca.crt", "tls.crt", "tls.key")}
    )


def model(*manifests: dict[str, Any], secrets: Iterable[SecretView] = ()) -> NamespaceModel:
    built = NamespaceModel.from_manifests("net", manifests, secrets)
    assert built.invalid == ()
    return built
