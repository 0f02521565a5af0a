"""Faults of a local cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..host import CommandError
from .control_plane import APISERVER
from .network import CONTROL_PLANE_HOLDER, holder, inside
from .process import kill_all

if TYPE_CHECKING:
    from .provider import LocalProvider

TIMEOUT_S = 60.0
_CHAIN = "ISTHMUS-FAULTS"


class LocalFaults:
    """See `provider.Faults`."""

    def __init__(self, provider: LocalProvider) -> None:
        self._provider = provider

    def kill_node(self, node: str) -> None:
        # Without power no process says goodbye: what the kernel would send for them must not get out.
        self.cut_node(node)
        kill_all([self._provider.node(node).process], TIMEOUT_S)

    def kill_container(self, node: str, container: str) -> None:
        self._provider.node(node).kill_container(container, TIMEOUT_S)

    def start_node(self, node: str) -> None:
        machine = self._provider.node(node)
        self.restore_node(node)
        with self._provider.state.locked():
            if not machine.process.running():
                machine.start()
        machine.wait_containerd(TIMEOUT_S)

    def cut_node(self, node: str) -> None:
        self._link(node, "down")

    def restore_node(self, node: str) -> None:
        self._link(node, "up")

    def drop(self, source: str, destination: str, probability: float = 1.0) -> None:
        # On the destination's node, after services are translated and before any other filter.
        some = [] if probability >= 1 else ["-m", "statistic", "--mode", "random"]
        some += [] if probability >= 1 else ["--probability", str(probability)]
        for node in self._provider.spec().nodes:
            self._chain(node)
            self._iptables(node, "-A", _CHAIN, "-s", source, "-d", destination, *some, "-j", "DROP")

    def pod_range(self, node: str) -> str:
        return str(self._provider.spec().node_pods(node))

    def undrop(self) -> None:
        for node in self._provider.spec().nodes:
            self._chain(node)
            self._iptables(node, "-F", _CHAIN)

    def stop_apiserver(self) -> None:
        kill_all([self._provider.state.process(APISERVER)], TIMEOUT_S)

    def start_apiserver(self) -> None:
        control_plane = self._provider.control_plane()
        with self._provider.state.locked():
            if not self._provider.state.process(APISERVER).running():
                control_plane.start_apiserver()
        control_plane.wait_ready(TIMEOUT_S)

    def heal(self) -> None:
        self.undrop()
        self.start_apiserver()
        for node in self._provider.spec().nodes:
            self.start_node(node)

    def _link(self, node: str, state: str) -> None:
        self._provider.node(node)  # checks the name
        control_plane = self._provider.state.process(CONTROL_PLANE_HOLDER)
        inside(control_plane, "ip", "link", "set", node, state)

    def _chain(self, node: str) -> None:
        try:
            self._iptables(node, "-N", _CHAIN)
        except CommandError:
            return  # it is there
        self._iptables(node, "-I", "FORWARD", "-j", _CHAIN)

    def _iptables(self, node: str, *arguments: str) -> None:
        net = self._provider.state.process(holder(node))
        inside(net, "iptables", "-w", "10", "-t", "mangle", *arguments)
