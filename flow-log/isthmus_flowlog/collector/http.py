"""HTTP for probes, status and metrics (`/healthz`, `/readyz`, `/status`, `/metrics`), by the server of routers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from isthmus_flowlog.collector.metrics import CONTENT_TYPE
from isthmus_router.http_hosts import hosts
from isthmus_router.http_server import Answer, HttpServer, Route, text

MAX_PROBES = 64
MAX_DOCUMENTS = 8
REST = 4
"""Times as long as an answer took is the pause before the next one of its path: no flood takes more of a processor."""
LONGEST_REST_SECONDS = 1.0


class _Paced:
    """A document that is computed again and again, but not all of the time."""

    def __init__(self, content_type: str, compute: Callable[[], bytes]) -> None:
        self._content_type = content_type
        self._compute = compute
        self._lock = asyncio.Lock()
        self._not_before = 0.0

    async def __call__(self) -> Answer:
        async with self._lock:
            await asyncio.sleep(min(max(0.0, self._not_before - time.monotonic()), LONGEST_REST_SECONDS))
            return Answer(HTTPStatus.OK, self._content_type, await asyncio.to_thread(self._timed))

    def _timed(self) -> bytes:
        begun = time.thread_time()
        found = self._compute()
        self._not_before = time.monotonic() + REST * (time.thread_time() - begun)
        return found


def _probe(trouble: Callable[[], str | None], well: str) -> Callable[[], Awaitable[Answer]]:
    async def answer() -> Answer:
        reason = trouble()
        return text(HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE, reason or well)

    return answer


class Server:
    """The HTTP port of a collector."""

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
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        status_document = _Paced("application/json", lambda: json.dumps(status()).encode())
        routes = {
            "/healthz": Route(_probe(not_healthy, "ok"), MAX_PROBES, any_host=True),
            "/readyz": Route(_probe(not_ready, "ready"), MAX_PROBES, any_host=True),
            "/status": Route(status_document, MAX_DOCUMENTS),
            "/metrics": Route(_Paced(CONTENT_TYPE, metrics), MAX_DOCUMENTS),
        }
        self._http = HttpServer("http", routes, hosts(os.environ, host))

    @property
    def port(self) -> int:
        """Port listened on; useful when the one asked for is 0."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Answer from now on."""
        self._http.start(self._socket)

    def stop(self) -> None:
        """Answer what is being answered, and nothing more."""
        self._http.stop()
