"""HTTP for probes, metrics and status, on listeners with `http: true`.

The server has its own thread, but every answer is computed on the router's event loop: when that is
stuck, `/healthz` answers 503 and the kubelet restarts the router. `/status` and `/metrics` are computed in steps, and
messages pass between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from isthmus_router.config.model import AddressFamily, ListenerConfig
from isthmus_router.http_hosts import hosts
from isthmus_router.http_server import (
    LONGEST_REST_SECONDS,
    MAX_DOCUMENTS,
    MAX_PROBES,
    REST,
    Answer,
    HttpServer,
    Route,
    text,
)
from isthmus_router.metrics import CONTENT_TYPE, MetricsSnapshot, exposition

logger = logging.getLogger("HTTP")

ANSWER_TIMEOUT_SECONDS = 2.0
"""A loop that does not answer for this long is stuck."""
TURN_SECONDS = 0.002
"""For the steps of a document in each round of the router's loop; one step more than that at most."""

_T = TypeVar("_T")


class HealthSource(Protocol):
    """What the answers are made of. Every method is called on the event loop and must not block, and neither must a
    step of the generators."""

    def not_ready_reason(self) -> str | None:
        """Why clients should not be sent here; None when the router is ready."""

    def metrics(self) -> Generator[None, None, MetricsSnapshot]: ...

    def status(self) -> Generator[None, None, Mapping[str, object]]:
        """Return the document of `/status`."""


