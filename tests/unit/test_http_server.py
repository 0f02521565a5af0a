"""No client can keep others from the HTTP endpoint: not by idling, dripping, not reading or nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus

import pytest

from isthmus_router import http_server
from isthmus_router.http_server import Answer, Arrivals, HttpServer, PacedDocument, Route, text

SOON = 4.0
"""Seconds; less than a request waits where others have taken all places (`HEAD_SECONDS`, `SEND_SECONDS`)."""
OTHER_HOST = "127.0.0.2"
LARGE = b"x" * 16_000_000
"""More than the send buffer of a socket takes."""


class Server:
    """One that answers `/quick`, `/large`, and `/held` when released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.held = threading.Semaphore(0)
        routes = {
            "/quick": Route(self._quick, 64),
            "/large": Route(self._large, 4),
            "/held": Route(self._held, 4),
        }
        self.server = HttpServer("http-test", routes)
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(listening.getsockname()[1])
        self.server.start(listening)

    async def _quick(self) -> Answer:
        return text(HTTPStatus.OK, "quick")

    async def _large(self) -> Answer:
        return Answer(HTTPStatus.OK, "application/octet-stream", LARGE)

    async def _held(self) -> Answer:
        self.held.release()
        await asyncio.to_thread(self.released.wait)
        return text(HTTPStatus.OK, "held")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.released.set()
    server.server.stop()


