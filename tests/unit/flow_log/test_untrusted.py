"""Parquet files that somebody else has written take no more memory than they may."""

from __future__ import annotations

import contextlib
import random
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.flow_log.hostile_files import CONTENTS, merged, parquet_bytes, with_column
from tests.unit.flow_log.samples import deliveries

from isthmus_flowlog.arrow import UnfitError
from isthmus_flowlog.collector import heads, parquet, untrusted
from isthmus_flowlog.collector.heads import pages
from isthmus_flowlog.collector.thrift import ThriftError
from isthmus_flowlog.collector.untrusted import merged_parts, read_rows
from isthmus_flowlog.schema import DELIVERIES

MEBIBYTE = 1024 * 1024


def read(data: bytes) -> pa.Table:
    return pa.concat_tables(read_rows(DELIVERIES, BytesIO(data)))


def test_rows_are_what_they_were(tmp_path: Path) -> None:
    rows = deliveries(range(20_000))
    parquet.write(rows, tmp_path / "x")
    assert read((tmp_path / "x").read_bytes()).equals(rows)


def test_rows_with_much_text_are_read_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted, "MOST_TEXT_BYTES", MEBIBYTE)
    texts = pa.array([f"{number:04d}" * 900 for number in range(500)])
    data = with_column("user", pa.chunked_array([texts] * 24).combine_chunks(), compression="none")
    assert max(map(len, read_rows(DELIVERIES, BytesIO(data)))) <= untrusted.SMALL_BATCH_ROWS
    assert len(read(data)) == 12_000


@pytest.mark.parametrize("content", CONTENTS)
def test_a_hostile_file_is_refused_within_bounds(content: str) -> None:
    data = CONTENTS[content]()
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    with pytest.raises((OSError, ValueError, pa.ArrowException)):  # noqa: PT012
        for _ in read_rows(DELIVERIES, BytesIO(data)):
            most = max(most, pool.bytes_allocated() - before)
    assert most < 200 * MEBIBYTE


def test_a_footer_has_a_bound() -> None:
    data = merged(b'["' + b"x" * heads.MOST_FOOTER_BYTES + b'"]')
    with pytest.raises(UnfitError, match="footer"):
        merged_parts(BytesIO(data))
    with pytest.raises(UnfitError, match="footer"):
        read(data)


def test_names_of_merged_files(tmp_path: Path) -> None:
    parts = []
    for number in range(3):
        parts.append(f"{number}.parquet")
        parquet.write(deliveries(range(number, number + 1)), tmp_path / parts[-1])
    parquet.merge(DELIVERIES, parts, lambda part: (tmp_path / part).open("rb"), tmp_path / "x", lambda: None)
    assert merged_parts((tmp_path / "x").open("rb")) == tuple(parts)
    assert merged_parts((tmp_path / parts[0]).open("rb")) == ()


def test_a_merged_file_that_could_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "MOST_FOOTER_BYTES", 9_000)
    parquet.write(deliveries(range(5)), tmp_path / "a.parquet")
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 1)
    with pytest.raises(UnfitError, match="footer"):
        parquet.merge(
            DELIVERIES, ["a.parquet"], lambda part: (tmp_path / part).open("rb"), tmp_path / "x", lambda: None
        )


def chunk(data: bytes, column: int = 0) -> memoryview:
    """The pages of a column."""
    found = pq.read_metadata(BytesIO(data)).row_group(0).column(column)
    begin = found.dictionary_page_offset if found.has_dictionary_page else found.data_page_offset
    return memoryview(data)[begin : begin + found.total_compressed_size]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checksums", [True, False])
def test_heads_of_pages(version: str, checksums: bool) -> None:
    data = parquet_bytes(
        deliveries(range(3000)),
        data_page_version=version,
        write_page_checksum=checksums,
        data_page_size=1000,
        write_batch_size=100,
    )
    found = list(pages(chunk(data)))
    assert [page.is_dictionary for page in found] == [True] + [False] * (len(found) - 1)
    assert sum(page.values for page in found[1:]) == 3000
    assert found[0].values == 3000
    assert sum(page.size for page in found) < pq.read_metadata(BytesIO(data)).row_group(0).total_byte_size


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\x15",
        b"\x15\x00\x15\x80",
        b"\x15\x00\x15\x02\x15\x00\x00",  # neither data nor a dictionary
        b"\x15\x00\x15\x01\x15\x00\x2c\x15\x02\x00\x00",  # a negative size
        b"\x15\x00\x15\x02\x05\x04\x02\x15\x00\x2c\x15\x02\x00\x00",  # the size twice
        b"\x15\x00\x16\x02\x15\x00\x2c\x15\x02\x00\x00",  # the size as another type
        b"\x15\x00\x15\x02\x15\x7e\x2c\x15\x02\x00\x00",  # more bytes than there are
        b"\x19\xfc" + b"\xff" * 20,
        b"\x1c" * 2000,
        b"\x15" + b"\xff" * 20,
    ],
)
def test_wrong_heads_of_pages(head: bytes) -> None:
    if head:
        with pytest.raises(ThriftError):
            list(pages(memoryview(head)))
    else:
        assert list(pages(memoryview(head))) == []


def test_damaged_files_raise_nothing_else() -> None:
    data = parquet_bytes(deliveries(range(50)), write_page_checksum=True)
    chance = random.Random(7)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(chance.choice([1, 2, 4])):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 0x7F, 0x80, 0xFF])
        for function in (read, lambda content: merged_parts(BytesIO(content))):
            with contextlib.suppress(OSError, ValueError, pa.ArrowException):
                function(bytes(damaged))
