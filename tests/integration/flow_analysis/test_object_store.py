"""Log and output in an object store, by the command and with what the image has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow import fs, parquet
from tests.integration.flow_analysis.files import delivery, put
from tests.integration.support.object_store import KEYS, ObjectStore
from tests.integration.support.object_store_jars import object_store_jars

NOW = datetime.now(UTC)
COUNT = 40


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ObjectStore]:
    found = ObjectStore(tmp_path).start()
    yield found
    found.stop()


def bucket(store: ObjectStore) -> fs.S3FileSystem:
    return fs.S3FileSystem(
        access_key=KEYS["AWS_ACCESS_KEY_ID"],
        secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=store.endpoint,
        region="us-east-1",
    )


def analyse(folder: Path, store: ObjectStore, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a driver does it: Spark's configuration is in a file, keys are in the environment."""
    jars = object_store_jars()
    conf = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.ui.enabled": "false",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.hadoop.fs.s3a.endpoint": store.endpoint,
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "s3a://flows/out/_events",
    }
    folder.joinpath("spark-defaults.conf").write_text("".join(f"{key} {conf[key]}\n" for key in conf))
    command = [sys.executable, "-m", "isthmus_flows", *arguments, "--log=s3a://flows/log", "--last=3h"]
    return subprocess.run(
        [*command, "--baseline-days=0"],
        env={**os.environ, **KEYS, "SPARK_CONF_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )


def runs(store: ObjectStore) -> list[str]:
    """The folders of runs that are complete."""
    found = bucket(store).get_file_info(fs.FileSelector("flows/out", recursive=True))
    return sorted(item.path.removesuffix("/_SUCCESS") for item in found if item.path.count("/") == 3
                  and item.base_name == "_SUCCESS")  # fmt: skip


def test_a_stream_reads_and_writes_there(store: ObjectStore, tmp_path: Path) -> None:
    log = tmp_path / "log"
    earlier = NOW - timedelta(hours=1)
    rows = [delivery(earlier, f"{number}") for number in range(COUNT)]
    put(log, earlier, "one", rows)
    put(log, earlier, "again", rows[:5])
    cut = put(log, earlier, "cut", rows)
    cut.write_bytes(cut.read_bytes()[:-20])
    for table in ("records", "events", "relayed"):
        (log / table).mkdir()
    fs.copy_files(str(log), "flows/log", destination_filesystem=bucket(store))

    checkpoint = "--checkpoint=s3a://flows/checkpoint"
    done = analyse(tmp_path, store, "stream", "--available-now", checkpoint, "--output=s3a://flows/out")
    assert done.returncode == 0, done.stderr
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in done.stderr.split()
    (folder,) = runs(store)
    with bucket(store).open_input_stream(f"{folder}/summary.json") as file:
        summary = json.loads(file.read())
    assert summary["totals"]["in"]["deliveries"] == COUNT
    quality = next(row for row in summary["quality"] if row["table"] == "deliveries")
    assert (quality["rows"], quality["duplicates"], quality["quarantined_files"]) == (COUNT + 5, 5, 1)
    matrix = parquet.read_table(f"{folder}/tables/traffic_matrix", filesystem=bucket(store)).to_pylist()
    assert [row["deliveries"] for row in matrix] == [COUNT]
    events = bucket(store).get_file_info(fs.FileSelector("flows/out/_events", recursive=True))
    assert any(item.size for item in events)
    assert not store.has_unfinished_uploads()


def test_a_log_that_is_not_there_or_not_to_be_read(store: ObjectStore, tmp_path: Path) -> None:
    done = analyse(tmp_path, store, "run", "--output=s3a://flows/out")
    assert done.returncode != 0
    assert "s3a://flows/log does not exist" in done.stderr
