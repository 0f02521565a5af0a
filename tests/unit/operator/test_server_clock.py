"""The clock of the operator beside that of the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client as kubernetes_client

from isthmus_operator.cluster import (
    CLOCK_SECONDS,
    MOST_CLOCKS,
    REQUEST_TIMEOUT_SECONDS,
    Cluster,
    ServerClock,
    guard,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)


class Server:
    """An API server with a clock of its own."""

    def __init__(self) -> None:
        self.date = format_datetime(NOW, usegmt=True)
        self.seconds = 0.0
        """By which the clock of the operator is put forward while a request is under way."""
        self.now = NOW.timestamp()
        self.steady = 0.0
        self.clock = ServerClock(lambda: self.now, lambda: self.steady)

    async def answer(self, request: web.Request) -> web.Response:
        self.now += self.seconds
        self.steady += self.seconds
        return web.json_response({"path": request.path}, headers={"Date": self.date})


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Cluster]]:
    found = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration = kubernetes_client.Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    guard(configuration, found.clock.note)
    cluster = Cluster(kubernetes_client.ApiClient(configuration))
    yield found, cluster
    await cluster.close()
    await runner.cleanup()


@pytest.mark.parametrize("ahead", [0.0, 86400.0, -7200.0])
async def test_the_time_of_an_answer_is_compared_with_the_clock(
    server: tuple[Server, Cluster], ahead: float
) -> None:
    found, cluster = server
    assert found.clock.ahead == 0
    found.now += ahead
    await cluster.get("Secret", "net", "x")
    assert found.clock.ahead == ahead


@pytest.mark.parametrize("date", ["", "tomorrow", "Tue, 99 Jan 2030 00:00:00 GMT", "\u0661"])
async def test_an_answer_without_a_time_changes_nothing(server: tuple[Server, Cluster], date: str) -> None:
    found, cluster = server
    found.now += 60
    await cluster.get("Secret", "net", "x")
    found.date = date
    await cluster.get("Secret", "net", "x")
    assert found.clock.ahead == 60


@pytest.mark.parametrize("seconds", [-1.0, REQUEST_TIMEOUT_SECONDS + 1])
async def test_a_clock_that_is_corrected_during_a_request_changes_nothing(
    server: tuple[Server, Cluster], seconds: float
) -> None:
    found, cluster = server
    found.seconds = seconds
    await cluster.get("Secret", "net", "x")
    assert found.clock.ahead == 0


async def test_a_pod_does_not_state_the_time_of_the_api_server(server: tuple[Server, Cluster]) -> None:
    """The API server passes on the fields of its answer."""
    found, cluster = server
    found.date = format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)
    answer: Any = await cluster.ask_pod("net", "hostile", 9090, "status")
    assert answer["path"].endswith("/proxy/status")
    assert found.clock.ahead == 0


async def test_an_api_server_that_agrees_is_enough(server: tuple[Server, Cluster]) -> None:
    """One of several is 15 minutes ahead."""
    found, cluster = server
    right, wrong = found.date, format_datetime(NOW + timedelta(minutes=15), usegmt=True)
    for date in (right, wrong, wrong, right, wrong):
        found.date = date
        await cluster.get("Secret", "net", "x")
        assert found.clock.ahead == 0
    found.steady += CLOCK_SECONDS + 1
    found.now += CLOCK_SECONDS + 1
    await cluster.get("Secret", "net", "x")
    assert found.clock.ahead == CLOCK_SECONDS + 1 - 900


async def test_a_clock_that_is_put_forward_is_noticed_at_once(server: tuple[Server, Cluster]) -> None:
    found, cluster = server
    await cluster.get("Secret", "net", "x")
    found.now += 86400
    assert found.clock.ahead == 86400
    await cluster.get("Secret", "net", "x")
    assert found.clock.ahead == 86400


async def test_the_last_time_counts_until_there_is_another_one(server: tuple[Server, Cluster]) -> None:
    found, cluster = server
    found.now += 700
    await cluster.get("Secret", "net", "x")
    found.now += 3600
    found.steady += 3600
    assert found.clock.ahead == 700


async def test_many_different_times_take_no_memory(server: tuple[Server, Cluster]) -> None:
    found, cluster = server
    for number in range(2 * MOST_CLOCKS):
        found.date = format_datetime(NOW + timedelta(hours=number), usegmt=True)
        await cluster.get("Secret", "net", "x")
    assert len(found.clock._stated) == MOST_CLOCKS
