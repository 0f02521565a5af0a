"""Two sites of a group, each a namespace on a node of its own, with all its connections over mutual TLS.

    nyc (3 members, which find each other by DNS) ===== sfo (3 members, through gossip routers)

The range of a node's pod addresses is what packet filters know a site by.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import trustme
from tests.unit.operator.support import gossip_router, relay_site, router, ssl_profile

from ..harness.cluster import Cluster
from .clients import Client, Clients
from .network import USABLE, Network

GROUP = "trades"
ADDRESS = f"relay/{GROUP}"
REPLICAS = 3
AUTHORITY = trustme.CA()


def credentials(*names: str, authority: trustme.CA = AUTHORITY) -> dict[str, bytes]:
    """Data of a Secret: a certificate for these names."""
    issued = authority.issue_cert(*names)
    return {
        "ca.crt": authority.cert_pem.bytes(),
        "tls.crt": issued.cert_chain_pems[0].bytes(),
        "tls.key": issued.private_key_pem.bytes(),
    }


def member_name(site: str) -> str:
    return f"any.members.{site}.example"


def bridge_name(site: str) -> str:
    return f"bridge.{site}.example"


class Site:
    """One of them: a Router and a RelaySite of its name."""

    def __init__(self, cluster: Cluster, namespace: str, name: str, node: str, image: str) -> None:
        self.cluster, self.name, self.node, self.image = cluster, name, node, image
        self.network = Network(cluster, namespace)
        self.resource = f"rsite/{name}"
        self.pods = [f"{name}-{number}" for number in range(REPLICAS)]
        self._clients = Clients(cluster, namespace, image, node)

    def apply(self, remote: Site, discovery: Mapping[str, Any]) -> None:
        """All of it; through gossip routers if `discovery` has a reference to one."""
        placed = {"spec": {"nodeSelector": {"kubernetes.io/hostname": self.node}}}
        self.renew("members", member_name(self.name))
        self.renew("bridge", bridge_name(self.name))
        self.network.apply(ssl_profile("members", "members"), ssl_profile("bridge", "bridge"))
        if "gossipRouterRef" in discovery:
            tls = {"sslProfile": "members"}
            self.network.apply(
                gossip_router(discovery["gossipRouterRef"]["name"], tls=tls, podTemplate=placed)
            )
        members = {"sslProfile": "members"}
        self.network.apply(
            router(self.name, replicas=REPLICAS, site=self.name, podTemplate=placed),
            relay_site(
                self.name,
                self.name,
                GROUP,
                discovery={**discovery, **({"gossipTls": members} if "gossipRouterRef" in discovery else {})},
                tls=members,
                peerNames=[f"*.members.{self.name}.example"],
                bridge={"tls": {"sslProfile": "bridge"}},
                remoteSites=[
                    {
                        "site": remote.name,
                        "endpoints": [f"{remote.name}-bridge.{remote.network.namespace}.svc"],
                        "peerNames": [bridge_name(remote.name)],
                    }
                ],
            ),
        )

    def renew(self, secret: str, name: str, authority: trustme.CA = AUTHORITY, *trusted: trustme.CA) -> None:
        """A new certificate in a Secret; peers' may also be of those `trusted`."""
        data = credentials(name, authority=authority)
        data["ca.crt"] += b"".join(item.cert_pem.bytes() for item in trusted)
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": secret, "labels": USABLE},
            "data": encoded,
        }
        self.cluster.apply(manifest, namespace=self.network.namespace)

    def rotate(self, name: str, authority: trustme.CA = AUTHORITY, *trusted: trustme.CA) -> None:
        """A new certificate for the bridge; waits until it is in service at all members."""
        profile = "sslp/bridge"
        ordinal = self.network.get(profile)["status"]["ordinal"] + 1
        self.renew("bridge", name, authority, *trusted)

        def adopted() -> bool:
            assert self.network.get(profile)["status"]["ordinal"] == ordinal
            return self.network.condition(profile, "Rotating")["status"] == "False"

        self.cluster.eventually(f"the bridge of {self.name} uses ordinal {ordinal}", adopted)

    def revoke(self) -> None:
        """Closes the bridge's sessions with certificates before the newest."""
        ordinal = self.network.get("sslp/bridge")["status"]["ordinal"]
        spec = json.dumps({"spec": {"oldestValidOrdinal": ordinal}})
        self.network.kubectl("patch", "sslp/bridge", "--type=merge", f"--patch={spec}")
        self.cluster.eventually(
            f"the bridge of {self.name} has nothing before ordinal {ordinal}",
            lambda: self.network.get("sslp/bridge")["status"]["oldestValidOrdinal"] == ordinal,
        )

    def events(self, reason: str) -> list[str]:
        """What Events of a reason tell about the RelaySite."""
        items = self.network.get("events.events.k8s.io", f"--field-selector=reason={reason}")["items"]
        return [item["note"] for item in items if item["regarding"]["name"] == self.resource.split("/")[1]]

    def url(self, pod: str) -> str:
        """Of that member."""
        return f"amqp://{pod}.{self.name}-mesh:5672"

    def start(self, name: str, *arguments: str, script: str = "client") -> Client:
        """A client on the site's node."""
        return self._clients.start(name, *arguments, script=script)

    def status(self) -> dict[str, Any]:
        """The RelaySite's."""
        found: dict[str, Any] = self.network.get(self.resource)["status"]
        return found

    def remote(self) -> dict[str, Any]:
        """What its status says of the other site."""
        (found,) = self.status()["remoteSites"]
        return dict(found)

    def has_missed(self, other: Site, since: datetime) -> bool:
        """Whether a member has logged that it is without the other site. The status may not show a short absence."""
        for pod in self.pods:
            for line in self.network.kubectl("logs", pod, f"--since-time={since.isoformat()}").splitlines():
                entry = json.loads(line)
                if entry.get("site") == other.name and entry.get("state", "up") != "up":
                    return True
        return False

    def coordinator(self) -> str:
        return str(self.status()["coordinator"])

    def column(self) -> list[str]:
        """What `kubectl get` prints for it up to its lag."""
        *found, insecure, _age = self.network.kubectl("get", self.resource, "--no-headers").split()
        assert insecure == "False", found
        return found

    def relay(self, pod: str) -> dict[str, Any]:
        """What that member says of itself."""
        found: dict[str, Any] = self.network.status(pod)["relay"]
        return found

    def replaced(self, pods: Iterable[str], before: Mapping[str, tuple[str, int]]) -> None:
        """Waits until other pods have the names of these."""

        def check() -> bool:
            now = self.network.pods(self.name)
            assert len(now) == REPLICAS
            return all(now[pod][0] != before[pod][0] for pod in pods)

        self.cluster.eventually(f"{', '.join(pods)} replaced", check)
