"""`isthmus status` of routers that answer as no router does."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from kubernetes.aio import client

from isthmus_cli.view import RouterReport, network_view
from isthmus_operator.cluster import ApiError, Cluster, guard
from isthmus_operator.fetch import MAX_ANSWER_BYTES

GOOD: dict[str, Any] = {"router": {"id": "b-0", "ready": True, "version": "1"}, "neighbors": [{"id": "a-0"}]}


class _Proxy(BaseHTTPRequestHandler):
    """The API server's proxy, which passes on what a pod answers. The pod's name is that of the attack."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        attack = self.path.split("/")[6].partition(":")[0]
        status, headers, body = {
            "good": (200, {}, json.dumps(GOOD).encode()),
            "gzip": (200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(50_000_000))),
            "redirect": (302, {"Location": f"http://{self.headers['Host']}/elsewhere/a/b/c/d/e/f"}, b""),
            "deep": (200, {}, b"[" * 100_000),
            "long": (200, {}, b" " * (MAX_ANSWER_BYTES + 1)),
            "list": (200, {}, b"[]"),
        }[attack]
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            return

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Proxy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ("gzip", "content encoding"),
        ("redirect", "redirect is refused"),
        ("deep", "levels"),
        ("long", "more than"),
        ("list", "list instead of an object"),
    ],
)
async def test_answers_through_the_api_server_are_bounded(proxy: str, attack: str, message: str) -> None:
    configuration = client.Configuration()
    configuration.host = proxy
    guard(configuration)
    cluster = Cluster(client.ApiClient(configuration))
    _Proxy.asked.clear()
    try:
        with pytest.raises(ApiError, match=message):
            await cluster.ask_pod("net", attack, 9090, "status")
        assert len(_Proxy.asked) == 1, "nothing but the pod was asked"
        assert await cluster.ask_pod("net", "good", 9090, "status") == GOOD
    finally:
        await cluster.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"router": []},
        {"router": {"version": {}}},
        {"router": {"uptimeSeconds": "long"}},
        {"neighbors": [5]},
        {"neighbors": [{"id": {}}]},
        {"connections": [{}]},
        {"connectors": 7},
        {"connectors": [{"cost": []}]},
        {"addresses": [{"name": "a"}]},
        {"addresses": [{"name": "a", "class": "M", "local": "x"}]},
        {"autoLinks": [{}]},
        {"policyDenials": {"a": "b"}},
        {"edge": [1]},
    ],
)
def test_one_malformed_document_does_not_keep_the_others_from_view(answer: dict[str, Any]) -> None:
    reports = [
        RouterReport(name, "r", "interior", None, "pod", status)
        for name, status in (("a-0", {**GOOD, **answer}), ("b-0", GOOD))
    ]
    found = network_view("net", "Kubernetes", reports)
    assert [(row.id, row.state) for row in found.routers] == [("a-0", "down"), ("b-0", "ready")]
    assert "not the expected form" in (found.routers[0].message or "")
