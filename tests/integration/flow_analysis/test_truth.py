"""What a made-up log is known to hold is what the analysis tells of it, whoever has most of the traffic."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from bench.flow_logs import Links, Shape, Truth, empty, generate
from pyspark.sql import SparkSession

from isthmus_flows.cubes import cubes
from isthmus_flows.log import Window, read_log
from isthmus_flows.tables import Inputs, table
from isthmus_router.flows.sketch import Sketch

SHARES = {"latency_p50_us": 0.5, "latency_p90_us": 0.9, "latency_p99_us": 0.99}
COUNTED = ("deliveries", "octets", "accepted", "released")


@pytest.mark.parametrize("skew", [0.0, 0.9])
def test_the_matrix_is_exactly_what_is_true(spark: SparkSession, tmp_path: Path, skew: float) -> None:
    shape = Shape(20_000, links=100, addresses=10, skew=skew, duplicates=0.02)
    links, truth = generate(empty(tmp_path), shape)
    log = read_log(spark, str(tmp_path), Window(shape.start, shape.end + timedelta(seconds=1)))
    quality = log.quality["deliveries"]
    assert truth.duplicates > 300
    assert (quality.rows, quality.duplicates) == (truth.rows + truth.duplicates, truth.duplicates)
    inputs = Inputs(log, cubes(log.deliveries, 60), 60)
    found = {
        links.group_of(int(row["site"][5:]), int(row["address"][8:]), row["direction"]): row.asDict()
        for row in table("traffic_matrix").build(inputs).collect()
    }
    inputs.release()
    expected = truth_by_group(links, truth)
    assert {
        group: {name: row[name] for name in (*COUNTED, *SHARES)} for group, row in found.items()
    } == expected
    most = max(row["deliveries"] for row in found.values()) / sum(row["deliveries"] for row in found.values())
    assert (most > 0.08) == (skew > 0)


def truth_by_group(links: Links, truth: Truth) -> dict[int, dict[str, float | None]]:
    """By site, address and direction; quantiles as a router tells them of all the numbers together."""
    found: dict[int, dict[str, float | None]] = {}
    for group in sorted(set(links.group.tolist())):
        sketch = Sketch({bucket: int(count) for bucket, count in enumerate(truth.latencies[group]) if count})
        found[group] = {
            **{name: int(truth.sums[name][group]) for name in COUNTED},
            **{name: sketch.quantile(share) for name, share in SHARES.items()},
        }
    return found
