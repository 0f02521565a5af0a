"""A volume for a flow log, and reading what is on it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from ..harness.cluster import Cluster
from ..harness.host import HarnessError
from .network import Network

CLAIM = "flows"
FOLDER = "/var/isthmus/flows"
_READ = """
import json, sys
import pyarrow.dataset as ds
found = ds.dataset(sys.argv[1], format="parquet", partitioning="hive", exclude_invalid_files=True)
print(json.dumps(found.to_table(columns=json.loads(sys.argv[2]) or None).to_pylist(), default=str))
"""


@contextlib.contextmanager
def volume(cluster: Cluster, namespace: str) -> Iterator[dict[str, Any]]:
    """A claim in the namespace, on a folder of the nodes; `spec.volume` of a FlowLog on it. Nodes that do not share
    their disks have it for themselves: the volume is one of a single node then."""
    folder = f"/var/tmp/isthmus-{namespace}"
    nodes = sorted(cluster.nodes())
    for node in nodes:
        cluster.provider.execute(node, ["install", "-d", "-m", "0777", folder], timeout=30)
    mode = "ReadWriteMany" if _shared(cluster, folder, nodes) else "ReadWriteOnce"
    spec = {
        "accessModes": [mode],
        "storageClassName": "",
        "capacity": {"storage": "1Gi"},
        "claimRef": {"namespace": namespace, "name": CLAIM},
        "hostPath": {"path": folder},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    claim = {"accessModes": [mode], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
    cluster.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": claim},
        namespace=namespace,
    )
    try:
        yield {"claimName": CLAIM, "accessMode": mode}
    finally:
        cluster.kubectl("delete", "persistentvolume", namespace, "--wait=false")
        # A collector that still runs may write a file meanwhile.
        for node in nodes:
            cluster.eventually(
                f"the volume on {node} is removed", lambda node=node: _removed(cluster, node, folder)
            )  # type: ignore[misc]


def _removed(cluster: Cluster, node: str, folder: str) -> bool:
    cluster.provider.execute(node, ["rm", "-rf", folder], timeout=30)
    return True


def _shared(cluster: Cluster, folder: str, nodes: list[str]) -> bool:
    cluster.provider.execute(nodes[0], ["touch", f"{folder}/.here"], timeout=30)
    try:
        for node in nodes[1:]:
            cluster.provider.execute(node, ["test", "-e", f"{folder}/.here"], timeout=30)
    except HarnessError:
        return False
    return True


class FlowReader:
    """Reads the log, and what analyses have written, in the pod of the collector."""

    def __init__(self, network: Network, flow_log: str) -> None:
        self.network = network
        self._selector = f"--selector=isthmus.dev/flowlog={flow_log}"

    def pod(self) -> str:
        """The collector's that runs."""
        items = self.network.get("pods", self._selector, "--field-selector=status.phase=Running")["items"]
        (name,) = (item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"])
        return str(name)

    def rows(self, path: str, *columns: str) -> list[dict[str, Any]]:
        """Of a folder with Parquet files, below that of the log."""
        words = ("python3", "-c", _READ, f"{FOLDER}/{path}", json.dumps(columns))
        found: list[dict[str, Any]] = json.loads(self._exec(*words))
        return found

    def text(self, path: str) -> str:
        """Of a file."""
        return self._exec("cat", f"{FOLDER}/{path}")

    def _exec(self, *words: str) -> str:
        return self.network.cluster.exec(self.pod(), *words, namespace=self.network.namespace)

    def delivered(self, address: str, direction: str) -> dict[str, int]:
        """Sums of `deliveries` about an address, each identity once."""
        columns = ("identity", "address", "direction", "deliveries", "accepted", "octets")
        rows = {row["identity"]: row for row in self.rows("deliveries", *columns)}.values()
        own = [row for row in rows if (row["address"], row["direction"]) == (address, direction)]
        return {name: sum(row[name] for row in own) for name in ("deliveries", "accepted", "octets")}
