"""Threads that keep rows: the writer puts them into the journal, the shipper makes Parquet files of it.

What cannot be written is tried again for as long as it takes; meanwhile `has_room` is false, and routers are given no
credit. So what is in memory, and in the journal, has a bound.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache, partial

import pyarrow as pa

from isthmus_flowlog.collector import parquet
from isthmus_flowlog.collector.columns import Row
from isthmus_flowlog.collector.journal import Journal, Segment, sync_folder
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.plan import Delete, Merge, compaction, retention, rotation_due
from isthmus_flowlog.collector.rows import to_arrow
from isthmus_flowlog.collector.settings import Settings
from isthmus_flowlog.collector.sinks import Sink

logger = logging.getLogger("STORE")

JOURNAL_SECONDS = 1.0
"""Rows are in the journal after that long."""
MOST_QUEUED = 100_000
"""Rows in memory; beyond that there is no credit."""
MOST_OCTETS_QUEUED = 64 * 1024 * 1024
"""Bytes of the messages that rows in memory are from, and of what rows repeat; likewise. Twice as much may come by the
credit that there was."""
MOST_AT_ONCE = 50_000
MOST_OCTETS_AT_ONCE = 16 * 1024 * 1024
"""Rows that are made an Arrow table; each byte of theirs is in memory several times then."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds between attempts."""
MERGED_REMEMBERED = 4096

Rows = Mapping[str, list[Row]]


class Queue:
    """Rows on their way to the journal, from one thread to another."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, list[Row], int]] = deque()
        self._taken_octets = 0
        self.size = 0
        """Rows, with those that the writer has taken and not written yet."""
        self.octets = 0
        """Of the messages that these are from."""
        self.oldest: float | None = None
        """When the first of them came, seconds since the epoch."""

    def put(self, rows: Rows, now: float, octets: int = 0) -> None:
        """Never blocks: the caller looks at `size` and `octets` before it lets more come."""
        with self._changed:
            for table, content in rows.items():
                if content:
                    self._waiting.append((table, content, octets))
                    self.octets += octets
                    octets = 0
                    self.size += len(content)
                    self.oldest = self.oldest or now
            if self.size >= MOST_AT_ONCE or self.octets >= MOST_OCTETS_AT_ONCE:
                self._changed.notify()

    def take(self) -> dict[str, list[Row]]:
        """Some rows, in order; `written` is to be called when they are kept."""
        found: dict[str, list[Row]] = {}
        count = 0
        with self._changed:
            while self._waiting and count < MOST_AT_ONCE and self._taken_octets < MOST_OCTETS_AT_ONCE:
                table, content, octets = self._waiting.popleft()
                if octets > MOST_OCTETS_AT_ONCE and len(content) > 1:
                    half = len(content) // 2
                    self._waiting.appendleft((table, content[half:], octets - octets // 2))
                    self._waiting.appendleft((table, content[:half], octets // 2))
                    continue
                self._taken_octets += octets
                found.setdefault(table, []).extend(content)
                count += len(content)
        return found

    def written(self, count: int, now: float) -> None:
        """As many rows are in the journal."""
        with self._changed:
            self.size -= count
            self.octets -= self._taken_octets
            self._taken_octets = 0
            self.oldest = now if self.size else None

    def wait(self, seconds: float, stopping: Callable[[], bool]) -> None:
        """Until there is much to do, or the time has passed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.size >= MOST_AT_ONCE or self.octets >= MOST_OCTETS_AT_ONCE or stopping(),
                seconds,
            )

    def wake(self) -> None:
        """Whoever waits looks again."""
        with self._changed:
            self._changed.notify_all()


