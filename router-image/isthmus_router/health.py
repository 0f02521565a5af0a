"""HTTP for probes, metrics and status, on listeners with `http: true`.

The server runs in its own threads, but every answer is computed on the event loop: when the loop is
stuck, `/healthz` answers 503 and the kubelet restarts the router.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Protocol, TypeVar

from isthmus_router.config.model import AddressFamily, ListenerConfig
from isthmus_router.metrics import CONTENT_TYPE, MetricsSnapshot, exposition

logger = logging.getLogger("HTTP")

ANSWER_TIMEOUT_SECONDS = 2.0
"""A loop that does not answer for this long is stuck."""

REQUEST_TIMEOUT_SECONDS = 2.0
"""A client must send its request, and take the answer, within this time per read or write."""

MAX_REQUESTS = 64
"""Requests handled at a time; more are answered 503 without asking the loop."""

_T = TypeVar("_T")


class HealthSource(Protocol):
    """What the answers are made of. Every method is called on the event loop and must not block."""

    def not_ready_reason(self) -> str | None:
        """Why clients should not be sent here; None when the router is ready."""

    def metrics(self) -> MetricsSnapshot: ...

    def status(self) -> Mapping[str, object]:
        """The document of `/status`."""


class HealthServer:
    """The HTTP endpoint of one listener."""

    def __init__(self, config: ListenerConfig, source: HealthSource, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._source = source
        self._loop = loop
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """Port listened on; useful when the configured one is 0."""
        assert self._server
        return int(self._server.server_address[1])

    def open(self) -> None:
        """Binds and starts serving. OSError when the address cannot be used; a host name is looked up."""
        family, address = _bind_address(self._config)
        self._server = _Server(family, address, self)
        name = f"http-{self._config.name}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name=name, daemon=True
        ).start()

    async def close(self) -> None:
        """Stops serving; requests being answered are finished."""
        if self._server:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()
            self._server = None

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body for a path. Runs in a request's thread."""
        config = self._config
        try:
            match path.partition("?")[0]:
                case "/healthz" if config.healthz:
                    self._on_loop(lambda: None)
                    return _text(HTTPStatus.OK, "ok")
                case "/readyz" if config.healthz:
                    reason = self._on_loop(self._source.not_ready_reason)
                    if reason is None:
                        return _text(HTTPStatus.OK, "ready")
                    return _text(HTTPStatus.SERVICE_UNAVAILABLE, reason)
                case "/metrics" if config.metrics:
                    return HTTPStatus.OK, CONTENT_TYPE, exposition(self._on_loop(self._source.metrics))
                case "/status":
                    document = json.dumps(self._on_loop(self._source.status), default=str)
                    return HTTPStatus.OK, "application/json", document.encode()
        except FutureTimeoutError:
            logger.error("the event loop does not answer", extra={"path": path})
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, "the event loop does not answer")
        except Exception:
            logger.exception("request failed", extra={"path": path})
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; the log says why")
        return _text(HTTPStatus.NOT_FOUND, "try /healthz, /readyz, /metrics or /status")

    def _on_loop(self, function: Callable[[], _T]) -> _T:
        async def call() -> _T:
            return function()

        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return future.result(ANSWER_TIMEOUT_SECONDS)
        except FutureTimeoutError:
            future.cancel()
            raise


def _text(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode()


def _bind_address(config: ListenerConfig) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    if not config.host and config.socket_address_family is None and socket.has_dualstack_ipv6():
        return socket.AF_INET6, ("::", config.port)
    families = {
        None: socket.AF_UNSPEC,
        AddressFamily.IPV4: socket.AF_INET,
        AddressFamily.IPV6: socket.AF_INET6,
    }
    found = socket.getaddrinfo(
        config.host or None,
        config.port,
        families[config.socket_address_family],
        socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )
    return found[0][0], found[0][4]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, family: socket.AddressFamily, address: tuple[Any, ...], health: HealthServer) -> None:
        self.address_family = family
        self.health = health
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(address[:2], _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6 and self.server_address[0] == "::":
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Not HTTPServer's: it looks up the host's name, which can take long.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._slots.acquire(blocking=False):
            request.settimeout(0)
            with contextlib.suppress(OSError):
                request.send(b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("request broken off", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_SECONDS
    server_version = "isthmus-router"
    sys_version = ""

    def do_GET(self) -> None:
        self._respond(*self.server.health.answer(self.path))

    do_HEAD = do_GET  # noqa: N815

    def _refuse(self) -> None:
        self._respond(*_text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD"))

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse  # noqa: N815

    def _respond(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug("request", extra={"request": format % args, "client": self.client_address[0]})
