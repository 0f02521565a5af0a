"""HTTP for probes, status and metrics: `/healthz`, `/readyz`, `/status`, `/metrics`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from isthmus_flowlog.collector.metrics import CONTENT_TYPE
from isthmus_router.http_hosts import hosts

MOST_REQUESTS = 16
"""At a time; more are turned away."""
REQUEST_SECONDS = 5.0
"""From the connection to the end of the answer."""
REST = 4
"""Times as long as an answer took is the pause before the next one of its path: no flood takes more of a processor."""
LONGEST_REST_SECONDS = 1.0
_OF_ANY_HOST = frozenset({"/healthz", "/readyz"})
"""Probes, whose answers are of no use to a web page."""

Answer = tuple[HTTPStatus, str, bytes]


def text(reason: str | None, well: str) -> Answer:
    """200 and `well`, or 503 and the reason."""
    status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "text/plain; charset=utf-8", f"{reason or well}\n".encode()


class _Paced:
    """An answer that is computed again and again, but not all of the time."""

    def __init__(self, answer: Callable[[], Answer]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._not_before = 0.0

    def __call__(self) -> Answer:
        with self._lock:
            time.sleep(min(max(0.0, self._not_before - time.monotonic()), LONGEST_REST_SECONDS))
            begun = time.thread_time()
            found = self._answer()
            self._not_before = time.monotonic() + REST * (time.thread_time() - begun)
            return found


class Server(ThreadingHTTPServer):
    """Answers on its own threads, a bounded number of them."""

    daemon_threads = True

    def __init__(
        self,
        host: str,
        port: int,
        *,
        not_healthy: Callable[[], str | None],
        not_ready: Callable[[], str | None],
        status: Callable[[], Mapping[str, object]],
        metrics: Callable[[], bytes],
    ) -> None:
        """OSError when the port cannot be had."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.routes: dict[str, Callable[[], Answer]] = {
            "/healthz": lambda: text(not_healthy(), "ok"),
            "/readyz": lambda: text(not_ready(), "ready"),
            "/status": _Paced(lambda: (HTTPStatus.OK, "application/json", json.dumps(status()).encode())),
            "/metrics": _Paced(lambda: (HTTPStatus.OK, CONTENT_TYPE, metrics())),
        }
        self.answers_host = hosts(os.environ, host)
        self._places = threading.BoundedSemaphore(MOST_REQUESTS)

    def start(self) -> None:
        """Answer from now on."""
        threading.Thread(target=self.serve_forever, name="http", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """As the base class, if there is a place."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As the base class, until the time is over."""
        deadline = threading.Timer(REQUEST_SECONDS, _cut_off, (request,))
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is none of our business."""


def _cut_off(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server: Server

    def do_GET(self) -> None:
        """Answer."""
        path = self.path.partition("?")[0]
        route = self.server.routes.get(path)
        if path not in _OF_ANY_HOST and not self.server.answers_host(self.headers.get("Host")):
            status, kind, body = HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"not answered for this Host\n"
        elif route is None:
            known = ", ".join(self.server.routes)
            status, kind, body = HTTPStatus.NOT_FOUND, "text/plain", f"there are {known}\n".encode()
        else:
            status, kind, body = route()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Probes are not logged."""
