"""Parquet files of a flow log: a segment of the journal becomes some, small ones become one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from isthmus_flowlog.arrow import UnfitError
from isthmus_flowlog.collector.journal import Segment, blocks
from isthmus_flowlog.collector.rows import SCHEMAS, by_partition, conform
from isthmus_flowlog.collector.untrusted import merged_parts, read_rows
from isthmus_flowlog.schema import MERGED_KEY, TABLES, Table, table

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 128 * 1024 * 1024
"""In memory, of files that are made one."""
_OPTIONS: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True, "write_statistics": True}
Opened = Callable[[str], AbstractContextManager[Any]]
"""Opens a file of the log for reading, by its path."""


def tables_of(segment: Segment) -> Iterator[tuple[str, pa.Table]]:
    """What a segment holds: (folder of the partition, rows sorted by time). What `deliveries` refers to comes first.
    UnfitError for what no collector has written, and as `blocks`."""
    found: defaultdict[str, list[pa.Table]] = defaultdict(list)
    for name, content in blocks(segment.path):
        found[name].append(content)
    if not found.keys() <= {kind.name for kind in TABLES}:
        raise UnfitError("it has rows of an unknown table")
    for kind in reversed(TABLES):
        contents = [conform(kind, content) for content in found.pop(kind.name, ())]
        if contents:
            yield from by_partition(kind, pa.concat_tables(contents).combine_chunks())


def write(content: pa.Table, path: Path) -> None:
    """A file that is on disk when this returns, but for what the system has yet to write."""
    pq.write_table(content, path, row_group_size=ROW_GROUP_ROWS, **_OPTIONS)


class PartError(Exception):
    """A file cannot be made part of another one."""

    def __init__(self, path: str, reason: Exception) -> None:
        super().__init__(path)
        self.path = path
        self.reason = reason


def merge(kind: Table, parts: Sequence[str], opened: Opened, path: Path, tick: Callable[[], None]) -> None:
    """Write the rows of files to one, never more than a row group of it in memory at a time. PartError if one of them
    cannot be read. `tick` is called again and again, and may raise."""
    names = [part.rpartition("/")[2] for part in parts]
    schema = SCHEMAS[kind.name].with_metadata(
        {**SCHEMAS[kind.name].metadata, MERGED_KEY.encode(): json.dumps(names).encode()}
    )
    with pq.ParquetWriter(path, schema, **_OPTIONS) as target:
        waiting: list[pa.Table] = []

        def put() -> None:
            content = pa.concat_tables(waiting).sort_by(kind.time)
            target.write_table(
                content.replace_schema_metadata(schema.metadata), row_group_size=ROW_GROUP_ROWS
            )
            waiting.clear()

        for part in parts:
            for content in _rows_of(kind, part, opened):
                tick()
                waiting.append(content)
                if (
                    sum(map(len, waiting)) >= ROW_GROUP_ROWS
                    or sum(item.nbytes for item in waiting) >= ROW_GROUP_BYTES
                ):
                    put()
        if waiting:
            put()
    with path.open("rb") as file:
        if list(merged_parts(file)) != names:
            raise OSError("a merged file would be too large")


def _rows_of(kind: Table, part: str, opened: Opened) -> Iterator[pa.Table]:
    try:
        with opened(part) as source:
            yield from read_rows(kind, source)
    except Exception as error:
        raise PartError(part, error) from error


def table_of(path: str) -> Table:
    """The table that a path of the log belongs to."""
    return table(path.partition("/")[0])