class Store:
    """Everything between rows and the log."""

    def __init__(self, settings: Settings, journal: Journal, sink: Sink, metrics: Metrics) -> None:
        self.queue = Queue()
        self.writer = Writer(settings, journal, self.queue, metrics, self._sealed)
        self.shipper = Shipper(settings, sink, metrics)
        self._settings = settings
        self._metrics = metrics

    def _sealed(self, segment: Segment) -> None:
        self.shipper.add(segment)

    @property
    def trouble(self) -> str | None:
        """Why nothing can be kept at present."""
        if self.writer.trouble:
            return f"the journal cannot be written: {self.writer.trouble}"
        if self.shipper.trouble:
            return f"the log cannot be written: {self.shipper.trouble}"
        return None

    def has_room(self) -> bool:
        """Whether more may come."""
        journal = self.shipper.waiting_bytes + self.writer.size
        return (
            self.queue.size < MOST_QUEUED
            and self.queue.octets < MOST_OCTETS_QUEUED
            and self.writer.trouble is None
            and journal < self._settings.stagingBytes
        )

    def is_full(self) -> bool:
        """Whether nothing may come any more, although there was credit for it."""
        return self.queue.octets >= 2 * MOST_OCTETS_QUEUED

    def observe(self, now: float) -> None:
        """Set the gauges."""
        oldest = [
            age for age in (self.queue.oldest, self.writer.oldest, self.shipper.oldest) if age is not None
        ]
        self._metrics.oldest_unwritten.set(max(0.0, now - min(oldest)) if oldest else 0)
        self._metrics.queued_rows.set(self.queue.size)
        self._metrics.journal_bytes.set(self.shipper.waiting_bytes + self.writer.size)

    def start(self) -> None:
        """Both threads run."""
        self.writer.start()
        self.shipper.start()

    def stop(self, deadline: float) -> int:
        """Write what there is, until `time.monotonic()` is `deadline`; the rows that stay in the journal."""
        self.writer.stop()
        self.writer.join(max(0.0, deadline - time.monotonic()))
        self.shipper.stop()
        self.shipper.join(max(0.0, deadline - time.monotonic()))
        return self.shipper.waiting_rows


class _Worker:
    """Works on a thread of its own that does not end before its time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()
        self.failed = False
        """It has ended by an error of the program."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Work from now on."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self.work()
        except Exception:
            self.failed = True
            logger.exception("a thread has ended", extra={"worker": self.name})

    def work(self) -> None:
        """What it does until `stopping`."""
        raise NotImplementedError


