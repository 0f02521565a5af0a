"""A cluster that kind makes in Docker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from ..host import CommandError, HarnessError, find_tool, run, state_dir
from .elsewhere import ElsewhereProvider, load_with_kind

CREATE_TIMEOUT_S = 600.0


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
            if self.kubeconfig.exists():
                print(f"{self.what} is up", flush=True)
                return False
            print(f"{self.what}: bringing it up was interrupted; removing what is left of it", flush=True)
            self.down()
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        # The control plane is a node, too, and takes pods when it is the only one.
        roles = [{"role": "control-plane"}] + [{"role": "worker"}] * (nodes if nodes > 1 else 0)
        config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": roles}
        self._kind("create", "cluster", "--config=-", "--wait=180s", input=yaml.safe_dump(config))
        return True

    def down(self) -> None:
        self._kind("delete", "cluster")
        self.kubeconfig.unlink(missing_ok=True)

    def load(self, archive: Path) -> None:
        load_with_kind(self._name, archive)

    def execute(self, node: str, argv: Sequence[str], *, timeout: float) -> str:
        if not node.startswith(self._name):
            raise HarnessError(f"{node!r} is no node of {self.what}")
        return run(["docker", "exec", node, *argv], timeout=timeout)

    def _kind(self, *arguments: str, input: str | None = None) -> None:
        command = ["kind", *arguments, f"--name={self._name}", f"--kubeconfig={self.kubeconfig}"]
        run(command, timeout=CREATE_TIMEOUT_S, input=input)
