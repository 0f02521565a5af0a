"""What is in the journal is there after a crash, cut wherever; what is half-written is cut off and counted."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.flow_log.samples import HOUR, deliveries, identities

from isthmus_flowlog.collector.journal import MOST_BYTES, Journal, Segment, blocks


def read(segment: Segment) -> list[str]:
    return [identity for _, rows in blocks(segment.path) for identity in identities(rows)]


def written(folder: Path, *sizes: int) -> tuple[Segment, list[int]]:
    """A segment with blocks of these numbers of rows, and where each ends."""
    journal = Journal(folder)
    journal.recover()
    ends, at = [], 0
    for size in sizes:
        journal.append({"deliveries": deliveries(range(at, at + size))}, HOUR)
        assert journal.current is not None
        ends.append(journal.current.size)
        at += size
    segment = journal.seal()
    assert segment is not None
    return segment, ends


def test_what_was_written_is_read(tmp_path: Path) -> None:
    segment, ends = written(tmp_path, 3, 1, 5)
    assert read(segment) == [f"abcde:{number}" for number in range(9)]
    assert (segment.rows, segment.size, segment.oldest) == (9, ends[-1], HOUR)
    assert segment.path.stat().st_size == ends[-1]


def test_cut_at_every_byte(tmp_path: Path) -> None:
    segment, ends = written(tmp_path / "whole", 2, 1)
    data = segment.path.read_bytes()
    folder = tmp_path / "cut"
    for length in range(len(data) + 1):
        folder.mkdir(exist_ok=True)
        (folder / segment.path.name).write_bytes(data[:length])
        found = Journal(folder).recover()
        whole = [end for end in ends if end <= length]
        rows = (0, 2, 3)[len(whole)]
        assert sum(item.rows for item in found.segments) == rows
        assert found.cut_bytes == length - (whole[-1] if whole else 0)
        if rows:
            assert found.segments[0].path.stat().st_size == whole[-1]
            found.segments[0].path.unlink()


@given(st.data())
def test_damage_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("journal")
    segment, ends = written(folder, 1, 1)
    content = bytearray(segment.path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    segment.path.write_bytes(content)
    found = Journal(folder).recover()
    assert sum(item.rows for item in found.segments) == (0 if at < ends[0] else 1)
    assert found.cut_bytes == len(content) - (0 if at < ends[0] else ends[0])


def test_a_damaged_length_takes_no_memory(tmp_path: Path) -> None:
    segment, _ = written(tmp_path, 1)
    content = bytearray(segment.path.read_bytes())
    content[4:8] = b"\xff\xff\xff\xff"
    segment.path.write_bytes(content)
    assert Journal(tmp_path).recover().segments == []


def test_an_error_leaves_no_half_block(tmp_path: Path) -> None:
    full = False

    def sync(descriptor: int) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.fsync(descriptor)

    journal = Journal(tmp_path, sync=sync)
    journal.recover()
    journal.append({"deliveries": deliveries(range(2))}, HOUR)
    assert journal.current is not None
    size = journal.current.size
    full = True
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            journal.append({"deliveries": deliveries(range(2, 4))}, HOUR)
        assert journal.current.path.stat().st_size == journal.current.size == size
    full = False
    journal.append({"deliveries": deliveries(range(2, 4))}, HOUR)
    segment = journal.seal()
    assert segment is not None
    assert read(segment) == [f"abcde:{number}" for number in range(4)]


def test_a_journal_without_rows_leaves_no_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.recover()
    journal.append({"deliveries": deliveries(range(0))}, HOUR)
    assert journal.seal() is None
    assert list(tmp_path.iterdir()) == []


def a_block(table: str, content: pa.Table, **options: Any) -> bytes:
    """As a collector writes it, but for the options of the stream."""
    sink = pa.BufferOutputStream()
    schema = content.schema.with_metadata({b"isthmus.table": table.encode()})
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(content.replace_schema_metadata(schema.metadata))
    data = sink.getvalue().to_pybytes()
    return struct.pack("<4sII", b"IFJ1", len(data), zlib.crc32(data)) + data


def corrupt_offsets() -> bytes:
    """A text of which nobody knows where it ends."""
    data = a_block("deliveries", pa.table({"identity": ["a" * 777, "b" * 777]}))
    stream = data[12:].replace(struct.pack("<3i", 0, 777, 1554), struct.pack("<3i", 0, 2**30, 1554))
    return struct.pack("<4sII", b"IFJ1", len(stream), zlib.crc32(stream)) + stream


HOSTILE: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "link": lambda path: path.symlink_to("/dev/zero"),
    "no-stream": lambda path: path.write_bytes(struct.pack("<4sII", b"IFJ1", 1, zlib.crc32(b"x")) + b"x"),
    "compressed": lambda path: path.write_bytes(
        a_block("deliveries", deliveries(range(100)), compression="zstd")
    ),
    "dictionary": lambda path: path.write_bytes(
        a_block("deliveries", pa.table({"user": pa.array(["x" * 1000] * 100).dictionary_encode()}))
    ),
    "many-rows": lambda path: path.write_bytes(a_block("deliveries", pa.table({"lost": [True] * 10_000}))),
    "column-twice": lambda path: path.write_bytes(
        a_block("deliveries", pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]))
    ),
    "other-type": lambda path: path.write_bytes(a_block("deliveries", pa.table({"a": [1.5]}))),
    "offsets": lambda path: path.write_bytes(corrupt_offsets()),
    "large": lambda path: (path.touch(), os.truncate(path, MOST_BYTES + 1)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_file_that_no_collector_has_written_stays(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    journal.recover()
    journal.append({"deliveries": deliveries(range(5))}, HOUR)
    segment = journal.seal()
    assert segment is not None
    hostile = tmp_path / "00000000T000000-aaaaaaaa.journal"
    HOSTILE[kind](hostile)
    found = Journal(tmp_path).recover()
    assert [item.path for item in found.segments] == [segment.path]
    assert (found.unusable, found.cut) == (1, 0)
    assert hostile.is_symlink() or hostile.exists()
    assert [vars(record)["file"] for record in caplog.records] == [str(hostile)]
