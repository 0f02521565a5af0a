"""What clusters that are not made of this machine's processes have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import images
from ..host import HarnessError, find_tool, run
from ..local.binaries import built
from ..provider import Faults

LOAD_TIMEOUT_S = 600.0


class ElsewhereProvider:
    """A cluster known by its kubeconfig, in which no faults can be made."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    @property
    def environment(self) -> Mapping[str, str]:
        return {"KUBECONFIG": str(self._kubeconfig)}

    @property
    def faults(self) -> Faults | None:
        return None

    @property
    def audit_logs(self) -> Sequence[Path]:
        return ()

    def tool(self, name: str) -> Path:
        return find_tool(name) or built([name])[name]

    def status(self) -> str:
        return self._kubectl("get", "nodes", "--output=wide")

    def _kubectl(self, *arguments: str, timeout: float = 60.0) -> str:
        return run([self.tool("kubectl"), f"--kubeconfig={self._kubeconfig}", *arguments], timeout=timeout)


def kind_nodes(cluster: str) -> list[str]:
    """The nodes of a kind cluster, which are containers of that name."""
    return run(["kind", "get", "nodes", f"--name={cluster}"], timeout=60).split()


def load_with_kind(cluster: str, archive: Path) -> None:
    """Makes an image known to all nodes of a kind cluster. kind itself does not look whether they have it."""
    name, wanted = images.name_in(archive), images.id_in(archive)
    if any(_image_id(node, name) != wanted for node in kind_nodes(cluster)):
        run(["kind", "load", "image-archive", archive, f"--name={cluster}"], timeout=LOAD_TIMEOUT_S)


def _image_id(node: str, name: str) -> str | None:
    """The id of the image that has this name on a node; None if there is none or it cannot be asked."""
    try:
        answer = run(["docker", "exec", node, "crictl", "inspecti", "--output=json", name], timeout=60)
    except HarnessError:
        return None
    return str(json.loads(answer)["status"]["id"])
