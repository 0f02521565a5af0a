"""The files of a window, and whether each can be read: by its footer, before any row is.

Footers are read by the driver, several at a time: a log has some hundred files a day, however much is in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from isthmus_flowlog.schema import SCHEMA_VERSION, VERSION_KEY, Column, Kind, Table, partition
from isthmus_flows.log.window import Window

AT_ONCE = 8
LONGEST_REASON = 300
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
    rows: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What is left out, and why."""

    table: str
    file: str
    reason: str
    rows: int | None
    """How many rows; None: nobody knows."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files of one table."""

    files: Sequence[LogFile]
    quarantined: Sequence[Quarantined]


class LogFolder:
    """A flow log, in any file system that Spark can read."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        """Raises ValueError if there is no such folder."""
        self._jvm: Any = cast(Any, spark.sparkContext._jvm)
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._url = url.rstrip("/")
        path: Any = self._jvm.org.apache.hadoop.fs.Path(self._url)
        try:
            self._system: Any = path.getFileSystem(self._conf)
            present = self._system.exists(path)
        except Py4JJavaError as error:
            raise ValueError(f"{url} cannot be read: {_said(error)}") from None
        if not present:
            raise ValueError(f"{url} does not exist")

    def of(self, table: Table) -> str:
        """The folder of a table."""
        return f"{self._url}/{table.name}"

    def find(self, table: Table, window: Window) -> Found:
        """The files of all hours that some of the window is in."""
        folders = [f"{self.of(table)}/{partition(hour)}" for hour in window.hours()]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            listed = [item for items in pool.map(self._list, folders) for item in items]
            checked = list(pool.map(lambda item: self._check(table, *item), listed))
        return Found(
            [item for item in checked if isinstance(item, LogFile)],
            [item for item in checked if isinstance(item, Quarantined)],
        )

    def _list(self, folder: str) -> list[tuple[str, int]]:
        """Path and size of what is there."""
        path = self._jvm.org.apache.hadoop.fs.Path(folder)
        if not self._system.exists(path):
            return []
        return [
            (str(status.getPath().toString()), int(status.getLen()))
            for status in self._system.listStatus(path)
            if status.isFile() and not str(status.getPath().getName()).startswith((".", "_"))
        ]

    def _check(self, table: Table, path: str, size: int) -> LogFile | Quarantined:
        def refused(reason: str, rows: int | None = None) -> Quarantined:
            return Quarantined(table.name, path, reason[:LONGEST_REASON], rows)

        if size == 0:
            return refused("empty", 0)
        try:
            rows, schema, version = self._footer(path)
        except Py4JJavaError as error:
            return refused(f"no Parquet file, or cut off: {_said(error)}")
        if not version.isdigit():
            return refused(f"no {VERSION_KEY} in its metadata: not written by a collector", rows)
        if int(version) > SCHEMA_VERSION:
            return refused(
                f"schema version {version} is newer than {SCHEMA_VERSION}, which this analysis knows", rows
            )
        problem = next(_misfits(table.columns, fields_of(schema)), None)
        return LogFile(path, rows) if problem is None else refused(problem, rows)

    def _footer(self, path: str) -> tuple[int, str, str]:
        """Rows, schema and version."""
        parquet = self._jvm.org.apache.parquet.hadoop
        file = parquet.util.HadoopInputFile.fromPath(self._jvm.org.apache.hadoop.fs.Path(path), self._conf)
        reader = parquet.ParquetFileReader.open(file)
        try:
            meta = reader.getFileMetaData()
            version = meta.getKeyValueMetaData().get(VERSION_KEY)
            return int(reader.getRecordCount()), str(meta.getSchema().toString()), str(version or "")
        finally:
            reader.close()


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


def _said(error: Py4JJavaError) -> str:
    """What the innermost exception says, in one line."""
    exception: Any = error.java_exception
    while exception.getCause() is not None:
        exception = exception.getCause()
    return str(exception.getMessage() or exception.toString()).splitlines()[0]
