"""Names and addresses of one cluster: everything follows from its name, index and node count."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from ..host import HarnessError

MAX_NODES = 16
MAX_CLUSTERS = 32
_FIRST_OCTET = 200
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


def check_name(name: str) -> str:
    """Returns `name` if a cluster may be called so; raises HarnessError otherwise."""
    if _NAME.fullmatch(name) is None:
        raise HarnessError(f"cluster name {name!r}: use up to 31 of a-z, 0-9 and -, beginning with a letter")
    return name


@dataclass(frozen=True)
class Spec:
    """One cluster. `index` tells the address ranges of the clusters of this machine apart.

    `fingerprint` names the binaries it runs. Written to the state folder before anything is
    created, so that every name of a namespace, interface or cgroup is known to whoever cleans up.
    """

    name: str
    index: int
    node_count: int
    fingerprint: str

    @property
    def network(self) -> IPv4Network:
        """All addresses of the cluster: pods, services, nodes and the link to the test process."""
        return IPv4Network(f"10.{_FIRST_OCTET + self.index}.0.0/16")

    def _part(self, third: int, prefix: int) -> IPv4Network:
        return IPv4Network((int(self.network.network_address) + (third << 8), prefix))

    @property
    def pod_network(self) -> IPv4Network:
        return self._part(0, 17)

    def node_pods(self, node: str) -> IPv4Network:
        return self._part(node_number(node), 24)

    @property
    def service_network(self) -> IPv4Network:
        return self._part(128, 18)

    @property
    def kubernetes_service(self) -> IPv4Address:
        return self.service_network[1]

    @property
    def dns_service(self) -> IPv4Address:
        return self.service_network[10]

    @property
    def node_network(self) -> IPv4Network:
        return self._part(192, 24)

    def node_address(self, node: str) -> IPv4Address:
        return self.node_network[node_number(node)]

    @property
    def control_plane_address(self) -> IPv4Address:
        return self.node_network[254]

    @property
    def uplink_network(self) -> IPv4Network:
        return self._part(255, 30)

    @property
    def uplink(self) -> str:
        """The only interface outside the cluster's own network namespaces."""
        return f"isthmus{self.index}"

    @property
    def cgroup(self) -> str:
        return f"isthmus.{self.name}"

    @property
    def api_url(self) -> str:
        return f"https://{self.control_plane_address}:6443"

    @property
    def nodes(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.node_count + 1)]

    def with_nodes(self, count: int) -> Spec:
        return replace(self, node_count=count)

    def write(self, path: Path) -> None:
        record = asdict(self) | {
            "interface": self.uplink,
            "cgroup": self.cgroup,
            "network": str(self.network),
        }
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, indent=2) + "\n")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Spec | None:
        """The cluster recorded at `path`; None if there is none."""
        try:
            record = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return cls(record["name"], record["index"], record["node_count"], record["fingerprint"])


def node_number(node: str) -> int:
    return int(node.removeprefix("n"))
