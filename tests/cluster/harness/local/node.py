"""One node: containerd, kubelet and kube-proxy in namespaces of their own, a machine that can crash."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ..host import SYSTEM_PATH, HarnessError, run
from . import cgroups
from .binaries import Binaries
from .control_plane import NODE_GRACE_S
from .network import holder, set_up_node
from .pki import Pki
from .process import MACHINE, Process, start
from .spec import Spec, node_number
from .state import State

CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
CGROUPS_TIMEOUT_S = 30.0
PAUSE_IMAGE = "docker.io/isthmus-test/pause:1"
CNI_PLUGINS = Path("/usr/lib/cni")
# Folders whose paths the components do not let us choose; each node has its own.
PRIVATE = ["/run/netns", "/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"]


class Node:
    """A node by name (`n1`, ...). Its files are below the cluster's state folder."""

    def __init__(self, state: State, spec: Spec, binaries: Binaries, name: str) -> None:
        self.name = name
        self._state = state
        self._spec = spec
        self._binaries = binaries
        self._folder = state.node_folder(name)

    @property
    def process(self) -> Process:
        """The node's first process."""
        return self._state.process(self.name)

    def create(self) -> None:
        """Plugs in the node and writes its configuration; `start` then switches it on."""
        set_up_node(self._state, self._spec, self.name, self._binaries["pause"])
        for folder in ("cni", "kubelet", "pods-log", "opt"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        pki, user = Pki(self._state.pki), f"{self.name}-kubelet"
        pki.issue(
            user,
            f"system:node:{self.name}",
            "system:nodes",
            hosts=[self.name, str(self._spec.node_address(self.name)), "127.0.0.1"],
        )
        pki.kubeconfig(self._folder / "kubelet.kubeconfig", self._spec.name, self._spec.api_url, user)
        (self._folder / "resolv.conf").write_text("")
        self._write("containerd.toml", self._containerd())
        self._write("cni/10-pods.conflist", json.dumps(self._cni(), indent=2))
        self._write("kubelet.yaml", yaml.safe_dump(self._kubelet(), sort_keys=False))
        self._write("kube-proxy.yaml", yaml.safe_dump(self._kube_proxy(), sort_keys=False))
        self._write("init.json", json.dumps(self._init(), indent=2))

    def start(self) -> None:
        """Starts the node's first process, which starts the rest. It must not be running."""
        # A machine starts without cgroups; kubelet waits seconds for each container whose
        # cgroup it finds and who is gone.
        group = f"{self._spec.cgroup}/{self.name}"
        cgroups.remove(group, CGROUPS_TIMEOUT_S)
        cgroups.create(group)
        script = Path(__file__).with_name("node_init.py")
        folders = [
            *sorted({str(path.parent) for path in self._binaries.values()}),
            str(CNI_PLUGINS),
            SYSTEM_PATH,
        ]
        start(
            [sys.executable, "-IS", script, self._folder / "init.json"],
            record=self._state.process_file(self.name),
            log=self._state.logs / f"{self.name}.log",
            env={"PATH": ":".join(folders)},
            net=self._state.process(holder(self.name)),
            unshare=MACHINE,
        )

    def execute(self, argv: Sequence[str | Path], *, timeout: float) -> str:
        """Runs a command on the node, in all its namespaces, and returns its output."""
        if not self.process.running():
            raise HarnessError(f"node {self.name} is not running")
        enter = ["nsenter", f"--target={self.process.pid}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        return run([*enter, *argv], timeout=timeout)

    def wait_containerd(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        root = Path(f"/proc/{self.process.pid}/root")
        while not (root / CONTAINERD_SOCKET.relative_to("/")).exists():
            if not self.process.running() or time.monotonic() > deadline:
                raise HarnessError(f"containerd does not start on {self.name}; see {self._state.logs}")
            time.sleep(0.05)

    def import_image(self, name: str, archive: Path) -> bool:
        """Imports an image archive unless the node has it; True if it did."""
        record = self._folder / "images.json"
        known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
        if known.get(name) == archive.name:
            return False
        self.wait_containerd(timeout=60)
        self._ctr("images", "import", "--snapshotter=overlayfs", archive, timeout=300)
        temporary = record.with_suffix(".tmp")
        temporary.write_text(json.dumps(known | {name: archive.name}, indent=2))
        temporary.replace(record)
        return True

    def kill_container(self, container: str, timeout: float) -> None:
        """SIGKILL to a container's first process, through containerd, which knows it by more than its pid."""
        self._ctr(
            "tasks", "kill", "--signal=SIGKILL", container.removeprefix("containerd://"), timeout=timeout
        )

    def _ctr(self, *arguments: str | Path, timeout: float) -> None:
        ctr: list[str | Path] = [
            self._binaries["ctr"],
            f"--address={CONTAINERD_SOCKET}",
            "--namespace=k8s.io",
        ]
        self.execute([*ctr, *arguments], timeout=timeout)

    def _write(self, file: str, content: str) -> None:
        (self._folder / file).write_text(content)

    def _init(self) -> dict[str, Any]:
        kubelet = [
            self._binaries["kubelet"],
            f"--config={self._folder}/kubelet.yaml",
            f"--kubeconfig={self._folder}/kubelet.kubeconfig",
            f"--root-dir={self._folder}/kubelet",
            f"--hostname-override={self.name}",
            f"--node-ip={self._spec.node_address(self.name)}",
            f"--node-labels=topology.kubernetes.io/zone=zone-{node_number(self.name)}",
        ]
        commands = {
            "containerd": ([self._binaries["containerd"], "-c", f"{self._folder}/containerd.toml"], ""),
            "kubelet": (kubelet, str(CONTAINERD_SOCKET)),
            "kube-proxy": ([self._binaries["kube-proxy"], f"--config={self._folder}/kube-proxy.yaml"], ""),
        }
        daemons = [
            {
                "argv": [str(word) for word in argv],
                "log": str(self._state.logs / f"{self.name}-{name}.log"),
                "after": after,
            }
            for name, (argv, after) in commands.items()
        ]
        return {"hostname": self.name, "private": PRIVATE, "daemons": daemons}

    def _containerd(self) -> str:
        return f"""\
version = 3
root = "{self._folder}/containerd"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.internal.v1.opt"]
path = "{self._folder}/opt"

[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE a container's score may only be raised above our own.
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{CNI_PLUGINS}"]
conf_dir = "{self._folder}/cni"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{shutil.which("runc", path=SYSTEM_PATH)}"
SystemdCgroup = false
"""

    def _cni(self) -> dict[str, Any]:
        # ptp, not bridge: all traffic of a pod is routed by its node, also to its neighbours,
        # so that services and packet filters treat it alike. Pods see each other's real address.
        pods = {
            "type": "ptp",
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self._folder / "cni-addresses"),
                "ranges": [[{"subnet": str(self._spec.node_pods(self.name))}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [pods, ports]}

    def _kubelet(self) -> dict[str, Any]:
        pki = Pki(self._state.pki)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki.certificate("ca"))},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._spec.cgroup}/{self.name}",
            "failCgroupV1": False,
            "clusterDNS": [str(self._spec.dns_service)],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
            "enforceNodeAllocatable": [],
            # The disk is the machine's: no pods are evicted and no images deleted for its sake.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "failSwapOn": False,
            "nodeLeaseDurationSeconds": NODE_GRACE_S,
            "nodeStatusUpdateFrequency": "2s",
            "podLogsDir": str(self._folder / "pods-log"),
            # Empty: nothing is asked outside the cluster.
            "resolvConf": str(self._folder / "resolv.conf"),
            "tlsCertFile": str(pki.certificate(f"{self.name}-kubelet")),
            "tlsPrivateKeyFile": str(pki.key(f"{self.name}-kubelet")),
        }

    def _kube_proxy(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._state.folder / "kube-proxy.kubeconfig")},
            "clusterCIDR": str(self._spec.pod_network),
            "hostnameOverride": self.name,
            "mode": "iptables",
            "iptables": {"localhostNodePorts": False, "minSyncPeriod": "100ms"},
            # Not writable in a network namespace: 0 leaves them alone.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
