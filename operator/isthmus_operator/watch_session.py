"""The HTTP session with which kopf lists and watches: its answers are decoded with bounded nesting."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import aiohttp
import kopf

from .decoding import apart, line, watched
from .watch_failures import CALM_SECONDS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS

logger = logging.getLogger(__name__)

READ_BYTES = 16 * 1024
"""The buffer of a TLS connection: one record. Each watch has a connection, and asyncio gives each one 256 KiB."""
LISTS_AT_A_TIME = 2
"""Lists of all kinds and namespaces begin at the same time, and each answer may have many MiB."""


class _Lines:
    """The content of an answer. Read in chunks, as a watch is, it comes in whole lines of bounded nesting."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        rest: list[bytes] = []
        async for chunk in self._content.iter_chunked(size):
            head, newline, tail = chunk.rpartition(b"\n")
            if newline:
                for item in b"".join([*rest, head]).split(b"\n"):
                    yield await apart(line, item) + b"\n"
                rest = []
            rest.append(tail)
        if last := b"".join(rest):
            yield await apart(line, last)


class BoundedResponse(aiohttp.ClientResponse):
    """An answer of the API server."""

    lists: asyncio.Semaphore
    """Bounds the lists that are read and decoded at the same time."""

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.content = cast(aiohttp.StreamReader, _Lines(self.content))
        return self

    async def json(
        self,
        *,
        encoding: str | None = None,
        loads: Callable[[str], Any] = watched,
        content_type: str | None = "application/json",
    ) -> Any:
        if loads is not watched:
            return await super().json(encoding=encoding, loads=loads, content_type=content_type)
        async with self.lists:
            body = await self.read()
            self._body = None  # kopf reads an answer once, and holds it while it processes the objects
            try:
                return await apart(watched, body) if body.strip() else None
            except ValueError:
                if self.status < 400:
                    raise
                # Without a CustomResourceDefinition, the API server answers with a text. kopf reads errors as JSON.
                return {"kind": "Status", "code": self.status, "message": f"HTTP status {self.status}"}


class Sessions:
    """Sessions for kopf, which asks for one when the API server has refused the last one with status 401.

    The API server also refuses valid credentials for a short time, for example while it starts. kopf uses no session
    again that was refused, and none of its watches would ever have another one. So the same credentials have a new
    session, after a pause.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        asyncio.sslproto.SSLProtocol.max_size = READ_BYTES
        self._clock = clock
        self._last: kopf.ConnectionInfo | None = None
        self._made_at = 0.0
        self._pause = 0.0

    async def session(self, info: kopf.ConnectionInfo) -> kopf.AiohttpSession:
        """A session with these credentials. kopf closes it."""
        if info != self._last or self._clock() - self._made_at > CALM_SECONDS:
            self._pause = 0.0
        if info == self._last:
            self._pause = min(LONGEST_PAUSE_SECONDS, max(FIRST_PAUSE_SECONDS, 2 * self._pause))
            logger.warning(
                "the API server refused valid credentials; they are used again in %d seconds", self._pause
            )
            await asyncio.sleep(self._pause)
        self._last, self._made_at = info, self._clock()
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            response_class=type(
                "Response", (BoundedResponse,), {"lists": asyncio.Semaphore(LISTS_AT_A_TIME)}
            ),
        )
        return kopf.AiohttpSession(
            server=info.server,
            priority=info.priority,
            default_namespace=info.default_namespace,
            expiration=info.expiration,
            aiohttp_session=session,
        )
