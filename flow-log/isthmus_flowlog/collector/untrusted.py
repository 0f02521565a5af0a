"""Parquet files that somebody else may have written: nothing that is in one decides how much memory it takes.

Whoever can write to the bucket or the volume of a log can put files into it. So the size of a file, its footer, and the
heads of its pages are looked at before any page is unpacked, and rows are read in batches.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from isthmus_flowlog.arrow import UnfitError
from isthmus_flowlog.collector.heads import (
    MAGIC,
    MOST_VALUES,
    TAIL,
    Chunk,
    Footer,
    footer_bytes,
    pages,
    read_footer,
)
from isthmus_flowlog.collector.plan import MOST_MERGED_BYTES, MOST_PARTS
from isthmus_flowlog.collector.rows import SCHEMAS, conform
from isthmus_flowlog.schema import LONGEST_TEXT, MERGED_KEY, SCHEMA_VERSION, VERSION_KEY, Table

MOST_PAGES_BYTES = 128 * 1024 * 1024
"""The largest pages and the dictionaries of all columns of a row group, unpacked. A page of a collector has 1 MiB."""
MOST_DICTIONARY_BYTES = 2560 * 1024
"""Unpacked. That of a collector has at most 1 MiB and the texts of 1,024 rows."""
MOST_ENTRIES = 8 * 1024 * 1024
"""Of the maps of a column, in a row group."""
MOST_PAGES = 200_000
"""Of a file. A page of a collector has at least 1,000 rows, or is the last one of its row group."""
LEAST_BYTES_OF_ROW = 4
"""In a file. Rows of a collector take about 70, and 10 where they are very much alike."""
MOST_EXPANSION, FREE_BYTES = 64, 64 * 1024 * 1024
"""Rows have at most so many bytes for each byte of their file, and so many more. Those of a collector have 10."""
BATCH_ROWS, SMALL_BATCH_ROWS = 8192, 1024
"""Rows that are read at a time, and rows whose texts are written out at a time where they have many bytes."""
MOST_TEXT_BYTES = 32 * 1024 * 1024
_LONGEST_NAME = 255
_VERSION = re.compile(rb"[0-9]{1,6}")


def read_rows(kind: Table, source: Any) -> Iterator[pa.Table]:
    """The rows of a small file, with the columns of this version, some at a time. Raises OSError, ValueError
    (UnfitError, mostly) and exceptions of pyarrow."""
    data = pa.py_buffer(source.read(MOST_MERGED_BYTES + 1))
    if data.size > MOST_MERGED_BYTES:
        raise UnfitError(f"it has more than {MOST_MERGED_BYTES} bytes")
    view = memoryview(data).cast("B")
    footer = _footer(view)
    version = footer.metadata.get(VERSION_KEY, b"")
    if _VERSION.fullmatch(version) is None or int(version) > SCHEMA_VERSION:
        raise UnfitError(f"{VERSION_KEY} of its metadata is not {SCHEMA_VERSION} or less")
    _check_size(footer, view, set(SCHEMAS[kind.name].names))
    with _opened(data) as file:
        names = _columns(kind, file.schema_arrow)
    # Read as dictionaries, a text that is there many times takes its memory once.
    texts = [name for name in names if SCHEMAS[kind.name].field(name).type == pa.string()]
    left = FREE_BYTES + MOST_EXPANSION * data.size
    with _opened(data, read_dictionary=texts, page_checksum_verification=True) as file:
        for group in range(len(footer.groups)):
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names, use_threads=False):
                step = BATCH_ROWS if _text_bytes(batch) <= MOST_TEXT_BYTES else SMALL_BATCH_ROWS
                for at in range(0, len(batch), step):
                    content = conform(kind, _plain(batch.slice(at, step)))
                    left -= content.nbytes
                    if left < 0:
                        raise UnfitError(f"its rows have more than {MOST_EXPANSION} times as many bytes")
                    content.validate(full=True)
                    yield content


def merged_parts(source: Any) -> tuple[str, ...]:
    """Names of the files that a merged file was made of; none if it does not say so as a collector does. Raises
    UnfitError and OSError."""
    source.seek(0, 2)
    size = source.tell()
    source.seek(max(0, size - TAIL))
    length = footer_bytes(source.read(TAIL), size)
    source.seek(size - TAIL - length)
    text = _footer(memoryview(source.read(length + TAIL))).metadata.get(MERGED_KEY, b"[]")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(names, list) or len(names) > MOST_PARTS:
        return ()
    return tuple(name for name in names if isinstance(name, str) and len(name) <= _LONGEST_NAME)


def _footer(data: memoryview) -> Footer:
    length = footer_bytes(bytes(data[-TAIL:]), len(data))
    return read_footer(data[len(data) - TAIL - length : len(data) - TAIL])


def _opened(data: pa.Buffer, **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(
        pa.BufferReader(data), pre_buffer=False, thrift_container_size_limit=MOST_VALUES, **options
    )


def _columns(kind: Table, schema: pa.Schema) -> list[str]:
    """The columns to read: those that this version knows, each once and of its type."""
    found: dict[str, bool] = {}
    for field in schema:
        if "." in field.name or field.name in found:
            raise UnfitError("a column is there twice, or its name has a dot")
        found[field.name] = known = field.name in SCHEMAS[kind.name].names
        if known:
            wanted = SCHEMAS[kind.name].field(field.name).type
            actual = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if actual != wanted:
                raise UnfitError(f"column {field.name} is {str(actual)[:60]}, not {wanted}")
    return [name for name, known in found.items() if known]


def _check_size(footer: Footer, data: memoryview, names: set[str]) -> None:
    rows = sum(group.rows for group in footer.groups)
    if rows > len(data) // LEAST_BYTES_OF_ROW:
        raise UnfitError(f"it says that it has {rows} rows in {len(data)} bytes")
    seen = itertools.count(1)
    for group in footer.groups:
        read = [chunk for chunk in group.chunks if names.intersection(chunk.path[:1])]
        extents = sorted((chunk.begin, chunk.end) for chunk in read)
        if any(begin < len(MAGIC) or end > len(data) for begin, end in extents) or any(
            end > begin for (_, end), (begin, _) in itertools.pairwise(extents)
        ):
            raise UnfitError("its columns are not where they can be")
        if sum(_unpacked(chunk, group.rows, data, seen) for chunk in read) > MOST_PAGES_BYTES:
            raise UnfitError(f"its pages have more than {MOST_PAGES_BYTES} bytes")


def _unpacked(chunk: Chunk, rows: int, data: memoryview, seen: Iterator[int]) -> int:
    """Bytes that a reader has of a column at a time: the largest page, and the dictionary."""
    largest, dictionary, values = 0, 0, 0
    for page in pages(data[chunk.begin : chunk.end]):
        if next(seen) > MOST_PAGES:
            raise UnfitError(f"it has more than {MOST_PAGES} pages")
        if page.is_dictionary:
            if page.values > page.size or page.size > MOST_DICTIONARY_BYTES:
                raise UnfitError(f"a dictionary has {page.size} bytes and {page.values} values")
            dictionary += page.size
        else:
            largest, values = max(largest, page.size), values + page.values
    wanted = rows if len(chunk.path) == 1 else chunk.values
    if not values == chunk.values == wanted or values > MOST_ENTRIES:
        raise UnfitError(f"column {'.'.join(chunk.path)[:60]} has {values} values in {rows} rows")
    return largest + dictionary


def _text_bytes(batch: pa.RecordBatch) -> int:
    """How many bytes the texts of a batch have when each is written out. UnfitError if one of them is too long."""
    total = 0
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_dictionary(array.type):
            lengths = pc.fill_null(pc.binary_length(array.dictionary), 0)
            longest = pc.max(lengths).as_py() or 0
            if longest > LONGEST_TEXT:
                raise UnfitError(f"column {name} has a text of {longest} bytes")
            total += pc.sum(lengths.take(array.indices)).as_py() or 0
    return total


def _plain(batch: pa.RecordBatch) -> pa.Table:
    """Without dictionaries."""
    columns = [
        array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
        for array in batch.columns
    ]
    return pa.Table.from_arrays(columns, names=batch.schema.names)
