"""The test cluster itself: what it leaves behind, however it ended, is cleaned up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.host import HarnessError, state_dir
from tests.cluster.harness.local import cgroups
from tests.cluster.harness.local.process import Process
from tests.cluster.harness.local.provider import LocalProvider
from tests.cluster.harness.local.state import State, mounts_below
from tests.cluster.harness.providers.kind import KindProvider
from tests.cluster.support.web import PROBE, deploy_web

ROOT = Path(__file__).parents[2]
# Others may run the same tests on the same machine.
SECOND = f"harness-test-{os.getpid()}"


class Leftovers:
    """Everything a cluster can leave on the machine, seen from outside its records."""

    def __init__(self, provider: LocalProvider) -> None:
        self.spec = provider.spec()
        self.folder = provider.state.folder
        self.before = self._descendants({process.pid for process in provider.state.processes().values()})

    def processes(self) -> list[str]:
        """Of the processes of the cluster and its pods at the beginning, and of all that have one
        of our folders in their arguments, those that run."""
        found = {f"{process.pid} {what}" for process, what in self.before.items() if process.running()}
        for pid, (_, what) in self._all().items():
            if f"{self.folder}/" in what and pid != os.getpid():
                found.add(f"{pid} {what}")
        return sorted(found)

    def _descendants(self, pids: set[int]) -> dict[Process, str]:
        everything = self._all()
        while more := {pid for pid, (parent, _) in everything.items() if parent in pids} - pids:
            pids |= more
        found = {}
        for pid in pids & everything.keys():
            with contextlib.suppress(OSError):
                found[Process.of(pid)] = everything[pid][1]
        return found

    def _all(self) -> dict[int, tuple[int, str]]:
        """Every process: its parent and its command line."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                found[int(entry.name)] = (int(stat[1]), words)
        return found

    def others(self) -> list[str]:
        """Mounts, interfaces, routes, cgroups and files."""
        links = json.loads(subprocess.check_output(["ip", "-json", "link"], timeout=10))
        routes = subprocess.check_output(["ip", "route"], text=True, timeout=10)
        found = [f"mount {point}" for point in mounts_below(self.folder)]
        found += [f"link {link['ifname']}" for link in links if link["ifname"] == self.spec.uplink]
        found += [f"route {line}" for line in routes.splitlines() if self.spec.uplink in line]
        groups = [root / self.spec.cgroup for root in cgroups.hierarchies()]
        found += [f"cgroup {group}" for group in groups if group.exists()]
        return found + [f"file {path}" for path in state_dir().glob(f"*{self.spec.name}*")]


@pytest.fixture
def second(cluster: Cluster) -> Iterator[LocalProvider]:
    """Another cluster beside the first, not yet up."""
    if not isinstance(cluster.provider, LocalProvider):
        pytest.skip("needs a cluster built on this machine")
    for folder in state_dir().glob("harness-test-*"):
        if not Path("/proc", folder.name.split("-")[2]).exists():
            LocalProvider(folder.name).down()  # its tests were killed
    provider = LocalProvider(SECOND)
    yield provider
    provider.down()


