"""HTTP for probes, status and metrics of the gossip router."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict
from http import HTTPStatus
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from isthmus_router.gossip.server import GossipServer
from isthmus_router.http_server import (
    MAX_DOCUMENTS,
    MAX_PROBES,
    Answer,
    HttpServer,
    PacedDocument,
    Route,
    text,
)
from isthmus_router.metrics import CONTENT_TYPE

ANSWER_TIMEOUT_SECONDS = 2.0
"""A loop that does not answer for this long is stuck."""
STUCK = text(HTTPStatus.SERVICE_UNAVAILABLE, "the event loop does not answer")
PREFIX = "isthmus_gossip_router_"
T = TypeVar("T")

_TEXTS = {
    "registered": "Registrations of members.",
    "taken_over": "Registrations that replaced one by another connection.",
    "messages": "Messages of members to pass on.",
    "copies": "Messages passed on.",
    "not_here": "Messages to members that are not registered.",
    "not_registered": "Messages of senders that are not registered.",
    "suspected": "Members whose connection was lost.",
    "expired": "Connections that were silent for too long.",
    "refused": "Connections ended because of an invalid frame, another version or a limit.",
}


class GossipHealth:
    """Answers in a thread of its own, with what the server's loop says."""

    def __init__(self, server: GossipServer, listening: socket.socket) -> None:
        """`listening` is closed by `stop`."""
        self._gossip = server
        self._loop = asyncio.get_running_loop()
        routes = {
            "/healthz": Route(self._healthz, MAX_PROBES, any_host=True),
            "/readyz": Route(self._readyz, MAX_PROBES, any_host=True),
            "/status": Route(self._document("application/json", lambda: status(server)), MAX_DOCUMENTS),
            "/metrics": Route(self._document(CONTENT_TYPE, lambda: exposition(server)), MAX_DOCUMENTS),
        }
        self._http = HttpServer("http-gossip", routes)
        self._http.start(listening)

    async def stop(self) -> None:
        """Stops serving; requests being answered are finished."""
        await asyncio.to_thread(self._http.stop)

    async def _healthz(self) -> Answer:
        return await self._probe("ok")

    async def _readyz(self) -> Answer:
        if self._gossip.stopping:
            return text(HTTPStatus.SERVICE_UNAVAILABLE, "stopping")
        return await self._probe("ready")

    def _document(self, content_type: str, compute: Callable[[], bytes]) -> Callable[[], Awaitable[Answer]]:
        document = PacedDocument(content_type, compute, self._on_loop)

        async def answer() -> Answer:
            try:
                return await document()
            except TimeoutError:
                return STUCK

        return answer

    async def _probe(self, well: str) -> Answer:
        try:
            return text(HTTPStatus.OK, await self._on_loop(lambda: well))
        except TimeoutError:
            return STUCK

    async def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        asked = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), self._loop))
        return await asyncio.wait_for(asked, ANSWER_TIMEOUT_SECONDS)


def status(server: GossipServer) -> bytes:
    """Which certificates serve new connections, for the operator; docs/gossip-router.md says what is in it."""
    return json.dumps(
        {"certificates": server.certificates, "certificatesProblem": server.tls_problem}
    ).encode()


def exposition(server: GossipServer) -> bytes:
    """What the server has counted, and the process's own metrics, as text."""
    registry = CollectorRegistry()
    registry.register(_ServerCollector(server))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _ServerCollector(Collector):
    def __init__(self, server: GossipServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        server, table = self._server, self._server.table
        yield _gauge("connections", "Open connections.", table.connections)
        yield _gauge("groups", "Groups with members.", table.groups)
        yield _gauge("members", "Members registered, over all groups.", table.members)
        yield _gauge(
            "held_bytes",
            "Bytes that wait for clients, or are incomplete; those of all copies of a message once.",
            server.held,
        )
        for name, value in asdict(table.counters).items():
            yield _counter(name, _TEXTS[name], value)
        yield _counter(
            "slow_clients", "Clients cut off as they took nothing, or were too far behind.", server.slow
        )
        yield _counter("dropped", "Messages passed on to nobody, as there was no room.", server.dropped)
        yield _counter("turned_away", "Connections beyond what is allowed.", server.turned_away)
        yield _counter("tls_loads", "Changed certificate files taken over.", server.tls_loads)
        yield _counter("tls_failures", "Changed certificate files that were not usable.", server.tls_failures)


def _gauge(name: str, documentation: str, value: int) -> Metric:
    return GaugeMetricFamily(PREFIX + name, documentation, value)


def _counter(name: str, documentation: str, value: int) -> Metric:
    return CounterMetricFamily(PREFIX + name, documentation, value)
