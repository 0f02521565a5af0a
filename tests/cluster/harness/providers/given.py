"""A cluster that somebody else provides through ISTHMUS_TEST_KUBECONFIG."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from ..host import HarnessError, find_tool, run
from .elsewhere import LOAD_TIMEOUT_S, ElsewhereProvider, load_with_kind


class GivenProvider(ElsewhereProvider):
    """Never created or removed here; tests only add and remove namespaces in it."""

    def __init__(self, kubeconfig: Path) -> None:
        if not kubeconfig.is_file():
            raise HarnessError(f"ISTHMUS_TEST_KUBECONFIG: no such file: {kubeconfig}")
        super().__init__(kubeconfig)

    @property
    def what(self) -> str:
        return f"the cluster of {self.kubeconfig}"

    def up(self, nodes: int) -> bool:
        found = self._kubectl("get", "nodes", "--output=name").split()
        if len(found) < nodes:
            print(f"{self.what} has {len(found)} nodes, fewer than {nodes}", flush=True)
        return False

    def down(self) -> None:
        print(f"{self.what} is not ours to remove", flush=True)

    def load(self, archive: Path, node: str | None = None) -> None:
        """Runs `$ISTHMUS_TEST_IMAGE_LOADER ARCHIVE`, or `kind load` if the context is one of kind's."""
        loader = os.environ.get("ISTHMUS_TEST_IMAGE_LOADER")
        context = self._kubectl("config", "current-context").strip()
        if loader:
            # The loader may be this harness with another cluster, and must not come back here.
            environment = {**self.environment, "ISTHMUS_TEST_KUBECONFIG": ""}
            run([*shlex.split(loader), archive], timeout=LOAD_TIMEOUT_S, env=environment)
        elif context.startswith("kind-") and find_tool("kind"):
            load_with_kind(context.removeprefix("kind-"), archive)
        else:
            raise HarnessError(
                "set ISTHMUS_TEST_IMAGE_LOADER to a command that, with the path of an image archive "
                "as its last argument, makes the image known to all nodes of the cluster"
            )

    def execute(self, node: str, argv: Sequence[str], *, timeout: float) -> str:
        raise HarnessError(f"commands cannot be run on the nodes of {self.what}")
