"""The thread that makes Parquet files of the journal, merges them, and deletes what is old.

Others may write to the folder or bucket of a log. So an error of one file, one folder or one segment concerns only it:
it is counted, logged with its name, and left alone for a while.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from functools import lru_cache, partial

import pyarrow as pa

from isthmus_flowlog.arrow import UnfitError
from isthmus_flowlog.collector import parquet, worker
from isthmus_flowlog.collector.aside import Aside
from isthmus_flowlog.collector.journal import Segment, set_aside, sync_folder
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.plan import Delete, File, Merge, compaction, retention
from isthmus_flowlog.collector.settings import Settings
from isthmus_flowlog.collector.sinks import Sink
from isthmus_flowlog.collector.untrusted import merged_parts
from isthmus_flowlog.collector.worker import Worker

logger = logging.getLogger("STORE")

WAIT_SECONDS = 1.0
"""For a segment."""
MERGED_REMEMBERED = 4096


class _EndedError(Exception):
    """The process is to end before this is done."""


class Shipper(Worker):
    """Segments of the journal to Parquet files; compaction and retention."""

    def __init__(self, settings: Settings, sink: Sink, metrics: Metrics) -> None:
        super().__init__("shipper")
        self._settings = settings
        self._sink = sink
        self._metrics = metrics
        self._segments: deque[Segment] = deque()
        self._changed = threading.Condition()
        self._parts_of = lru_cache(MERGED_REMEMBERED)(self._read_parts)
        self._unwritten: dict[str, str] = {}
        """Why segments could not be written, by their names."""
        self._unlisted: str | None = None
        """Why the log could not be listed."""
        self._aside = Aside(metrics.sink_errors)
        """Files and folders that are not merged."""
        self._undeleted = Aside(metrics.sink_errors)
        self._keep_house_at = 0.0
        self.trouble: str | None = None
        """A sentence."""

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
        pause = worker.FIRST_PAUSE
        while not self.stopping.is_set() or self._segments:
            self.tick()
            if self._ship_next():
                pause = worker.FIRST_PAUSE
            elif self.stopping.is_set():
                return
            else:
                self.stopping.wait(pause)
                pause = min(2 * pause, worker.LONGEST_PAUSE)
            if time.monotonic() >= self._keep_house_at and not self._is_busy():
                self._keep_house()

    def _is_busy(self) -> bool:
        """Whether there is more to do than to keep house. A segment that cannot be written does not keep from it."""
        return self.stopping.is_set() or len(self._segments) > len(self._unwritten)

    def _ship_next(self) -> bool:
        """False: a segment could not be written. The next time another one has its turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._segments or self.stopping.is_set(), WAIT_SECONDS)
            segment = self._segments[0] if self._segments else None
        if segment is None:
            return True
        try:
            self.ship(segment)
        except (OSError, pa.ArrowException) as error:
            self._metrics.sink_errors.inc()
            self._unwritten[segment.name] = str(error)
            with self._changed:
                self._segments.rotate(-1)
        else:
            self._unwritten.pop(segment.name, None)
            with self._changed:
                self._segments.popleft()
        finally:
            pa.default_memory_pool().release_unused()
        self._look_for_trouble()
        return segment.name not in self._unwritten

    def _look_for_trouble(self) -> None:
        before = self.trouble
        if self._unwritten:
            self.trouble = f"the log cannot be written: {next(iter(self._unwritten.values()))}"
        elif self._unlisted is not None:
            self.trouble = f"the log cannot be listed: {self._unlisted}"
        else:
            self.trouble = None
        if self.trouble is not None and before is None:
            logger.error("the log cannot be used", extra={"reason": self.trouble})
        elif self.trouble is None and before is not None:
            logger.info("the log can be used again")

    def ship(self, segment: Segment) -> None:
        """Make Parquet files of a segment; after an error it is to be done again, and makes the same files. One that
        cannot be read stays in the journal."""
        try:
            contents = list(parquet.tables_of(segment))
        except Exception as error:  # one segment does not keep the others from the log
            self._metrics.journal_errors.inc()
            set_aside(segment.path, error)
            return
        written = []
        for folder, content in contents:
            self.tick()
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

    def _keep_house(self) -> None:
        """Whatever goes wrong is tried again: what is in the log does not end the collector."""
        self._keep_house_at = time.monotonic() + self._settings.compaction.everySeconds
        try:
            self.keep_house(time.time())
        except Exception as error:
            expected = isinstance(error, OSError | pa.ArrowException)
            self._metrics.sink_errors.inc()
            self._unlisted = str(error)
            if not expected:
                logger.exception("looking after the log has failed")
            self._keep_house_at = min(self._keep_house_at, time.monotonic() + worker.LONGEST_PAUSE)
        else:
            self._unlisted = None
        self._look_for_trouble()

    def keep_house(self, now: float) -> None:
        """Merge and delete what is due. Raises OSError when the log cannot be listed."""
        files = self._sink.files(self._not_listed)
        self.tick()
        gone = retention(files, self._settings.retentionDays, now)
        for step in gone:
            self._delete(step)
        if not self._settings.compaction.enabled:
            return
        deleted = {path for step in gone for path in step.paths}
        left = [file for file in files if file.path not in deleted and not self._is_aside(file)]
        for action in compaction(left, self._parts, self._settings.compaction, now):
            if self._is_busy():
                self._keep_house_at = 0.0  # the rest when there is time
                return
            if isinstance(action, Delete):
                self._delete(action)
            else:
                self._merge(action)

    def _not_listed(self, path: str, error: Exception) -> None:
        if path not in self._aside:
            self._aside.put(path, error, "listed")

    def _is_aside(self, file: File) -> bool:
        return file.path in self._aside or file.folder in self._aside

    def _delete(self, step: Delete) -> None:
        """Each file on its own, so that one that cannot be deleted keeps none of the others."""
        deleted = 0
        for path in step.paths:
            self.tick()
            if path in self._undeleted:
                continue
            try:
                self._sink.delete([path])
                deleted += 1
            except Exception as error:  # logged, also with the place in the program
                self._undeleted.put(path, error, "deleted")
        if deleted:
            self._metrics.files_deleted.labels(step.reason).inc(deleted)
            logger.info("files deleted", extra={"reason": step.reason, "files": deleted})

    def _merge(self, step: Merge) -> None:
        folder = step.path.rpartition("/")[0]
        if folder in self._aside or any(part in self._aside for part in step.parts):
            return  # planned before that was known; the next plan is without it
        kind = parquet.table_of(step.path)
        try:
            self._sink.write(
                step.path, partial(parquet.merge, kind, step.parts, self._sink.open, tick=self._tick_or_end)
            )
        except _EndedError:
            return
        except parquet.PartError as error:
            self._aside.put(error.path, error.reason, "merged")
            return
        except Exception as error:  # logged, also with the place in the program
            self._aside.put(folder, error, "merged")
            return
        finally:
            pa.default_memory_pool().release_unused()
        self._metrics.files_merged.inc(len(step.parts))
        logger.info("files merged", extra={"file": step.path, "files": len(step.parts)})

    def _tick_or_end(self) -> None:
        self.tick()
        if self.stopping.is_set():
            raise _EndedError

    def _parts(self, path: str) -> tuple[str, ...]:
        """Names of the files that a merged file was made of. One that cannot be read is set aside; if that may be for a
        moment only, nothing of its folder is merged meanwhile, as that would double what it is made of."""
        self.tick()
        try:
            return self._parts_of(path)
        except Exception as error:
            unfit = isinstance(error, UnfitError)
            self._aside.put(path if unfit else path.rpartition("/")[0], error, "merged")
            return ()

    def _read_parts(self, path: str) -> tuple[str, ...]:
        with self._sink.open(path) as file:
            return merged_parts(file)
