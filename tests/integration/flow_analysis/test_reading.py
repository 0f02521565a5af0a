"""Reading a log: what is wrong with it is left out, told with its reason and counted, and all the rest counts."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.integration.flow_analysis.files import (
    Row,
    damage,
    delivery,
    in_schema,
    local,
    put,
    with_metadata,
)

from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, VERSION_KEY
from isthmus_flows.log import Log, Window, read_log

# Of Spark jobs many are started here, which beside other tests take several times as long.
pytestmark = pytest.mark.timeout(400)

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
WINDOW = Window(NINE, NINE + 2 * HOUR)


def rows(name: str, count: int = 5, moment: datetime = NINE, **values: object) -> list[Row]:
    """Some rows, a second apart."""
    return [delivery(moment + number * SECOND, f"{name}:{number}", **values) for number in range(count)]


def identities(log: Log) -> list[str]:
    return sorted(row["identity"] for row in log.deliveries.select("identity").collect())


def test_what_is_wrong_with_files_and_rows_is_told_and_the_rest_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = put(tmp_path, NINE, "good", rows("good"))
    hour = good.parent
    put(tmp_path, NINE + HOUR, "later", rows("later", moment=NINE + HOUR))
    put(tmp_path, NINE + 2 * HOUR, "behind", rows("behind", moment=NINE + 2 * HOUR))
    (hour / ".hidden.parquet.tmp").write_bytes(b"half")
    (hour / "_other").mkdir()
    (hour / "empty.parquet").write_bytes(b"")
    (hour / "text.parquet").write_text("this is no Parquet file at all, but it is long enough")
    (hour / "cut.parquet").write_bytes(good.read_bytes()[:-9])
    (hour / "folder").mkdir()
    put(tmp_path, NINE, "foreign", with_metadata(in_schema(rows("foreign")), None))
    put(tmp_path, NINE, "newer", with_metadata(in_schema(rows("newer")), {VERSION_KEY: "99"}))
    put(tmp_path, NINE, "lacking", in_schema(rows("lacking"), without="octets"))
    put(tmp_path, NINE, "optional", in_schema(rows("optional"), without="user"))
    put(tmp_path, NINE, "typed", in_schema(rows("typed", octets="many"), octets=pa.string()))
    damaged = {
        column: f"damaged-{column.split('.')[0]}"
        for column in ("identity", "user", "octets", "sizes.key_value.value")
    }
    for column, name in damaged.items():
        path = put(tmp_path, NINE, name, rows(name, 2000), use_dictionary=False, data_page_size=4096)
        damage(path, column)
    put(
        tmp_path, NINE, "impossible",
        in_schema(
            [
                delivery(NINE, "fine"),
                delivery(NINE, "no-source", source=None),
                delivery(NINE, "no-octets", octets=None),
                delivery(NINE, "backwards", start_time=NINE + SECOND),
                delivery(NINE, "negative", released=-1),
                delivery(NINE, "negative-too", released=-1),
                delivery(NINE, "bucket", sizes={-3: 1}),
                delivery(NINE + HOUR, "wrong-hour"),
                delivery(NINE, "huge", octets=2**62),
                delivery(NINE, "huge-sketch", sizes={3: 2**62}),
                delivery(NINE, "no-bucket", sizes={240: 1}),
                delivery(NINE, "long", container="x" * 3_000_000),
                delivery(NINE, "early", start_time=datetime(1, 1, 1, tzinfo=UTC)),
                delivery(NINE, "ages", start_time=NINE - timedelta(days=401)),
                delivery(NINE, "late", heard_at=datetime(9999, 12, 31, 23, 59, tzinfo=UTC)),
            ],
            lax=True,
        ),
    )  # fmt: skip
    strangers = [tmp_path / "deliveries" / name for name in ("date=2026-02-30", "bogus", "stray.parquet")]
    strangers += [hour.parent / "hour=24", hour.parent / "hour=9"]
    for path in strangers:
        path.mkdir()

    log = read_log(spark, str(tmp_path), WINDOW)

    impossible = hour / "impossible.parquet"
    told = {(local(item.file), item.reason.partition(":")[0]): item.rows for item in log.quarantine}
    no_parquet = "no Parquet file, or cut off"
    assert told == {
        (hour / "empty.parquet", "empty"): 0,
        (hour / "text.parquet", no_parquet): None,
        (hour / "cut.parquet", no_parquet): None,
        (hour / "folder", "a folder where files are expected"): None,
        (hour / "foreign.parquet", f"no {VERSION_KEY} in its metadata"): 5,
        (hour / "newer.parquet", "schema version 99 is newer than 1, which this analysis knows"): 5,
        (hour / "lacking.parquet", "column octets is missing"): 5,
        (hour / "typed.parquet", "column octets is binary STRING, not long"): 5,
        **{(hour / f"{name}.parquet", "damaged"): 2000 for name in damaged.values()},
        (impossible, "source is null"): 1,
        (impossible, "octets is null"): 1,
        (impossible, "it ends before it begins"): 1,
        (impossible, "released is negative"): 2,
        (impossible, "sizes has counts that cannot be"): 3,
        (impossible, f"it has a number above {2**40}"): 1,
        (impossible, "it has a string of more than 4000 bytes"): 1,
        (impossible, "it has a time that cannot be"): 2,
        (impossible, "it lasts longer than 400 days"): 1,
        (impossible, "end_time is of another hour than its folder"): 1,
        **{(path, "in no folder date=YYYY-MM-DD/hour=HH"): None for path in strangers},
    }
    names = ("good", "later", "optional")
    assert identities(log) == sorted(["fine", *(f"{name}:{number}" for name in names for number in range(5))])
    quality = log.quality["deliveries"]
    assert (quality.files, quality.rows, quality.duplicates) == (4, 30, 0)
    assert (quality.quarantined_files, quality.quarantined_rows) == (8 + len(damaged), 20 + 8000 + 14)
    assert log.quality["records"].files == log.quality["records"].quarantined_files == 0


def test_a_window_ends_before_its_end_and_records_are_told_from_its_first_hour(
    spark: SparkSession, tmp_path: Path
) -> None:
    moments = [NINE, NINE + 1800 * SECOND, NINE + HOUR, NINE + HOUR + 1800 * SECOND]
    for number, moment in enumerate(moments):
        row = delivery(moment, str(number))
        state = {
            "identity": "r",
            "source": "r",
            "type": "ROUTER",
            "lost": False,
            "heard_at": moment,
            "name": str(number),
        }
        event = {
            "identity": str(number),
            "source": "r",
            "time": moment,
            "type": "T",
            "event": "e",
            "heard_at": moment,
        }
        put(tmp_path, moment, str(number), [row])
        put(tmp_path, moment, str(number), [state, state], RECORDS)
        put(tmp_path, moment, str(number), [event], EVENTS)
    log = read_log(spark, str(tmp_path), Window(moments[1], moments[3]))
    assert identities(log) == ["1", "2"]
    assert sorted(row["identity"] for row in log.events.collect()) == ["1", "2"]
    assert sorted(row["name"] for row in log.records.collect()) == ["0", "0", "1", "1", "2", "2"]
    assert log.deliveries.columns == [column.name for column in DELIVERIES.columns]


def test_of_rows_with_the_same_identity_the_one_that_was_heard_first_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    late = {"heard_at": NINE + 60 * SECOND, "router": None}
    put(tmp_path, NINE, "a", rows("x", **late))
    put(tmp_path, NINE, "b", [*rows("x"), *rows("x", **late)])
    bad = delivery(NINE, "y:0", octets=-1, heard_at=NINE - SECOND)
    put(tmp_path, NINE, "c", [bad, *rows("y", 1), *rows("z", 1)])
    log = read_log(spark, str(tmp_path), WINDOW)
    found = {row["identity"]: row["router"] for row in log.deliveries.collect()}
    assert found == dict.fromkeys([*(f"x:{number}" for number in range(5)), "y:0", "z:0"], "r1")
    assert log.deliveries.count() == 7
    assert (log.quality["deliveries"].rows, log.quality["deliveries"].duplicates) == (18, 10)
    assert [(item.reason, item.rows) for item in log.quarantine] == [("octets is negative", 1)]


def test_files_whose_names_are_patterns_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """One of them made each run fail, or had other files read twice."""
    good = put(tmp_path, NINE, "good", [delivery(NINE, "a")])
    names = ("a[1]", "{good,b}", "*", "goo?", "a\\b", "a:b")
    for name in names:
        shutil.copy(good, good.with_name(f"{name}.parquet"))
    log = read_log(spark, str(tmp_path), WINDOW)
    assert {item.file.rpartition("/")[2] for item in log.quarantine} == {f"{name}.parquet" for name in names}
    assert {item.reason for item in log.quarantine} == {"its name has a character of patterns, or a colon"}
    assert identities(log) == ["a"]


def test_a_file_whose_footer_cannot_be_is_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """pyspark has a class of its own for IllegalArgumentException: such a file made each run fail."""
    bad = put(tmp_path, NINE, "good", [delivery(NINE, "a")]).with_name("bad.parquet")
    number = pa.array([Decimal("1.23")], pa.decimal128(5, 2))
    pq.write_table(pa.table({"identity": number}), bad, store_schema=False)
    content = bytearray(bad.read_bytes())
    scale_and_precision = content.rindex(bytes((0x15, 4, 0x15, 10)))
    content[scale_and_precision + 1] = 18
    bad.write_bytes(content)
    log = read_log(spark, str(tmp_path), WINDOW)
    [left_out] = log.quarantine
    assert local(left_out.file) == bad
    assert left_out.reason.startswith("no Parquet file, or cut off: ")
    assert "scale" in left_out.reason
    assert identities(log) == ["a"]


def test_a_log_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere does not exist"):
        read_log(spark, str(tmp_path / "nowhere"), WINDOW)
    with pytest.raises(ValueError, match=r"nonsense://log cannot be read: .*nonsense"):
        read_log(spark, "nonsense://log", WINDOW)


NAMES = st.integers(0, 12)


@st.composite
def written_files(draw: st.DrawFn) -> list[tuple[int, list[tuple[int, int]], int | None]]:
    """Files: hour, rows (number of the identity, seconds until it was heard), and after what share (percent) of its
    bytes it is cut off."""
    file = st.tuples(
        st.integers(0, 1),
        st.lists(st.tuples(NAMES, st.integers(0, 100)), max_size=8),
        st.none() | st.integers(0, 99),
    )
    return draw(st.lists(file, min_size=4, max_size=10))


@settings(max_examples=5)
@given(files=written_files())
def test_any_files_with_rows_told_again_and_again_and_some_cut_off(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[int, list[tuple[int, int]], int | None]],
) -> None:
    folder = tmp_path_factory.mktemp("log")
    first: dict[str, int] = {}
    there = 0
    for number, (hour, members, cut) in enumerate(files):
        moment = NINE + hour * HOUR
        made = [
            delivery(moment, f"{hour}:{name}", heard_at=moment + seconds * SECOND, octets=seconds)
            for name, seconds in members
        ]
        path = put(folder, moment, f"part-{number}", made)
        if cut is not None:
            content = path.read_bytes()
            path.write_bytes(content[: len(content) * cut // 100])
            continue
        there += len(made)
        for name, seconds in members:
            first[f"{hour}:{name}"] = min(seconds, first.get(f"{hour}:{name}", seconds))
    log = read_log(spark, str(folder), WINDOW)
    assert sorted((row["identity"], row["octets"]) for row in log.deliveries.collect()) == sorted(
        first.items()
    )
    quality = log.quality["deliveries"]
    assert (quality.rows, quality.duplicates) == (there, there - len(first))
    assert quality.quarantined_files == len(log.quarantine) == sum(cut is not None for _, _, cut in files)
