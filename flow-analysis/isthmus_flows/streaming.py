"""Runs that go on: each reads what has come since the one before, and tells of the window that ends with it.

Structured Streaming finds out which files of `deliveries` are new, and remembers in the checkpoint which were there.
What is done with them is idempotent: each hour of which there are new files is added up again, from all of its files,
by what a run over a window does. So duplicates, files that were merged into one, and a batch that is done again after a
crash are no special case, and the numbers are those of a run over the same window. A collector writes a file of an hour
every few minutes, so that an hour is read some times; state of Spark by row (`dropDuplicatesWithinWatermark`) would be
one entry for each identity, could not know a merged file from late rows, and would not outlive a change of the number
of partitions.

The watermark is the newest hour of which there were files, less `lateness`. Hours before that are closed: what comes of
them is counted as late, and not read. So the work for a batch is bounded, and what retention deletes is not missed.

As hours are added up whole, a window begins with one; and intervals of a router whose clock is ahead count as soon as
the hour has begun in which they end, where a run over the window leaves out what ends after it.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, RELAYED
from isthmus_flows.cubes import Cubes
from isthmus_flows.log import Log, Quality, Window, read_hours, read_log
from isthmus_flows.log.files import LogFolder, Quarantined, hour_in
from isthmus_flows.log.window import number_of
from isthmus_flows.output import making
from isthmus_flows.publish import Stages, publish
from isthmus_flows.session import prepare_for
from isthmus_flows.settings import Settings
from isthmus_flows.state import Hour, State, States
from isthmus_flows.storage import Storage
from isthmus_flows.store import keep_hours, kept_hours, version_in
from isthmus_flows.tables import Inputs

LOG = logging.getLogger("isthmus-flows")
_VERSION = 1
"""Raised when cubes or states change."""
_FOLDER = re.compile(r"v\d+-bucket\d+-last\d+-days\d+")
FILES = "path string, modificationTime timestamp, length long, content binary, date string, hour string"
"""Of Spark's source for files as they are; their content is not read."""


@dataclass(frozen=True, slots=True)
class Stream:
    """What runs that go on are asked for."""

    settings: Settings
    checkpoint: str
    last: timedelta
    """Length of the window. It begins with the hour in which it would begin."""
    lateness: timedelta = timedelta(hours=24)

    @property
    def folder(self) -> str:
        """Below the checkpoint, for what is known of hours: of no use to a stream that divides or remembers them in
        another way."""
        seconds, settings = int(self.last.total_seconds()), self.settings
        name = f"v{_VERSION}-bucket{settings.bucket_seconds}-last{seconds}-days{settings.baseline_days}"
        return f"{self.checkpoint}/{name}"


