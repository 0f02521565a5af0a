"""A small HTTP server that no client can hold up: one thread, a bounded number of connections.

Every connection is for one request. Whoever idles, sends byte by byte or does not take the answer is let go
at a deadline, or as soon as somebody else needs the place: where a limit is reached, the oldest connection of the host
that has the most goes, since an honest request is a matter of milliseconds. Further connections of a host that opens
more of them than probes and scrapes need are closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from isthmus_router.client_hosts import network_of
from isthmus_router.descriptors import reserve
from isthmus_router.handshakes import Handshakes
from isthmus_router.http_hosts import VARIABLE, AnswersHost, hosts

logger = logging.getLogger("HTTP")

HEAD_SECONDS = 5.0
"""From the connection to the end of the request's head."""

HEAD_BYTES = 8192

SEND_SECONDS = 5.0
"""For taking the answer."""

LINGER_SECONDS = 1.0
"""For closing after the answer; closing first could destroy what is still on its way."""

LINGER_BYTES = 64 * 1024
"""Read behind a request, such as its body, and discarded meanwhile."""

MAX_ARRIVING = 128
"""Connections whose request has not arrived."""

MAX_REFUSED = 16
"""Connections that are told why their request is refused."""

BURST, RATE = 500, 100
"""Connections that one host may open at once, and in each second after that."""

MOST_HOSTS = 1024
"""Of which it is known how many connections they have opened."""

MAX_PROBES = 64
"""Requests at a time for each of `/healthz` and `/readyz`."""

MAX_DOCUMENTS = 8
"""Requests at a time for each of `/metrics` and `/status`, whose answers can be large."""

REST = 4
"""Times as long as a document took is the pause before the next one: documents take a fifth of a processor at most."""

LONGEST_REST_SECONDS = 1.0

PAUSE_SECONDS = 1.0
"""Until connections are accepted again when no descriptors are left."""

_BACKLOG = 1024
_WITHOUT_PLACE = 64
"""Connections that have just been accepted, or are about to be closed."""
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) ([!-~]+) HTTP/1\.[0-9]\r?\n")


@dataclass(frozen=True)
class Answer:
    """A response with a body in UTF-8 text or anything else."""

    status: HTTPStatus
    content_type: str
    body: bytes


def text(status: HTTPStatus, line: str) -> Answer:
    """A response of one line."""
    return Answer(status, "text/plain; charset=utf-8", f"{line}\n".encode())


@dataclass(frozen=True)
class Route:
    """How one path is answered, and at most how many requests for it are at a time."""

    answer: Callable[[], Awaitable[Answer]]
    """Called in the server's thread; must not block it."""
    limit: int
    any_host: bool = False
    """Whatever the `Host` of the request is; for probes, whose answers are of no use to a web page."""


class PacedDocument:
    """The answer for a path, which is computed again and again, but not all of the time."""

    def __init__(
        self,
        content_type: str,
        compute: Callable[[], bytes],
        run: Callable[[Callable[[], bytes]], Awaitable[bytes]],
    ) -> None:
        """`run` calls a function where `compute` may be called: in a thread, or on another event loop."""
        self._content_type = content_type
        self._compute = compute
        self._run = run
        self._lock = asyncio.Lock()
        self._not_before = 0.0

    async def __call__(self) -> Answer:
        async with self._lock:
            await asyncio.sleep(min(max(0.0, self._not_before - time.monotonic()), LONGEST_REST_SECONDS))
            return Answer(HTTPStatus.OK, self._content_type, await self._run(self._timed))

    def _timed(self) -> bytes:
        begun = time.thread_time()
        found = self._compute()
        self._not_before = time.monotonic() + REST * (time.thread_time() - begun)
        return found


