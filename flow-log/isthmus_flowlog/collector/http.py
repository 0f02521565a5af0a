"""HTTP for probes, status and metrics: `/healthz`, `/readyz`, `/status`, `/metrics`."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from isthmus_flowlog.collector.metrics import CONTENT_TYPE

MOST_REQUESTS = 16
"""At a time; more are turned away."""
REQUEST_SECONDS = 5.0

Answer = tuple[HTTPStatus, str, bytes]


def text(reason: str | None, well: str) -> Answer:
    """200 and `well`, or 503 and the reason."""
    status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
    return status, "text/plain; charset=utf-8", f"{reason or well}\n".encode()


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
            "/status": lambda: (HTTPStatus.OK, "application/json", json.dumps(status()).encode()),
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE, metrics()),
        }
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
        """As the base class."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
    server: Server

    def do_GET(self) -> None:
        """Answer."""
        route = self.server.routes.get(self.path.partition("?")[0])
        if route is None:
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
