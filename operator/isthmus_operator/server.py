"""The operator's own HTTP port: `/healthz`, `/readyz`, `/metrics`, by the bounded server of the routers.

The server has a thread of its own, but every answer is made on the operator's event loop: when that is stuck,
`/healthz` answers 503 and the kubelet restarts the operator.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from isthmus_router.http_server import MAX_DOCUMENTS, MAX_PROBES, REST, Answer, HttpServer, Route, text

from .settings import SettingsError

ANSWER_SECONDS = 4.0
"""A loop that does not answer for this long is stuck; probes wait for 5 seconds."""


class HealthServer:
    """`trouble` returns what is wrong with the process, or None. `waits` returns what a healthy process waits for
    before it can work, or None. A standby that does not lead is healthy and ready: it is ready to take over."""

    def __init__(
        self, port: int, trouble: Callable[[], str | None], waits: Callable[[], str | None] = lambda: None
    ) -> None:
        self._port = port
        self._trouble = trouble
        self._waits = waits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._document = b""
        self._not_before = 0.0
        self._server = HttpServer(
            "http",
            {
                "/healthz": Route(self._asked(self._health), MAX_PROBES, any_host=True),
                "/readyz": Route(self._asked(self._readiness), MAX_PROBES, any_host=True),
                "/metrics": Route(self._asked(self._metrics), MAX_DOCUMENTS),
            },
        )

    @property
    def port(self) -> int:
        """Port listened on; useful when the one asked for is 0."""
        return self._port

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            listening = _bound(self._port)
            self._port = listening.getsockname()[1]
            self._server.start(listening)
        except OSError as error:
            raise SettingsError(f"HEALTH_PORT: {error.strerror or error}") from None

    async def stop(self) -> None:
        await asyncio.to_thread(self._server.stop)

    def _asked(self, answer: Callable[[], Awaitable[Answer]]) -> Callable[[], Awaitable[Answer]]:
        """`answer`, called in the server's thread and made on the operator's loop."""

        async def ask() -> Answer:
            async def made() -> Answer:
                return await answer()

            assert self._loop is not None
            try:
                future = asyncio.run_coroutine_threadsafe(made(), self._loop)
                return await asyncio.wait_for(asyncio.wrap_future(future), ANSWER_SECONDS)
            except (TimeoutError, RuntimeError):
                return text(HTTPStatus.SERVICE_UNAVAILABLE, "the event loop does not answer")

        return ask

    # On the operator's loop

    async def _health(self) -> Answer:
        return self._answer(self._trouble())

    async def _readiness(self) -> Answer:
        return self._answer(self._trouble() or self._waits())

    def _answer(self, trouble: str | None) -> Answer:
        return text(HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK, trouble or "ok")

    async def _metrics(self) -> Answer:
        if time.monotonic() >= self._not_before:
            begun = time.thread_time()
            self._document = generate_latest()
            self._not_before = time.monotonic() + REST * (time.thread_time() - begun)
        return Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, self._document)


def _bound(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise
    return socket.create_server(("", port))
