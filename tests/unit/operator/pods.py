"""Pods of rendered objects, and which connections NetworkPolicies admit between them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from isthmus_operator.names import annotation_of_file
from isthmus_operator.render import Rendered

Manifest = Mapping[str, Any]
NAMESPACE = "net"
"""Of the resources in `support.py`."""


@dataclass(frozen=True)
class Pod:
    """A source or a destination of connections."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    address: str = ""
    """Of a peer that is no pod, and so in no namespace."""


@dataclass(frozen=True)
class Network:
    """The pods, Services, Secrets and NetworkPolicies of one namespace."""

    objects: tuple[Manifest, ...]
    pods: Mapping[str, Pod] = field(default_factory=dict)

    def of(self, kind: str) -> Iterator[Manifest]:
        return (item for item in self.objects if item["kind"] == kind)

    def admits(self, source: Pod, to: Pod, port: int, protocol: str = "TCP") -> bool:
        """Whether the NetworkPolicies admit the connection at both ends."""
        policies = list(self.of("NetworkPolicy"))
        return _admitted(policies, "egress", source, to, port, protocol) and _admitted(
            policies, "ingress", to, source, port, protocol
        )

    def leave(self, source: Pod, address: str, port: int, protocol: str = "TCP") -> bool:
        """Whether they admit a connection to an address that no pod has."""
        outside = Pod("", "outside", {}, address=address)
        return _admitted(list(self.of("NetworkPolicy")), "egress", source, outside, port, protocol)

    def resolve(self, host: str) -> list[Pod]:
        """The pods that are behind a name of the cluster's DNS."""
        name, *rest = host.removesuffix(f".{NAMESPACE}.svc").split(".")
        (service,) = [item for item in self.of("Service") if item["metadata"]["name"] == (rest or [name])[0]]
        wanted = service["spec"]["selector"].items()
        found = [pod for pod in self.pods.values() if wanted <= pod.labels.items()]
        return [pod for pod in found if not rest or pod.name == name]


def network(rendered: Rendered) -> Network:
    """What the operator applies, with a pod for each replica of a workload."""
    objects = tuple(item for _, made in rendered.owners() for item in made)
    pods: dict[str, Pod] = {}
    for item in objects:
        spec = item.get("spec", {})
        if item["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if item["kind"] in {"StatefulSet", "Deployment", "Job", "CronJob"}:
            for number in range(spec.get("replicas", 1)):
                name = f"{item['metadata']['name']}-{number}"
                pods[name] = _pod(name, spec["template"])
            annotations = spec["template"]["metadata"].get("annotations", {})
            if (executor := annotations.get(annotation_of_file("executor.json"))) is not None:
                name = f"{spec['template']['spec']['serviceAccountName']}-executor"
                pods[name] = _pod(name, json.loads(executor))
    return Network(objects, pods)


def secret(found: Network, name: str, key: str) -> Any:
    """A JSON document in a Secret."""
    (item,) = [item for item in found.of("Secret") if item["metadata"]["name"] == name]
    return json.loads(b64decode(item["data"][key]))


def _pod(name: str, template: Manifest) -> Pod:
    return Pod(NAMESPACE, name, template["metadata"]["labels"])


def _admitted(policies: Iterable[Manifest], way: str, pod: Pod, peer: Pod, port: int, protocol: str) -> bool:
    """Whether the policies that select `pod`, if there are any, admit `peer` (`way` is `ingress` or `egress`)."""
    specs = [
        item["spec"]
        for item in policies
        if way.capitalize() in item["spec"]["policyTypes"]
        and pod.namespace == NAMESPACE
        and _selects(item["spec"]["podSelector"], pod.labels)
    ]
    side = "from" if way == "ingress" else "to"
    return not specs or any(
        ("ports" not in rule or {"port": port, "protocol": protocol} in rule["ports"])
        and (side not in rule or any(_is(found, peer) for found in rule[side]))
        for spec in specs
        for rule in spec[way]
    )


def _is(found: Manifest, peer: Pod) -> bool:
    if "ipBlock" in found:
        # Some network plugins do not count pods as addresses.
        if peer.namespace:
            return False
        address, block = ip_address(peer.address), found["ipBlock"]
        return address in ip_network(block["cidr"]) and not any(
            address in ip_network(one) for one in block["except"]
        )
    if not peer.namespace:
        return False
    if "namespaceSelector" in found:
        here = _selects(found["namespaceSelector"], {"kubernetes.io/metadata.name": peer.namespace})
    else:
        here = peer.namespace == NAMESPACE
    return here and _selects(found.get("podSelector", {}), peer.labels)


def _selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for item in selector.get("matchExpressions", ()):
        assert item["operator"] == "In"
        if labels.get(item["key"]) not in item["values"]:
            return False
    wanted: Mapping[str, str] = selector.get("matchLabels", {})
    return wanted.items() <= labels.items()
