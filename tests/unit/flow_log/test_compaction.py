"""Compaction of real files, with a crash at every step of it: a reader never misses a row."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.flow_log.samples import HOUR, deliveries, identities

from isthmus_flowlog.collector import parquet
from isthmus_flowlog.collector.columns import LAYOUTS
from isthmus_flowlog.collector.journal import Journal, Segment
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.rows import SCHEMAS, to_arrow
from isthmus_flowlog.collector.settings import parse
from isthmus_flowlog.collector.shipper import Shipper
from isthmus_flowlog.collector.sinks import FolderSink

FOLDER = "deliveries/date=2026-11-23/hour=08"
GRACE = 600.0
LATER = 4_000_000_000.0
"""After every hour and grace period of these files, which are as old as the test; seconds since the epoch."""


class CrashError(BaseException):
    """The process ends here."""


class FragileSink(FolderSink):
    """Ends the process at the given step."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.steps = 0
        self.crash_at: int | None = None

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.crash_at:
            raise CrashError

    def write(self, path: str, produce: Callable[[Path], None]) -> int:
        def produced(file: Path) -> None:
            self.step()
            produce(file)
            self.step()

        self.step()
        size = super().write(path, produced)
        self.step()
        return size

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.step()
            super().delete([path])
        self.step()


def shipper(sink: FolderSink, **settings: Any) -> Shipper:
    document = {
        "hosts": ["localhost"],
        "log": "/nowhere",
        "compaction": {"targetBytes": 10**9, "graceSeconds": GRACE},
    }
    return Shipper(parse(document | settings), sink, Metrics())


def a_log(sink: FolderSink, files: int = 4) -> list[str]:
    """Small files of one hour; the identities in them."""
    for number in range(files):
        rows = deliveries(range(10 * number, 10 * number + 10), at=100.0 * number)
        FolderSink.write(
            sink, f"{FOLDER}/2026-{number}.parquet", lambda path, rows=rows: parquet.write(rows, path)
        )  # type: ignore[misc]
    return [f"abcde:{number}" for number in range(10 * files)]


def a_row(table: str, **values: Any) -> pa.Table:
    """Of a table, with the least it has to have."""
    wanted = {"identity": "abcde:0", "source": "abcde:0", "heard_at": round(HOUR * 1e6), **values}
    content, unfit = to_arrow(table, [tuple(wanted.get(name) for name in LAYOUTS[table].names)])
    assert not unfit
    return content


def read(root: Path) -> Counter[str]:
    """What a reader finds that lists the log and reads it."""
    found: Counter[str] = Counter()
    for path in (root / FOLDER).glob("[!._]*"):
        found.update(identities(pq.read_table(path, page_checksum_verification=True)))
    return found


def keep_house_until_done(worker: Shipper, sink: FolderSink) -> None:
    """Merge now, delete after the grace period."""
    for now in (LATER, LATER, LATER):
        worker.keep_house(now)
    assert len(sink.files()) == 1


def test_a_file_that_is_being_written_is_not_seen(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)

    def produce(path: Path) -> None:
        path.write_bytes(b"half")
        assert sink.files() == []
        assert list((tmp_path / FOLDER).glob("[!._]*")) == []
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        sink.write(f"{FOLDER}/x.parquet", produce)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_small_files_become_one(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)
    wanted = a_log(sink)
    parts = {file.name for file in sink.files()}
    worker = shipper(sink)
    worker.keep_house(max(file.modified for file in sink.files()) + GRACE / 2)
    assert len(sink.files()) == 5
    assert set(read(tmp_path)) == set(wanted)
    worker.keep_house(LATER)
    (merged,) = sink.files()
    assert read(tmp_path) == Counter(wanted)
    with pq.ParquetFile(tmp_path / merged.path) as file:
        assert file.schema_arrow.equals(SCHEMAS["deliveries"])
        metadata = file.metadata.metadata
        assert metadata[b"isthmus.schemaVersion"] == b"1"
        assert set(json.loads(metadata[b"isthmus.merged"])) == parts
        times = file.read().column("end_time").to_pylist()
        assert times == sorted(times)
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    before = sink.files()
    worker.keep_house(LATER)
    assert sink.files() == before


def test_a_crash_at_every_step(tmp_path: Path) -> None:
    crash_at, crashed = 0, True
    while crashed:
        crash_at, crashed = crash_at + 1, False
        root = tmp_path / str(crash_at)
        sink = FragileSink(root)
        wanted = a_log(sink)
        sink.crash_at = crash_at
        worker = shipper(sink)
        try:
            keep_house_until_done(worker, sink)
        except CrashError:
            crashed = True
        found = read(root)
        assert set(found) == set(wanted)
        assert max(found.values()) <= 2
        # The next process: what is half-written goes, the rest goes on.
        sink = FragileSink(root)
        sink.clean()
        assert not list((root / FOLDER).glob(".*"))
        keep_house_until_done(shipper(sink), sink)
        assert read(root) == Counter(wanted)
    assert crash_at > 8


