"""Flow logs of any size, made up, with what is true of them: `flow_logs.py FOLDER ROWS`.

A day, or less, of a network with some sites, in which links of clients carry messages to and from addresses. Made with
arrays, some million rows a second; what they add up to is summed on the way, by other means than the analysis has.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isthmus_flowlog.arrow import arrow_schema
from isthmus_flowlog.schema import DELIVERIES, TABLES, Table, partition
from isthmus_router.flows.sketch import BUCKETS

INTERVAL_SECONDS = 10
SECOND_US = 1_000_000
SKETCHED = 4
"""Buckets of each sketch."""
COUNTERS = ("deliveries", "octets", "accepted", "released", "delayed_1_second", "no_credit_us")


@dataclass(frozen=True)
class Shape:
    """Of a network and its traffic."""

    rows: int
    """Of `deliveries`, rounded up to whole intervals of all links."""
    links: int = 1_000
    sites: int = 5
    routers: int = 4
    """Of each site."""
    addresses: int = 50
    skew: float = 0.0
    """Share of the links that are about the first address, beside those that are anyway."""
    duplicates: float = 0.0
    """Share of the rows that are there twice."""
    start: datetime = datetime(2026, 11, 20, tzinfo=UTC)
    seed: int = 1

    @property
    def intervals(self) -> int:
        """Of each link."""
        return math.ceil(self.rows / self.links)

    @property
    def end(self) -> datetime:
        """Of the last interval."""
        return self.start + timedelta(seconds=INTERVAL_SECONDS * self.intervals)


@dataclass
class Truth:
    """What is true of a log; sums by site, address and direction."""

    rows: int = 0
    duplicates: int = 0
    sums: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """Counter to sums by the index of `Links.group`."""
    latencies: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros((0, BUCKETS), dtype=np.int64))
    """Counts by group and bucket."""


class Links:
    """The links of a shape, as arrays: one element each."""

    def __init__(self, shape: Shape) -> None:
        random = np.random.default_rng(shape.seed)
        count = shape.links
        self.site = np.arange(count) % shape.sites
        self.router = (np.arange(count) // shape.sites) % shape.routers
        self.address = random.integers(0, shape.addresses, count)
        self.address[random.random(count) < shape.skew] = 0
        self.direction = random.integers(0, 2, count)
        self.rate = random.integers(1, 200, count)
        """Messages per interval, on average."""
        self.slowness = random.integers(40, 140, count)
        """First bucket of its latencies."""
        self.group = (self.site * shape.addresses + self.address) * 2 + self.direction
        self.groups = shape.sites * shape.addresses * 2
        names = np.arange(count).astype(str)
        self.source = pa.array(
            [f"s{site}r{router}:0" for site, router in zip(self.site, self.router, strict=True)]
        )
        self.text = {
            "site": pa.array([f"site-{site}" for site in self.site]),
            "router": pa.array([f"site-{s}-{r}" for s, r in zip(self.site, self.router, strict=True)]),
            "router_mode": pa.array(["edge" if router % 4 == 3 else "interior" for router in self.router]),
            "direction": pa.array(np.array(["in", "out"])[self.direction]),
            "address": pa.array([f"address-{number}" for number in self.address]),
            "role": pa.array(["normal"] * count),
            "endpoint": pa.array(["amqp"] * count),
            "connection": pa.array(np.char.add("cn:", names)),
            "link": pa.array(np.char.add("ln:", names)),
            "link_name": pa.array(np.char.add("link-", names)),
            "container": pa.array([f"client-{number % max(1, count // 3)}" for number in range(count)]),
            "user": pa.array(["anonymous"] * count),
            "host": pa.array([f"10.0.{number // 250 % 250}.{number % 250}" for number in range(count)]),
        }

    def group_of(self, site: int, address: int, direction: str) -> int:
        """Index of a group."""
        addresses = self.groups // (2 * (int(self.site.max()) + 1))
        return (site * addresses + address) * 2 + ("in", "out").index(direction)


def generate(folder: Path, shape: Shape) -> tuple[Links, Truth]:
    """Write the log; what is in it."""
    links, truth = Links(shape), Truth()
    truth.sums = {name: np.zeros(links.groups, dtype=np.int64) for name in COUNTERS}
    truth.latencies = np.zeros((links.groups, BUCKETS), dtype=np.int64)
    random = np.random.default_rng(shape.seed + 1)
    first = int(shape.start.timestamp()) * SECOND_US
    per_file = max(1, 500_000 // shape.links)
    for number, (begin, end) in enumerate(_files(shape, per_file)):
        table = _rows(shape, links, truth, random, first, begin, end)
        moment = shape.start + timedelta(seconds=INTERVAL_SECONDS * (begin + 1))
        write(folder, DELIVERIES, table, moment, f"part-{number:06}")
    return links, truth


def write(folder: Path, table: Table, rows: pa.Table, moment: datetime, name: str) -> Path:
    """A file of a log."""
    place = folder / table.name / partition(moment)
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}.parquet"
    pq.write_table(rows, path, compression="zstd", write_page_checksum=True)
    return path


def empty(folder: Path) -> Path:
    """A log without rows."""
    for table in TABLES:
        (folder / table.name).mkdir(parents=True, exist_ok=True)
    return folder


def _files(shape: Shape, per_file: int) -> Iterator[tuple[int, int]]:
    """First interval, and the one after the last, of each file; the ends of all are in one hour."""
    begin = 0
    while begin < shape.intervals:
        seconds = shape.start.timestamp() + INTERVAL_SECONDS * (begin + 1)
        left_in_hour = math.ceil((3600 - seconds % 3600) / INTERVAL_SECONDS)
        end = min(shape.intervals, begin + per_file, begin + left_in_hour)
        yield begin, end
        begin = end


def _rows(
    shape: Shape, links: Links, truth: Truth, random: np.random.Generator, first: int, begin: int, end: int
) -> pa.Table:
    intervals, count = end - begin, shape.links
    rows = intervals * count
    link = np.tile(np.arange(count), intervals)
    interval = np.repeat(np.arange(begin, end), count)
    start = first + interval * INTERVAL_SECONDS * SECOND_US
    deliveries = random.poisson(links.rate[link]).astype(np.int64)
    released = random.binomial(deliveries, 0.01).astype(np.int64)
    size = 100 + (links.address[link] % 7) * 50
    counted = {
        "deliveries": deliveries,
        "octets": deliveries * size,
        "accepted": deliveries - released,
        "released": released,
        "delayed_1_second": random.binomial(deliveries, 0.001).astype(np.int64),
        "no_credit_us": np.where(random.random(rows) < 0.01, 3 * SECOND_US, 0),
    }
    buckets = links.slowness[link][:, None] + np.arange(SKETCHED)
    shares = random.multinomial(deliveries, [0.4, 0.3, 0.2, 0.1]).astype(np.int64)
    group = links.group[link]
    for name, values in counted.items():
        np.add.at(truth.sums[name], group, values)
    np.add.at(truth.latencies, (group[:, None], buckets), shares)
    truth.rows += rows
    sequence = interval + 1
    identity = pa.array(np.char.add(np.char.add(link.astype(str), ":"), sequence.astype(str)))
    take = pa.array(link)
    columns: dict[str, Any] = {
        "identity": identity,
        "source": links.source.take(take),
        "start_time": pa.array(start, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "end_time": pa.array(start + INTERVAL_SECONDS * SECOND_US, pa.int64()).cast(
            pa.timestamp("us", "UTC")
        ),
        "sequence": sequence,
        **{name: values.take(take) for name, values in links.text.items()},
        **counted,
        "sizes": _maps(np.full((rows, 1), 57) + (links.address[link] % 7)[:, None], deliveries[:, None]),
        "latencies": _maps(buckets, shares),
    }
    columns["heard_at"] = columns["end_time"]
    table = _complete(DELIVERIES, columns, rows)
    if shape.duplicates:
        again = np.flatnonzero(random.random(rows) < shape.duplicates)
        truth.duplicates += len(again)
        table = pa.concat_tables([table, table.take(pa.array(again))])
    return table


def _maps(keys: np.ndarray[Any, Any], counts: np.ndarray[Any, Any]) -> pa.MapArray:
    """A map for each row, without what counts nothing."""
    some = counts > 0
    offsets = np.concatenate([[0], np.cumsum(some.sum(axis=1))]).astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(offsets), pa.array(keys[some].astype(np.int32)), pa.array(counts[some].astype(np.int64))
    )


def _complete(table: Table, columns: dict[str, Any], rows: int) -> pa.Table:
    """All columns of a table; counts that are not given are 0, the rest null."""
    schema = arrow_schema(table)
    zeros = pa.array(np.zeros(rows, dtype=np.int64))
    arrays = []
    for entry in schema:
        values = columns.get(entry.name)
        if values is None:
            values = pa.nulls(rows, entry.type) if entry.nullable else zeros
        elif not isinstance(values, pa.Array | pa.ChunkedArray):
            values = pa.array(values)
        arrays.append(values.cast(entry.type))
    return pa.Table.from_arrays(arrays, schema=schema)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows", type=int)
    parser.add_argument("--links", type=int, default=10_000)
    parser.add_argument("--skew", type=float, default=0.0)
    options = parser.parse_args()
    _, made = generate(empty(options.folder), Shape(options.rows, links=options.links, skew=options.skew))
    print(f"{made.rows} rows in {options.folder}")
