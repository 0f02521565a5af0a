"""From the files of a window to rows that can be counted.

Every column of every row is looked at once, which finds damaged files (their pages have checksums) and rows that cannot
be true. After that each question reads only the columns it is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, RELAYED, Table
from isthmus_flows.log.duplicates import PLACE, once_each, repeated, with_place
from isthmus_flows.log.files import Found, LogFile, LogFolder, Quarantined
from isthmus_flows.log.rows import REASON, impossible
from isthmus_flows.log.window import Window
from isthmus_flows.spark_schema import spark_schema

_FILE = "_file"


@dataclass(frozen=True, slots=True)
class Quality:
    """What became of one table. Rows that are no duplicates and not quarantined are those that count."""

    table: str
    files: int
    rows: int
    """In files that can be read, of all hours that some of the window is in."""
    duplicates: int
    quarantined_files: int
    quarantined_rows: int
    """As far as that is known."""


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


def read_log(spark: SparkSession, url: str, window: Window) -> Log:
    """The log at `url`, a folder or `s3a://...`. Raises ValueError if it is not there."""
    folder = LogFolder(spark, url)
    tables = (DELIVERIES, RECORDS, EVENTS, RELAYED)
    parts = [_read_table(spark, folder, table, window) for table in tables]
    deliveries, records, events, relayed = (part.rows for part in parts)
    return Log(
        window,
        deliveries,
        records,
        events,
        relayed,
        {part.quality.table: part.quality for part in parts},
        [item for part in parts for item in part.quarantine],
    )


@dataclass(frozen=True)
class _Part:
    rows: DataFrame
    quality: Quality
    quarantine: Sequence[Quarantined]


def _read_table(spark: SparkSession, folder: LogFolder, table: Table, window: Window) -> _Part:
    found = folder.find(table, window)
    read = _rows(spark, folder, table, found.files)
    audit = _audit(table, read, found)
    good_files = [file for file in found.files if file.path not in audit.damaged]
    rows = _rows(spark, folder, table, good_files)
    if audit.impossible:
        rows = rows.where(impossible(table).isNull())
    moment = F.col(table.time)
    rows = rows.where(moment < F.lit(window.end))
    if table is not RECORDS:
        rows = rows.where(moment >= F.lit(window.start))
    copies = 0
    if table is not RECORDS:
        known = repeated(rows).persist()
        copies = known.agg(F.coalesce(F.sum("copies"), F.lit(0))).collect()[0][0]
        if copies:
            rows = once_each(rows, known)
    quarantine = [*found.quarantined, *audit.quarantined]
    quality = Quality(
        table.name,
        len(good_files),
        sum(file.rows for file in good_files),
        copies,
        len(found.quarantined) + len(audit.damaged),
        sum(item.rows or 0 for item in quarantine),
    )
    return _Part(rows.drop("date", "hour", PLACE), quality, quarantine)


def _rows(spark: SparkSession, folder: LogFolder, table: Table, files: Sequence[LogFile]) -> DataFrame:
    """All rows of these files, with `date` and `hour` of their folder and their place."""
    schema = spark_schema(table)
    for name in ("date", "hour"):
        schema = schema.add(name, T.StringType())
    if not files:
        return spark.createDataFrame([], schema).withColumn(PLACE, F.lit(0).cast("long"))
    reader = spark.read.schema(schema).option("basePath", folder.of(table))
    return with_place(reader.parquet(*(file.path for file in files)))


@dataclass(frozen=True)
class _Audit:
    damaged: frozenset[str]
    """Files that have fewer rows than their footers tell."""
    impossible: int
    """Rows, of the other files."""
    quarantined: Sequence[Quarantined]


def _audit(table: Table, read: DataFrame, found: Found) -> _Audit:
    if not found.files:
        return _Audit(frozenset(), 0, ())
    looked = read.select(F.col("_metadata.file_path").alias(_FILE), impossible(table).alias(REASON))
    counts = looked.groupBy(_FILE, REASON).agg(F.count("*").alias("rows")).collect()
    seen: dict[str, int] = {}
    for row in counts:
        seen[row[_FILE]] = seen.get(row[_FILE], 0) + row["rows"]
    damaged = {file.path: file.rows for file in found.files if seen.get(file.path, 0) != file.rows}
    quarantined = [
        Quarantined(table.name, path, "damaged: not all of it can be read", rows)
        for path, rows in damaged.items()
    ]
    wrong = [row for row in counts if row[REASON] is not None and row[_FILE] not in damaged]
    quarantined += [Quarantined(table.name, row[_FILE], row[REASON], row["rows"]) for row in wrong]
    return _Audit(frozenset(damaged), sum(row["rows"] for row in wrong), quarantined)
