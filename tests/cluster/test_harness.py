"""The test cluster itself: what it promises to other tests."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from tests.cluster.harness import images
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.host import CommandError, HarnessError
from tests.cluster.harness.local.process import Process
from tests.cluster.harness.provider import Faults
from tests.cluster.harness.selection import select
from tests.cluster.support.web import PROBE, deploy_web, secret


@pytest.fixture
def web(cluster: Cluster, namespace: str, probe_image: str) -> str:
    """Namespace with `web-0` and `web-1` on different nodes, serving the Secret `page`, which says `one`."""
    deploy_web(cluster, namespace, probe_image, replicas=2)
    return namespace


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
    folder = PROBE
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


def test_layers_of_old_builds_are_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "LAYERS_KEPT", 2)
    (tmp_path / "Containerfile").write_text("FROM scratch\nCOPY data /data\n")
    layers = (
        tmp_path / "cache" / "isthmus" / "cluster" / "buildah" / "root" / "overlay-layers" / "layers.json"
    )
    counts = []
    for number in range(5):
        (tmp_path / "data").write_text(str(number))
        images.build("isthmus-test-layers:1", tmp_path / "Containerfile", tmp_path)
        counts.append(len(json.loads(layers.read_text())))
    assert counts == [1, 2, 3, 3, 3], "the image's own, and two more"


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