class _RefusedError(Exception):
    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Arrivals:
    """How many connections each host may open: `burst` at once, and `rate` more in each second."""

    def __init__(self, burst: int = BURST, rate: int = RATE) -> None:
        self._burst, self._rate = burst, rate
        self._spent: dict[str, tuple[float, float]] = {}
        """Connections that count, as of a time, by host."""

    def __len__(self) -> int:
        return len(self._spent)

    def allow(self, host: str, now: float) -> bool:
        """Whether another connection of a host may be opened; if so it counts."""
        spent, at = self._spent.pop(host, (0.0, now))
        spent = max(0.0, spent - self._rate * (now - at))
        allowed = spent <= self._burst - 1
        self._spent[host] = spent + allowed, now
        if len(self._spent) > MOST_HOSTS:
            del self._spent[next(iter(self._spent))]
        return allowed


class _Places:
    """At most `limit` connections; another one takes the place of the oldest of the host that has the most."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = Handshakes[asyncio.Task[Any]](limit, limit)
        self.tasks: set[asyncio.Task[Any]] = set()

    def enter(self, task: asyncio.Task[Any], address: str) -> None:
        self.tasks.add(task)
        displaced = self._taken.begun(task, address)
        if displaced is not None:
            self.leave(displaced)
            displaced.cancel()

    def leave(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self._taken.ended(task)


class HttpServer:
    """Answers GET and HEAD for the paths of `routes` on a socket, in a thread of its own."""

    def __init__(
        self, name: str, routes: Mapping[str, Route], answers_host: AnswersHost | None = None
    ) -> None:
        """`answers_host` is that of `hosts()` if it is not given."""
        self._name = name
        self._routes = routes
        self._answers_host = answers_host or hosts()
        room = reserve() // 2
        self._arriving = _Places(min(MAX_ARRIVING, room))
        self._refused = _Places(min(MAX_REFUSED, room))
        self._answering = {path: _Places(route.limit) for path, route in routes.items()}
        self._arrivals = Arrivals()
        self._conversations: set[asyncio.Task[None]] = set()
        places = (self._arriving, self._refused, *self._answering.values())
        self._most_conversations = _WITHOUT_PLACE + sum(one.limit for one in places)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def start(self, listening: socket.socket) -> None:
        """Serves from now on, on a bound socket that is the server's from here. OSError without resources."""
        started: Future[None] = Future()
        thread = threading.Thread(target=self._run, args=(listening, started), name=self._name, daemon=True)
        thread.start()
        started.result()
        self._thread = thread

    def stop(self) -> None:
        """Blocks until requests being answered are finished; those still arriving are dropped."""
        if self._thread is not None and self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
            self._thread = None

    def _run(self, listening: socket.socket, started: Future[None]) -> None:
        with listening:
            try:
                asyncio.run(self._serve(listening, started))
            except Exception as error:
                if started.done():
                    raise
                started.set_exception(error)

    async def _serve(self, listening: socket.socket, started: Future[None]) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        listening.setblocking(False)
        listening.listen(_BACKLOG)
        self._loop.add_reader(listening, self._accept, listening)
        started.set_result(None)
        await self._stopping.wait()
        self._loop.remove_reader(listening)
        for task in list(self._arriving.tasks):
            task.cancel()
        unfinished = [task for places in self._answering.values() for task in places.tasks]
        if unfinished:
            await asyncio.wait(unfinished, timeout=SEND_SECONDS)

    def _accept(self, listening: socket.socket) -> None:
        assert self._loop is not None
        for _ in range(_WITHOUT_PLACE):
            if len(self._conversations) >= self._most_conversations:
                return
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptors are left
                logger.warning("cannot accept connections", extra={"reason": error.strerror})
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_SECONDS, self._accept_again, listening)
                return
            if not self._arrivals.allow(network_of(address[0]), self._loop.time()):
                accepted.close()
                continue
            conversation = self._loop.create_task(self._connected(accepted, address[0]))
            self._conversations.add(conversation)
            conversation.add_done_callback(self._conversations.discard)

    def _accept_again(self, listening: socket.socket) -> None:
        assert self._loop is not None
        assert self._stopping is not None
        if not self._stopping.is_set():
            self._loop.add_reader(listening, self._accept, listening)

    async def _connected(self, accepted: socket.socket, address: str) -> None:
        task = asyncio.current_task()
        assert task
        accepted.setblocking(False)
        writer = None
        try:
            reader, writer = await asyncio.open_connection(sock=accepted, limit=HEAD_BYTES)
            # So that `drain` waits for everything to be sent, and nothing is written into an unbounded buffer.
            writer.transport.set_write_buffer_limits(0)
            await self._converse(task, address, reader, writer)
        except (OSError, TimeoutError) as error:
            logger.debug("request broken off", extra={"reason": repr(error)})
        except asyncio.CancelledError:
            logger.debug("connection dropped: others need its place, or the server stops")
        finally:
            if writer is None:
                accepted.close()
            else:
                writer.transport.abort()
                # Nothing is read any more. With this method of its own it would wait for a collection of garbage.
                vars(writer.transport).pop("_read_ready_cb", None)

    async def _converse(
        self,
        task: asyncio.Task[Any],
        address: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        method, places = b"GET", self._refused
        self._arriving.enter(task, address)
        try:
            method, path, host = await _request(reader)
            route = self._routes.get(path)
            if route is None:
                known = ", ".join(self._routes)
                raise _RefusedError(text(HTTPStatus.NOT_FOUND, f"there are {known}"))
            if not route.any_host and not self._answers_host(host):
                reason = f"not answered for this Host; {VARIABLE} states names that are"
                raise _RefusedError(text(HTTPStatus.MISDIRECTED_REQUEST, reason))
            places = self._answering[path]
        except _RefusedError as error:
            route, answer = None, error.answer
        finally:
            self._arriving.leave(task)
        places.enter(task, address)
        try:
            if route is not None:
                answer = await route.answer()
            writer.write(_response(answer, with_body=method != b"HEAD"))
            async with asyncio.timeout(SEND_SECONDS):
                await writer.drain()
            writer.write_eof()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_SECONDS):
                    left = LINGER_BYTES
                    while left > 0 and (more := await reader.read(HEAD_BYTES)):
                        left -= len(more)
        finally:
            places.leave(task)


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, str, str | None]:
    """Method, path and `Host` of a request whose head has arrived. One with several `Host` has an empty one."""
    host: str | None = None
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            line = await reader.readuntil(b"\n")
            found = _REQUEST_LINE.fullmatch(line)
            if not found:
                raise _RefusedError(text(HTTPStatus.BAD_REQUEST, "this is no HTTP/1 request"))
            size = len(line)
            while line not in (b"\r\n", b"\n"):
                line = await reader.readuntil(b"\n")
                name, _, value = line.partition(b":")
                if name.lower() == b"host":
                    host = value.strip().decode("latin-1") if host is None else ""
                size += len(line)
                if size > HEAD_BYTES:
                    raise _too_large()
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise ConnectionAbortedError("closed without a request") from None
        raise _RefusedError(text(HTTPStatus.BAD_REQUEST, "the request ends in its head")) from None
    except asyncio.LimitOverrunError:
        raise _too_large() from None
    except TimeoutError:
        late = f"no request within {HEAD_SECONDS:g} s"
        raise _RefusedError(text(HTTPStatus.REQUEST_TIMEOUT, late)) from None
    method, target = found.groups()
    if method not in (b"GET", b"HEAD"):
        raise _RefusedError(text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD"))
    return method, target.decode().partition("?")[0], host


def _too_large() -> _RefusedError:
    reason = f"the head of the request has more than {HEAD_BYTES} bytes"
    return _RefusedError(text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason))


def _response(answer: Answer, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        "Server: isthmus-router",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    return "\r\n".join([*lines, "", ""]).encode() + (answer.body if with_body else b"")
