"""Disks that are full, logs that cannot be written: the collector goes on, and the log has everything in the end."""

from __future__ import annotations

import time

from tests.integration.flow_log.conftest import Collectors
from tests.integration.flow_log.traffic import PATIENCE, Flow, a_router, await_counts
from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers


def test_a_full_disk(clients: Clients, routers: Routers, collectors: Collectors) -> None:
    router = a_router(routers)
    collector = collectors(router.port).start()
    flow = Flow(clients, router.port, router.port)
    flow.send(100)
    await_counts(collector, flow, clients, **{"in": "A", "out": "A"})
    collector.limit_files(0)
    flow.send(100)
    clients.until(lambda: collector.get("/readyz")[0] == 503, "not ready", PATIENCE)
    assert "the journal cannot be written" in collector.get("/readyz")[1]
    assert collector.get("/healthz")[0] == 200
    clients.until(lambda: collector.metric("paused") == 1, "no credit", PATIENCE)
    until = time.monotonic() + 12.0  # longer than a source may be silent
    while time.monotonic() < until:
        flow.send(10)
    collector.limit_files(-1)
    await_counts(collector, flow, clients, **{"in": "A", "out": "A"})
    clients.until(lambda: collector.get("/readyz")[0] == 200, "ready again", PATIENCE)
    assert collector.metric("sources_lost_total") == 0
    assert collector.metric("journal_errors_total") > 0


def test_a_log_that_cannot_be_written(clients: Clients, routers: Routers, collectors: Collectors) -> None:
    router = a_router(routers)
    collector = collectors(router.port)
    collector.log_folder.mkdir()
    obstacle = collector.log_folder / "deliveries"
    obstacle.write_text("not a folder")
    collector.start()
    flow = Flow(clients, router.port, router.port)
    flow.send(100)
    clients.until(lambda: "the log cannot be written" in collector.get("/readyz")[1], "not ready", PATIENCE)
    assert collector.metric("sink_errors_total") > 0
    assert collector.metric("paused") == 0, "the journal has room"
    obstacle.unlink()
    await_counts(collector, flow, clients, **{"in": "A", "out": "A"})
    clients.until(lambda: collector.get("/readyz") == (200, "ready\n"), "ready again", PATIENCE)
