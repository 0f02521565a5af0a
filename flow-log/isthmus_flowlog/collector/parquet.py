"""Parquet files of a flow log: a segment of the journal becomes some, small ones become one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from isthmus_flowlog.collector.journal import Segment, blocks
from isthmus_flowlog.collector.rows import SCHEMAS, by_partition, conform
from isthmus_flowlog.schema import MERGED_KEY, TABLES, Table, table

ROW_GROUP_ROWS = 131_072
_OPTIONS: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True, "write_statistics": True}


def tables_of(segment: Segment) -> Iterator[tuple[str, pa.Table]]:
    """What a segment holds: (folder of the partition, rows sorted by time). What `deliveries` refers to comes first."""
    found: defaultdict[str, list[pa.Table]] = defaultdict(list)
    for name, content in blocks(segment.path):
        found[name].append(content)
    for kind in reversed(TABLES):
        contents = [conform(kind, content) for content in found.pop(kind.name, ())]
        if contents:
            yield from by_partition(kind, pa.concat_tables(contents).combine_chunks())


def write(content: pa.Table, path: Path) -> None:
    """A file that is on disk when this returns, but for what the system has yet to write."""
    pq.write_table(content, path, row_group_size=ROW_GROUP_ROWS, **_OPTIONS)


def merge(kind: Table, sources: Iterable[Any], names: Sequence[str], path: Path) -> None:
    """Write the rows of files to one, never more than a row group of it in memory at a time."""
    schema = SCHEMAS[kind.name].with_metadata(
        {**SCHEMAS[kind.name].metadata, MERGED_KEY.encode(): json.dumps(list(names)).encode()}
    )
    with pq.ParquetWriter(path, schema, **_OPTIONS) as target:
        waiting: list[pa.Table] = []

        def put() -> None:
            content = pa.concat_tables(waiting).sort_by(kind.time)
            target.write_table(
                content.replace_schema_metadata(schema.metadata), row_group_size=ROW_GROUP_ROWS
            )
            waiting.clear()

        for source in sources:
            with pq.ParquetFile(source, page_checksum_verification=True) as file:
                for group in range(file.num_row_groups):
                    waiting.append(conform(kind, file.read_row_group(group)))
                    if sum(map(len, waiting)) >= ROW_GROUP_ROWS:
                        put()
        if waiting:
            put()


def merged_parts(source: Any) -> list[str]:
    """Names of the files that a merged file was made of."""
    metadata = pq.read_metadata(source).metadata or {}
    names: list[str] = json.loads(metadata.get(MERGED_KEY.encode(), b"[]"))
    return names


def table_of(path: str) -> Table:
    """The table that a path of the log belongs to."""
    return table(path.partition("/")[0])
