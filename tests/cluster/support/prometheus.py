"""A Prometheus on this machine that reads the pods of a cluster, with the configuration of `examples/monitoring/` and
the alerts of the chart.

Debian's has no discovery of pods. What that would find is written to a file instead, so the example's relabelling is as
it is in a cluster.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ..harness.cluster import Cluster
from ..installation import ROOT

EXAMPLE = ROOT / "examples" / "monitoring" / "prometheus.yaml"
CHART = ROOT / "charts" / "isthmus"
STOP_S = 10
_META = "__meta_kubernetes_"


class Prometheus:
    """One that runs; `prometheus` starts it."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path, port: int) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._targets = folder / "pods.json"
        self._url = f"http://127.0.0.1:{port}"

    def discover(self) -> None:
        """Lets it know of the pods that there are now."""
        pods = self._cluster.get("pods", namespace=self._namespace)["items"]
        found = [target for pod in pods for target in _targets(pod)]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.rename(self._targets)

    def ready(self) -> bool:
        """Whether it answers."""
        with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Samples of an instant query."""
        found: list[dict[str, Any]] = self._ask("query", query=expression)["result"]
        return found

    def scraped(self) -> dict[str, float]:
        """Whether each pod was read last time, by its name."""
        return {item["metric"]["pod"]: float(item["value"][1]) for item in self.query("up")}

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """Labels of the alerts that fire, by name."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self._ask("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found

    def _ask(self, path: str, **parameters: str) -> dict[str, Any]:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
        return found


@contextlib.contextmanager
def prometheus(cluster: Cluster, namespace: str, folder: Path) -> Iterator[Prometheus]:
    """Reads every second what has annotations in `namespace`. Alerts fire after two seconds, not after minutes."""
    document = yaml.safe_load(EXAMPLE.read_text())
    document["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    for job in document["scrape_configs"]:
        del job["kubernetes_sd_configs"]
        job["file_sd_configs"] = [{"files": ["pods.json"]}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(document))
    (folder / document["rule_files"][0]).write_text(yaml.safe_dump(alerts(cluster)))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    found = Prometheus(cluster, namespace, folder, port)
    found.discover()
    program = shutil.which("prometheus")
    assert program, "prometheus is missing: apt-get install prometheus"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        cluster.eventually("Prometheus is ready", found.ready)
        yield found
    except BaseException:
        print((folder / "log").read_text()[-4000:])
        raise
    finally:
        process.terminate()
        process.wait(timeout=STOP_S)


def alerts(cluster: Cluster) -> dict[str, Any]:
    """The rules that the chart makes, in a hurry."""
    shown = cluster.helm(
        "template",
        "x",
        str(CHART),
        "--show-only=templates/prometheusrule.yaml",
        "--set=prometheusRule.enabled=true",
    )
    groups: dict[str, Any] = yaml.safe_load(shown)["spec"]
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule["for"] = "2s"
    return groups


def _targets(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the discovery of pods finds for each port of a pod that has an address."""
    metadata, address = pod["metadata"], pod["status"].get("podIP")
    if address is None:
        return
    labels = {
        f"{_META}namespace": metadata["namespace"],
        f"{_META}pod_name": metadata["name"],
        f"{_META}pod_ip": address,
        f"{_META}pod_phase": pod["status"]["phase"],
    }
    for part in ("annotation", "label"):
        for name, value in metadata.get(f"{part}s", {}).items():
            labels[f"{_META}pod_{part}_{re.sub('[^a-zA-Z0-9_]', '_', name)}"] = value
    for container in pod["spec"]["containers"]:
        for port in container.get("ports", [{"containerPort": 80}]):
            number = port["containerPort"]
            yield {
                "targets": [f"{address}:{number}"],
                "labels": {**labels, f"{_META}pod_container_port_number": str(number)},
            }
