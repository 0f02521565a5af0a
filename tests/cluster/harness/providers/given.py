"""A cluster that somebody else provides through ISTHMUS_TEST_KUBECONFIG."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..host import HarnessError, find_tool, run
from ..local.binaries import built
from ..provider import Faults

LOAD_TIMEOUT_S = 600.0


class GivenProvider:
    """Never created or removed here; tests only add and remove namespaces in it."""

    def __init__(self, kubeconfig: Path) -> None:
        if not kubeconfig.is_file():
            raise HarnessError(f"ISTHMUS_TEST_KUBECONFIG: no such file: {kubeconfig}")
        self._kubeconfig = kubeconfig

    @property
    def what(self) -> str:
        return f"the cluster of {self._kubeconfig}"

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    @property
    def environment(self) -> Mapping[str, str]:
        return {"KUBECONFIG": str(self._kubeconfig)}

    @property
    def faults(self) -> Faults | None:
        return None

    def tool(self, name: str) -> Path:
        return find_tool(name) or built([name])[name]

    def up(self, nodes: int) -> bool:
        found = self._kubectl("get", "nodes", "--output=name").split()
        if len(found) < nodes:
            print(f"{self.what} has {len(found)} nodes, fewer than {nodes}", flush=True)
        return False

    def down(self) -> None:
        print(f"{self.what} is not ours to remove", flush=True)

    def status(self) -> str:
        return self._kubectl("get", "nodes", "--output=wide")

    def load(self, archive: Path) -> None:
        """Runs `$ISTHMUS_TEST_IMAGE_LOADER ARCHIVE`, or `kind load` if the context is one of kind's."""
        loader = os.environ.get("ISTHMUS_TEST_IMAGE_LOADER")
        context = self._kubectl("config", "current-context").strip()
        if loader:
            run([*shlex.split(loader), archive], timeout=LOAD_TIMEOUT_S)
        elif context.startswith("kind-") and find_tool("kind"):
            name = context.removeprefix("kind-")
            run(["kind", "load", "image-archive", archive, f"--name={name}"], timeout=LOAD_TIMEOUT_S)
        else:
            raise HarnessError(
                "set ISTHMUS_TEST_IMAGE_LOADER to a command that, with the path of an image archive "
                "as its last argument, makes the image known to all nodes of the cluster"
            )

    def execute(self, node: str, argv: Sequence[str], *, timeout: float) -> str:
        raise HarnessError(f"commands cannot be run on the nodes of {self.what}")

    def _kubectl(self, *arguments: str) -> str:
        return run([self.tool("kubectl"), f"--kubeconfig={self._kubeconfig}", *arguments], timeout=60)
