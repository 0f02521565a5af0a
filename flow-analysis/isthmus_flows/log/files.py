"""The files of some hours, and whether each can be read: by its footer, before any row is.

Footers are read by the driver, several at a time: a log has some hundred files a day, however much is in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import SparkSession

from isthmus_flowlog.schema import MERGED_KEY, SCHEMA_VERSION, VERSION_KEY, Column, Kind, Table
from isthmus_flows.log.window import hour_of, number_of
from isthmus_flows.storage import JAVA_ERRORS, Entry, Storage, said

AT_ONCE = 8
LONGEST_REASON = 300
_PATTERN = re.compile(r"[]\[{}*?\\:\x00-\x1f]")
"""Characters with which Hadoop takes the path of a file as a pattern, or not as one."""
_VERSION = re.compile(r"[0-9]{1,9}")
_PARTITION = re.compile(r"date=(\d{4}-\d{2}-\d{2})/hour=(\d{2})")
_DATE, _HOUR = re.compile(r"date=\d{4}-\d{2}-\d{2}"), re.compile(r"hour=([01]\d|2[0-3])")
_FIELD = re.compile(
    r"^  (required|optional|repeated) (\w+(?:\(\d+\))?) (\w+)(?: \(([^{;]*)\))?(?: = \d+)?(;| \{)$"
)
_TYPES = {
    Kind.STRING: ("binary", "STRING"),
    Kind.LONG: ("int64", ""),
    Kind.TIME: ("int64", "TIMESTAMP(MICROS,true)"),
    Kind.FLAG: ("boolean", ""),
    Kind.SKETCH: ("group", "MAP"),
}


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that can be read, as far as its footer tells."""

    path: str
    hour: int
    """Of its folder, counted from the epoch."""
    rows: int
    merged: bool = False
    """It was made of others, which are there as well or have been."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What is left out, and why."""

    table: str
    file: str
    reason: str
    rows: int | None
    """How many rows; None: nobody knows."""
    hour: int | None = None
    """Of its folder, counted from the epoch; None: it is in none."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files of one table."""

    files: Sequence[LogFile]
    quarantined: Sequence[Quarantined]


class NoLogError(ValueError):
    """There is no log where one was said to be; the text says where."""


class LogFolder:
    """A flow log."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        """Raises NoLogError if there is no such folder."""
        self._url = url.rstrip("/")
        try:
            self._storage = Storage(spark, self._url)
            present = self._storage.exists(self._url)
        except OSError as error:
            raise NoLogError(f"{url} cannot be read: {error}") from None
        if not present:
            raise NoLogError(f"{url} does not exist")

    def of(self, table: Table) -> str:
        """The folder of a table."""
        return f"{self._url}/{table.name}"

    def find(self, table: Table, hours: Collection[int]) -> Found:
        """The files of these hours, and what is in folders that no collector makes."""
        strangers: list[Entry] = []
        folders = list(self._folders(table, hours, strangers))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            listed = pool.map(lambda item: (self._storage.list(item[0].path), item[1]), folders)
            entries = [(entry, hour) for found, hour in listed for entry in found]
            checked = list(pool.map(lambda item: self._check(table, *item), entries))
        return Found(
            [item for item in checked if isinstance(item, LogFile)],
            [*_alien(table, strangers), *(item for item in checked if isinstance(item, Quarantined))],
        )

    def strangers(self, table: Table, hours: Collection[int]) -> list[Quarantined]:
        """What is in folders that no collector makes."""
        strangers: list[Entry] = []
        for _ in self._folders(table, hours, strangers):
            pass
        return _alien(table, strangers)

    def _folders(
        self, table: Table, hours: Collection[int], strangers: list[Entry]
    ) -> Iterator[tuple[Entry, int]]:
        dates = {f"date={hour_of(hour):%Y-%m-%d}" for hour in hours}
        for day in self._known(self._storage.list(self.of(table)), _DATE, strangers):
            if day.name in dates:
                for entry in self._known(self._storage.list(day.path), _HOUR, strangers):
                    hour = hour_in(f"{day.name}/{entry.name}")
                    if hour is not None and hour in hours:
                        yield entry, hour

    @staticmethod
    def _known(entries: Iterable[Entry], name: re.Pattern[str], strangers: list[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if entry.is_file or not name.fullmatch(entry.name) or not _real(entry.name):
                strangers.append(entry)
            else:
                yield entry

    def _check(self, table: Table, entry: Entry, hour: int) -> LogFile | Quarantined:
        def refused(reason: str, rows: int | None = None) -> Quarantined:
            return Quarantined(table.name, entry.path, reason[:LONGEST_REASON], rows, hour)

        if not entry.is_file:
            return refused("a folder where files are expected")
        if entry.size == 0:
            return refused("empty", 0)
        if _PATTERN.search(entry.name):
            return refused("its name has a character of patterns, or a colon")
        try:
            rows, schema, metadata = self._footer(entry.path)
        except JAVA_ERRORS as error:
            return refused(f"no Parquet file, or cut off: {said(error)}")
        version = str(metadata.get(VERSION_KEY) or "")
        if _VERSION.fullmatch(version) is None:
            return refused(f"no {VERSION_KEY} in its metadata: not written by a collector", rows)
        if int(version) > SCHEMA_VERSION:
            return refused(
                f"schema version {version} is newer than {SCHEMA_VERSION}, which this analysis knows", rows
            )
        problem = next(_misfits(table.columns, fields_of(schema)), None)
        if problem is not None:
            return refused(problem, rows)
        return LogFile(entry.path, hour, rows, metadata.get(MERGED_KEY) is not None)

    def _footer(self, path: str) -> tuple[int, str, Mapping[str, str]]:
        """Rows, schema and metadata."""
        parquet = self._storage.jvm.org.apache.parquet.hadoop
        file = parquet.util.HadoopInputFile.fromPath(self._storage.path(path), self._storage.conf)
        reader = parquet.ParquetFileReader.open(file)
        try:
            meta = reader.getFileMetaData()
            found = meta.getKeyValueMetaData()
            metadata = {key: found.get(key) for key in (VERSION_KEY, MERGED_KEY)}
            return int(reader.getRecordCount()), str(meta.getSchema().toString()), metadata
        finally:
            reader.close()


def _alien(table: Table, entries: Iterable[Entry]) -> list[Quarantined]:
    reason = "in no folder date=YYYY-MM-DD/hour=HH"
    return [Quarantined(table.name, entry.path, reason, None) for entry in entries]


def hour_in(path: str) -> int | None:
    """The hour, counted from the epoch, of the folder that a path is in; None if it is in none."""
    match = _PARTITION.search(path)
    if match is None:
        return None
    try:
        return number_of(datetime.fromisoformat(f"{match[1]}T{match[2]}:00:00+00:00"))
    except ValueError:
        return None


def _real(name: str) -> bool:
    """Whether a folder's name is not that of a 30th of February."""
    return not name.startswith("date=") or hour_in(f"{name}/hour=00") is not None


def fields_of(schema: str) -> Mapping[str, tuple[str, str]]:
    """Columns of a Parquet schema as it is written out: name to physical and logical type."""
    found = {}
    for line in schema.splitlines():
        match = _FIELD.match(line)
        if match is not None:
            found[match[3]] = (match[2], match[4] or "")
    return found


def _misfits(columns: Iterable[Column], found: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for column in columns:
        if column.name not in found:
            if column.required:
                yield f"column {column.name} is missing"
        elif found[column.name] != _TYPES[column.kind]:
            physical, logical = found[column.name]
            yield f"column {column.name} is {physical} {logical}".rstrip() + f", not {column.kind.value}"
