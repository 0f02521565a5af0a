"""What a Parquet file says about itself: its footer, and the heads of its pages.

Read here, as pyarrow ends the process with some footers (when it is asked for a column of one), has many times the
memory of others, and unpacks a page of any size without a look at the footer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from isthmus_flowlog.collector.thrift import Reader, Struct, ThriftError, Type

MOST_FOOTER_BYTES = 2 * 1024 * 1024
"""A row group takes about 8 KiB."""
MOST_VALUES = 500_000
"""Of a footer; a row group has about 1,000."""
MOST_OF_PAGE = 100
"""Values of the head of a page."""
MAGIC = b"PAR1"
TAIL = 8
"""Bytes: the length of the footer, and the magic."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column of a row group."""

    path: tuple[str, ...]
    values: int
    begin: int
    """Where its first page is."""
    end: int


@dataclass(frozen=True, slots=True)
class Group:
    """A row group."""

    rows: int
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Footer:
    """Of a file."""

    groups: Sequence[Group]
    metadata: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Page:
    """What the head of a page says."""

    size: int
    """Bytes, unpacked."""
    values: int
    is_dictionary: bool


def footer_bytes(tail: bytes, size: int) -> int:
    """The length of the footer of a file of that size, by its last bytes. Raises ThriftError."""
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < TAIL or tail[4:] != MAGIC or length > size - TAIL:
        raise ThriftError("it is no Parquet file, or cut off")
    if length > MOST_FOOTER_BYTES:
        raise ThriftError(f"its footer has {length} bytes, more than {MOST_FOOTER_BYTES}")
    return length


def read_footer(data: memoryview) -> Footer:
    """Raises ThriftError."""
    found = Reader(data, MOST_VALUES).struct()
    metadata: dict[str, bytes] = {}
    for item in found.structs(5):
        metadata.setdefault(item.binary(1).decode(errors="replace"), item.binary(2))
    return Footer([_group(group) for group in found.structs(4)], metadata)


def _group(group: Struct) -> Group:
    return Group(group.number(3), [_chunk(chunk) for chunk in group.structs(1)])


def _chunk(chunk: Struct) -> Chunk:
    found = chunk.struct(3)
    if found is None or chunk.binary(1):
        raise ThriftError("a column is in another file")
    begin, dictionary = found.number(9), found.optional(11)
    if dictionary is not None and 0 < dictionary < begin:
        begin = dictionary
    path = tuple(part.decode(errors="replace") for part in found.binaries(3))
    return Chunk(path, found.number(5), begin, begin + found.number(7))


def pages(data: memoryview) -> Iterator[Page]:
    """The pages of a column, which fill its bytes. Raises ThriftError."""
    at = 0
    while at < len(data):
        reader = Reader(data[at:], MOST_OF_PAGE)
        head = reader.struct()
        # The heads of data pages (of both versions) and of dictionaries begin with the number of values.
        kinds = [kind for kind in map(head.struct, (5, 7, 8)) if kind is not None]
        if len(kinds) != 1:
            raise ThriftError("a page is neither data nor a dictionary")
        yield Page(head.number(2, Type.I32), kinds[0].number(1, Type.I32), head.struct(7) is not None)
        at += reader.at + head.number(3, Type.I32)
    if at != len(data):
        raise ThriftError("the last page is cut off")
