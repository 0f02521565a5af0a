"""Resources for the operator's tests, in the short form a person would write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import trustme

from isthmus_operator.authority import AUTHORITY_SECRET, Authority, Names, new_authority, offer
from isthmus_operator.model import NamespaceModel, SecretView
from isthmus_operator.resources import API_VERSION
from isthmus_operator.rotation import Ledger, Past, Wish, adopt

OWN_SINCE = datetime(2029, 12, 31, tzinfo=UTC)
"""When the namespace's own authority has given its certificates."""


def router(name: str, *, meta: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    return {"apiVersion": API_VERSION, "kind": "Router", "metadata": metadata, "spec": spec}


def connector(name: str, source: str, to: str | tuple[str, int], role: str, **spec: Any) -> dict[str, Any]:
    """`to` is the name of a Router, or a host and port."""
    destination = {"routerRef": {"name": to}} if isinstance(to, str) else {"host": to[0], "port": to[1]}
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1}
    body = {"from": {"routerRef": {"name": source}}, "to": destination, "role": role, **spec}
    return {"apiVersion": API_VERSION, "kind": "Connector", "metadata": metadata, "spec": body}


def ssl_profile(
    name: str, secret: str, *, meta: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    body = {"secretName": secret, **spec}
    return {"apiVersion": API_VERSION, "kind": "SslProfile", "metadata": metadata, "spec": body}


def link_route(name: str, *, meta: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    return {"apiVersion": API_VERSION, "kind": "LinkRoute", "metadata": metadata, "spec": spec}


def relay_site(
    name: str, of: str, group: str = "trades", *, meta: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A site called like its resource; `of` is its Router."""
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    body = {"routerRef": {"name": of}, "group": group, "site": name, **spec}
    return {"apiVersion": API_VERSION, "kind": "RelaySite", "metadata": metadata, "spec": body}


def gossip_router(name: str, *, meta: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    return {"apiVersion": API_VERSION, "kind": "GossipRouter", "metadata": metadata, "spec": spec}


def flow_log(
    name: str, of: str = "hub", *, meta: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """`of` is the Router that its collector connects to."""
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    place = {} if "s3" in spec else {"volume": {"size": "1Gi"}}
    body = {"routerRef": {"name": of}, **place, **spec}
    return {"apiVersion": API_VERSION, "kind": "FlowLog", "metadata": metadata, "spec": body}


def flow_analysis(
    name: str, of: str = "flows", *, meta: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """`of` is the FlowLog that it reads."""
    metadata = {"name": name, "namespace": "net", "uid": f"uid-{name}", "generation": 1, **(meta or {})}
    body = {"flowLogRef": {"name": of}, **spec}
    return {"apiVersion": API_VERSION, "kind": "FlowAnalysis", "metadata": metadata, "spec": body}


def opaque_secret(name: str, *keys: str) -> SecretView:
    return SecretView(name, {key: f"{name} {key}".encode() for key in keys})


def tls_secret(name: str, *keys: str) -> SecretView:
    """Key material as cert-manager makes it, or the given keys of it."""
    data = tls_data()
    return SecretView(name, {key: data[key] for key in keys or data})


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def tls_data(number: int = 0) -> Mapping[str, bytes]:
    """A certificate with its key and authority; another one for each `number`."""
    issued = authority().issue_cert(f"host-{number}.example")
    return {
        "ca.crt": authority().cert_pem.bytes(),
        "tls.crt": b"".join(blob.bytes() for blob in issued.cert_chain_pems),
        "tls.key": issued.private_key_pem.bytes(),
    }


@cache
def own_authority() -> Authority:
    return new_authority("Isthmus net", OWN_SINCE)


@cache
def own_ledger(names: Names) -> Ledger:
    """The certificate that the namespace's own authority has given."""
    offered, _ = offer(own_authority(), names, None, OWN_SINCE)
    found = adopt(None, AUTHORITY_SECRET, offered, Wish(), Past(), OWN_SINCE).ledger
    assert found is not None
    return found


def model(*manifests: dict[str, Any], secrets: Iterable[SecretView] = ()) -> NamespaceModel:
    """With the namespace's own authority, which has given certificates to all Routers and GossipRouters."""
    built = NamespaceModel.from_manifests("net", manifests, secrets)
    assert built.invalid == ()
    built = built.with_authority(own_authority())
    return built.serving({name: own_ledger(item.names) for name, item in built.own.items()})


def driver_files(objects: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The files of the driver among the objects of a FlowAnalysis, by path, as the kubelet makes them."""
    (work,) = [item for item in objects if item["kind"] in {"Job", "CronJob"}]
    spec = work["spec"]["jobTemplate"]["spec"] if work["kind"] == "CronJob" else work["spec"]
    annotations = spec["template"]["metadata"]["annotations"]
    (volume,) = [item for item in spec["template"]["spec"]["volumes"] if item["name"] == "config"]
    return {
        item["path"]: annotations[item["fieldRef"]["fieldPath"].split("'")[1]]
        for item in volume["downwardAPI"]["items"]
    }
