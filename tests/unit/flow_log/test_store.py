"""Writer and shipper: rows are kept through errors, memory and journal stay within bounds, and the end is in time."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.unit.flow_log.samples import delivery, identities

from isthmus_flowlog.collector import shipper, worker
from isthmus_flowlog.collector import store as module
from isthmus_flowlog.collector.columns import Row
from isthmus_flowlog.collector.entry import LockedError, Process
from isthmus_flowlog.collector.journal import Journal, Segment
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.rows import to_arrow
from isthmus_flowlog.collector.settings import parse
from isthmus_flowlog.collector.sinks import FolderSink
from isthmus_flowlog.collector.store import MOST_QUEUED, Queue, Store

PATIENCE = 10.0


def eventually(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


class FullDisk:
    """A journal's folder or a sink that can be full."""

    def __init__(self) -> None:
        self.full = False

    def check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync(self, descriptor: int) -> None:
        self.check()


class Sink(FolderSink):
    def __init__(self, root: Path, disk: FullDisk) -> None:
        super().__init__(root)
        self.disk = disk

    def write(self, path: str, produce: Callable[[Path], None]) -> int:
        self.disk.check()
        return super().write(path, produce)


class Rig:
    """A store on disks that can be full."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.root = root
        self.journal_disk, self.sink_disk = FullDisk(), FullDisk()
        self.metrics = Metrics()
        document = {"hosts": ["localhost"], "log": str(root), "rotate": {"seconds": 0.05}}
        self.journal = Journal(root / "journal", sync=self.journal_disk.sync)
        self.journal.recover()
        self.store = Store(parse(document | settings), self.journal, Sink(root, self.sink_disk), self.metrics)
        self.numbers = 0

    def put(self, count: int = 10) -> None:
        rows: list[Row] = [delivery(self.numbers + at) for at in range(count)]
        self.numbers += count
        self.store.queue.put({"deliveries": rows}, time.time())

    def read(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for file in FolderSink(self.root).files():
            found.update(identities(pq.read_table(self.root / file.path)))
        return found

    def value(self, name: str) -> float:
        self.store.observe(time.time())
        lines = self.metrics.exposition().decode().splitlines()
        wanted = [line for line in lines if line.startswith(f"isthmus_collector_{name}")]
        return sum(float(line.rpartition(" ")[2]) for line in wanted)

    @property
    def all(self) -> Counter[str]:
        return Counter(f"abcde:{number}" for number in range(self.numbers))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOURNAL_SECONDS", 0.02)
    monkeypatch.setattr(shipper, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(worker, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(worker, "LONGEST_PAUSE", 0.02)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    made.store.start()
    yield made
    made.store.stop(time.monotonic() + PATIENCE)


def test_rows_become_files(rig: Rig) -> None:
    for _ in range(5):
        rig.put()
        eventually(lambda: rig.value("rows_written_total") == rig.numbers, "files")
    assert rig.read() == rig.all
    assert rig.value("files_written_total") >= 5
    assert rig.value("oldest_unwritten_seconds") == 0
    assert rig.value("journal_bytes") == 0


def test_the_end_writes_what_there_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path, rotate={"seconds": 1000})
    rig.store.start()
    rig.put(1000)
    assert rig.store.stop(time.monotonic() + PATIENCE) == 0
    assert rig.read() == rig.all
    assert list((tmp_path / "journal").iterdir()) == []


def test_a_full_disk_of_the_journal(rig: Rig) -> None:
    rig.put()
    eventually(lambda: rig.value("rows_written_total") == 10, "files")
    rig.journal_disk.full = True
    rig.put()
    eventually(lambda: rig.store.trouble is not None, "trouble")
    assert "No space left" in str(rig.store.trouble)
    assert not rig.store.has_room()
    assert rig.value("journal_errors_total") > 0
    assert rig.value("oldest_unwritten_seconds") > 0
    rig.journal_disk.full = False
    eventually(lambda: rig.value("rows_written_total") == 20, "files")
    assert rig.store.trouble is None
    assert rig.store.has_room()
    assert rig.read() == rig.all


def test_a_full_disk_of_the_log(tmp_path: Path) -> None:
    rig = Rig(tmp_path, stagingBytes=50_000)
    rig.store.start()
    rig.sink_disk.full = True
    rig.put()
    eventually(lambda: rig.store.trouble is not None, "trouble")
    assert rig.store.has_room(), "the journal has room still"
    while rig.store.has_room():
        rig.put()
        eventually(lambda: not rig.store.queue.size, "the journal")
    assert rig.value("journal_bytes") >= 50_000
    assert rig.value("sink_errors_total") > 0
    rig.sink_disk.full = False
    eventually(lambda: rig.value("rows_written_total") == rig.numbers, "files")
    eventually(lambda: rig.store.trouble is None and rig.store.has_room(), "no trouble")
    assert rig.store.stop(time.monotonic() + PATIENCE) == 0
    assert rig.read() == rig.all


def test_what_cannot_be_written_at_the_end_is_in_the_journal(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.sink_disk.full = True
    rig.store.start()
    rig.put()
    began = time.monotonic()
    assert rig.store.stop(began + PATIENCE) == 10
    assert time.monotonic() - began < PATIENCE / 2
    again = Journal(tmp_path / "journal").recover().segments
    assert sum(segment.rows for segment in again) == 10


def test_memory_is_bounded_by_the_credit() -> None:
    queue = Queue()
    rows: list[Row] = [delivery(1)] * 1000
    for _ in range(MOST_QUEUED // 1000):
        queue.put({"deliveries": rows}, 5.0)
    assert queue.size == MOST_QUEUED
    assert queue.oldest == 5.0
    taken = queue.take()
    assert len(taken["deliveries"]) == module.MOST_AT_ONCE
    assert queue.size == MOST_QUEUED, "until they are written"
    queue.written(module.MOST_AT_ONCE, 6.0)
    assert queue.size == MOST_QUEUED - module.MOST_AT_ONCE


def test_rows_with_much_text_are_taken_in_small_pieces() -> None:
    queue = Queue()
    queue.put(
        {"deliveries": [delivery(number) for number in range(1000)]}, 5.0, 5 * module.MOST_OCTETS_AT_ONCE
    )
    queue.put({"deliveries": [delivery(1000)]}, 5.0, 1)
    sizes = []
    while taken := queue.take():
        sizes.append(len(taken["deliveries"]))
        queue.written(sizes[-1], 6.0)
    assert sum(sizes) == 1001
    assert len(sizes) >= 5
    assert max(sizes) <= 250
    assert (queue.size, queue.octets) == (0, 0)


def test_a_wrong_row_is_left_out_and_counted(rig: Rig) -> None:
    rig.store.queue.put({"deliveries": [delivery(10**9, octets="many")]}, time.time())
    rig.put()
    eventually(lambda: rig.value("rows_written_total") == 10, "files")
    assert rig.value("malformed_total") == 1
    assert rig.read() == rig.all


def test_an_error_of_the_program_is_not_hidden(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.store.start()
    rig.store.queue.put({"no such table": [(1,)]}, time.time())
    eventually(lambda: rig.store.writer.failed, "the end of the writer")
    rig.store.shipper.stop()


def test_a_segment_that_cannot_be_read_keeps_no_other_from_the_log(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """As the journal may be in a volume that others may write, too."""
    hostile = rig.root / "journal" / "00000000T000000-aaaaaaaa.journal"
    far = to_arrow("deliveries", [delivery(number, 3600.0 * number) for number in range(3000)])[0]
    journal = Journal(rig.root / "other")
    journal.recover()
    journal.append({"deliveries": far}, time.time())
    segment = journal.seal()
    assert segment is not None
    segment.path.rename(hostile)
    rig.store.shipper.add(Segment(hostile, time.time(), 3000, 1))
    rig.store.shipper.add(Segment(hostile.with_name("gone.journal"), time.time(), 1, 1))
    rig.put()
    eventually(lambda: rig.value("rows_written_total") == 10, "files")
    assert rig.value("journal_errors_total") == 2
    assert hostile.exists()
    assert rig.store.trouble is None
    assert rig.store.shipper.waiting_rows == 0
    assert str(hostile) in [vars(record).get("file") for record in caplog.records]


def test_a_segment_that_cannot_be_written_keeps_neither_others_nor_retention_from_the_log(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path, retentionDays=10**5, compaction={"everySeconds": 0.05})
    old = tmp_path / "deliveries/date=1700-01-01/hour=00"
    old.mkdir(parents=True)
    rig.put()
    rig.store.writer.start()
    eventually(lambda: rig.store.shipper.waiting_rows == 10, "a segment")
    (segment,) = rig.store.shipper._segments
    obstacle = tmp_path / "deliveries/date=2026-11-23/hour=08" / f"{segment.name}.parquet"
    obstacle.mkdir(parents=True)
    rig.store.shipper.start()
    eventually(lambda: rig.store.trouble is not None, "trouble")
    rig.put()
    eventually(lambda: rig.value("rows_written_total") == 10, "another one")
    assert "the log cannot be written" in str(rig.store.trouble)
    (old / "a.parquet").write_bytes(b"x")
    eventually(lambda: not (old / "a.parquet").exists(), "retention")
    obstacle.rmdir()
    eventually(lambda: rig.value("rows_written_total") == 20 and rig.store.trouble is None, "all of it")
    assert rig.store.stop(time.monotonic() + PATIENCE) == 0
    assert rig.read() == rig.all


def test_a_log_that_cannot_be_listed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(failed: Any = None) -> Any:
        raise UnicodeDecodeError("utf-8", b"x", 0, 1, "a name")

    monkeypatch.setattr(rig.store.shipper._sink, "files", broken)
    rig.store.shipper._keep_house_at = 0.0
    eventually(lambda: rig.store.trouble is not None, "trouble")
    assert "the log cannot be listed" in str(rig.store.trouble)
    rig.put()
    eventually(lambda: rig.value("rows_written_total") == 10, "files")
    assert not rig.store.shipper.failed
    monkeypatch.undo()
    rig.store.shipper._keep_house_at = 0.0
    eventually(lambda: rig.store.trouble is None, "no trouble")


def test_a_thread_that_waits_for_ever_is_noticed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def write(path: str, produce: Any) -> int:
        waiting.set()
        go_on.wait()
        return 0

    monkeypatch.setattr(rig.store.shipper._sink, "write", write)
    rig.put()
    assert waiting.wait(PATIENCE)
    assert rig.store.stuck is None
    monkeypatch.setattr(module, "STUCK_SECONDS", 0.2)
    eventually(lambda: "shipper has been stuck" in str(rig.store.stuck), "noticed")
    go_on.set()
    eventually(lambda: rig.store.stuck is None, "going on")


def test_a_thread_that_ends_before_its_time_has_failed(tmp_path: Path) -> None:
    class Ends(worker.Worker):
        def work(self) -> None:
            return

    thread = Ends("x")
    thread.start()
    thread.join(PATIENCE)
    assert thread.failed


def test_a_thread_that_waits_for_ever_makes_the_process_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"hosts": ["localhost"], "log": str(tmp_path), "httpHost": "127.0.0.1", "httpPort": 0}
    process = Process(parse(document))
    assert process.not_healthy() is None
    monkeypatch.setattr(Store, "stuck", "the thread shipper has been stuck")
    assert process.not_healthy() == process.status()["problem"] == "the thread shipper has been stuck"
    process._held.close()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("elsewhere")])
def test_a_lock_that_is_no_file_is_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / ".lock")
    document = {"hosts": ["localhost"], "log": str(tmp_path), "httpHost": "127.0.0.1", "httpPort": 0}
    process = Process(parse(document))
    assert (tmp_path / ".lock").is_file()
    with pytest.raises(LockedError):
        Process(parse(document))
    process._held.close()