def harness(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cluster.harness", f"--name={SECOND}", *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("ISTHMUS_TEST_KUBECONFIG", None)
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


MOMENTS: Mapping[str, Callable[[State], Path]] = {
    "etcd": lambda state: state.process_file("etcd"),
    "node": lambda state: state.process_file("n1"),
}


def interrupt(second: LocalProvider, moment: str, sent: signal.Signals) -> subprocess.Popen[str]:
    """Starts `up` and sends it a signal once it has come so far; returns it when it has ended."""
    up = harness("up", "--nodes=1")
    deadline = time.monotonic() + 90
    while not MOMENTS[moment](second.state).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    up.send_signal(sent)
    up.communicate(timeout=30)
    return up


@pytest.mark.parametrize(("moment", "sent"), [("node", signal.SIGKILL), ("etcd", signal.SIGINT)])
def test_what_an_interrupted_up_left_is_cleaned_up(
    second: LocalProvider, moment: str, sent: signal.Signals
) -> None:
    up = interrupt(second, moment, sent)
    assert up.returncode == (1 if sent == signal.SIGINT else -sent)
    left = Leftovers(second)
    second.down()
    assert left.processes() == []
    assert left.others() == []


def test_an_interrupt_in_the_middle_of_a_start_ends_it(tmp_path: Path) -> None:
    """Python drops what is raised in a fork's hooks, and the signal with it."""
    program = f"""
import os, signal
from pathlib import Path
from tests.cluster.harness.local import process
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
folder = Path({str(tmp_path)!r})
process.start(["true"], record=folder / "record", log=folder / "log", env={{}})
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert "KeyboardInterrupt" in ended.stderr.splitlines()[-1]
    assert ended.returncode == -signal.SIGINT


def test_up_after_a_killed_one_after_crashes_and_with_more_nodes_and_down_leaves_nothing(
    cluster: Cluster, second: LocalProvider, probe_image: str
) -> None:
    interrupt(second, "node", signal.SIGKILL)
    second.up(1)  # starts nothing if all that the killed one has started is ready by now
    assert Cluster(second).nodes() == {"n1": True}
    again = harness("up", "--nodes=1")
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 0
    assert "is up with 1 nodes" in output

    second.state.process("kube-scheduler").kill()
    second.state.process("n1").kill()
    assert second.up(1) is True
    assert Cluster(second).nodes() == {"n1": True}
    # More nodes join what is there.
    assert second.up(2) is False
    other = Cluster(second)
    assert other.nodes() == {"n1": True, "n2": True}

    folder = PROBE
    other.image("isthmus-test-probe:1", folder / "Containerfile", folder)
    other.kubectl("create", "namespace", "web")
    deploy_web(other, "web", probe_image, replicas=2)
    left = Leftovers(second)
    assert any("http.server" in line for line in left.processes())
    assert len(left.others()) >= 8
    second.down()
    assert left.processes() == []
    assert left.others() == []
    second.down()
    assert left.others() == []
    assert all(cluster.nodes().values())


@pytest.fixture
def of_workers(second: LocalProvider) -> Iterator[list[LocalProvider]]:
    """The clusters that two workers of pytest-xdist bring up if the tests' cluster is called as the second."""
    providers = [LocalProvider(f"{second.name}-gw{number}") for number in range(2)]
    yield providers
    for provider in providers:
        provider.down()


def test_interrupted_workers_leave_no_cluster(of_workers: list[LocalProvider]) -> None:
    test = "tests/cluster/test_harness.py::test_nodes_are_ready_and_a_second_up_changes_nothing"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "each", test]
    environment = {**os.environ, "ISTHMUS_TEST_CLUSTER": SECOND}
    environment.pop("ISTHMUS_TEST_KEEP_CLUSTER", None)
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        deadline = time.monotonic() + 90
        while not all(MOMENTS["node"](provider.state).exists() for provider in of_workers):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        left = [Leftovers(provider) for provider in of_workers]
        tests.send_signal(signal.SIGINT)
        output, _ = tests.communicate(timeout=90)
    assert tests.returncode == pytest.ExitCode.INTERRUPTED, output
    for one in left:
        assert one.processes() == []
        assert one.others() == []


@pytest.fixture
def kind(cluster: Cluster) -> Iterator[KindProvider]:
    """Another kind cluster beside the first, not yet up."""
    if not isinstance(cluster.provider, KindProvider):
        pytest.skip("needs kind")
    provider = KindProvider(SECOND)
    yield provider
    provider.down()


def kind_containers(*options: str) -> list[str]:
    """Those that run of the containers of the second cluster; with `--all`, all of them."""
    label = f"--filter=label=io.x-k8s.kind.cluster=isthmus-{SECOND}"
    found = subprocess.check_output(["docker", "ps", "--quiet", label, *options], text=True, timeout=30)
    return found.split()


def test_kind_after_a_killed_up_and_a_stopped_node_begins_anew_and_down_leaves_nothing(
    kind: KindProvider, cluster: Cluster, tmp_path: Path
) -> None:
    up = harness("up", "--nodes=1")
    cluster.eventually("kind has begun", kind_containers)
    up.kill()
    up.communicate(timeout=30)
    assert kind.up(1) is True
    assert kind.up(1) is False
    (node,) = Cluster(kind).nodes()
    with pytest.raises(HarnessError, match="use `down` first"):
        kind.up(2)
    assert kind.execute(node, ["hostname"], timeout=30).strip() == node
    with pytest.raises(HarnessError, match="no node of"):
        kind.execute(next(iter(cluster.nodes())), ["hostname"], timeout=30)

    image = tmp_path / "Containerfile"
    image.write_text("FROM scratch\nCOPY Containerfile /\n")
    Cluster(kind).image("isthmus-test-kind:1", image, tmp_path)
    assert "isthmus-test-kind" in kind.execute(node, ["crictl", "images"], timeout=30)
    # The same name, another image.
    image.write_text("FROM scratch\nCOPY Containerfile /again\n")
    before = kind.execute(node, ["crictl", "images", "--quiet"], timeout=30)
    Cluster(kind).image("isthmus-test-kind:1", image, tmp_path)
    assert kind.execute(node, ["crictl", "images", "--quiet"], timeout=30) != before

    subprocess.run(["docker", "stop", node], check=True, capture_output=True, timeout=60)
    assert kind.up(1) is True
    assert Cluster(kind).nodes() == {node: True}
    kind.down()
    assert kind_containers("--all") == []
    assert not kind.kubeconfig.exists()
    assert all(cluster.nodes().values())