class Runs:
    """The runs of a stream: `add` what is new, `tell` of the window."""

    def __init__(self, spark: SparkSession, stream: Stream) -> None:
        """Raises NoLogError if the log is not there."""
        self._spark = spark
        self._stream = stream
        self._folder = LogFolder(spark, stream.settings.log)
        self._cubes = f"{stream.folder}/cubes"
        self._storage = Storage(spark, stream.checkpoint)
        self._states = States(self._storage, f"{stream.folder}/hours")
        for entry in self._storage.list(stream.checkpoint):
            if _FOLDER.fullmatch(entry.name) and not stream.folder.endswith(f"/{entry.name}"):
                LOG.warning("this stream was another one before (%s), and begins anew", entry.name)
                self._storage.delete(entry.path)

    def last(self) -> State:
        """After all that was added."""
        return self._states.last()

    def window(self, now: datetime) -> Window:
        """The window that ends now."""
        return Window.last(self._stream.last, now).in_whole_hours()

    def add(self, batch: int, paths: Collection[str], now: datetime) -> State:
        """Add up the hours of these files. The state from now on, also if it was done before."""
        before = self._states.last(batch)
        horizon = self._horizon(now)
        lateness = self._stream.lateness // timedelta(hours=1)
        by_hour = Counter(hour for path in paths if (hour := hour_in(path)) is not None and hour >= horizon)
        closed = {hour for hour in by_hour if before.closed(hour, lateness)}
        late = self._late(paths, closed)
        open_hours = sorted(by_hour.keys() - closed)
        found = {**before.with_late(late), **self._added_up(batch, open_hours, before)}
        # A router whose clock is ahead does not close the hours of all others.
        newest = max((hour for hour in open_hours if hour <= number_of(now)), default=None)
        state = before.after(batch, newest, found, horizon)
        self._states.save(state)
        self._forget(before, state)
        return state

    def inputs(self, state: State, now: datetime) -> Inputs:
        """What is known of the window that ends now."""
        settings = self._stream.settings
        window = self.window(now)
        prepare_for(self._spark, sum(hour.quality.rows for hour in state.hours.values()))
        return Inputs(
            self._log(state, window),
            self._read(state, window.hours),
            settings.bucket_seconds,
            self._read(state, window.earlier(settings.baseline_days)),
            settings.baseline_days,
            settings.top,
        )

    def tell(self, state: State, now: datetime) -> dict[str, Any]:
        """Tables, summary and report of the window that ends now. The summary."""
        stages = Stages(self._spark)
        with stages("read"):
            inputs = self.inputs(state, now)
        with making(self._spark, self._stream.settings, now) as output:
            return publish(inputs, output, self._stream.settings.log, now, stages)

    def started(
        self, batch: Callable[[int, Collection[str]], object], every: timedelta | None
    ) -> StreamingQuery:
        """A query that calls `batch` with its number and the new files: `every` so often if there are some, or (None)
        once, with all there are."""
        stream = self._stream

        def each(files: DataFrame, number: int) -> None:
            try:
                batch(number, [row["path"] for row in files.collect()])
            finally:
                self._spark.catalog.clearCache()

        # What is older than anything that matters need not be remembered.
        age = stream.last + timedelta(days=stream.settings.baseline_days + 1) + stream.lateness
        files = (
            self._spark.readStream.format("binaryFile")
            .schema(FILES)
            .option("maxFileAge", f"{int(age.total_seconds())}s")
            .load(self._folder.of(DELIVERIES))
            .select("path")
        )
        writer = files.writeStream.foreachBatch(each)
        writer = writer.option("checkpointLocation", f"{stream.folder}/files")
        if every is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(every.total_seconds())} seconds").start()

    def _horizon(self, now: datetime) -> int:
        """The first hour that matters."""
        window = self.window(now)
        return min([*window.earlier(self._stream.settings.baseline_days), window.hours[0]])

    def _late(self, paths: Collection[str], closed: Collection[int]) -> Counter[int]:
        """How many rows came of hours that are closed. A file that was made of others has no new ones."""
        new = set(paths)
        late: Counter[int] = Counter()
        for file in self._folder.find(DELIVERIES, closed).files if closed else ():
            if file.path in new and not file.merged:
                late[file.hour] += file.rows
        return late

    def _added_up(self, batch: int, hours: Collection[int], before: State) -> dict[int, Hour]:
        if not hours:
            return {}
        read = read_hours(self._spark, self._folder, DELIVERIES, hours)
        keep_hours(read.rows, self._stream.settings.bucket_seconds, self._cubes, batch)
        known = {hour: before.hours[hour].quality.late for hour in hours if hour in before.hours}
        return {
            hour: Hour(
                batch,
                replace(read.quality.get(hour, Quality(DELIVERIES.name)), late=known.get(hour, 0)),
                [item for item in read.quarantine if item.hour == hour],
            )
            for hour in hours
        }

    def _forget(self, before: State, state: State) -> None:
        """Delete cubes that neither this state nor the one before it names."""
        named = {hour.version for kept in (before, state) for hour in kept.hours.values()}
        for cube in self._storage.list(self._cubes):
            for entry in self._storage.list(cube.path):
                if version_in(entry.name) not in named:
                    self._storage.delete(entry.path)

    def _read(self, state: State, hours: Collection[int]) -> Cubes:
        versions = {hour: state.hours[hour].version for hour in hours if hour in state.hours}
        return kept_hours(self._spark, self._cubes, versions)

    def _log(self, state: State, window: Window) -> Log:
        """The small tables from the log, and what became of `deliveries` from the state."""
        log = read_log(self._spark, self._stream.settings.log, window, (RECORDS, EVENTS, RELAYED))
        hours = [state.hours[hour] for hour in window.hours if hour in state.hours]
        quality = sum((hour.quality for hour in hours), Quality(DELIVERIES.name))
        quarantine: list[Quarantined] = [item for hour in hours for item in hour.quarantine]
        return replace(
            log,
            quality={**log.quality, DELIVERIES.name: quality},
            quarantine=[*self._folder.strangers(DELIVERIES, window.hours), *quarantine, *log.quarantine],
        )


def add_new(runs: Runs, now: datetime) -> State:
    """Add up all that is new. The state from now on."""
    runs.started(lambda number, paths: runs.add(number, paths, now), None).awaitTermination()
    return runs.last()


def catch_up(
    spark: SparkSession, stream: Stream, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> dict[str, Any]:
    """Add up what is new, and tell of the window that ends now. The summary. Raises NoLogError if the log is not
    there."""
    runs, moment = Runs(spark, stream), now()
    return runs.tell(add_new(runs, moment), moment)


def follow(
    spark: SparkSession,
    stream: Stream,
    every: timedelta,
    told: Callable[[dict[str, Any]], None],
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> StreamingQuery:
    """Do that `every` so often, whenever there is something new; `told` gets each summary. Raises NoLogError if the log
    is not there."""
    runs = Runs(spark, stream)

    def batch(number: int, paths: Collection[str]) -> None:
        moment = now()
        told(runs.tell(runs.add(number, paths, moment), moment))

    return runs.started(batch, every)
