"""The journal: rows that are in no Parquet file yet, in files that outlive the process.

A file is a row of blocks. A block is a length, a checksum and an Arrow IPC stream with rows of one table; so what a
crash has left half-written at the end is found and cut off. A file that is full is closed (`Segment`), and removed
when all of its rows are in Parquet files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from isthmus_flowlog.arrow import UnfitError
from isthmus_flowlog.collector.stream import read_stream

logger = logging.getLogger("JOURNAL")

SUFFIX = ".journal"
_TABLE = b"isthmus.table"
_HEAD = struct.Struct("<4sII")
_MAGIC = b"IFJ1"
"""Then the length of the stream, in bytes, and its CRC-32."""
LONGEST_REASON = 300
"""Characters."""
MOST_BYTES = 256 * 1024 * 1024
"""Of a file that is read. Collectors close a file after the block with which it has 64 MiB."""


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
    unusable: int = 0
    """Files that cannot be read, or that no collector has written; they stay."""


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
            try:
                self._recover(path, found)
            except Exception as error:  # what one file holds does not keep the others from the log
                found.unusable += 1
                set_aside(path, error)
        return found

    def _recover(self, path: Path, found: Recovered) -> None:
        segment = Segment(path, began=path.lstat().st_mtime)
        for _, content in blocks(path, segment):
            segment.rows += len(content)
        excess = path.lstat().st_size - segment.size
        if excess:
            found.cut += 1
            found.cut_bytes += excess
            os.truncate(path, segment.size)
        if segment.rows:
            segment.oldest = segment.began
            found.segments.append(segment)
        else:
            path.unlink()

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
    """What whole blocks hold: (table, rows). Adds their bytes to the size of `segment`. Raises UnfitError, OSError and
    exceptions of pyarrow."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise UnfitError(f"it has {size} bytes, more than {MOST_BYTES}")
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            magic, length, checksum = _HEAD.unpack(head)
            if magic != _MAGIC or length > size - file.tell():
                return
            data = file.read(length)
            if zlib.crc32(data) != checksum:
                return
            content = read_stream(data)
            if segment is not None:
                segment.size += _HEAD.size + length
            yield (content.schema.metadata or {}).get(_TABLE, b"").decode(), content


def set_aside(path: Path, error: Exception) -> None:
    """Say that a file of the journal stays as it is; the next process tries it again."""
    expected = isinstance(error, OSError | ValueError | pa.ArrowException)
    logger.error(
        "file of the journal set aside",
        extra={"file": str(path), "reason": f"{type(error).__name__}: {error}"[:LONGEST_REASON]},
        exc_info=None if expected else error,
    )


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError if it is not regular: a FIFO would block, a link may lead anywhere."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(descriptor, "rb")


def sync_folder(folder: Path) -> None:
    """Names in the folder are on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
