"""What tests do with a cluster, wherever it comes from."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from . import images
from .api import OPTIONS, Api
from .host import CommandError, HarnessError, run
from .provider import Faults, Provider

POLL_S = 0.1
MOST_POLL_S = 1.0
"""Between two looks: some take a process, and what is waited for needs the processors, too."""
NAMESPACE_TIMEOUT_S = 120.0
Value = TypeVar("Value")


class Cluster:
    """A running cluster. Every method that waits has a timeout in seconds and raises HarnessError."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self._leaving: list[str] = []

    @property
    def kubeconfig(self) -> Path:
        return self.provider.kubeconfig

    @property
    def faults(self) -> Faults:
        """Ways to break it; HarnessError if this kind of cluster has none."""
        faults = self.provider.faults
        if faults is None:
            raise HarnessError(f"faults cannot be made in {self.provider.what}")
        return faults

    @functools.cached_property
    def api(self) -> Api:
        """The API server, to read from."""
        return Api(self.kubeconfig)

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 60.0) -> str:
        """Runs kubectl and returns its output."""
        return self._tool("kubectl", arguments, input, timeout)

    def helm(self, *arguments: str, input: str | None = None, timeout: float = 300.0) -> str:
        """Runs helm and returns its output."""
        return self._tool("helm", arguments, input, timeout)

    def apply(self, *objects: Mapping[str, Any] | str | Path, namespace: str = "default") -> None:
        """Applies objects, each as a mapping, as YAML text or as a file of it."""
        self.kubectl(
            "apply",
            "--server-side",
            f"--namespace={namespace}",
            "--filename=-",
            input="\n---\n".join(map(_yaml, objects)),
        )

    def get(self, resource: str, *arguments: str, namespace: str = "default") -> dict[str, Any]:
        """One object (`pod/web-0`) or a list (`pods`), as JSON."""
        options = dict(argument.partition("=")[::2] for argument in arguments)
        if "," not in resource and options.keys() <= OPTIONS.keys():
            return self.api.get(resource, namespace, {OPTIONS[name]: text for name, text in options.items()})
        found: dict[str, Any] = json.loads(
            self.kubectl("get", resource, f"--namespace={namespace}", "--output=json", *arguments)
        )
        return found

    def exec(self, pod: str, *argv: str, namespace: str = "default", timeout: float = 60.0) -> str:
        """Runs a command in a pod and returns its output."""
        return self.kubectl("exec", f"--namespace={namespace}", pod, "--", *argv, timeout=timeout)

    def load(self, archive: Path, node: str | None = None) -> None:
        """Makes an image known to `node`, or to all nodes; quick if they have it."""
        self.provider.load(archive, node)

    def image(self, name_tag: str, containerfile: Path, context: Path) -> str:
        """Builds and loads an image and returns its full name; use it with `imagePullPolicy: Never`."""
        archive = images.build(name_tag, containerfile, context)
        self.load(archive)
        return images.name_in(archive)

    def wait(
        self, condition: str, *resources: str, namespace: str = "default", timeout: float = 120.0
    ) -> None:
        """Waits with `kubectl wait --for=CONDITION`, also for objects that do not exist yet.

        `condition` is such as `condition=Ready`, `jsonpath={.status.phase}=Running`, `delete`.
        """
        deadline = time.monotonic() + timeout
        while True:
            left = max(1.0, deadline - time.monotonic())
            arguments = [
                *resources,
                f"--namespace={namespace}",
                f"--for={condition}",
                f"--timeout={left:.0f}s",
            ]
            try:
                self.kubectl("wait", *arguments, timeout=left + 10)
                return
            except CommandError as error:
                absent = "no matching resources found" in error.output or "(NotFound)" in error.output
                if not absent or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)

    def eventually(self, what: str, check: Callable[[], Value], timeout: float = 150.0) -> Value:
        """Calls `check` until it returns something true and returns that.

        A failing command or assertion counts as "not yet". After `timeout` seconds raises
        HarnessError with `what` and the last failure.
        """
        begin = time.monotonic()
        while True:
            problem: Exception | None = None
            try:
                value = check()
                if value:
                    return value
            except (HarnessError, AssertionError, OSError) as error:
                problem = error
            waited = time.monotonic() - begin
            if waited > timeout:
                raise HarnessError(f"not within {timeout:.0f} s: {what}") from problem
            time.sleep(min(POLL_S + waited / 10, MOST_POLL_S))

    def nodes(self) -> dict[str, bool]:
        """Names of the nodes, and whether each is Ready."""
        return {
            node["metadata"]["name"]: any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in node["status"].get("conditions", [])
            )
            for node in self.get("nodes")["items"]
        }

    @contextlib.contextmanager
    def namespace(self, prefix: str = "test") -> Iterator[str]:
        """A namespace of its own that enforces Pod Security `restricted`; deleted at the end.

        Nobody waits for its end here, which takes seconds; see `await_end_of_namespaces`.
        If the body fails, prints the state of its pods, their logs and events.
        """
        name = f"{prefix}-{secrets.token_hex(3)}"
        enforced = "pod-security.kubernetes.io/enforce"
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {enforced: "restricted"}},
            }
        )
        try:
            # Pods are refused until the namespace has its service account.
            self.wait("create", "serviceaccount/default", namespace=name, timeout=30)
            yield name
        except BaseException:
            print(self.describe(name), flush=True)
            raise
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
            self._leaving.append(name)

    def await_end_of_namespaces(self) -> None:
        """Waits until every namespace that was made here is gone with all that was in it."""
        while self._leaving:
            self.wait("delete", f"namespace/{self._leaving.pop()}", timeout=NAMESPACE_TIMEOUT_S)

    def describe(self, namespace: str) -> str:
        """Pods, events and the end of all logs of a namespace, for people."""
        parts = []
        selected = f"--namespace={namespace}"
        commands: list[Sequence[str]] = [
            ("get", "pods", "--output=wide", selected),
            ("get", "events", "--sort-by=.lastTimestamp", selected),
        ]
        try:
            for pod in self.get("pods", namespace=namespace)["items"]:
                words = (pod["metadata"]["name"], "--all-containers", "--prefix", "--tail=25")
                commands += [("logs", *words, selected), ("logs", *words, "--previous", selected)]
        except HarnessError as error:
            parts.append(str(error))
        for command in commands:
            with contextlib.suppress(HarnessError):  # no previous container, for example
                parts.append(f"$ kubectl {' '.join(command)}\n{self.kubectl(*command)}")
        return "\n".join(parts)

    @contextlib.contextmanager
    def port_forward(self, target: str, port: int, namespace: str = "default") -> Iterator[int]:
        """Forwards a free port of 127.0.0.1 to `port` of a target such as `pod/web-0`; yields it."""
        command = [
            self.provider.tool("kubectl"),
            "port-forward",
            f"--namespace={namespace}",
            target,
            f":{port}",
        ]
        process = subprocess.Popen(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            local = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", line)
            if local is None:
                raise HarnessError(f"port-forward to {target} failed: {line}")
            yield int(local[1])
        finally:
            process.kill()
            process.communicate(timeout=10)

    @contextlib.contextmanager
    def watch(self, resource: str, namespace: str = "default") -> Iterator[Iterator[dict[str, Any]]]:
        """Yields the versions of one object, such as `rtr/west`, from the present one on, as they come."""
        command = [self.provider.tool("kubectl"), "get", resource, "--watch", "--output=json"]
        process = subprocess.Popen(
            [*map(str, command), f"--namespace={namespace}"],
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment(),
        )
        try:
            assert process.stdout is not None
            yield _documents(process.stdout)
        finally:
            process.kill()
            process.communicate(timeout=10)

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.provider.environment}

    def _tool(self, name: str, arguments: Sequence[str], input: str | None, timeout: float) -> str:
        return run(
            [self.provider.tool(name), *arguments],
            timeout=timeout,
            input=input,
            env=self.provider.environment,
        )


def _documents(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects in `lines`, each of which ends with a line `}`."""
    text = ""
    for line in lines:
        text += line
        if line.rstrip("\n") == "}":
            yield json.loads(text)
            text = ""


def _yaml(item: Mapping[str, Any] | str | Path) -> str:
    match item:
        case Path():
            return item.read_text()
        case str():
            return item
        case _:
            return yaml.safe_dump(dict(item))