class Writer(_Worker):
    """Rows to the journal."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        queue: Queue,
        metrics: Metrics,
        sealed: Callable[[Segment], None],
    ) -> None:
        super().__init__("writer")
        self._rotate = settings.rotate
        self._journal = journal
        self._queue = queue
        self._metrics = metrics
        self._sealed = sealed
        self.trouble: str | None = None

    @property
    def size(self) -> int:
        """Bytes in the segment that is written."""
        current = self._journal.current
        return current.size if current is not None else 0

    @property
    def oldest(self) -> float | None:
        """When the first row of that segment came."""
        current = self._journal.current
        return current.oldest if current is not None else None

    def stop(self) -> None:
        """Write what is there and end."""
        self.stopping.set()
        self._queue.wake()

    def work(self) -> None:
        """What its thread does: rows from the queue to the journal."""
        while not (self.stopping.is_set() and not self._queue.size):
            self._queue.wait(JOURNAL_SECONDS, self.stopping.is_set)
            rows = self._queue.take()
            if rows and not self._write(rows):
                return
            if rotation_due(self._journal.current, self._rotate, time.time()):
                self._seal()
        self._seal()

    def _write(self, rows: Rows) -> bool:
        """False when the end has come before it could be written."""
        tables: dict[str, pa.Table] = {}
        for table, content in rows.items():
            tables[table], unfit = to_arrow(table, content)
            if unfit:
                self._metrics.malformed.inc(unfit)
        pause = FIRST_PAUSE
        while True:
            try:
                self._journal.append(tables, time.time())
                break
            except OSError as error:
                self._metrics.journal_errors.inc()
                if self.trouble is None:
                    logger.error("the journal cannot be written", extra={"reason": str(error)})
                self.trouble = str(error)
                if self.stopping.is_set():
                    return False
                self.stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        if self.trouble is not None:
            logger.info("the journal can be written again")
            self.trouble = None
        self._queue.written(sum(map(len, rows.values())), time.time())
        return True

    def _seal(self) -> None:
        segment = self._journal.seal()
        if segment is not None:
            self._sealed(segment)


class Shipper(_Worker):
    """Segments of the journal to Parquet files; compaction and retention."""

    def __init__(self, settings: Settings, sink: Sink, metrics: Metrics) -> None:
        super().__init__("shipper")
        self._settings = settings
        self._sink = sink
        self._metrics = metrics
        self._segments: deque[Segment] = deque()
        self._changed = threading.Condition()
        self._parts_of = lru_cache(MERGED_REMEMBERED)(self._read_parts)
        self._unreadable: set[str] = set()
        self._keep_house_at = 0.0
        self.trouble: str | None = None

    def add(self, segment: Segment) -> None:
        """A segment is sealed."""
        with self._changed:
            self._segments.append(segment)
            self._changed.notify()

    @property
    def waiting_bytes(self) -> int:
        """Of sealed segments."""
        with self._changed:
            return sum(segment.size for segment in self._segments)

    @property
    def waiting_rows(self) -> int:
        """Of sealed segments."""
        with self._changed:
            return sum(segment.rows for segment in self._segments)

    @property
    def oldest(self) -> float | None:
        """When the first row of these came."""
        with self._changed:
            return min((segment.oldest for segment in self._segments if segment.oldest), default=None)

    def stop(self) -> None:
        """Ship what is there and end; what cannot be shipped stays in the journal."""
        self.stopping.set()
        with self._changed:
            self._changed.notify()

    def work(self) -> None:
        """What its thread does: segments of the journal to files, in turn with merging and deleting."""
        pause = FIRST_PAUSE
        while not self.stopping.is_set() or self._segments:
            try:
                self._next()
            except (OSError, pa.ArrowException) as error:
                self._metrics.sink_errors.inc()
                if self.trouble is None:
                    logger.error("the log cannot be written", extra={"reason": str(error)})
                self.trouble = str(error)
                if self.stopping.is_set():
                    return
                self.stopping.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if self.trouble is not None:
                    logger.info("the log can be written again")
                self.trouble, pause = None, FIRST_PAUSE

    def _next(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._segments or self.stopping.is_set(), JOURNAL_SECONDS)
            segment = self._segments[0] if self._segments else None
        if segment is not None:
            self.ship(segment)
            pa.default_memory_pool().release_unused()
            with self._changed:
                self._segments.popleft()
        elif time.monotonic() >= self._keep_house_at and not self.stopping.is_set():
            self.keep_house(time.time())
            self._keep_house_at = time.monotonic() + self._settings.compaction.everySeconds

    def ship(self, segment: Segment) -> None:
        """Make Parquet files of a segment; after an error it is to be done again, and makes the same files."""
        written = []
        for folder, content in parquet.tables_of(segment):
            path = f"{folder}/{segment.name}.parquet"
            size = self._sink.write(path, partial(parquet.write, content))
            written.append((parquet.table_of(path).name, len(content), size))
        segment.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            sync_folder(segment.path.parent)
        for table, rows, size in written:
            self._metrics.rows_written.labels(table).inc(rows)
            self._metrics.files_written.labels(table).inc()
            self._metrics.last_written.set_to_current_time()
            self._metrics.bytes_written.labels(table).inc(size)

    def keep_house(self, now: float) -> None:
        """Merge and delete what is due."""
        files = self._sink.files()
        gone = retention(files, self._settings.retentionDays, now)
        for step in gone:
            self._delete(step)
        if not self._settings.compaction.enabled:
            return
        deleted = {path for step in gone for path in step.paths}
        left = [file for file in files if file.path not in deleted and file.folder not in self._unreadable]
        for action in compaction(left, self._parts_of, self._settings.compaction, now):
            if self.stopping.is_set() or self._segments:
                self._keep_house_at = 0.0  # the rest when there is time
                return
            if isinstance(action, Delete):
                self._delete(action)
            else:
                self._merge(action)

    def _delete(self, step: Delete) -> None:
        self._sink.delete(step.paths)
        self._metrics.files_deleted.labels(step.reason).inc(len(step.paths))
        logger.info("files deleted", extra={"reason": step.reason, "files": len(step.paths)})

    def _merge(self, step: Merge) -> None:
        names = [path.rpartition("/")[2] for path in step.parts]
        kind = parquet.table_of(step.path)
        try:
            self._sink.write(step.path, partial(parquet.merge, kind, map(self._sink.open, step.parts), names))
        except pa.ArrowInvalid as error:
            # A file that cannot be read stays as it is, and what is beside it, too.
            self._unreadable.add(step.path.rpartition("/")[0])
            self._metrics.sink_errors.inc()
            logger.error("files cannot be merged", extra={"folder": step.path, "reason": str(error)})
            return
        self._metrics.files_merged.inc(len(step.parts))
        logger.info("files merged", extra={"file": step.path, "files": len(step.parts)})

    def _read_parts(self, path: str) -> tuple[str, ...]:
        try:
            with self._sink.open(path) as file:
                return tuple(parquet.merged_parts(file))
        except pa.ArrowInvalid:
            return ()  # merging it will tell
