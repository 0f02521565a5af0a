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
from isthmus_flowlog.collector.pages import PageError, pages
from isthmus_flowlog.collector.plan import MOST_MERGED_BYTES, MOST_PARTS
from isthmus_flowlog.collector.rows import SCHEMAS, conform
from isthmus_flowlog.schema import LONGEST_TEXT, MERGED_KEY, SCHEMA_VERSION, VERSION_KEY, Table

MOST_FOOTER_BYTES = 4 * 1024 * 1024
"""One row group takes about 8 KiB."""
MOST_PAGES_BYTES = 128 * 1024 * 1024
"""The largest pages and the dictionaries of all columns of a row group, unpacked. A page of a collector has 1 MiB."""
MOST_DICTIONARY_BYTES = 8 * 1024 * 1024
"""Unpacked. A collector begins no larger one than 1 MiB."""
MOST_ENTRIES = 8 * 1024 * 1024
"""Of the maps of a column, in a row group."""
MOST_PAGES = 200_000
"""Of a file. A page of a collector has at least 1,000 rows, or is the last one of its row group."""
LEAST_BYTES_OF_ROW = 2
"""Rows of a collector take about 10 in a file."""
BATCH_ROWS, SMALL_BATCH_ROWS = 8192, 1024
"""Rows that are read at a time, and rows whose texts are written out at a time where they have many bytes."""
MOST_TEXT_BYTES = 32 * 1024 * 1024
_LONGEST_NAME = 255
_MOST_ELEMENTS = 100_000
"""Of a list in a footer."""
_MAGIC = b"PAR1"
_TAIL = 8
"""Bytes: the length of the footer, and the magic."""
_VERSION = re.compile(rb"[0-9]{1,6}")


def read_rows(kind: Table, source: Any) -> Iterator[pa.Table]:
    """The rows of a small file, with the columns of this version, some at a time. Raises UnfitError, OSError and
    exceptions of pyarrow."""
    data = _content(source)
    with _opened(data) as file:
        names, metadata = _columns(kind, file), file.metadata
    _check_size(metadata, data, set(names))
    # Read as dictionaries, a text that is there many times takes its memory once.
    texts = [name for name in names if SCHEMAS[kind.name].field(name).type == pa.string()]
    with pq.ParquetFile(
        pa.BufferReader(data),
        metadata=metadata,
        read_dictionary=texts,
        page_checksum_verification=True,
        pre_buffer=False,
    ) as file:
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names, use_threads=False):
                step = BATCH_ROWS if _text_bytes(batch) <= MOST_TEXT_BYTES else SMALL_BATCH_ROWS
                for at in range(0, len(batch), step):
                    content = conform(kind, _plain(batch.slice(at, step)))
                    content.validate(full=True)
                    yield content


def merged_parts(source: Any) -> tuple[str, ...]:
    """Names of the files that a merged file was made of; none if it does not say so as a collector does. Raises as
    `read_rows`."""
    source.seek(0, 2)
    size = source.tell()
    length = min(size, _TAIL)
    source.seek(size - length)
    tail = source.read(length)
    footer = _footer_bytes(tail, size)
    source.seek(size - _TAIL - footer)
    data = _MAGIC + source.read(footer + _TAIL)
    with _opened(pa.py_buffer(data)) as file:
        text = (file.metadata.metadata or {}).get(MERGED_KEY.encode(), b"[]")
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(names, list) or len(names) > MOST_PARTS:
        return ()
    return tuple(name for name in names if isinstance(name, str) and len(name) <= _LONGEST_NAME)


def _content(source: Any) -> pa.Buffer:
    data = pa.py_buffer(source.read(MOST_MERGED_BYTES + 1))
    if data.size > MOST_MERGED_BYTES:
        raise UnfitError(f"it has more than {MOST_MERGED_BYTES} bytes")
    return data