class Connection:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def rest(self) -> bytes:
        """Everything until the server closes; a reset is an end as well."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(10):
                return await self.reader.read()
        return b""

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()


async def connect(server: Server, address: str = "127.0.0.1") -> Connection:
    async with asyncio.timeout(10):
        return Connection(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0)))


async def exchange(server: Server, data: bytes) -> bytes:
    async with await connect(server) as connection:
        connection.send(data)
        return await connection.rest()


async def quick(server: Server) -> float:
    """Seconds that an honest request takes."""
    begun = time.monotonic()
    answer = await exchange(server, b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nquick\n")
    return time.monotonic() - begun


@contextlib.asynccontextmanager
async def many(
    server: Server, number: int, data: bytes = b"", address: str = "127.0.0.1"
) -> AsyncIterator[list[Connection]]:
    connections = []
    try:
        for _ in range(number):
            connections.append(await connect(server, address))
            connections[-1].send(data)
        yield connections
    finally:
        for connection in connections:
            connection.writer.transport.abort()


async def test_hundreds_that_idle_or_drip_take_no_place(server: Server) -> None:
    async def drip(connection: Connection) -> None:
        for byte in b"GET /quick HTTP/1.1\r\nX: " + b"y" * 1000:
            connection.send(bytes([byte]))
            await asyncio.sleep(0.02)

    threads = threading.active_count()
    async with many(server, 400), many(server, 100) as dripping, asyncio.TaskGroup() as group:
        drips = [group.create_task(drip(connection)) for connection in dripping]
        for _ in range(30):
            assert await quick(server) < SOON
            assert threading.active_count() <= threads
            await asyncio.sleep(0.05)
        for task in drips:
            task.cancel()


async def test_the_oldest_idle_connection_makes_room(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 60.0)
    async with many(server, http_server.MAX_ARRIVING + 1) as connections:
        assert await connections[0].rest() == b""
        connections[-1].send(b"GET /quick HTTP/1.1\r\n\r\n")
        assert (await connections[-1].rest()).startswith(b"HTTP/1.1 200")


async def test_the_deadline_is_for_the_whole_head(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.5)
    async with await connect(server) as connection:

        async def drip() -> None:
            while True:
                connection.send(b"G")
                await asyncio.sleep(0.1)

        task = asyncio.create_task(drip())
        assert (await connection.rest()).startswith(b"HTTP/1.1 408 ")
        task.cancel()


async def test_those_who_do_not_take_the_answer_make_room(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "SEND_SECONDS", 60.0)
    async with many(server, 20, b"GET /large HTTP/1.1\r\n\r\n") as connections:
        # Let the last of them have its turn before the honest one comes.
        await connections[-1].reader.readexactly(1000)
        answer = await exchange(server, b"GET /large HTTP/1.1\r\n\r\n")
        assert answer.endswith(LARGE)
        assert await quick(server) < SOON


async def test_an_answer_that_is_not_taken_is_broken_off(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="HTTP")
    monkeypatch.setattr(http_server, "SEND_SECONDS", 0.2)
    async with await connect(server) as connection:
        # Systems differ in how much they would let this buffer grow.
        connection.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.send(b"GET /large HTTP/1.1\r\n\r\n")
        first = await connection.reader.readexactly(1000)
        async with asyncio.timeout(10):
            while "request broken off" not in caplog.messages:  # noqa: ASYNC110 - a log cannot be awaited
                await asyncio.sleep(0.01)
        assert len(first + await connection.rest()) < len(LARGE)


async def test_one_path_does_not_take_the_places_of_another(server: Server) -> None:
    async with many(server, 50, b"GET /held HTTP/1.1\r\n\r\n"):
        for _ in range(4):
            assert await asyncio.to_thread(server.held.acquire, timeout=10)
        assert await quick(server) < SOON


async def test_another_host_takes_no_place_of_a_request(server: Server) -> None:
    async with await connect(server) as honest:
        honest.send(b"GET /held HTTP/1.1\r\n\r\n")
        assert await asyncio.to_thread(server.held.acquire, timeout=10)
        async with many(server, 20, b"GET /held HTTP/1.1\r\n\r\n", OTHER_HOST) as others:
            assert await others[0].rest() == b""  # another one of that host has its place
            server.released.set()
            assert (await honest.rest()).startswith(b"HTTP/1.1 200 ")


async def test_a_host_that_opens_too_many_connections_is_not_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.server, "_arrivals", Arrivals(burst=10, rate=0))
    for number in range(20):
        async with await connect(server, OTHER_HOST) as connection:
            connection.send(b"GET /quick HTTP/1.1\r\n\r\n")
            answer = await connection.rest()
            assert answer.startswith(b"HTTP/1.1 200 ") if number < 10 else answer == b""
    assert await quick(server) < SOON


def test_few_of_the_connections_that_arrive_together_have_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count, allow, open_files, all_accepted = 400, Arrivals.allow, [], threading.Event()

    def observed(arrivals: Arrivals, host: str, now: float) -> bool:
        open_files.append(len(os.listdir("/proc/self/fd")))
        if len(open_files) == count:
            all_accepted.set()
        return allow(arrivals, host, now)

    monkeypatch.setattr(Arrivals, "allow", observed)
    listening = socket.create_server(("127.0.0.1", 0), backlog=count)
    clients = [socket.create_connection(listening.getsockname()) for _ in range(count)]
    before = len(os.listdir("/proc/self/fd"))
    server = HttpServer("http-test", {})
    server.start(listening)
    assert all_accepted.wait(30)
    server.stop()
    for client in clients:
        client.close()
    assert max(open_files) - before < http_server.MAX_ARRIVING + 100


async def test_a_document_is_computed_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(http_server.time, "thread_time", iter([0.0, 0.1, 0.1, 5.1]).__next__)
    monkeypatch.setattr(http_server.time, "monotonic", lambda: 100.0)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def run(function: Callable[[], bytes]) -> bytes:
        return function()

    monkeypatch.setattr(http_server.asyncio, "sleep", sleep)
    document = PacedDocument("text/plain", lambda: b"x", run)
    assert (await document()).body == b"x"
    await document()
    assert pauses == [0.0, pytest.approx(http_server.REST * 0.1)]
    monkeypatch.setattr(http_server.time, "thread_time", lambda: 6.0)
    await document()
    assert pauses[2] == http_server.LONGEST_REST_SECONDS


def test_a_host_may_open_a_burst_of_connections_and_then_some_in_each_second() -> None:
    arrivals = Arrivals(burst=5, rate=2)
    assert [arrivals.allow("a", 1.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert arrivals.allow("b", 1.0)
    assert [arrivals.allow("a", 2.0) for _ in range(3)] == [True, True, False]
    assert [arrivals.allow("a", 100.0) for _ in range(6)] == [True] * 5 + [False]


def test_few_hosts_are_remembered() -> None:
    arrivals = Arrivals()
    for number in range(2 * http_server.MOST_HOSTS):
        arrivals.allow(str(number), 1.0)
    assert len(arrivals) == http_server.MOST_HOSTS


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /quick?a=b HTTP/1.0\r\n\r\n", 200),
        (b"GET /quick HTTP/1.1\n\n", 200),
        (b"HEAD /quick HTTP/1.1\r\n\r\n", 200),
        (b"GET /quick HTTP/1.1\r\n\r\nGET /quick HTTP/1.1\r\n\r\n", 200),
        (b"POST /quick HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000, 405),
        (b"GET /other HTTP/1.1\r\n\r\n", 404),
        (b"GET /quick HTTP/1.1\r\nX: " + b"y" * 8192 + b"\r\n\r\n", 431),
        (b"GET /quick HTTP/1.1\r\n" + b"X: y\r\n" * 2000 + b"\r\n", 431),
        (b"GET /" + b"y" * 1_000_000, 431),
        (b"GET /quick\r\n", 400),
        (b"GET  HTTP/1.1\r\n\r\n", 400),
        (b"get /quick HTTP/1.1\r\n\r\n", 400),
        (b"GET /qu\xffck HTTP/1.1\r\n\r\n", 400),
        (b"GET /quick HTTP/2.0\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),
        (bytes(range(256)) * 10, 400),
    ],
)
async def test_requests_of_every_kind_get_an_answer(server: Server, data: bytes, status: int) -> None:
    answer = await exchange(server, data)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    length = next(line for line in head.splitlines() if line.startswith(b"Content-Length: "))
    assert len(body) == (0 if data.startswith(b"HEAD") else int(length.split()[1]))


async def test_a_request_that_ends_early(server: Server) -> None:
    for data in (b"GET /quick HT", b"AMQP\x00\x01\x00\x00"):
        async with await connect(server) as connection:
            connection.send(data)
            connection.writer.write_eof()
            assert (await connection.rest()).startswith(b"HTTP/1.1 400 ")
    async with await connect(server) as connection:
        connection.writer.write_eof()
        assert await connection.rest() == b""


async def test_a_body_that_is_refused_may_be_sent_before_the_answer_is_read(server: Server) -> None:
    async with await connect(server) as connection:
        connection.send(b"POST /quick HTTP/1.1\r\nContent-Length: 2\r\n\r\n")
        answer = await connection.reader.readuntil(b"\r\n")
        for _ in range(2):
            connection.send(b"x")
            await asyncio.sleep(0.1)
        assert connection.reader.exception() is None
        assert answer.startswith(b"HTTP/1.1 405 ")


async def test_data_without_end_behind_a_request_is_not_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "LINGER_SECONDS", 60.0)
    async with asyncio.timeout(10), await connect(server) as connection:
        connection.send(b"GET /quick HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                connection.send(bytes(64 * 1024))
                await connection.writer.drain()
                await asyncio.sleep(0)


async def test_stopping_finishes_answers_and_drops_the_rest(server: Server) -> None:
    async with await connect(server) as idle, await connect(server) as held:
        held.send(b"GET /held HTTP/1.1\r\n\r\n")
        assert await asyncio.to_thread(server.held.acquire, timeout=10)
        stopping = asyncio.create_task(asyncio.to_thread(server.server.stop))
        assert await idle.rest() == b""
        server.released.set()
        assert (await held.rest()).endswith(b"held\n")
        async with asyncio.timeout(10):
            await stopping
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)


def test_nothing_of_a_connection_waits_for_a_collection_of_garbage(server: Server) -> None:
    """The router puts those off that examine everything."""
    requests = [
        b"GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /none HTTP/1.1\r\n\r\n",
        b"nonsense\r\n",
        b"",
    ]
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for request in 5 * requests:
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1000):
                    pass
        deadline = time.monotonic() + SOON
        while server.server._conversations and time.monotonic() < deadline:
            time.sleep(0.01)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [type(found).__qualname__ for found in gc.garbage]
        assert "_SelectorSocketTransport" not in left, left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()