class HealthServer:
    """The HTTP endpoint of one listener."""

    def __init__(self, config: ListenerConfig, source: HealthSource, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._source = source
        self._loop = loop
        self._pending: dict[Callable[[], Any], asyncio.Future[Any]] = {}
        """Calls, and documents, that wait for the router's loop; the futures are those of the server's."""
        self._due: deque[Callable[[], Generator[None, None, Any]]] = deque()
        """Documents of these calls, in their order."""
        self._under_way = False
        """A document waits for its turn, or is being made."""
        self._turns = 0
        """Of the router's loop for documents."""
        routes = {"/status": self._route("/status", self._status, MAX_DOCUMENTS)}
        if config.healthz:
            routes["/healthz"] = self._route("/healthz", self._healthz, MAX_PROBES, any_host=True)
            routes["/readyz"] = self._route("/readyz", self._readyz, MAX_PROBES, any_host=True)
        if config.metrics:
            routes["/metrics"] = self._route("/metrics", self._metrics, MAX_DOCUMENTS)
        own = hosts(os.environ, config.host or "")
        self._server = HttpServer(f"http-{config.name}", routes, own)
        self._last: dict[str, tuple[object, bytes]] = {}
        """The last document of each path, as it was found and as it was written."""
        self._not_before = 0.0
        """When the next document may be computed."""
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        """Port listened on; useful when the configured one is 0."""
        assert self._socket
        return int(self._socket.getsockname()[1])

    def open(self) -> None:
        """Binds and starts serving. OSError when the address cannot be used; a host name is looked up."""
        self._socket = _bound(self._config)
        self._server.start(self._socket)

    async def close(self) -> None:
        """Stops serving; requests being answered are finished."""
        if self._socket:
            await asyncio.to_thread(self._server.stop)
            self._socket = None

    # In the server's thread

    async def _healthz(self) -> Answer:
        await self._ask(_nothing)
        return text(HTTPStatus.OK, "ok")

    async def _readyz(self) -> Answer:
        reason = await self._ask(self._source.not_ready_reason)
        if reason is None:
            return text(HTTPStatus.OK, "ready")
        return text(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    async def _metrics(self) -> Answer:
        found = await self._ask_for_document(self._source.metrics)
        return Answer(HTTPStatus.OK, CONTENT_TYPE, self._written("/metrics", found, exposition))

    async def _status(self) -> Answer:
        found = await self._ask_for_document(self._source.status)
        return Answer(HTTPStatus.OK, "application/json", self._written("/status", found, _json))

    def _written(self, path: str, found: _T, write: Callable[[_T], bytes]) -> bytes:
        """What was found, written once for all who share it."""
        last = self._last.get(path)
        if last is None or last[0] is not found:
            begun = time.thread_time()
            last = self._last[path] = (found, write(found))
            self._rest(time.thread_time() - begun)
        return last[1]

    def _route(
        self, path: str, answer: Callable[[], Awaitable[Answer]], limit: int, *, any_host: bool = False
    ) -> Route:
        async def guarded() -> Answer:
            try:
                return await answer()
            except TimeoutError:
                logger.error("the event loop does not answer", extra={"path": path})
                return text(HTTPStatus.SERVICE_UNAVAILABLE, "the event loop does not answer")
            except Exception:
                logger.exception("request failed", extra={"path": path})
                return text(HTTPStatus.INTERNAL_SERVER_ERROR, "the request failed; the log says why")

        return Route(guarded, limit, any_host)

    async def _ask(self, function: Callable[[], _T]) -> _T:
        """The result of `function` on the router's loop; TimeoutError when that is stuck.

        However many ask, at most one call of a function waits for the loop: those who ask before it has
        begun share its result.
        """
        pending: asyncio.Future[_T] | None = self._pending.get(function)
        if pending is None:
            pending = asyncio.get_running_loop().create_future()
            self._pending[function] = pending
            self._on_loop(self._call, function, pending)
        return await asyncio.wait_for(asyncio.shield(pending), ANSWER_TIMEOUT_SECONDS)

    async def _ask_for_document(self, make: Callable[[], Generator[None, None, _T]]) -> _T:
        """As `_ask`, for the document that `make` returns in steps. The router makes one document at a time."""
        pending: asyncio.Future[_T] | None = self._pending.get(make)
        if pending is None:
            pending = asyncio.get_running_loop().create_future()
            self._pending[make] = pending
            self._due.append(make)
            self._next_document()
        while True:
            turns = self._turns
            try:
                return await asyncio.wait_for(asyncio.shield(pending), ANSWER_TIMEOUT_SECONDS)
            except TimeoutError:
                if turns == self._turns:
                    raise

    def _next_document(self) -> None:
        if self._due and not self._under_way:
            self._under_way = True
            self._after_the_rest()

    def _after_the_rest(self) -> None:
        """Begin with the document that is due first, when the pause after the last one is over."""
        wait = self._not_before - time.monotonic()
        if wait > 0:
            asyncio.get_running_loop().call_later(wait, self._after_the_rest)
        else:
            self._on_loop(self._begin, self._due.popleft())

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the router's loop has ended
            self._loop.call_soon_threadsafe(function, *arguments)

    def _rest(self, took: float) -> None:
        """After so many seconds of the processor for an answer."""
        now = time.monotonic()
        self._not_before = min(max(self._not_before, now) + REST * took, now + LONGEST_REST_SECONDS)

    def _made(self, pending: asyncio.Future[_T], result: _T | Exception) -> None:
        self._under_way = False
        _settle(pending, result)
        self._next_document()

    # On the router's loop

    def _call(self, function: Callable[[], _T], pending: asyncio.Future[_T]) -> None:
        # Before the call, so that nobody gets a result that is older than the question.
        del self._pending[function]
        result: _T | Exception
        begun = time.thread_time()
        try:
            result = function()
        except Exception as error:
            result = error
        self._rest(time.thread_time() - begun)
        with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
            pending.get_loop().call_soon_threadsafe(_settle, pending, result)

    def _begin(self, make: Callable[[], Generator[None, None, Any]]) -> None:
        self._go_on(_steps(make), self._pending.pop(make), 0.0)

    def _go_on(self, steps: Generator[None, None, _T], pending: asyncio.Future[_T], spent: float) -> None:
        """Take steps of a document for a short time. Steps before this turn have taken `spent` seconds."""
        self._turns += 1
        result: _T | Exception
        end, begun = time.monotonic() + TURN_SECONDS, time.thread_time()
        try:
            while time.monotonic() < end:
                next(steps)
        except StopIteration as finished:
            result = finished.value
        except Exception as error:
            result = error
        else:
            self._loop.call_soon(self._go_on, steps, pending, spent + time.thread_time() - begun)
            return
        self._rest(spent + time.thread_time() - begun)
        with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
            pending.get_loop().call_soon_threadsafe(self._made, pending, result)


def _steps(make: Callable[[], Generator[None, None, _T]]) -> Generator[None, None, _T]:
    return (yield from make())


def _json(document: Mapping[str, object]) -> bytes:
    """The document as one line. Its rows are written one by one, as nothing else runs while one is being written."""
    return "".join(_pieces(document)).encode()


def _pieces(document: Mapping[str, object]) -> Iterator[str]:
    separator = "{"
    for name, value in document.items():
        yield f"{separator}{json.dumps(name)}: "
        separator = ", "
        if isinstance(value, list):
            yield "["
            for at, row in enumerate(value):
                yield (", " if at else "") + json.dumps(row, default=str)
            yield "]"
        else:
            yield json.dumps(value, default=str)
    yield "}"


def _nothing() -> None:
    pass


def _settle(pending: asyncio.Future[_T], result: _T | Exception) -> None:
    if isinstance(result, Exception):
        pending.set_exception(result)
        pending.exception()  # All who asked may be gone, and asyncio would complain.
    else:
        pending.set_result(result)


def _bound(config: ListenerConfig) -> socket.socket:
    family, address = _bind_address(config)
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address[0] == "::":
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(address)
        # Only now is it certain that nobody else has the address.
        bound.listen()
    except BaseException:
        bound.close()
        raise
    return bound


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
