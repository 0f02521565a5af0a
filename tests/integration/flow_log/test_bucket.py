"""A log in a bucket: objects appear whole, are merged and deleted, and a store that does not answer is waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.integration.flow_log.conftest import Collectors
from tests.integration.flow_log.traffic import PATIENCE, Flow, a_router
from tests.integration.support.client import Clients
from tests.integration.support.object_store import KEYS, ObjectStore
from tests.integration.support.routers import Routers, eventually
from tests.unit.flow_log.hostile_files import CONTENTS
from tests.unit.flow_log.samples import deliveries, identities

from isthmus_flowlog.collector import parquet
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.settings import parse
from isthmus_flowlog.collector.shipper import Shipper
from isthmus_flowlog.collector.sinks import BucketSink, open_sink

FOLDER = "deliveries/date=2026-11-23/hour=08"
LATER = 4_000_000_000.0
UPLOAD = """
import sys, pathlib
from isthmus_flowlog.collector.settings import S3
from isthmus_flowlog.collector.sinks import BucketSink
def produce(path):
    with path.open("wb") as file:
        file.truncate(int(sys.argv[3]))
sink = BucketSink("s3a://flows/broken", S3(endpoint=sys.argv[1]), pathlib.Path(sys.argv[2]))
sink.files()
print("ready", flush=True)
sink.write("deliveries/date=2026-11-23/hour=09/large.parquet", produce)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    made = ObjectStore(tmp_path_factory.mktemp("store")).start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def settings(store: ObjectStore, folder: Path, prefix: str = "prefix", **more: Any) -> dict[str, Any]:
    return {
        "hosts": ["localhost"],
        "log": f"s3a://flows/{prefix}",
        "s3": {"endpoint": store.endpoint, "region": "us-east-1"},
        "staging": str(folder / "staging"),
        **more,
    }


def a_sink(store: ObjectStore, folder: Path, prefix: str) -> BucketSink:
    (folder / "staging").mkdir(exist_ok=True)
    sink = open_sink(parse(settings(store, folder, prefix)))
    assert isinstance(sink, BucketSink)
    return sink


def read(sink: BucketSink) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in sink.files():
        with sink.open(file.path) as content:
            found.update(identities(pq.read_table(content)))
    return found


def test_files_are_written_listed_merged_and_deleted(store: ObjectStore, tmp_path: Path) -> None:
    sink = a_sink(store, tmp_path, "merged")
    assert sink.files() == []
    for number in range(3):
        rows = deliveries(range(10 * number, 10 * number + 10))
        size = sink.write(f"{FOLDER}/{number}.parquet", lambda path, rows=rows: parquet.write(rows, path))  # type: ignore[misc]
        assert {file.path: file.size for file in sink.files()}[f"{FOLDER}/{number}.parquet"] == size
    assert list((tmp_path / "staging").iterdir()) == []
    worker = Shipper(parse(settings(store, tmp_path, "merged", retentionDays=20_000)), sink, Metrics())
    worker.keep_house(sink.files()[0].modified + 1)
    assert len(sink.files()) == 4
    worker.keep_house(time.time() + 4000)
    assert len(sink.files()) == 1
    assert read(sink) == Counter(f"abcde:{number}" for number in range(30))
    worker.keep_house(LATER)
    assert sink.files() == []


def test_objects_of_others(store: ObjectStore, tmp_path: Path) -> None:
    sink = a_sink(store, tmp_path, "hostile")
    for number in range(2):
        rows = deliveries(range(number, number + 1))
        sink.write(f"{FOLDER}/{number}.parquet", lambda path, rows=rows: parquet.write(rows, path))  # type: ignore[misc]
    names = [*CONTENTS, *(f"merged-{name}" for name in CONTENTS)]
    for name in [*names, "\N{SNOWMAN} ?%41", "a/b"]:
        content = CONTENTS[name.removeprefix("merged-")]() if name in names else b"x"
        sink.write(
            f"{FOLDER}/{name}.parquet",
            lambda path, content=content: bool(path.write_bytes(content)) and None,  # type: ignore[misc]
        )
    assert len(sink.files()) == len(names) + 4
    metrics = Metrics()
    compaction = {"graceSeconds": 10**10}
    worker = Shipper(parse(settings(store, tmp_path, "hostile", compaction=compaction)), sink, metrics)
    for _ in range(len(names) + 1):
        worker.keep_house(LATER)
    merged = [file.path for file in sink.files() if file.name.startswith("merged-0")]
    assert len(merged) == 1
    with sink.open(merged[0]) as content:
        assert identities(pq.read_table(content)) == ["abcde:0", "abcde:1"]
    assert metrics.value("sink_errors_total") == len(names)
    worker = Shipper(parse(settings(store, tmp_path, "hostile", retentionDays=1)), sink, metrics)
    worker.keep_house(LATER)
    assert [file.name for file in sink.files()] == ["b.parquet"], "in no folder of an hour"


def test_an_upload_that_is_broken_off_leaves_nothing(store: ObjectStore, tmp_path: Path) -> None:
    sink = a_sink(store, tmp_path, "broken")
    size = 512 * 1024 * 1024
    with subprocess.Popen(
        [sys.executable, "-c", UPLOAD, store.endpoint, str(tmp_path / "staging"), str(size)],
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        eventually(store.has_unfinished_uploads, "an upload has begun")
        process.send_signal(signal.SIGKILL)
    assert store.has_unfinished_uploads(), "the end came before that of the upload"
    assert sink.files() == []
    sink.clean()
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_collector_and_a_store_that_comes_late(
    clients: Clients, routers: Routers, collectors: Collectors, tmp_path: Path
) -> None:
    store = ObjectStore(tmp_path)
    router = a_router(routers)
    collector = collectors(router.port)
    for name, value in (("access", "key"), ("secret", "secret")):
        (tmp_path / name).write_text(f"{value}\n")
    collector.settings |= settings(store, tmp_path) | {"hosts": collector.settings["hosts"]}
    collector.settings["s3"] |= {
        "accessKeyFile": str(tmp_path / "access"),
        "secretKeyFile": str(tmp_path / "secret"),
    }
    collector.launch()
    flow = Flow(clients, router.port, router.port)
    flow.send(200)
    clients.until(lambda: "the log cannot be written" in collector.get("/readyz")[1], "not ready", PATIENCE)
    assert collector.get("/healthz")[0] == 200
    store.start()
    sink = a_sink(store, tmp_path, "prefix")

    def total() -> int:
        rows = []
        for file in sink.files():
            if file.path.startswith("deliveries/"):
                with sink.open(file.path) as content:
                    rows += pq.read_table(content).to_pylist()
        unique = {
            row["identity"]: row for row in rows if row["address"] == "orders" and row["direction"] == "in"
        }
        return sum(row["accepted"] for row in unique.values())

    clients.until(lambda: total() == flow.messages, "all deliveries in the log", PATIENCE)
    clients.until(lambda: collector.get("/readyz")[0] == 200, "ready", PATIENCE)
    collector.stop()
    store.stop()
