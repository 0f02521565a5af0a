"""The HTTP endpoint answers from the event loop, and says so when the loop is stuck."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Generator, Mapping
from dataclasses import replace

import pytest

from isthmus_router import health
from isthmus_router.config import ListenerConfig, parse
from isthmus_router.health import HealthServer
from isthmus_router.metrics import MetricsSnapshot


class Source:
    """A router whose answers record the thread that computed them."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.threads: set[int] = set()
        self.fails = False
        self.calls = 0

    def not_ready_reason(self) -> str | None:
        self.calls += 1
        self.threads.add(threading.get_ident())
        return self.reason

    def metrics(self) -> Generator[None, None, MetricsSnapshot]:
        self.threads.add(threading.get_ident())
        yield
        return MetricsSnapshot("A", "interior", "1", 5.0, True, connections={("normal", "in"): 3})

    def status(self) -> Generator[None, None, Mapping[str, object]]:
        self.threads.add(threading.get_ident())
        yield
        if self.fails:
            raise RuntimeError("secret detail")
        return {"router": {"id": "A"}}


def listener(host: str = "127.0.0.1", **changes: object) -> ListenerConfig:
    text = f"listener {{\n host: {host}\n port: 0\n http: yes\n}}\n"
    return replace(parse(text, "f").listeners[0], **changes)  # type: ignore[arg-type]


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def server(source: Source) -> AsyncIterator[HealthServer]:
    server = HealthServer(listener(), source, asyncio.get_running_loop())
    server.open()
    yield server
    await server.close()


def fetch(port: int, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type", ""), response.read()
    finally:
        connection.close()


async def get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, bytes]:
    return await asyncio.to_thread(fetch, server.port, path, method)


async def test_probes(server: HealthServer, source: Source) -> None:
    assert (await get(server, "/healthz"))[0] == 200
    assert (await get(server, "/readyz"))[0] == 200
    source.reason = "listener 'x' does not listen"
    status, _, body = await get(server, "/readyz")
    assert (status, body) == (503, b"listener 'x' does not listen\n")
    assert (await get(server, "/healthz"))[0] == 200


async def test_metrics_and_status(server: HealthServer, source: Source) -> None:
    status, content_type, body = await get(server, "/metrics")
    assert status == 200
    assert content_type.startswith("text/plain")
    assert b'isthmus_router_connections{direction="in",role="normal"} 3.0' in body
    status, content_type, body = await get(server, "/status?x=y")
    assert (status, content_type, json.loads(body)) == (200, "application/json", {"router": {"id": "A"}})


async def test_answers_are_computed_on_the_loop(server: HealthServer, source: Source) -> None:
    for path in ("/readyz", "/metrics", "/status"):
        await get(server, path)
    assert source.threads == {threading.get_ident()}


def asked_as(port: int, path: str, host: str | None) -> int:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        head = f"GET {path} HTTP/1.0\r\n" + (f"Host: {host}\r\n" if host is not None else "")
        connection.sendall(f"{head}\r\n".encode())
        return int(connection.makefile("rb").readline().split()[1])


async def test_a_name_that_a_web_page_has_pointed_at_the_router_is_not_answered(
    server: HealthServer,
) -> None:
    async def answer(path: str, host: str | None) -> int:
        return await asyncio.to_thread(asked_as, server.port, path, host)

    for path in ("/status", "/metrics"):
        assert await answer(path, "attacker.example:8080") == 421
        assert await answer(path, "localhost") == await answer(path, "10.1.2.3:9090") == 200
    assert await answer("/healthz", "probe.example") == await answer("/readyz", "probe.example") == 200


async def test_a_flood_of_requests_takes_a_fifth_of_a_processor(source: Source) -> None:
    class Slow(Source):
        begun: list[float]

        def status(self) -> Generator[None, None, Mapping[str, object]]:
            self.begun.append(time.monotonic())
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                yield
            return {"router": {"id": str(len(self.begun))}}

    slow = Slow()
    slow.begun = []
    server = HealthServer(listener(), slow, asyncio.get_running_loop())
    server.open()
    answers = [json.loads((await get(server, "/status"))[2])["router"]["id"] for _ in range(6)]
    await server.close()
    assert answers == ["1", "2", "3", "4", "5", "6"], "each is as fresh as the question"
    pauses = [after - before for before, after in itertools.pairwise(slow.begun)]
    assert min(pauses) >= 0.02 * (1 + health.REST) * 0.95


class Large(Source):
    """One with documents of many steps, of a millisecond each."""

    steps = 100

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.under_way = self.most_under_way = 0

    def status(self) -> Generator[None, None, Mapping[str, object]]:
        self.begun += 1
        number = self.begun
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        for _ in range(self.steps):
            until = time.thread_time() + 0.001
            while time.thread_time() < until:
                pass
            yield
        self.under_way -= 1
        return {"router": {"id": str(number)}}


@contextlib.asynccontextmanager
async def serving(source: Source) -> AsyncIterator[HealthServer]:
    server = HealthServer(listener(), source, asyncio.get_running_loop())
    server.open()
    yield server
    await server.close()


