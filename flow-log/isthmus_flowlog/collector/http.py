"""HTTP for probes, status and metrics (`/healthz`, `/readyz`, `/status`, `/metrics`), by the server of routers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from isthmus_flowlog.collector.metrics import CONTENT_TYPE
from isthmus_router.http_hosts import hosts
from isthmus_router.http_server import (
    MAX_DOCUMENTS,
    MAX_PROBES,
    Answer,
    HttpServer,
    PacedDocument,
    Route,
    text,
)


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
        documents = {
            "/status": PacedDocument(
                "application/json", lambda: json.dumps(status()).encode(), asyncio.to_thread
            ),
            "/metrics": PacedDocument(CONTENT_TYPE, metrics, asyncio.to_thread),
        }
        routes = {
            "/healthz": Route(_probe(not_healthy, "ok"), MAX_PROBES, any_host=True),
            "/readyz": Route(_probe(not_ready, "ready"), MAX_PROBES, any_host=True),
            **{path: Route(document, MAX_DOCUMENTS) for path, document in documents.items()},
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
