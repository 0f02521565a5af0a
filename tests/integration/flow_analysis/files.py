"""Files of a flow log, good ones and bad ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from isthmus_flowlog.arrow import arrow_schema
from isthmus_flowlog.schema import DELIVERIES, Kind, Table, partition

Row = dict[str, Any]


def delivery(end: datetime, identity: str, **values: Any) -> Row:
    """A row of `deliveries` that says nothing in particular."""
    counts = {column.name: 0 for column in DELIVERIES.columns if column.required and column.kind is Kind.LONG}
    return {
        **counts,
        "identity": identity,
        "source": "r1:0",
        "start_time": end - timedelta(seconds=10),
        "end_time": end,
        "sequence": 1,
        "site": "east",
        "router": "r1",
        "router_mode": "interior",
        "direction": "in",
        "address": "orders",
        "role": "normal",
        "endpoint": "amqp",
        "connection": "cn:1",
        "link": "ln:1",
        "link_name": "sender",
        "container": "client",
        "user": "alice",
        "host": "10.0.0.1",
        "deliveries": 1,
        "octets": 100,
        "accepted": 1,
        "sizes": {57: 1},
        "latencies": {90: 1},
        "heard_at": end,
        **values,
    }


def in_schema(
    rows: Iterable[Row],
    table: Table = DELIVERIES,
    *,
    lax: bool = False,
    without: str = "",
    **types: pa.DataType,
) -> pa.Table:
    """Rows as a collector writes them. `lax`: also with null where there must be something; `without` a column; with
    other `types` of columns."""
    schema = arrow_schema(table)
    fields = [
        pa.field(item.name, types.get(item.name, item.type), nullable=lax or item.nullable)
        for item in schema
        if item.name != without
    ]
    return pa.Table.from_pylist(list(rows), pa.schema(fields, metadata=schema.metadata))


def put(
    log: Path,
    moment: datetime,
    name: str,
    rows: pa.Table | Iterable[Row],
    table: Table = DELIVERIES,
    **options: Any,
) -> Path:
    """A file of the hour of that time."""
    content = rows if isinstance(rows, pa.Table) else in_schema(rows, table)
    folder = log / table.name / partition(moment)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.parquet"
    pq.write_table(content, path, compression="zstd", write_page_checksum=True, **options)
    return path


def with_metadata(rows: pa.Table, metadata: Mapping[str, str] | None) -> pa.Table:
    """The same with other metadata."""
    return rows.replace_schema_metadata(metadata)


def damage(path: Path, column: str, seed: int = 0) -> None:
    """Change a byte in the values of a column, behind the header of its page."""
    meta = pq.ParquetFile(path).metadata.row_group(0)
    columns = {meta.column(number).path_in_schema: meta.column(number) for number in range(meta.num_columns)}
    found = columns[column]
    end = found.data_page_offset + found.total_compressed_size
    if found.dictionary_page_offset is not None:
        end = found.dictionary_page_offset + found.total_compressed_size
    content = bytearray(path.read_bytes())
    content[end - 1 - random.Random(seed).randrange(4)] ^= 0xFF
    path.write_bytes(content)


def local(url: str) -> Path:
    """The path in a URL of Spark's."""
    return Path(fs.FileSystem.from_uri(url.replace("file:/", "file:///", 1))[1])
