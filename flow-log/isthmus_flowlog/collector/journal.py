"""The journal: rows that are in no Parquet file yet, in files that outlive the process.

A file is a row of blocks. A block is a length, a checksum and an Arrow IPC stream with rows of one table; so what a
crash has left half-written at the end is found and cut off. A file that is full is closed (`Segment`), and removed
when all of its rows are in Parquet files.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

SUFFIX = ".journal"
_TABLE = b"isthmus.table"
_HEAD = struct.Struct("<4sII")
_MAGIC = b"IFJ1"
"""Then the length of the stream, in bytes, and its CRC-32."""


@dataclass(slots=True)
class Segment:
    """A file of the journal."""

    path: Path
    began: float
    """Seconds since the epoch."""
    rows: int = 0
    size: int = 0
    """Bytes, of whole blocks."""
    oldest: float | None = None
    """When its first row was written, seconds since the epoch; None: there is none."""

    @property
    def name(self) -> str:
        """What the Parquet files are called that are made of it."""
        return self.path.name.removesuffix(SUFFIX)


@dataclass(slots=True)
class Recovered:
    """What was found at the start."""

    segments: list[Segment] = field(default_factory=list)
    cut: int = 0
    """Files whose end was cut off."""
    cut_bytes: int = 0


class Journal:
    """Of one collector, in a folder of its own, written by one thread. After an OSError nothing is lost."""

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = os.fsync) -> None:
        self._folder = folder
        self._sync = sync
        self._file: int | None = None
        self.current: Segment | None = None

    def recover(self) -> Recovered:
        """What another process has left, ready to be made into Parquet files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = Recovered()
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            segment = Segment(path, began=path.stat().st_mtime)
            for _, content in blocks(path, segment):
                segment.rows += len(content)
            excess = path.stat().st_size - segment.size
            if excess:
                found.cut += 1
                found.cut_bytes += excess
                os.truncate(path, segment.size)
            if segment.rows:
                segment.oldest = segment.began
                found.segments.append(segment)
            else:
                path.unlink()
        return found

    def append(self, tables: Mapping[str, pa.Table], now: float) -> None:
        """Write rows; they are on disk when this returns. After an error none of them is: try again."""
        segment = self._open(now)
        assert self._file is not None
        data = b"".join(_block(table, content) for table, content in tables.items() if len(content))
        if not data:
            return
        try:
            view = memoryview(data)
            at = segment.size
            while view:
                written = os.pwrite(self._file, view, at)
                view, at = view[written:], at + written
            self._sync(self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, segment.size)
            raise
        segment.size = at
        segment.rows += sum(map(len, tables.values()))
        segment.oldest = segment.oldest or now

    def _open(self, now: float) -> Segment:
        if self.current is None:
            stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S")
            path = self._folder / f"{stamp}-{secrets.token_hex(4)}{SUFFIX}"
            self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o640)
            sync_folder(self._folder)
            self.current = Segment(path, began=now)
        return self.current

    def seal(self) -> Segment | None:
        """No more is written to the file; None if there is none."""
        segment, self.current = self.current, None
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if segment is not None and not segment.rows:
            segment.path.unlink(missing_ok=True)
            return None
        return segment


def _block(table: str, content: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    marked = content.replace_schema_metadata({**(content.schema.metadata or {}), _TABLE: table.encode()})
    with pa.ipc.new_stream(sink, marked.schema) as stream:
        stream.write_table(marked)
    data = sink.getvalue()
    return b"".join((_HEAD.pack(_MAGIC, len(data), zlib.crc32(data)), data))


def blocks(path: Path, segment: Segment | None = None) -> Iterator[tuple[str, pa.Table]]:
    """What whole blocks hold: (table, rows). Adds their bytes to the size of `segment`."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            magic, length, checksum = _HEAD.unpack(head)
            if magic != _MAGIC or length > size - file.tell():
                return
            data = file.read(length)
            if zlib.crc32(data) != checksum:
                return
            content = pa.ipc.open_stream(data).read_all()
            if segment is not None:
                segment.size += _HEAD.size + length
            yield content.schema.metadata[_TABLE].decode(), content


def sync_folder(folder: Path) -> None:
    """Names in the folder are on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
