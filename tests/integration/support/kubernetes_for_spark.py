"""As much of the Kubernetes API as Spark needs for its executors. Pods are processes of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Manifest = dict[str, Any]
ADDRESS = "127.0.0.1"
"""Of every pod."""
OWN = {"KUBECONFIG": os.devnull, "SPARK_LOCAL_IP": ADDRESS}
"""Variables of every pod."""
_PATH = re.compile(r"/api/v1/namespaces/[^/]+/(?P<plural>[a-z]+)(/(?P<name>[^/]+))?$")
_VARIABLE = re.compile(r"\$\((\w+)\)")


class Kubernetes:
    """The objects of one namespace. A pod that Spark makes is retained, and runs from `start` on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed = threading.Condition()
        self._objects: dict[tuple[str, str], Manifest] = {}
        self._started = False
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.seen: list[Manifest] = []
        """Every object that was ever made."""

    def add(self, plural: str, manifest: Manifest) -> Manifest:
        """Make an object."""
        metadata = manifest["metadata"]
        with self._changed:
            number = len(self.seen) + 1
            metadata |= {"uid": f"uid-{number}", "resourceVersion": str(number), "namespace": "net"}
            self._objects[plural, metadata["name"]] = manifest
            self.seen.append(manifest)
            if plural == "pods":
                manifest["status"] = {"phase": "Pending"}
                if not _is_executor(manifest):
                    manifest["status"] = {
                        "phase": "Running",
                        "podIP": ADDRESS,
                        "conditions": [{"type": "Ready", "status": "True"}],
                    }
                elif self._started:
                    self._start(manifest)
            self._changed.notify_all()
        return manifest

    def pods(self, count: int, timeout: float) -> list[Manifest]:
        """Wait until Spark has made so many executors."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._executors()) >= count, timeout), self.seen
            return self._executors()

    def start(self) -> None:
        """Start the pods that there are, and others when they are made."""
        with self._changed:
            self._started = True
            for pod in self._executors():
                self._start(pod)

    def run(
        self, pod: Manifest, log: str, changes: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the process of a pod. `changes` replaces parts of the values of its variables."""
        (container,) = pod["spec"]["containers"]
        environment: dict[str, str] = {}
        for item in container["env"]:
            source = item.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            metadata = pod["metadata"]
            fields = {
                "status.podIP": ADDRESS,
                "metadata.name": metadata["name"],
                "metadata.uid": metadata["uid"],
            }
            value = fields[source] if source else item.get("value", "")
            environment[item["name"]] = _VARIABLE.sub(lambda found: environment[found[1]], value)
        for old, new in (changes or {}).items():
            environment = {name: value.replace(old, new) for name, value in environment.items()}
        words = [*pod.get("command", [sys.executable, "-m", "isthmus_flows"]), *container["args"]]
        with (self._folder / log).open("wb") as output:
            return subprocess.Popen(
                words,
                env={**os.environ, **OWN, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )

    def _executors(self) -> list[Manifest]:
        return [
            item for (plural, _), item in self._objects.items() if plural == "pods" and _is_executor(item)
        ]

    def _start(self, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        if name not in self.processes:
            self.processes[name] = self.run(pod, f"{name}.log")
            pod["status"] = {"phase": "Running", "podIP": ADDRESS}

    def answer(self, method: str, url: str, body: Manifest) -> tuple[int, Manifest]:
        """One request of Spark."""
        parts = urlsplit(url)
        found = _PATH.match(parts.path)
        if found is None:
            return 404, _status(404)
        plural, name = found["plural"], found["name"]
        if method == "POST":
            return 201, self.add(plural, body)
        with self._changed:
            wanted = self._matching(plural, name, parse_qs(parts.query))
            if name is not None and not wanted:
                return 404, _status(404)
            if method == "DELETE":
                for key in wanted:
                    self._objects.pop(key)
                    if key[0] == "pods" and key[1] in self.processes:
                        self.processes[key[1]].terminate()
                return 200, _status(200)
            items = [self._objects[key] for key in wanted]
        if name is not None:
            return 200, items[0]
        kind = {"pods": "PodList", "configmaps": "ConfigMapList"}.get(plural, "List")
        return 200, {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items}

    def _matching(
        self, plural: str, name: str | None, query: Mapping[str, list[str]]
    ) -> list[tuple[str, str]]:
        selector = ",".join(query.get("labelSelector", [])).split(",")
        equal = [item.partition("=")[::2] for item in selector if "=" in item and "!" not in item]
        return [
            key
            for key, item in self._objects.items()
            if key[0] == plural
            and name in (None, key[1])
            and all((item["metadata"].get("labels") or {}).get(label) == value for label, value in equal)
        ]


def _is_executor(pod: Manifest) -> bool:
    return (pod["metadata"].get("labels") or {}).get("spark-role") == "executor"


def _status(code: int) -> Manifest:
    outcome = "Success" if code == 200 else "Failure"
    return {"apiVersion": "v1", "kind": "Status", "status": outcome, "code": code}


@contextlib.contextmanager
def kubernetes(folder: Path) -> Iterator[tuple[Kubernetes, str]]:
    """The API and its URL. Its pods have ended when it is left."""
    api = Kubernetes(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code, answer = api.answer(self.command, self.path, json.loads(body) if body else {})
            content = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "POST", "DELETE", "PATCH", "PUT"):
        setattr(Handler, f"do_{method}", Handler._do)
    server = ThreadingHTTPServer((ADDRESS, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield api, f"http://{ADDRESS}:{server.server_port}"
    finally:
        for process in api.processes.values():
            process.kill()
            process.wait()
        server.shutdown()
        server.server_close()
