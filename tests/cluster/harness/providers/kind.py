"""A cluster that kind makes in Docker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from ..host import CommandError, HarnessError, dying_with_us, find_tool, run, state_dir
from .elsewhere import ElsewhereProvider, kind_nodes, load_with_kind

CREATE_TIMEOUT_S = 600.0
SETTLE_TIMEOUT_S = 180.0
# Nodes that start with Docker are not there at once; a healthy cluster must not be thrown away for that.
HEALTH_TIMEOUT_S = 60.0


class KindProvider(ElsewhereProvider):
    """A kind cluster called `isthmus-<name>`."""

    def __init__(self, name: str) -> None:
        self._name = f"isthmus-{name}"
        super().__init__(state_dir() / f"{self._name}.kind.kubeconfig")

    @staticmethod
    def lacks() -> list[str]:
        """What has to be done before this provider can be used here; empty if nothing."""
        needs = [f"install {name}" for name in ("kind", "docker") if find_tool(name) is None]
        if "install docker" not in needs:
            try:
                run(["docker", "info"], timeout=20)
            except CommandError:
                needs.append("start Docker")
        return needs

    @property
    def what(self) -> str:
        return f"kind cluster {self._name!r}"

    def up(self, nodes: int) -> bool:
        if self._name in run(["kind", "get", "clusters"], timeout=60).split():
            # kind writes it last.
            interrupted = not self.kubeconfig.exists()
            problem = "bringing it up was interrupted" if interrupted else self._problem(HEALTH_TIMEOUT_S)
            if problem is None:
                self._check_size(nodes)
                return False
            print(f"{self.what}: {problem}; removing what is left of it", flush=True)
            self.down()
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        # The control plane is a node, too, and takes pods when it is the only one.
        roles = [{"role": "control-plane"}] + [{"role": "worker"}] * (nodes if nodes > 1 else 0)
        config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": roles}
        self._kind("create", "cluster", "--config=-", input=yaml.safe_dump(config))
        # kind could only wait for the control plane, and does not fail if that takes too long.
        problem = self._problem(SETTLE_TIMEOUT_S)
        if problem is not None:
            raise HarnessError(f"{self.what}: {problem}")
        return True

    def down(self) -> None:
        self._kind("delete", "cluster")
        self.kubeconfig.unlink(missing_ok=True)

    def load(self, archive: Path, node: str | None = None) -> None:
        load_with_kind(self._name, archive)

    def execute(self, node: str, argv: Sequence[str], *, timeout: float) -> str:
        if node not in kind_nodes(self._name):
            raise HarnessError(f"{node!r} is no node of {self.what}")
        return run(["docker", "exec", node, *argv], timeout=timeout)

    def _problem(self, timeout: float) -> str | None:
        """What is wrong with the cluster even after `timeout` seconds; None as soon as nothing is."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(1.0, deadline - time.monotonic())
            limit = f"--timeout={left:.0f}s"
            try:
                self._kubectl("wait", "nodes", "--all", "--for=condition=Ready", limit, timeout=left + 30)
                dns = ("--namespace=kube-system", "deployment/coredns")
                self._kubectl("rollout", "status", *dns, limit, timeout=left + 30)
                return None
            except CommandError as error:
                if time.monotonic() > deadline:
                    return f"not ready after {timeout:.0f} s: {error.output.strip()[-200:]}"
            time.sleep(1)

    def _check_size(self, nodes: int) -> None:
        found = len(kind_nodes(self._name))
        takes_pods = found - 1 if found > 1 else found
        print(f"{self.what} is up with {takes_pods} nodes", flush=True)
        if takes_pods < nodes:
            raise HarnessError(f"kind adds no nodes to a cluster: for {nodes}, use `down` first")

    def _kind(self, *arguments: str, input: str | None = None) -> None:
        command = ["kind", *arguments, f"--name={self._name}", f"--kubeconfig={self.kubeconfig}"]
        run(dying_with_us(command), timeout=CREATE_TIMEOUT_S, input=input)
