"""Files that others may put into a log: each does harm to a collector that trusts what is in the log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.unit.flow_log.samples import deliveries

from isthmus_flowlog.collector.rows import SCHEMAS
from isthmus_flowlog.schema import MERGED_KEY

SCHEMA = SCHEMAS["deliveries"]
BOMB_ROWS = 400_000


def parquet_bytes(content: pa.Table, **options: Any) -> bytes:
    """A Parquet file; the metadata is that of a collector."""
    target = BytesIO()
    metadata = {**SCHEMA.metadata, **(content.schema.metadata or {})}
    pq.write_table(content.replace_schema_metadata(metadata), target, **{"compression": "zstd"} | options)
    return target.getvalue()


def merged(text: bytes) -> bytes:
    """A file that says what it was made of."""
    return parquet_bytes(deliveries(range(2)).replace_schema_metadata({MERGED_KEY: text}))


def with_footer_of(byte: int) -> bytes:
    """A file whose footer has one byte again and again."""
    data = bytearray(parquet_bytes(deliveries(range(2))))
    length = int.from_bytes(data[-8:-4], "little")
    data[-8 - length : -8] = bytes([byte]) * length
    return bytes(data)


def with_column(name: str, array: pa.Array, **options: Any) -> bytes:
    """A file of as many rows as the array has, which is a column of it."""
    rows = deliveries(range(1))
    arrays = [
        array if field.name == name else pa.repeat(rows.column(field.name)[0], len(array))
        for field in SCHEMA
        if not pa.types.is_map(field.type) or field.name == name
    ]
    names = [field.name for field in SCHEMA if not pa.types.is_map(field.type) or field.name == name]
    return parquet_bytes(pa.Table.from_arrays(arrays, names=names), **options)


def repeated(text: str, rows: int) -> pa.Array:
    """One text in every row, as a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([text]))


def bomb(rows: int = BOMB_ROWS) -> bytes:
    """A text of 1,000 bytes in each row, as some bytes of a dictionary."""
    return with_column("user", repeated("x" * 1000, rows), row_group_size=rows)


def sketch_of(entries: int) -> pa.Array:
    """One row with so many entries."""
    return pa.MapArray.from_arrays(
        pa.array([0, entries], pa.int32()),
        pa.repeat(pa.scalar(1, pa.int32()), entries),
        pa.repeat(pa.scalar(1, pa.int64()), entries),
    )


def twice() -> bytes:
    """A column is there twice."""
    rows = deliveries(range(2))
    return parquet_bytes(
        pa.Table.from_arrays([*rows.columns, rows.column("identity")], names=[*rows.schema.names, "identity"])
    )


def nulls() -> bytes:
    """A column that is never null is null."""
    rows = deliveries(range(2))
    at = rows.schema.get_field_index("identity")
    return parquet_bytes(rows.set_column(at, "identity", pa.nulls(2, pa.string())))


_CONTENTS: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"no parquet",
    "footer": lambda: with_footer_of(0xFF),
    "no-columns": lambda: parquet_bytes(pa.table({"a": [1]})),
    "column-twice": twice,
    "column-of-another-type": lambda: with_column("user", pa.array([5])),
    "required-null": nulls,
    "other-version": lambda: parquet_bytes(
        deliveries(range(2)).replace_schema_metadata({b"isthmus.schemaVersion": b"2"})
    ),
    "no-version": lambda: parquet_bytes(
        deliveries(range(2)).replace_schema_metadata({b"isthmus.schemaVersion": "²".encode()})
    ),
    "long-text": lambda: with_column("user", pa.array(["x" * 5000])),
    "dictionary-bomb": bomb,
    "page-bomb": lambda: with_column(
        "user", pa.array(["x" * 3000] * 50_000), use_dictionary=False, data_page_size=2**30
    ),
    "map-bomb": lambda: with_column("sizes", sketch_of(9_000_000)),
    "rows-bomb": lambda: with_column("tls_ordinal", pa.nulls(BOMB_ROWS, pa.int64())),
}
CONTENTS: Mapping[str, Callable[[], bytes]] = {name: cache(make) for name, make in _CONTENTS.items()}
"""What is in files that cannot be merged."""

MERGED: Mapping[str, Callable[[], bytes]] = {
    "cut": lambda: merged(b"{"),
    "number": lambda: merged(b"5"),
    "lists": lambda: merged(b"[[1]]"),
    "deep": lambda: merged(b"[" * 200_000),
    "many": lambda: merged(b"[" + b",".join([b'"x"'] * 2000) + b"]"),
}
"""What is in files that say wrongly what they were made of."""

ENTRIES: Mapping[str, Callable[[Path], None]] = {
    "20261123T080002-aaaaaaaa.parquet": lambda path: path.mkdir(),
    "20261123T080003-aaaaaaaa.parquet": os.mkfifo,
    "20261123T080004-aaaaaaaa.parquet": lambda path: path.symlink_to("/dev/zero"),
    os.fsdecode(b"\xff\xfe.parquet"): lambda path: bool(path.write_bytes(merged(b"[]"))) and None,
    "merged-" + "n" * 240 + ".parquet": lambda path: bool(path.write_bytes(merged(b"[]"))) and None,
}
"""What is made under names of files."""
