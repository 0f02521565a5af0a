"""From the files of a log to rows that can be counted.

Every column of every row is looked at once, which finds damaged files (their pages have checksums) and rows that cannot
be true. After that each question reads only the columns it is about; a file that cannot be read any more makes the run
fail, so that a disk or a network that has failed for a moment is not taken for a log with fewer rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, RELAYED, TABLES, Table
from isthmus_flows.log.duplicates import once_each, repeated
from isthmus_flows.log.files import LogFile, LogFolder, Quarantined
from isthmus_flows.log.places import FILE, HOUR, PLACE, read_files
from isthmus_flows.log.rows import REASON, impossible
from isthmus_flows.log.window import Window
from isthmus_flows.parallel import each
from isthmus_flows.session import prepare_for

ROW_COLUMNS = (PLACE, FILE, HOUR)


@dataclass(frozen=True, slots=True)
class Quality:
    """What became of one table. Of its `rows`, those that are neither duplicates nor impossible are counted."""

    table: str
    files: int = 0
    """That can be read, of all hours that some of the window is in."""
    rows: int = 0
    """In these."""
    duplicates: int = 0
    late: int = 0
    """Rows that came when their hour was closed (of a stream); they are not among `rows`."""
    quarantined_files: int = 0
    quarantined_rows: int = 0
    """As far as that is known."""

    def __add__(self, other: Quality) -> Quality:
        """Of both together."""
        sums = {
            name: getattr(self, name) + getattr(other, name) for name in self.__slots__ if name != "table"
        }
        return replace(self, **sums)


@dataclass(frozen=True)
class Log:
    """The rows of a window. Those of `records` are states, of which there are several of one thing; of all others
    each is there once."""

    window: Window
    deliveries: DataFrame
    records: DataFrame
    """Also from before the window, as far as the hour in which it begins."""
    events: DataFrame
    relayed: DataFrame
    quality: Mapping[str, Quality] = field(default_factory=dict)
    """By table."""
    quarantine: Sequence[Quarantined] = ()


@dataclass(frozen=True)
class Hours:
    """Some hours of a table."""

    rows: DataFrame
    """With `HOUR`. All that can be true, each identity once; of `RECORDS` all."""
    quality: Mapping[int, Quality]
    """By hour, counted from the epoch."""
    quarantine: Sequence[Quarantined]


def read_log(spark: SparkSession, url: str, window: Window, tables: Collection[Table] = (*TABLES,)) -> Log:
    """The log at `url`, a folder or `s3a://...`; of other tables than `tables` there are no rows. Raises NoLogError
    if it is not there."""
    folder = LogFolder(spark, url)

    def read(table: Table) -> Hours:
        if table in tables:
            return read_hours(spark, folder, table, window.hours)
        return Hours(read_files(spark, table, folder.of(table), ()), {}, ())

    parts = {table.name: part for table, part in zip(TABLES, each(spark, read, TABLES), strict=True)}
    return Log(
        window,
        quality={
            table.name: sum(parts[table.name].quality.values(), Quality(table.name)) for table in TABLES
        },
        quarantine=[item for part in parts.values() for item in part.quarantine],
        **{
            table.name: within(window, table, parts[table.name].rows).drop(*ROW_COLUMNS)
            for table in (DELIVERIES, RECORDS, EVENTS, RELAYED)
        },
    )


def within(window: Window, table: Table, rows: DataFrame) -> DataFrame:
    """Those of the window. Of `RECORDS` also those from before it: they say what there was when it began."""
    moment = F.col(table.time)
    rows = rows.where(moment < F.lit(window.end))
    return rows if table is RECORDS else rows.where(moment >= F.lit(window.start))


def read_hours(spark: SparkSession, folder: LogFolder, table: Table, hours: Collection[int]) -> Hours:
    """What there is of these hours."""
    found = folder.find(table, hours)
    prepare_for(spark, sum(file.rows for file in found.files))
    base = folder.of(table)
    damaged, impossibles = _audit(spark, table, base, found.files)
    good = [file for file in found.files if file.path not in damaged]
    rows = read_files(spark, table, base, [file.path for file in good])
    if impossibles:
        rows = rows.where(impossible(table).isNull())
    copies: dict[int, int] = {}
    if table is not RECORDS and good:
        known = repeated(rows)
        if known is not None:
            rows = once_each(rows, known)
            by_hour = known.groupBy(HOUR).agg(F.sum("copies").alias("copies"))
            copies = {row[HOUR]: row["copies"] for row in by_hour.collect()}
    quarantine = [*found.quarantined, *damaged.values(), *impossibles]
    lost_files = Counter(item.hour for item in (*found.quarantined, *damaged.values()))
    lost_rows: Counter[int | None] = Counter()
    for item in quarantine:
        lost_rows[item.hour] += item.rows or 0
    quality = {
        hour: Quality(
            table.name,
            files=sum(file.hour == hour for file in good),
            rows=sum(file.rows for file in good if file.hour == hour),
            duplicates=copies.get(hour, 0),
            quarantined_files=lost_files[hour],
            quarantined_rows=lost_rows[hour],
        )
        for hour in {file.hour for file in good} | {hour for hour in lost_files if hour is not None}
    }
    return Hours(rows, quality, quarantine)


def _audit(
    spark: SparkSession, table: Table, base: str, files: Sequence[LogFile]
) -> tuple[dict[str, Quarantined], list[Quarantined]]:
    """Files that have not as many rows as their footers tell, by path; what rows of the others cannot be true."""
    looked = _look(spark, table, base, files)
    suspects = [file for file in files if sum(looked[file.path].values()) != file.rows]
    # What could not be read for a moment is read now.
    looked |= _look(spark, table, base, suspects)
    damaged = {
        file.path: Quarantined(
            table.name, file.path, "damaged: not all of it can be read", file.rows, file.hour
        )
        for file in suspects
        if sum(looked[file.path].values()) != file.rows
    }
    wrong = [
        Quarantined(table.name, file.path, reason, rows, file.hour)
        for file in files
        if file.path not in damaged
        for reason, rows in sorted(looked[file.path].items(), key=str)
        if reason is not None
    ]
    return damaged, wrong


def _look(
    spark: SparkSession, table: Table, base: str, files: Sequence[LogFile]
) -> dict[str, Counter[str | None]]:
    """How many rows of each file can be read, by why they cannot be true."""
    found: dict[str, Counter[str | None]] = {file.path: Counter() for file in files}
    if not files:
        return found
    rows = read_files(spark, table, base, list(found), past_damage=True)
    # So that the pages of these columns are read as well; the others are for `impossible`.
    others = F.lit(False)
    for column in table.columns:
        if not column.required:
            others |= F.col(column.name).isNull()
    counts = (
        rows.select(FILE, impossible(table).alias(REASON), others.alias("_others"))
        .groupBy(FILE, REASON)
        .agg(F.count("*").alias("rows"), F.count_if("_others"))
    )
    for row in counts.collect():
        found[row[FILE]][row[REASON]] += row["rows"]
    return found
