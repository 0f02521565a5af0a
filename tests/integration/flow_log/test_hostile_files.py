"""A log and a journal with files of others: the collector lives, and looks after all the rest."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
from tests.integration.flow_log.conftest import Collectors
from tests.integration.flow_log.traffic import PATIENCE, Flow, a_router
from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers
from tests.unit.flow_log.hostile_files import CONTENTS, ENTRIES, MERGED, bomb, parquet_bytes
from tests.unit.flow_log.samples import deliveries

MOST_MEMORY = 400 * 1024 * 1024
OLD = "deliveries/date=2020-01-01/hour=00"


def small_files(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(2):
        path = folder / f"20261123T08000{number}-aaaaaaaa.parquet"
        path.write_bytes(parquet_bytes(deliveries(range(number, number + 1))))


def an_hour(log: Path, ago: int) -> Path:
    """The folder of an hour, with small files."""
    moment = datetime.now(UTC) - timedelta(hours=ago)
    folder = log / f"deliveries/date={moment:%Y-%m-%d}/hour={moment:%H}"
    small_files(folder)
    return folder


def test_hostile_files(clients: Clients, routers: Routers, collectors: Collectors) -> None:
    router = a_router(routers)
    collector = collectors(
        router.port,
        retentionDays=30,
        compaction={"afterSeconds": 1, "graceSeconds": 10**6, "everySeconds": 0.5},
    )
    contents = [make() for make in (*CONTENTS.values(), *MERGED.values(), lambda: bomb(3_000_000))]
    hours = [an_hour(collector.log_folder, ago) for ago in range(24, 24 + len(contents) + len(ENTRIES))]
    for number, content in enumerate(contents):
        (hours[number] / f"{'merged-' if number % 2 else ''}x.parquet").write_bytes(content)
    for folder, (name, make) in zip(hours[len(contents) :], ENTRIES.items(), strict=True):
        make(folder / name)
    small_files(collector.log_folder / OLD)
    (collector.log_folder / OLD / "x.parquet").mkdir()
    (collector.log_folder / OLD / ".y.parquet.tmp").mkdir()
    os.mkfifo(collector.log_folder / ".lock")
    journal = collector.log_folder / ".staging/journal"
    journal.mkdir(parents=True)
    os.mkfifo(journal / "00000000T000000-aaaaaaaa.journal")
    collector.start()
    flow = Flow(clients, router.port, router.port)
    flow.send(100)
    most = 0

    def merged() -> bool:
        nonlocal most
        most = max(most, collector.memory)
        return all(list(folder.glob("merged-2*.parquet")) for folder in hours)

    clients.until(merged, "the files of all hours are merged", PATIENCE)
    assert not list((collector.log_folder / OLD).glob("2*")), "old files are deleted"
    clients.until(
        lambda: collector.metric("rows_written_total") > 0, "what routers tell is written", PATIENCE
    )
    errors = collector.metric("sink_errors_total")
    time.sleep(3)
    assert collector.metric("sink_errors_total") == errors == len(CONTENTS) + 1, "none is tried again soon"
    assert collector.metric("journal_errors_total") == 1
    assert collector.get("/healthz")[0] == collector.get("/readyz")[0] == 200
    assert most < MOST_MEMORY
    assert min(pq.read_metadata(next(folder.glob("merged-2*"))).num_rows for folder in hours) == 2