async def test_other_work_has_its_turn_while_a_document_is_made() -> None:
    turns: list[float] = []
    loop = asyncio.get_running_loop()

    def turn() -> None:
        turns.append(time.thread_time())
        if not answer.done():
            loop.call_soon(turn)

    async with serving(Large()) as server:
        answer = asyncio.ensure_future(get(server, "/status"))
        turn()
        assert (await answer)[0] == 200
    longest = max(after - before for before, after in itertools.pairwise(turns))
    assert longest < 0.02, "the document takes 0.1 s"


async def test_one_document_is_made_at_a_time_and_each_is_as_fresh_as_its_question() -> None:
    source = Large()
    async with serving(source) as server:
        first = asyncio.ensure_future(get(server, "/status"))
        while not source.begun:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        later = [asyncio.ensure_future(get(server, "/status")) for _ in range(4)]
        metrics = asyncio.ensure_future(get(server, "/metrics"))
        assert json.loads((await first)[2])["router"]["id"] == "1"
        assert {json.loads((await one)[2])["router"]["id"] for one in later} == {"2"}
        assert (await metrics)[0] == 200
    assert source.most_under_way == 1


async def test_a_document_may_take_longer_than_a_loop_that_is_not_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "ANSWER_TIMEOUT_SECONDS", 0.1)
    source = Large()
    source.steps = 500
    async with serving(source) as server:
        assert (await get(server, "/status"))[0] == 200


async def test_a_loop_that_gets_stuck_meanwhile_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_TIMEOUT_SECONDS", 0.2)
    answers: list[int] = []

    class Stuck(Source):
        def status(self) -> Generator[None, None, Mapping[str, object]]:
            yield
            deadline = time.monotonic() + 10
            while not answers and time.monotonic() < deadline:
                time.sleep(0.01)
            return {}

    async with serving(Stuck()) as server:
        port = server.port
        await asyncio.to_thread(lambda: answers.append(fetch(port, "/status")[0]))
        assert answers == [503]
        monkeypatch.undo()
        assert (await get(server, "/status"))[0] == 200


async def test_the_document_is_written_as_json_would_be(server: HealthServer, source: Source) -> None:
    document = {"a": [{"b": 1}, {"c": None}], "é": [], "d": {"e": [1]}, "f": "g"}
    assert health._json(document) == json.dumps(document).encode()
    assert health._json({"a": 1}) == b'{"a": 1}'


async def test_a_stuck_loop_fails_the_probe(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_TIMEOUT_SECONDS", 0.2)
    server = HealthServer(listener(), source, asyncio.get_running_loop())
    server.open()
    answers: list[int] = []
    prober = threading.Thread(target=lambda: answers.append(fetch(server.port, "/healthz")[0]))
    prober.start()
    # The stuck loop is the point: nothing else runs here until the prober has its answer.
    deadline = time.monotonic() + 10
    while not answers and time.monotonic() < deadline:
        time.sleep(0.01)  # noqa: ASYNC251
    assert answers == [503]
    monkeypatch.undo()
    assert (await get(server, "/healthz"))[0] == 200
    await server.close()


async def test_a_stuck_loop_is_not_piled_upon(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ANSWER_TIMEOUT_SECONDS", 0.2)
    server = HealthServer(listener(), source, asyncio.get_running_loop())
    server.open()
    answers: list[int] = []
    probers = [
        threading.Thread(target=lambda: answers.append(fetch(server.port, "/readyz")[0])) for _ in range(20)
    ]
    for prober in probers:
        prober.start()
    for prober in probers:
        prober.join(timeout=10)  # blocks the loop, which is the point
    assert answers == [503] * 20
    assert source.calls == 0
    monkeypatch.undo()
    assert (await get(server, "/readyz"))[0] == 200
    assert source.calls <= 2, "those who gave up left at most one call behind"
    await server.close()


async def test_only_get_and_head(server: HealthServer) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert (await get(server, "/status", method))[0] == 405
    status, _, body = await get(server, "/status", "HEAD")
    assert (status, body) == (200, b"")


async def test_unknown_paths_and_switched_off_ones(source: Source) -> None:
    config = listener(metrics=False, healthz=False)
    server = HealthServer(config, source, asyncio.get_running_loop())
    server.open()
    for path in ("/", "/metrics", "/healthz", "/readyz", "/../etc/passwd"):
        assert (await get(server, path))[0] == 404
    assert (await get(server, "/status"))[0] == 200
    await server.close()


async def test_a_failure_does_not_leak_details(server: HealthServer, source: Source) -> None:
    source.fails = True
    status, _, body = await get(server, "/status")
    assert status == 500
    assert b"secret" not in body


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_every_local_address_in_both_families(source: Source) -> None:
    server = HealthServer(listener(host=""), source, asyncio.get_running_loop())
    server.open()
    assert (await asyncio.to_thread(fetch, server.port, "/healthz", "GET", "127.0.0.1"))[0] == 200
    assert (await asyncio.to_thread(fetch, server.port, "/healthz", "GET", "::1"))[0] == 200
    await server.close()


async def test_a_taken_port_is_an_error(server: HealthServer, source: Source) -> None:
    second = HealthServer(listener(port=server.port), source, asyncio.get_running_loop())
    with pytest.raises(OSError, match="in use"):
        second.open()
