"""Arrow streams of the journal, which somebody else may have written, too: the journal may be in the volume of the log.

What a stream takes in memory is what it has in bytes: nothing in it is compressed, or there once for many rows.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from isthmus_flowlog.arrow import TYPES, UnfitError

LEAST_BYTES_OF_ROW = 64
"""Without their texts rows have more than 90, in every table."""
_SCHEMA, _RECORD_BATCH = 1, 3
"""Kinds of messages."""
_COMPRESSION = 3
"""Field of a record batch."""


def read_stream(data: bytes) -> pa.Table:
    """The rows of a stream. Raises UnfitError and exceptions of pyarrow."""
    for message in pa.ipc.MessageReader.open_stream(data):
        _check_message(message.metadata.to_pybytes())
    with pa.ipc.open_stream(data) as stream:
        names = stream.schema.names
        if len(set(names)) != len(names) or not {field.type for field in stream.schema} <= TYPES:
            raise UnfitError("its columns are not those of a table")
        content = stream.read_all()
    if len(content) * LEAST_BYTES_OF_ROW > len(data):
        raise UnfitError(f"it has {len(content)} rows in {len(data)} bytes")
    content.validate(full=True)
    return content


def _check_message(metadata: bytes) -> None:
    """A message is a schema, or a record batch without compression."""
    try:
        (root,) = struct.unpack_from("<I", metadata, 0)
        kind_at, head_at = _field(metadata, root, 1), _field(metadata, root, 2)
        kind = metadata[kind_at] if kind_at else None
        if kind not in (_SCHEMA, _RECORD_BATCH) or not head_at:
            raise UnfitError("a message is neither a schema nor rows")
        (offset,) = struct.unpack_from("<I", metadata, head_at)
        if kind == _RECORD_BATCH and _field(metadata, head_at + offset, _COMPRESSION):
            raise UnfitError("rows are compressed")
    except (struct.error, IndexError):
        raise UnfitError("a message cannot be read") from None


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a table of FlatBuffers is; 0: it is absent."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - back)
    place = 4 + 2 * number
    if place + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, table - back + place)
    return table + offset if offset else 0