def test_a_crash_while_a_segment_becomes_files(tmp_path: Path) -> None:
    """All of it is done again, and makes the same files."""
    crash_at, crashed = 0, True
    while crashed:
        crash_at, crashed = crash_at + 1, False
        root = tmp_path / str(crash_at)
        journal = Journal(root / "journal")
        journal.recover()
        journal.append({"deliveries": deliveries(range(20), at=3590.0)}, HOUR)
        segment = journal.seal()
        assert segment is not None
        sink = FragileSink(root)
        sink.crash_at = crash_at
        try:
            shipper(sink).ship(segment)
        except CrashError:
            crashed = True
            (again,) = Journal(root / "journal").recover().segments
            shipper(FolderSink(root)).ship(again)
        assert Journal(root / "journal").recover().segments == []
        found: Counter[str] = Counter()
        for file in FolderSink(root).files():
            found.update(identities(pq.read_table(root / file.path)))
        assert found == Counter(f"abcde:{number}" for number in range(20))
    assert crash_at > 8


def test_files_of_an_older_version_are_merged_with_those_of_this_one(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)
    a_log(sink, 1)
    older = deliveries(range(50, 52)).drop_columns(["no_credit_us", "user"])
    sink.write(f"{FOLDER}/2025.parquet", lambda path: parquet.write(older, path))
    keep_house_until_done(shipper(sink), sink)
    (file,) = sink.files()
    table = pq.read_table(tmp_path / file.path)
    assert len(table) == 12
    assert table.column("no_credit_us").null_count == 0


def test_many_rows_make_row_groups_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 15)
    sink = FolderSink(tmp_path)
    wanted = a_log(sink, 6)
    keep_house_until_done(shipper(sink), sink)
    (file,) = sink.files()
    with pq.ParquetFile(tmp_path / file.path) as content:
        assert content.num_row_groups == 6  # 20 at a time: 15 and 5
        assert max(content.metadata.row_group(at).num_rows for at in range(6)) == 15
    assert read(tmp_path) == Counter(wanted)


def test_a_file_that_cannot_be_read_does_not_stop_the_rest(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)
    a_log(sink)
    other = tmp_path / "deliveries/date=2026-11-23/hour=07"
    other.mkdir()
    for name in ("a", "merged-b"):
        (other / f"{name}.parquet").write_bytes(b"no parquet")
    worker = shipper(sink)
    for _ in range(3):
        worker.keep_house(LATER)
    assert sorted(file.folder[-2:] for file in sink.files()) == ["07", "07", "08"]
    assert "sink_errors_total 1.0" in worker._metrics.exposition().decode()


def test_old_hours_are_deleted_with_their_folders(tmp_path: Path) -> None:
    sink = FolderSink(tmp_path)
    a_log(sink)
    worker = shipper(sink, retentionDays=1)
    worker.keep_house(HOUR + 3600 + 86_399)
    assert sink.files()
    worker.keep_house(HOUR + 3600 + 86_400)
    assert sink.files() == []
    assert list((tmp_path / "deliveries").iterdir()) == []


def test_what_deliveries_refer_to_is_in_the_log_before_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.recover()
    record = a_row("records", type="ROUTER", lost=False)
    event = a_row("events", type="COLLECTOR_EVENT", event="source-lost", time=round(HOUR * 1e6))
    journal.append({"deliveries": deliveries(range(2)), "records": record, "events": event}, HOUR)
    segment = journal.seal()
    assert segment is not None
    assert [folder.partition("/")[0] for folder, _ in parquet.tables_of(segment)] == [
        "events",
        "records",
        "deliveries",
    ]


def test_rows_of_several_tables_and_hours(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.recover()
    empty = pa.Table.from_pylist([], schema=SCHEMAS["events"])
    journal.append({"deliveries": deliveries(range(4), at=3598), "events": empty}, HOUR)
    journal.append({"deliveries": deliveries(range(4, 6))}, HOUR)
    segment: Segment | None = journal.seal()
    assert segment is not None
    sink = FolderSink(tmp_path)
    shipper(sink).ship(segment)
    assert sorted(
        (file.folder[-7:], pq.read_metadata(tmp_path / file.path).num_rows) for file in sink.files()
    ) == [
        ("hour=08", 4),
        ("hour=09", 2),
    ]
    assert not segment.path.exists()
