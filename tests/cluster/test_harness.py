"""The test cluster itself: what it promises to other tests, what it leaves behind."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.harness import images
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.host import CommandError, HarnessError, state_dir
from tests.cluster.harness.local import cgroups
from tests.cluster.harness.local.process import Process
from tests.cluster.harness.local.provider import LocalProvider
from tests.cluster.harness.local.state import State, mounts_below
from tests.cluster.harness.provider import Faults
from tests.cluster.harness.providers.kind import KindProvider
from tests.cluster.harness.selection import select

HARNESS = Path(__file__).parent / "harness"
ROOT = HARNESS.parents[2]
# Others may run the same tests on the same machine.
SECOND = f"harness-test-{os.getpid()}"
SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="session")
def probe_image(cluster: Cluster) -> str:
    return cluster.image("isthmus-test-probe:1", HARNESS / "probe" / "Containerfile", HARNESS / "probe")


@pytest.fixture
def web(cluster: Cluster, namespace: str, probe_image: str) -> str:
    """Namespace with `web-0` and `web-1` on different nodes, serving the Secret `page`, which says `one`."""
    deploy_web(cluster, namespace, probe_image, replicas=2)
    return namespace


def deploy_web(cluster: Cluster, namespace: str, image: str, replicas: int) -> None:
    labels = {"app": "web"}
    container = {
        "name": "web",
        "image": image,
        "imagePullPolicy": "Never",
        "ports": [{"containerPort": 8080}],
        "securityContext": SECURITY,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "128Mi"}},
        "readinessProbe": {"httpGet": {"path": "/word", "port": 8080}, "periodSeconds": 1},
        "volumeMounts": [{"name": "page", "mountPath": "/data"}],
    }
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    pod = {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container],
            "topologySpreadConstraints": [apart],
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "page", "secret": {"secretName": "page"}}],
        },
    }
    ports = [{"port": 80, "targetPort": 8080}]
    cluster.apply(
        secret("one"),
        service("web", {"clusterIP": "None", "selector": labels, "ports": ports}),
        service("web-any", {"selector": labels, "ports": ports}),
        service("web-node", {"type": "NodePort", "selector": labels, "ports": ports}),
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "web"},
            "spec": {
                "serviceName": "web",
                "replicas": replicas,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": pod,
            },
        },
        namespace=namespace,
    )
    cluster.wait(f"jsonpath={{.status.readyReplicas}}={replicas}", "statefulset/web", namespace=namespace)


def secret(word: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "page"}, "stringData": {"word": word}}


def service(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def fetch(url: str, timeout: float = 2.0) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(url, timeout=timeout) as answer:
        return str(answer.read().decode())


def fetch_from(cluster: Cluster, pod: str, url: str, namespace: str) -> str:
    script = f"import urllib.request as r; print(r.urlopen({url!r}, timeout=2).read().decode(), end='')"
    return cluster.exec(pod, "python3", "-c", script, namespace=namespace)


def pod_address(cluster: Cluster, pod: str, namespace: str) -> str:
    status = cluster.get(f"pod/{pod}", namespace=namespace)["status"]
    assert "podIP" in status
    return str(status["podIP"])


def pod_node(cluster: Cluster, pod: str, namespace: str) -> str:
    return str(cluster.get(f"pod/{pod}", namespace=namespace)["spec"]["nodeName"])


def node_port_url(cluster: Cluster, node: str, namespace: str) -> str:
    port = cluster.get("service/web-node", namespace=namespace)["spec"]["ports"][0]["nodePort"]
    addresses = cluster.get(f"node/{node}")["status"]["addresses"]
    address = next(entry["address"] for entry in addresses if entry["type"] == "InternalIP")
    return f"http://{address}:{port}/word"


def test_nodes_are_ready_and_a_second_up_changes_nothing(cluster: Cluster) -> None:
    assert len(cluster.nodes()) >= 3
    assert all(cluster.nodes().values())
    before = cluster.get("namespace/kube-system")["metadata"]["uid"]
    assert cluster.provider.up(3) is False
    assert cluster.get("namespace/kube-system")["metadata"]["uid"] == before


def test_services_and_names_work_across_nodes(cluster: Cluster, web: str) -> None:
    assert pod_node(cluster, "web-0", web) != pod_node(cluster, "web-1", web)
    for host in (f"web-1.web.{web}.svc.cluster.local", "web-1.web", "web-any"):
        url = f"http://{host}{':8080' if host.startswith('web-1') else ''}/word"
        reach = functools.partial(fetch_from, cluster, "web-0", url, web)
        assert cluster.eventually(f"web-0 reaches {host}", reach) == "one"
    # A pod reaches itself through a Service, too, whichever replica is picked.
    assert {fetch_from(cluster, "web-0", "http://web-any/word", web) for _ in range(8)} == {"one"}


def test_names_outside_the_cluster_do_not_exist(cluster: Cluster, web: str) -> None:
    lookup = (
        "import socket\ntry: socket.getaddrinfo('isthmus.example', 80)\nexcept OSError as e: print(e.errno)"
    )
    assert cluster.exec("web-0", "python3", "-c", lookup, namespace=web).strip() == "-2"  # EAI_NONAME


def test_node_ports_logs_exec_and_port_forward(cluster: Cluster, web: str) -> None:
    for node in cluster.nodes():
        url = node_port_url(cluster, node, web)
        assert cluster.eventually(f"{url} answers", functools.partial(fetch, url), timeout=30) == "one"
    assert "GET /word" in cluster.kubectl("logs", "web-0", f"--namespace={web}")
    assert cluster.exec("web-0", "cat", "/data/word", namespace=web) == "one"
    with cluster.port_forward("pod/web-1", 8080, namespace=web) as port:
        assert fetch(f"http://127.0.0.1:{port}/word") == "one"


def test_restricted_is_enforced(cluster: Cluster, namespace: str, probe_image: str) -> None:
    container = {"name": "main", "image": probe_image, "securityContext": {"privileged": True}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "privileged"},
        "spec": {"containers": [container]},
    }
    with pytest.raises(CommandError, match="violates PodSecurity"):
        cluster.apply(pod, namespace=namespace)


def test_a_changed_secret_reaches_a_pod_once_its_annotation_is_touched(cluster: Cluster, web: str) -> None:
    read = functools.partial(cluster.exec, "web-0", "cat", "/data/word", namespace=web)
    assert read() == "one"
    cluster.apply(secret("two"), namespace=web)
    cluster.kubectl("annotate", "pod/web-0", "touched=1", f"--namespace={web}")
    begin = time.monotonic()
    cluster.eventually("the pod sees the new Secret", lambda: read() == "two", timeout=10)
    # Untouched, it takes up to a minute. Usually half a second; the machine may be busy.
    assert time.monotonic() - begin < 5


def test_dropped_packets_are_dropped_in_one_direction_only(
    cluster: Cluster, web: str, faults: Faults
) -> None:
    first, second = (pod_address(cluster, pod, web) for pod in ("web-0", "web-1"))
    # UDP, for a connection needs both directions.
    listen = (
        "import socket; s=socket.socket(2,2); s.bind(('',9999)); s.settimeout(4)\n"
        "print('listening', flush=True)\n"
        "try: print(s.recv(9).decode())\nexcept TimeoutError: print('nothing')"
    )

    def received(sender: str, receiver: str, address: str) -> str:
        command = [str(cluster.provider.tool("kubectl")), "exec", f"--namespace={web}", receiver, "--"]
        process = subprocess.Popen(
            [*command, "python3", "-c", listen],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **cluster.provider.environment},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        send = f"import socket; socket.socket(2,2).sendto(b'hello', ({address!r}, 9999))"
        cluster.exec(sender, "python3", "-c", send, namespace=web)
        return process.communicate(timeout=30)[0].strip()

    assert received("web-0", "web-1", second) == "hello"
    faults.drop(first, second)
    assert received("web-0", "web-1", second) == "nothing"
    assert received("web-1", "web-0", first) == "hello"
    faults.undrop()
    assert received("web-0", "web-1", second) == "hello"


def test_a_cut_node_is_seen_and_comes_back(cluster: Cluster, web: str, faults: Faults) -> None:
    node = pod_node(cluster, "web-1", web)
    url = f"http://{pod_address(cluster, 'web-1', web)}:8080/word"
    faults.cut_node(node)
    with pytest.raises(OSError):  # noqa: PT011
        fetch(url)
    cluster.eventually("the node is NotReady", lambda: not cluster.nodes()[node], timeout=30)
    faults.restore_node(node)
    cluster.eventually("the node is Ready", lambda: cluster.nodes()[node], timeout=60)
    assert cluster.eventually("the pod went on", lambda: fetch(url), timeout=10) == "one"
    restarts = cluster.get("pod/web-1", namespace=web)["status"]["containerStatuses"][0]["restartCount"]
    assert restarts == 0


def test_pods_go_on_while_the_api_server_is_down(cluster: Cluster, web: str, faults: Faults) -> None:
    url = node_port_url(cluster, pod_node(cluster, "web-0", web), web)
    assert cluster.eventually("the node port answers", lambda: fetch(url), timeout=30) == "one"
    faults.stop_apiserver()
    with pytest.raises(CommandError):
        cluster.kubectl("get", "nodes", "--request-timeout=2s")
    assert fetch(url) == "one"
    faults.start_apiserver()
    assert pod_node(cluster, "web-0", web)


def test_an_unchanged_image_is_neither_built_nor_loaded_again(
    cluster: Cluster, probe_image: str, tmp_path: Path
) -> None:
    folder = HARNESS / "probe"
    archive = images.build("isthmus-test-probe:1", folder / "Containerfile", folder)
    inode = archive.stat().st_ino
    begin = time.monotonic()
    assert cluster.image("isthmus-test-probe:1", folder / "Containerfile", folder) == probe_image
    assert time.monotonic() - begin < 5
    assert archive.stat().st_ino == inode

    (tmp_path / "Containerfile").write_text("FROM scratch\nCOPY data /data\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("1")
    (tmp_path / "unrelated").write_text("1")
    one = images.build("isthmus-test-hash:1", tmp_path / "Containerfile", tmp_path)
    (tmp_path / "unrelated").write_text("2")
    assert images.build("isthmus-test-hash:1", tmp_path / "Containerfile", tmp_path) == one
    (tmp_path / "data" / "a").write_text("2")
    assert images.build("isthmus-test-hash:1", tmp_path / "Containerfile", tmp_path) != one


def test_a_recycled_pid_is_never_killed() -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        known = Process.of(bystander.pid)
        stranger = Process(known.pid, known.start - 1, known.boot)
        assert known.running()
        assert not stranger.running()
        stranger.kill()
        assert bystander.poll() is None
        known.kill()
        assert bystander.wait(timeout=10) == -signal.SIGKILL
        assert not known.running()
    finally:
        bystander.kill()


def test_a_given_cluster_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    monkeypatch.setenv("ISTHMUS_TEST_KUBECONFIG", str(kubeconfig))
    with pytest.raises(HarnessError, match="no such file"):
        select("default")
    kubeconfig.write_text("")
    provider, reason = select("default")
    assert provider.kubeconfig == kubeconfig
    assert "ISTHMUS_TEST_KUBECONFIG" in reason


def test_a_given_cluster_is_used_and_left_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(cluster.kubeconfig.read_bytes())
    # Nothing shows where it is from: into a cluster of kind's, images can be loaded without being told how.
    context = cluster.kubectl("config", "current-context").strip()
    cluster.kubectl("config", "rename-context", context, "given", f"--kubeconfig={kubeconfig}")
    monkeypatch.setenv("ISTHMUS_TEST_KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("NO_PROXY", "*")
    provider, _ = select("default")
    assert provider.up(1) is False
    assert Cluster(provider).nodes() == cluster.nodes()
    archive = tmp_path / "image.tar"
    archive.write_text("content")
    monkeypatch.delenv("ISTHMUS_TEST_IMAGE_LOADER", raising=False)
    with pytest.raises(HarnessError, match="ISTHMUS_TEST_IMAGE_LOADER"):
        provider.load(archive)
    monkeypatch.setenv("ISTHMUS_TEST_IMAGE_LOADER", f"cp --target-directory={tmp_path}/'loaded images'")
    (tmp_path / "loaded images").mkdir()
    provider.load(archive)
    assert (tmp_path / "loaded images" / "image.tar").read_text() == "content"
    provider.down()
    assert all(cluster.nodes().values())


def test_without_any_way_to_a_cluster_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ISTHMUS_TEST_KUBECONFIG", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(HarnessError, match=r"install kind(.|\n)*install Go"):
        select("default")


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
        if not Path("/proc", folder.name.rpartition("-")[2]).exists():
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
    "spec": lambda state: state.spec_file,
    "etcd": lambda state: state.process_file("etcd"),
    "node": lambda state: state.process_file("n1"),
    "images": lambda state: state.node_folder("n1") / "images.json",
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


@pytest.mark.parametrize(
    ("moment", "sent"), [(moment, signal.SIGKILL) for moment in MOMENTS] + [("etcd", signal.SIGINT)]
)
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
    assert second.up(1) is True
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

    folder = HARNESS / "probe"
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
