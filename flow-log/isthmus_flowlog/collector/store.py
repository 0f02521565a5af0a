"""Threads that keep rows: the writer puts them into the journal, the shipper (shipper.py) makes Parquet files of it.

What cannot be written is tried again for as long as it takes; meanwhile `has_room` is false, and routers are given no
credit. So what is in memory, and in the journal, has a bound.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping

import pyarrow as pa

from isthmus_flowlog.collector import worker
from isthmus_flowlog.collector.columns import Row
from isthmus_flowlog.collector.journal import Journal, Segment
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.plan import rotation_due
from isthmus_flowlog.collector.rows import to_arrow
from isthmus_flowlog.collector.settings import Settings
from isthmus_flowlog.collector.shipper import Shipper
from isthmus_flowlog.collector.sinks import Sink
from isthmus_flowlog.collector.worker import Worker

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
STUCK_SECONDS = 600.0
"""A thread that is not heard of for so long does not work any more; an object may take minutes to be sent."""

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
        return self.shipper.trouble

    @property
    def stuck(self) -> str | None:
        """Which thread does not go on: nothing but another process helps."""
        for thread in (self.writer, self.shipper):
            if thread.silent > STUCK_SECONDS:
                return f"the thread {thread.name} has been stuck for {thread.silent:.0f} s"
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


class Writer(Worker):
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
            self.tick()
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
        pause = worker.FIRST_PAUSE
        while True:
            self.tick()
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
                pause = min(2 * pause, worker.LONGEST_PAUSE)
        if self.trouble is not None:
            logger.info("the journal can be written again")
            self.trouble = None
        self._queue.written(sum(map(len, rows.values())), time.time())
        return True

    def _seal(self) -> None:
        segment = self._journal.seal()
        if segment is not None:
            self._sealed(segment)
