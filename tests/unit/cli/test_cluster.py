"""`isthmus status` before it reaches a cluster."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from isthmus_cli.__main__ import main
from isthmus_operator import cluster


@pytest.mark.parametrize("named", [True, False])
def test_no_kubeconfig_is_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    missing = tmp_path / ".kube" / "config"
    if named:
        missing = tmp_path / "elsewhere"
        monkeypatch.setenv("KUBECONFIG", str(missing))
    done = CliRunner().invoke(main, ["status"])
    assert done.exit_code == 1
    assert done.output == (
        f"error: no cluster to ask: there is no kubeconfig ({missing} does not exist); "
        "name one with --kubeconfig or KUBECONFIG\n"
    )


class _ApiServer(BaseHTTPRequestHandler):
    """Answers as an API server does to one who may read everything: no resource, no namespace `gone`."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/api/v1/namespaces/gone":
            self._answer(404, {"kind": "Status", "reason": "NotFound", "message": "not found"})
        elif path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
            self._answer(200, {"kind": "Namespace", "metadata": {"name": path.rpartition("/")[2]}})
        else:
            self._answer(200, {"items": []})

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _ApiServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        yield path
        server.shutdown()
        thread.join(timeout=10)


def test_a_namespace_that_does_not_exist_is_an_error(kubeconfig: Path) -> None:
    done = CliRunner().invoke(main, ["status", "--kubeconfig", str(kubeconfig), "-n", "gone"])
    assert (done.exit_code, done.output) == (1, "error: namespace 'gone' does not exist\n")


def test_a_namespace_without_resources_is_empty(kubeconfig: Path) -> None:
    done = CliRunner().invoke(main, ["status", "--kubeconfig", str(kubeconfig), "-n", "here"])
    assert done.exit_code == 0
    assert "here on Kubernetes: 0 of 0 routers ready" in done.output


def elsewhere(kubeconfig: Path, port: int) -> Path:
    """The kubeconfig with another port of the API server."""
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"
    kubeconfig.write_text(json.dumps(config))
    return kubeconfig


def test_an_api_server_that_is_not_there(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    done = CliRunner().invoke(main, ["status", "--kubeconfig", str(elsewhere(kubeconfig, port)), "-n", "x"])
    reason = f"127.0.0.1:{port}: Connection refused"
    assert (done.exit_code, done.output) == (1, f"error: the API server cannot be reached: {reason}\n")


def test_an_api_server_that_does_not_answer(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "REQUEST_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = elsewhere(kubeconfig, silent.getsockname()[1])
        done = CliRunner().invoke(main, ["status", "--kubeconfig", str(path), "-n", "x"])
    reason = "no answer within 0.2 s"
    assert (done.exit_code, done.output) == (1, f"error: the API server cannot be reached: {reason}\n")


def test_a_kubeconfig_that_is_not_yaml(kubeconfig: Path) -> None:
    kubeconfig.write_text("{ not yaml")
    done = CliRunner().invoke(main, ["status", "--kubeconfig", str(kubeconfig), "-n", "x"])
    assert done.exit_code == 1
    assert done.output.startswith("error: no cluster to ask: the kubeconfig is not YAML: ")
