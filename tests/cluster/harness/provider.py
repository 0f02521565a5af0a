"""Where a cluster comes from: given, kind, or built on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Faults(Protocol):
    """Faults that can be made; each can be undone."""

    def kill_node(self, node: str) -> None:
        """Kills the node with all that runs on it, as if its power failed: its peers hear nothing, not
        even that their connections are gone."""

    def start_node(self, node: str) -> None:
        """Switches a killed node on again; its disk is as it was."""

    def kill_container(self, node: str, container: str) -> None:
        """Sends SIGKILL to the first process of a container, by its id; it hears no SIGTERM before."""

    def cut_node(self, node: str) -> None:
        """Pulls the node's network cable. Its processes go on."""

    def restore_node(self, node: str) -> None:
        """Plugs it in again."""

    def drop(self, source: str, destination: str, probability: float = 1.0) -> None:
        """Drops packets from one pod address, or range, to another, in this direction only."""

    def pod_range(self, node: str) -> str:
        """The range of addresses of the node's pods, for `drop`."""

    def undrop(self) -> None:
        """Removes every `drop`."""

    def stop_apiserver(self) -> None:
        """Kills the API server."""

    def start_apiserver(self) -> None:
        """Starts the API server again and waits until it is ready."""

    def heal(self) -> None:
        """Undoes everything: nodes up and connected, nothing dropped, API server ready."""


class Provider(Protocol):
    """One cluster. All methods raise HarnessError, saying what to do, when they fail."""

    @property
    def what(self) -> str:
        """What this is, in a few words, for people."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig. Exists once the cluster is up."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What commands need in their environment to use the cluster, KUBECONFIG among it."""

    @property
    def faults(self) -> Faults | None:
        """None if this provider cannot make faults."""

    @property
    def audit_logs(self) -> Sequence[Path]:
        """Files with requests of service accounts to the API server; empty if this provider has none."""

    def tool(self, name: str) -> Path:
        """The `kubectl` or `helm` to use."""

    def up(self, nodes: int) -> bool:
        """Brings the cluster up with at least so many nodes; False if there already was a healthy one."""

    def down(self) -> None:
        """Removes the cluster and all it left; does nothing if there is none."""

    def status(self) -> str:
        """The state of the cluster, for people."""

    def load(self, archive: Path, node: str | None = None) -> None:
        """Makes an image of `images.build` known to `node`, or to all nodes."""

    def execute(self, node: str, argv: Sequence[str], *, timeout: float) -> str:
        """Runs a command on a node."""
