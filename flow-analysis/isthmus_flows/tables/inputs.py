"""What tables are computed from, and what several of them need on the way.

`traffic` may have tens of millions of rows. So it is summed before anything is joined to it or put in order, and what
comes of that is kept while the tables are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import RLock

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from isthmus_flows.cubes import ATTRIBUTES, CLIENT_ROLES, COUNTERS, FLOW, Cubes
from isthmus_flows.log import Log
from isthmus_flows.sums import total

ROUTER_ROLES = ("inter-router", "edge")
"""Of connections between routers."""
FAILED = ("rejected", "released", "modified", "dropped")
SECOND_US = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
_BY_FLOW = (FLOW, "direction")


@dataclass(frozen=True)
class Inputs:
    """Of one analysis. `deliveries` of the log are not looked at any more: they are in the cubes."""

    log: Log
    cubes: Cubes
    bucket_seconds: int
    earlier: Cubes | None = None
    """Of the days before the window."""
    baseline_days: int = 7
    """How many days before are compared with."""
    top: int = 100
    """How many are ranked."""
    _shared: dict[Callable[[Inputs], DataFrame], DataFrame] = field(default_factory=dict, compare=False)
    _lock: RLock = field(default_factory=RLock, compare=False)

    def shared(self, make: Callable[[Inputs], DataFrame]) -> DataFrame:
        """Rows that several tables are computed from: made once, and kept until `release`."""
        with self._lock:  # tables are computed on several threads
            if make not in self._shared:
                self._shared[make] = make(self).persist()
            return self._shared[make]

    def release(self) -> None:
        """Nothing is computed any more."""
        while self._shared:
            self._shared.popitem()[1].unpersist()

    @property
    def flows(self) -> DataFrame:
        """The attributes of each flow and direction, in one row: what was not known at first is, if it was later."""
        return self.shared(_flows)

    @property
    def totals(self) -> DataFrame:
        """Each flow and direction with its attributes and sums over the window: `COUNTERS`, `intervals`, `us`,
        `missing_intervals`; `first` and `last`: from when until when, to the bucket."""
        return self.shared(_totals)

    @property
    def clients(self) -> DataFrame:
        """`totals` of clients. Between routers the same messages are counted again."""
        return self.totals.where(is_client())

    @property
    def rates(self) -> DataFrame:
        """Sums of clients by bucket, site, address and direction."""
        return self.shared(_rates)

    @property
    def traffic(self) -> DataFrame:
        """`traffic` with the attributes of the flows."""
        return self.cubes.traffic.join(self.flows, list(_BY_FLOW))

    @property
    def first_bucket(self) -> datetime:
        """The beginning of the bucket in which the window begins."""
        start, size = self.log.window.start, self.bucket_seconds
        return start - timedelta(microseconds=(start - EPOCH) // MICROSECOND % (size * SECOND_US))

    def begin_of(self, bucket: str) -> Column:
        """When a bucket begins, within the window."""
        return F.greatest(F.col(bucket), F.lit(self.log.window.start))

    def end_of(self, bucket: str) -> Column:
        """When it ends, within the window."""
        return F.least(shifted(F.col(bucket), self.bucket_seconds), F.lit(self.log.window.end))

    def seconds_of(self, bucket: str) -> Column:
        """How much of a bucket is in the window; of the first and the last not all may be."""
        return seconds_between(self.begin_of(bucket), self.end_of(bucket))


def flows_of(cubes: Cubes) -> DataFrame:
    """`flow`, `direction`, `ATTRIBUTES`: one row for each."""
    return cubes.flows.groupBy(*_BY_FLOW).agg(*[F.max(name).alias(name) for name in ATTRIBUTES])


def by_address(cubes: Cubes, flows: DataFrame) -> DataFrame:
    """Sums of clients by bucket, site, address and direction."""
    traffic = cubes.traffic.join(flows.where(is_client()), list(_BY_FLOW))
    return traffic.groupBy("bucket", "site", "address", "direction").agg(*sums_of(COUNTERS))


def _flows(inputs: Inputs) -> DataFrame:
    return flows_of(inputs.cubes)


def _rates(inputs: Inputs) -> DataFrame:
    return by_address(inputs.cubes, inputs.flows)


def _totals(inputs: Inputs) -> DataFrame:
    sums = inputs.cubes.traffic.groupBy(*_BY_FLOW).agg(
        *sums_of((*COUNTERS, "intervals", "us")),
        F.min("bucket").alias("first"),
        F.max("bucket").alias("last"),
        (F.max("last_sequence") - F.min("first_sequence") + 1).alias("_sequences"),
    )
    return (
        sums.withColumn("missing_intervals", F.greatest(F.lit(0), F.col("_sequences") - F.col("intervals")))
        .withColumn("first", inputs.begin_of("first"))
        .withColumn("last", inputs.end_of("last"))
        .drop("_sequences")
        .join(inputs.flows, list(_BY_FLOW))
    )


def is_client() -> Column:
    """Of a client's connection."""
    return F.col("role").isin(*CLIENT_ROLES)


def is_between_routers() -> Column:
    """Of a connection between routers."""
    return F.col("role").isin(*ROUTER_ROLES)


def sums_of(names: Sequence[str]) -> list[Column]:
    """Sums of longs under the names of what is summed."""
    return [total(name).alias(name) for name in names]


def failed() -> Column:
    """Deliveries that did not do what they were for."""
    return sum((F.col(name) for name in FAILED), F.lit(0))


def shifted(moment: Column, seconds: int) -> Column:
    """A time so much later."""
    return F.timestamp_micros(F.unix_micros(moment) + F.lit(seconds * SECOND_US))


def seconds_between(start: Column, end: Column) -> Column:
    """From a time until another."""
    return (F.unix_micros(end) - F.unix_micros(start)) / F.lit(SECOND_US)


def joined(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str = "left") -> DataFrame:
    """Joined by keys of which null is a value like any other. `right` has no other columns of the same names."""
    renamed = right.withColumnsRenamed({key: f"_right_{key}" for key in keys})
    condition = F.lit(True)
    for key in keys:
        condition &= F.col(key).eqNullSafe(F.col(f"_right_{key}"))
    return left.join(renamed, condition, how).drop(*[f"_right_{key}" for key in keys])
