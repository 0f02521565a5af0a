"""Network of a cluster: a switch in the control plane's namespace, one namespace for each node.

    test process -- veth -- control plane (switch br0) -- veth -- node n1, n2, ...

A namespace lives as long as the process that holds it (recorded like every other), so there is
no name or mount to clean up: when the holders are gone, so are namespaces, interfaces and routes.
"""

from __future__ import annotations

import json
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

from ..host import HarnessError, run, state_dir
from .process import CLONE_NEWNET, Process, start
from .spec import MAX_CLUSTERS, Spec
from .state import State

CONTROL_PLANE_HOLDER = "control-plane-net"


def holder(node: str) -> str:
    """Name of the process that holds a node's network namespace."""
    return f"{node}-net"


def free_index(name: str) -> int:
    """The lowest index whose addresses no other cluster, interface or route of this machine uses."""
    specs = [Spec.read(path) for path in state_dir().glob("*/cluster.json")]
    taken = {spec.index for spec in specs if spec is not None and spec.name != name}
    links = {str(link["ifname"]) for link in json.loads(run(["ip", "-json", "link"], timeout=10))}
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "table", "all"], timeout=10))
    used = [
        IPv4Network(route["dst"], strict=False)
        for route in routes
        if "." in str(route.get("dst", "")) and route["dst"] != "0.0.0.0/0"
    ]
    for index in range(MAX_CLUSTERS):
        spec = Spec(name, index, 0, "")
        clear = not any(network.overlaps(spec.network) for network in used)
        if clear and index not in taken and spec.uplink not in links:
            return index
    raise HarnessError("no free address range below 10.200.0.0 - 10.231.0.0 for another cluster")


def inside(process: Process, *argv: str) -> str:
    """Runs a command in a process's network namespace."""
    return run(["nsenter", f"--net=/proc/{process.pid}/ns/net", *argv], timeout=20)


def hold(state: State, name: str, pause: Path) -> Process:
    """Starts the process that holds a new network namespace."""
    return start(
        [pause],
        record=state.process_file(name),
        log=state.logs / f"{name}.log",
        env={},
        unshare=CLONE_NEWNET,
    )


def set_up_control_plane(state: State, spec: Spec, pause: Path) -> Process:
    """The control plane's namespace: switch, link to the test process, no way out of the machine."""
    net = hold(state, CONTROL_PLANE_HOLDER, pause)
    outer, inner = spec.uplink_network[1], spec.uplink_network[2]
    run(
        ["ip", "link", "add", spec.uplink, "type", "veth", "peer", "name", "uplink", "netns", str(net.pid)],
        timeout=10,
    )
    run(["ip", "address", "add", f"{outer}/30", "dev", spec.uplink], timeout=10)
    run(["ip", "link", "set", spec.uplink, "up"], timeout=10)
    _batch(
        net,
        "link set lo up",
        f"address add {inner}/30 dev uplink",
        "link set uplink up",
        "link add br0 type bridge",
        f"address add {spec.control_plane_address}/24 dev br0",
        "link set br0 up",
        "route add unreachable default",
    )
    # The switch must not filter what it switches; faults are made on the nodes.
    inside(net, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    inside(net, "sysctl", "-qwe", "net.bridge.bridge-nf-call-iptables=0")
    run(["ip", "route", "add", str(spec.network), "via", str(inner), "dev", spec.uplink], timeout=10)
    return net


def set_up_node(state: State, spec: Spec, node: str, pause: Path) -> Process:
    """A node's namespace, plugged into the switch, with routes between its pods and all others."""
    control_plane = state.process(CONTROL_PLANE_HOLDER)
    net = hold(state, holder(node), pause)
    address, pods = spec.node_address(node), spec.node_pods(node)
    others = [other for other in spec.nodes if other != node]
    _batch(
        control_plane,
        f"link add {node} type veth peer name eth0 netns {net.pid}",
        f"link set {node} master br0",
        f"link set {node} up",
        f"route replace {pods} via {address}",
    )
    _batch(
        net,
        "link set lo up",
        f"address add {address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {spec.control_plane_address}",
        *(f"route add {spec.node_pods(other)} via {spec.node_address(other)}" for other in others),
    )
    inside(net, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    for other in others:
        known = state.processes().get(holder(other))
        if known is not None and known.running():
            _batch(known, f"route replace {pods} via {address}")
    return net


def remove_uplink(spec: Spec) -> None:
    """Removes the link to the test process if the end of its namespace has not done so yet."""
    subprocess.run(["ip", "link", "delete", spec.uplink], capture_output=True, timeout=20, check=False)
    if Path("/sys/class/net", spec.uplink).exists():
        raise HarnessError(f"interface {spec.uplink} cannot be removed")


def _batch(net: Process, *commands: str) -> None:
    run(
        ["nsenter", f"--net=/proc/{net.pid}/ns/net", "ip", "-batch", "-"],
        timeout=20,
        input="\n".join(commands) + "\n",
    )