def _footer_bytes(tail: bytes, size: int) -> int:
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < _TAIL or tail[4:] != _MAGIC or length > size - _TAIL:
        raise UnfitError("it is no Parquet file, or cut off")
    if length > MOST_FOOTER_BYTES:
        raise UnfitError(f"its footer has {length} bytes, more than {MOST_FOOTER_BYTES}")
    return length


def _opened(data: pa.Buffer) -> pq.ParquetFile:
    _footer_bytes(data.slice(max(0, data.size - _TAIL)).to_pybytes(), data.size)
    try:
        return pq.ParquetFile(
            pa.BufferReader(data),
            thrift_string_size_limit=MOST_FOOTER_BYTES,
            thrift_container_size_limit=_MOST_ELEMENTS,
        )
    except MemoryError:
        raise
    except (OSError, pa.ArrowException) as error:  # all of it is in memory, so it is what is in the file
        raise UnfitError(str(error)) from None


def _columns(kind: Table, file: pq.ParquetFile) -> list[str]:
    """The columns to read: those that this version knows, each once and of its type."""
    version = (file.metadata.metadata or {}).get(VERSION_KEY.encode(), b"")
    if _VERSION.fullmatch(version) is None or int(version) > SCHEMA_VERSION:
        raise UnfitError(f"{VERSION_KEY} of its metadata is not {SCHEMA_VERSION} or less")
    found = []
    for field in file.schema_arrow:
        if "." in field.name or field.name in found:
            raise UnfitError("a column is there twice, or its name has a dot")
        if field.name in SCHEMAS[kind.name].names:
            wanted = SCHEMAS[kind.name].field(field.name).type
            actual = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if actual != wanted:
                raise UnfitError(f"column {field.name} is {str(actual)[:60]}, not {wanted}")
            found.append(field.name)
    return found


def _check_size(metadata: pq.FileMetaData, data: pa.Buffer, names: set[str]) -> None:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows = [group.num_rows for group in groups]
    if min(rows, default=0) < 0 or sum(rows) > data.size // LEAST_BYTES_OF_ROW:
        raise UnfitError(f"it says that it has {sum(rows)} rows in {data.size} bytes")
    seen = itertools.count(1)
    for group in groups:
        chunks = [group.column(index) for index in range(group.num_columns)]
        read = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in names]
        extents = sorted(map(_extent, read))
        if any(not len(_MAGIC) <= begin <= end <= data.size for begin, end in extents) or any(
            end > begin for (_, end), (begin, _) in itertools.pairwise(extents)
        ):
            raise UnfitError("its columns are not where they can be")
        if sum(_unpacked(chunk, group.num_rows, data, seen) for chunk in read) > MOST_PAGES_BYTES:
            raise UnfitError(f"its pages have more than {MOST_PAGES_BYTES} bytes")


def _extent(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Where a reader begins and ends."""
    begin: int = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < begin:
        begin = chunk.dictionary_page_offset
    return begin, begin + chunk.total_compressed_size


def _unpacked(chunk: pq.ColumnChunkMetaData, rows: int, data: pa.Buffer, seen: Iterator[int]) -> int:
    """Bytes that a reader has of a column at a time: the largest page, and the dictionary."""
    begin, end = _extent(chunk)
    largest, dictionary, values = 0, 0, 0
    try:
        for page in pages(memoryview(data).cast("B")[begin:end]):
            if next(seen) > MOST_PAGES:
                raise UnfitError(f"it has more than {MOST_PAGES} pages")
            if page.is_dictionary:
                if page.values > page.size or page.size > MOST_DICTIONARY_BYTES:
                    raise UnfitError(f"a dictionary has {page.size} bytes and {page.values} values")
                dictionary += page.size
            else:
                largest, values = max(largest, page.size), values + page.values
    except PageError as error:
        raise UnfitError(str(error)) from None
    is_map = "." in chunk.path_in_schema
    if values != chunk.num_values or (values > MOST_ENTRIES if is_map else values != rows):
        raise UnfitError(f"column {chunk.path_in_schema} has {values} values in {rows} rows")
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
