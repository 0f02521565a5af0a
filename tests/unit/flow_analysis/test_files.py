"""What the footer of a file says of its columns, and what a path says of its hour."""

from __future__ import annotations

import pytest

from isthmus_flowlog.schema import DELIVERIES, VERSION_KEY
from isthmus_flows.log.files import LogFolder, Quarantined, fields_of, hour_in
from isthmus_flows.log.window import hour_of
from isthmus_flows.storage import Entry

SCHEMA = """message schema {
  required binary identity (STRING);
  required int64 end_time (TIMESTAMP(MICROS,true));
  optional boolean lost;
  optional int32 small (INTEGER(8,true));
  optional fixed_len_byte_array(16) id;
  optional group sizes (MAP) {
    repeated group key_value {
      required int32 key;
      optional int64 value;
    }
  }
}
"""


def test_the_columns_of_a_schema() -> None:
    assert fields_of(SCHEMA) == {
        "identity": ("binary", "STRING"),
        "end_time": ("int64", "TIMESTAMP(MICROS,true)"),
        "lost": ("boolean", ""),
        "small": ("int32", "INTEGER(8,true)"),
        "id": ("fixed_len_byte_array(16)", ""),
        "sizes": ("group", "MAP"),
    }


def test_the_hour_of_a_path() -> None:
    hour = hour_in("s3a://bucket/log/deliveries/date=2026-11-20/hour=08/x.parquet")
    assert hour is not None
    assert hour_of(hour).isoformat() == "2026-11-20T08:00:00+00:00"


@pytest.mark.parametrize(
    "path", ["log/x.parquet", "date=2026-02-30/hour=08/x", "date=2026-11-20/hour=24/x", "date=2026-11-20/x"]
)
def test_paths_that_are_in_no_hour(path: str) -> None:
    assert hour_in(path) is None


@pytest.mark.parametrize("version", ["", "²", "٣", "1" * 5000, "-1", "1 "])
def test_a_version_that_is_no_number_leaves_the_file_out(version: str) -> None:
    folder = object.__new__(LogFolder)
    footer = (5, SCHEMA, {VERSION_KEY: version})
    folder._footer = lambda path: footer  # type: ignore[method-assign]
    found = folder._check(DELIVERIES, Entry("x.parquet", "x.parquet", True, 9, 0), 0)
    assert isinstance(found, Quarantined)
    assert "not written by a collector" in found.reason
