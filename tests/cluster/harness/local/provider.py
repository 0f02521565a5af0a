"""Brings the local cluster up and down."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .. import images
from ..host import CommandError, HarnessError, ensure_packages, locked, missing_packages, run, state_dir
from . import cgroups, dns
from .binaries import PARTS, PARTS_DIR, Binaries, built, complete
from .control_plane import APISERVER, ControlPlane
from .faults import LocalFaults
from .network import free_index, holder, remove_uplink, set_up_control_plane
from .node import PAUSE_IMAGE, Node
from .process import kill_all
from .spec import MAX_NODES, Spec, check_name
from .state import State, mounts_below

SETTLE_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
# A busy machine answers late; a healthy cluster must not be thrown away for that.
HEALTH_TIMEOUT_S = 45.0
INOTIFY_INSTANCES = 1024


class LocalProvider:
    """A real Kubernetes in namespaces of this machine; see docs/test-cluster.md."""

    def __init__(self, name: str) -> None:
        self.name = check_name(name)
        self.state = State(name)

    @staticmethod
    def lacks() -> list[str]:
        """What has to be done before this provider can be used here; empty if nothing."""
        needs = []
        if platform.system() != "Linux":
            return ["a Linux machine"]
        if os.geteuid() != 0:
            needs.append("run as root")
        missing = cgroups.missing_controllers()
        if missing:
            needs.append(f"mount the cgroup version 1 controllers {', '.join(sorted(missing))}")
        if not complete() and not shutil.which("go"):
            needs.append("install Go 1.26 or later")
        if missing_packages() and not shutil.which("apt-get"):
            needs.append(f"install {' '.join(missing_packages())}")
        return needs

    @property
    def what(self) -> str:
        return f"Kubernetes on this machine (cluster {self.name!r})"

    @property
    def kubeconfig(self) -> Path:
        return self.state.kubeconfig

    @property
    def environment(self) -> Mapping[str, str]:
        # The cluster is on this machine: no proxy knows the way to it.
        return {"KUBECONFIG": str(self.kubeconfig), "NO_PROXY": "*"}

    @property
    def faults(self) -> LocalFaults:
        return LocalFaults(self)

    @property
    def audit_logs(self) -> Sequence[Path]:
        return sorted(self.state.audit.glob("*.log"))

    def tool(self, name: str) -> Path:
        return built([name])[name]

    def up(self, nodes: int) -> bool:
        if not 1 <= nodes <= MAX_NODES:
            raise HarnessError(f"{nodes} nodes: between 1 and {MAX_NODES} are possible")
        ensure_packages()
        binaries = built()
        with self.state.locked():
            spec = self.state.spec()
            if spec is not None:
                problem = self._problem(spec)
                if problem is None:
                    if nodes > spec.node_count:
                        self._grow(spec, nodes, binaries)
                    else:
                        print(f"cluster {self.name!r} is up with {spec.node_count} nodes", flush=True)
                    return False
                print(f"cluster {self.name!r}: {problem}; removing what is left of it", flush=True)
                self._down(spec)
            self._create(nodes, binaries)
            return True

    def down(self) -> None:
        with self.state.locked():
            spec = self.state.spec()
            if spec is None:
                self.state.remove()
                print(f"there is no cluster {self.name!r}", flush=True)
            else:
                self._down(spec)
                print(f"cluster {self.name!r} is down", flush=True)
            self.state.forget_lock()

    def status(self) -> str:
        spec = self.state.spec()
        if spec is None:
            return f"there is no cluster {self.name!r}\n"
        lines = [f"cluster {self.name!r}: {spec.node_count} nodes, {spec.network}, {self.state.folder}"]
        for name, process in self.state.processes().items():
            lines.append(f"  {name:24} pid {process.pid:<8} {'running' if process.running() else 'ENDED'}")
        try:
            lines.append(self._kubectl("get", "nodes", "--output=wide"))
        except HarnessError as error:
            lines.append(str(error))
        return "\n".join(lines)

    def load(self, archive: Path, node: str | None = None) -> None:
        self._import(images.name_in(archive), archive, [node] if node else self.spec().nodes)

    def execute(self, node: str, argv: Sequence[str], *, timeout: float) -> str:
        return self.node(node).execute(argv, timeout=timeout)

    def spec(self) -> Spec:
        """The record of the running cluster; HarnessError if there is none."""
        spec = self.state.spec()
        if spec is None:
            raise HarnessError(f"there is no cluster {self.name!r}")
        return spec

    def node(self, name: str) -> Node:
        spec = self.spec()
        if name not in spec.nodes:
            raise HarnessError(f"there is no node {name!r}; the nodes are {', '.join(spec.nodes)}")
        return Node(self.state, spec, built(), name)

    def control_plane(self) -> ControlPlane:
        return ControlPlane(self.state, self.spec(), built())

    def _create(self, nodes: int, binaries: Binaries) -> None:
        begin = time.monotonic()
        _raise_limits()
        with locked(state_dir() / ".lock"):
            self.state.remove()
            self.state.create()
            spec = Spec(self.name, free_index(self.name), nodes, _fingerprint())
            spec.write(self.state.spec_file)
        set_up_control_plane(self.state, spec, binaries["pause"])
        control_plane = ControlPlane(self.state, spec, binaries)
        control_plane.prepare()
        control_plane.start()
        self._add_nodes(spec, spec.nodes, binaries)
        manifests = {"apiVersion": "v1", "kind": "List", "items": dns.manifests(spec)}
        self._kubectl("apply", "--server-side", "--filename=-", input=json.dumps(manifests))
        self._settle(spec)
        print(f"cluster {self.name!r} is up after {time.monotonic() - begin:.0f} s", flush=True)

    def _grow(self, spec: Spec, nodes: int, binaries: Binaries) -> None:
        known = spec.nodes
        self.state.finished.unlink()
        spec = spec.with_nodes(nodes)
        spec.write(self.state.spec_file)
        self._add_nodes(spec, [name for name in spec.nodes if name not in known], binaries)
        self._settle(spec)
        print(f"cluster {self.name!r} has now {nodes} nodes", flush=True)

    def _add_nodes(self, spec: Spec, names: list[str], binaries: Binaries) -> None:
        for name in names:
            node = Node(self.state, spec, binaries, name)
            node.create()
            node.start()
        for image in (PAUSE_IMAGE, dns.IMAGE):
            part = image.rpartition("/")[2].partition(":")[0]
            archive = images.build(image, PARTS_DIR / part / "Containerfile", binaries[part].parent)
            self._import(image, archive, spec.nodes)

    def _settle(self, spec: Spec) -> None:
        """Waits until every node is Ready and answers names."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while (found := self._ready_nodes()) != set(spec.nodes):
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(set(spec.nodes) - found))
                raise HarnessError(f"nodes are not Ready: {missing}; see {self.state.logs}")
            time.sleep(0.2)
        self._kubectl(
            *("rollout", "status", "--namespace=kube-system", "daemonset/coredns"),
            f"--timeout={SETTLE_TIMEOUT_S:.0f}s",
        )
        self.state.finished.touch()

    def _ready_nodes(self) -> set[str]:
        nodes = json.loads(self._kubectl("get", "nodes", "--output=json"))["items"]
        return {
            node["metadata"]["name"]
            for node in nodes
            for condition in node["status"].get("conditions", [])
            if condition["type"] == "Ready" and condition["status"] == "True"
        }

    def _problem(self, spec: Spec) -> str | None:
        """Why the recorded cluster cannot be used as it is; None if it can."""
        if spec.fingerprint != _fingerprint():
            return "it runs other versions"
        if not self.state.finished.exists():
            return "bringing it up was interrupted"
        processes = self.state.processes()
        expected = ["etcd", APISERVER, "kube-controller-manager", "kube-scheduler"]
        expected += [name for node in spec.nodes for name in (holder(node), node)]
        ended = [name for name in expected if name not in processes or not processes[name].running()]
        if ended:
            return f"not running: {', '.join(ended)}"
        deadline = time.monotonic() + HEALTH_TIMEOUT_S
        while True:
            try:
                missing = set(spec.nodes) - self._ready_nodes()
                if not missing:
                    return None
                problem = f"not Ready: {', '.join(sorted(missing))}"
            except CommandError as error:
                problem = f"its API does not answer: {error.output.strip()[-200:]}"
            if time.monotonic() > deadline:
                return problem
            time.sleep(0.5)

    def _down(self, spec: Spec) -> None:
        kill_all(self.state.processes().values(), STOP_TIMEOUT_S)
        remove_uplink(spec)
        cgroups.remove(spec.cgroup, STOP_TIMEOUT_S)
        for point in mounts_below(self.state.folder):
            run(["umount", "--lazy", str(point)], timeout=20)
        self.state.remove()

    def _import(self, name: str, archive: Path, names: Sequence[str]) -> None:
        nodes = [self.node(node) for node in names]
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: node.import_image(name, archive), nodes))

    def _kubectl(self, *arguments: str, input: str | None = None) -> str:
        return run(
            [self.tool("kubectl"), *arguments],
            timeout=SETTLE_TIMEOUT_S + 10,
            input=input,
            env=self.environment,
        )


def _raise_limits() -> None:
    """A node needs about 20 inotify instances; many machines allow a user 128, for all nodes together.

    kubelet hangs without them. The limit belongs to the machine, so it is not lowered again.
    """
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if int(limit.read_text()) < INOTIFY_INSTANCES:
        print(f"raising fs.inotify.max_user_instances to {INOTIFY_INSTANCES}", flush=True)
        limit.write_text(f"{INOTIFY_INSTANCES}")


def _fingerprint() -> str:
    return hashlib.sha256(" ".join(part.key() for part in PARTS).encode()).hexdigest()[:16]
