"""A file that somebody else has put into a log concerns only itself: what is beside it is merged."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.flow_log.hostile_files import CONTENTS, ENTRIES, MERGED
from tests.unit.flow_log.samples import deliveries, identities

from isthmus_flowlog.collector import heads, parquet
from isthmus_flowlog.collector.aside import ASIDE_SECONDS, MOST_ASIDE, Aside
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.settings import parse
from isthmus_flowlog.collector.shipper import Shipper
from isthmus_flowlog.collector.sinks import FolderSink

HOUR = "deliveries/date=2026-11-23/hour=08"
INNOCENT = "deliveries/date=2026-11-23/hour=09"
NAME = "20261123T080009-aaaaaaaa.parquet"
LATER = 4_000_000_000.0
PATIENCE = 60.0


class Rig:
    """A log with two small files in each of two hours, and a shipper that looks after it."""

    def __init__(self, root: Path, sink: FolderSink | None = None, **settings: Any) -> None:
        self.root = root
        self.sink = sink or FolderSink(root)
        self.metrics = Metrics()
        document = {"hosts": ["localhost"], "log": str(root), "compaction": {"graceSeconds": 10**10}}
        self.worker = Shipper(parse(document | settings), self.sink, self.metrics)
        for number, folder in enumerate((HOUR, HOUR, INNOCENT, INNOCENT)):
            rows = deliveries(range(10 * number, 10 * number + 10))
            self.sink.write(
                f"{folder}/20261123T08000{number}-aaaaaaaa.parquet",
                lambda path, rows=rows: parquet.write(rows, path),  # type: ignore[misc]
            )

    def put(self, content: bytes, name: str = NAME, folder: str = HOUR) -> Path:
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def keep_house(self, times: int = 3, now: float = LATER) -> None:
        """Run on a thread of its own, because the call under test may never return."""
        thread = threading.Thread(
            target=lambda: [self.worker.keep_house(now) for _ in range(times)], daemon=True
        )
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the shipper waits"

    def merged(self, folder: str) -> Counter[str]:
        """Identities of rows in files that were made of others."""
        return Counter(
            identity
            for path in (self.root / folder).glob("merged-2*")
            for identity in identities(pq.read_table(path, page_checksum_verification=True))
        )

    @property
    def errors(self) -> int:
        return int(self.metrics.value("sink_errors_total"))

    @property
    def rows(self) -> list[Counter[str]]:
        """What is merged of both hours."""
        return [self.merged(HOUR), self.merged(INNOCENT)]


WANTED = [Counter(f"abcde:{number}" for number in numbers) for numbers in (range(20), range(20, 40))]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_that_cannot_be_merged(rig: Rig, content: str, caplog: pytest.LogCaptureFixture) -> None:
    path = rig.put(CONTENTS[content]())
    rig.keep_house()
    assert rig.rows == WANTED
    assert path.exists()
    assert rig.errors == 1, "tried once"
    (record,) = [record for record in caplog.records if "cannot be merged" in record.message]
    assert vars(record)["path"] == f"{HOUR}/{NAME}"
    assert record.exc_info is None, "no error of the program"


@pytest.mark.parametrize("content", CONTENTS)
def test_a_merged_file_that_cannot_be_read(rig: Rig, content: str) -> None:
    rig.put(CONTENTS[content](), "merged-x.parquet")
    rig.keep_house()
    assert rig.rows == WANTED
    assert rig.errors == 1


@pytest.mark.parametrize("content", MERGED)
def test_a_file_that_says_wrongly_what_it_was_made_of(rig: Rig, content: str) -> None:
    rig.put(MERGED[content](), "merged-x.parquet")
    rig.keep_house(1)
    assert set(rig.rows[0]) == set(WANTED[0])
    assert rig.rows[1] == WANTED[1]
    assert rig.errors == 0


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_no_file_of_a_collector(rig: Rig, name: str) -> None:
    ENTRIES[name](rig.root / HOUR / name)
    rig.keep_house(1)
    assert rig.rows == WANTED


def test_a_file_that_becomes_a_fifo_after_it_was_listed(rig: Rig) -> None:
    path = rig.put(b"x")
    files = rig.sink.files()
    path.unlink()
    os.mkfifo(path)
    rig.sink.files = lambda failed=None: files  # type: ignore[assignment, method-assign]
    rig.keep_house(2)
    assert rig.rows == WANTED
    assert rig.errors == 1


def test_what_is_set_aside_is_tried_again_later() -> None:
    now = 0.0
    aside = Aside(Metrics().sink_errors, lambda: now)
    aside.put("a", OSError("broken"), "merged")
    assert "a" in aside
    assert "b" not in aside
    now = ASIDE_SECONDS
    assert "a" not in aside
    for number in range(MOST_ASIDE + 1):
        aside.put(str(number), OSError("broken"), "merged")
    assert "0" not in aside
    assert str(MOST_ASIDE) in aside


def test_an_error_of_the_program_is_logged_with_its_place(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    read = parquet.read_rows
    rig.put(CONTENTS["text"]())

    def broken(kind: Any, source: Any) -> Any:
        if os.fstat(source.fileno()).st_size == len(CONTENTS["text"]()):
            raise KeyError("a mistake")
        return read(kind, source)

    monkeypatch.setattr(parquet, "read_rows", broken)
    rig.keep_house()
    assert rig.rows == WANTED
    assert [record.exc_info is not None for record in caplog.records if "merged" in record.message] == [True]


@pytest.mark.parametrize("obstacle", ["folder", "file", "fifo"])
def test_retention_goes_on_behind_what_cannot_be_deleted(tmp_path: Path, obstacle: str) -> None:
    class Sink(FolderSink):
        def delete(self, paths: Iterable[str]) -> None:
            paths = list(paths)
            if obstacle == "file" and any(path.endswith(NAME) for path in paths):
                raise PermissionError("not this one")
            super().delete(paths)

    rig = Rig(tmp_path, Sink(tmp_path), retentionDays=1)
    if obstacle == "file":
        rig.put(b"x")
    elif obstacle == "folder":
        (tmp_path / HOUR / NAME).mkdir()
    else:
        os.mkfifo(tmp_path / HOUR / NAME)
    rig.keep_house()
    left = [path for path in tmp_path.rglob("*.parquet") if path.name != NAME]
    assert left == []
    assert rig.metrics.value("files_deleted_total") == 4
    assert rig.errors == (obstacle == "file")


def test_old_files_are_deleted_whatever_is_in_them_and_in_their_names(tmp_path: Path) -> None:
    rig = Rig(tmp_path, retentionDays=1)
    for content in ("text", "footer"):
        rig.put(CONTENTS[content](), f"{content}.parquet")
    rig.put(b"x", os.fsdecode(b"\xff\xfe.parquet"))
    rig.keep_house()
    assert rig.sink.files() == []
    assert rig.errors == 0


def test_a_folder_that_cannot_be_listed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    scandir = os.scandir

    def refused(path: Path) -> Any:
        if str(path).endswith("hour=08"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    rig.keep_house()
    assert rig.rows == [Counter(), WANTED[1]]
    assert rig.errors == 1, "counted once an hour"
    assert [vars(record)["path"] for record in caplog.records if "listed" in record.message] == [HOUR]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    class Sink(FolderSink):
        def write(self, path: str, produce: Any) -> int:
            if path.startswith(f"{HOUR}/merged"):
                raise PermissionError("not there")
            return super().write(path, produce)

    rig = Rig(tmp_path, Sink(tmp_path))
    rig.keep_house()
    assert rig.rows == [Counter(), WANTED[1]]
    assert rig.errors == 1


def test_a_merged_file_that_could_not_be_read_again_is_not_written(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heads, "MOST_FOOTER_BYTES", 20_000)
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 1)
    rig.keep_house()
    assert rig.rows == [Counter(), Counter()]
    assert rig.errors == 2
    assert [vars(record)["path"] for record in caplog.records] == [HOUR, INNOCENT]


def test_links_are_not_followed(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "hour=07"
    other.mkdir()
    (other / "precious.parquet").write_bytes(b"x")
    (rig.root / HOUR).parent.joinpath("hour=07").symlink_to(other)
    assert [file.folder for file in rig.sink.files() if "hour=07" in file.path] == []


def test_what_a_crash_has_left_is_removed_past_obstacles(rig: Rig) -> None:
    folder = rig.root / HOUR
    (folder / ".a.parquet.tmp").mkdir()
    os.mkfifo(folder / ".b.parquet.tmp")
    (folder / ".c.parquet.tmp").write_bytes(b"half")
    rig.sink.clean()
    assert [path.name for path in folder.glob(".*")] == [".a.parquet.tmp"]
