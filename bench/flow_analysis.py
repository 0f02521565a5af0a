"""Rows per second and core of the flow analysis, and of DuckDB that adds up the same files to the same, in one run.

Each size is a log made by `flow_logs.py`. Spark (`local[CORES]`) and DuckDB read it one after the other, each in a
process of its own with the same cores and memory: duplicates are left out, the rest is added up to the cubes that all
tables are made from, and these are written as Parquet. Spark also looks for damage and for rows that cannot be true. Of
the processes CPU time and the most memory are told; sums of deliveries and octets of both must be those of the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from flow_logs import Shape, empty, generate

BUCKET_SECONDS = 60
COUNTERS = (
    "deliveries", "octets", "accepted", "rejected", "released", "modified", "presettled", "dropped",
    "delayed_1_second", "delayed_10_seconds", "no_credit_us",
)  # fmt: skip
ATTRIBUTES = (
    "source", "site", "router", "router_mode", "role", "address", "container", "user", "host", "endpoint",
    "connection", "link", "link_name", "tls_ordinal",
)  # fmt: skip
_BUCKET = f"time_bucket(INTERVAL {BUCKET_SECONDS} SECONDS, end_time)"
_FLOW = "coalesce(link, connection, source)"


def with_spark(log: Path, output: Path, shape: Shape, cores: int, memory: str) -> dict[str, Any]:
    """As a run over a window does it, as far as the cubes."""
    from isthmus_flows.cubes import cubes  # noqa: PLC0415
    from isthmus_flows.log import Window, read_log  # noqa: PLC0415
    from isthmus_flows.session import spark_session  # noqa: PLC0415
    from isthmus_flows.store import keep, kept  # noqa: PLC0415

    settings = {
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(output),
        "spark.ui.enabled": "false",
    }
    spark = spark_session(master=f"local[{cores}]", settings=settings)
    spark.range(1).count()
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    began, cpu = time.perf_counter(), _cpu(pid)
    found = read_log(spark, str(log), Window(shape.start, shape.end + timedelta(seconds=1)))
    read = time.perf_counter()
    keep(cubes(found.deliveries, BUCKET_SECONDS), str(output / "cubes"))
    ended = time.perf_counter()
    sums = (
        kept(spark, str(output / "cubes")).traffic.selectExpr("sum(deliveries)", "sum(octets)").collect()[0]
    )
    return {
        "read_seconds": read - began,
        "seconds": ended - began,
        "cpu_seconds": _cpu(pid) - cpu,
        "most_mib": _most_mib(pid),
        "duplicates": found.quality["deliveries"].duplicates,
        "sums": list(sums),
    }


def with_duckdb(log: Path, output: Path, shape: Shape, cores: int, memory: str) -> dict[str, Any]:
    """The same aggregations."""
    import duckdb  # noqa: PLC0415

    con = duckdb.connect()
    con.execute(
        f"SET threads = {cores}; SET memory_limit = '{memory}B'; SET temp_directory = '{output}/spill'"
    )
    con.execute("SET preserve_insertion_order = false; SET TimeZone = 'UTC'")
    began, cpu = time.perf_counter(), time.process_time()
    con.execute(f"CREATE VIEW rows AS FROM read_parquet('{log}/deliveries/*/*/*.parquet')")
    con.execute("CREATE TABLE twice AS SELECT identity FROM rows GROUP BY identity HAVING count(*) > 1")
    duplicates = con.execute("SELECT count(*) FROM rows SEMI JOIN twice USING (identity)").fetchall()[0][0]
    duplicates -= con.execute("SELECT count(*) FROM twice").fetchall()[0][0]
    con.execute(
        "CREATE VIEW once AS FROM rows ANTI JOIN twice USING (identity) UNION ALL "
        "(SELECT DISTINCT ON (identity) * FROM rows SEMI JOIN twice USING (identity) ORDER BY identity, heard_at)"
    )
    read = time.perf_counter()
    (output / "cubes").mkdir(parents=True)
    sums = ", ".join(f"sum({name}) AS {name}" for name in COUNTERS)
    clients = "once WHERE role IN ('normal', 'route-container')"

    def sketches(keys: str, rows: str) -> str:
        parts = (
            f"SELECT {keys}, '{metric}' AS metric, unnest(map_keys({column})) AS b, unnest(map_values({column})) AS n "
            f"FROM {rows}"
            for metric, column in (("latency", "latencies"), ("size", "sizes"))
        )
        return f"SELECT * EXCLUDE (n), sum(n) AS n FROM ({' UNION ALL '.join(parts)}) GROUP BY ALL"

    attributes = ", ".join(f'"{name}"' for name in ATTRIBUTES)
    queries = {
        "traffic": f"SELECT {_BUCKET} AS bucket, {_FLOW} AS flow, direction, {sums}, count(*), "
        "sum(epoch_us(end_time) - epoch_us(start_time)), max(unsettled), max(oldest_unsettled_us), min(sequence), "
        "max(sequence) FROM once GROUP BY ALL",
        "flows": f"SELECT DISTINCT {_FLOW} AS flow, direction, {attributes} FROM once",
        "addresses": sketches(f"{_BUCKET} AS bucket, site, address, direction", clients),
        "sketches": sketches(f"{_FLOW} AS flow, direction", "once"),
    }
    for name, query in queries.items():
        con.execute(f"COPY ({query}) TO '{output}/cubes/{name}.parquet' (COMPRESSION zstd)")
    ended = time.perf_counter()
    told = con.execute(
        f"SELECT sum(deliveries), sum(octets) FROM '{output}/cubes/traffic.parquet'"
    ).fetchall()[0]
    return {
        "read_seconds": read - began,
        "seconds": ended - began,
        "cpu_seconds": time.process_time() - cpu,
        "most_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "duplicates": duplicates,
        "sums": [int(item) for item in told],
    }


ENGINES = {"spark": with_spark, "duckdb": with_duckdb}


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _most_mib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def measured(engine: str, log: Path, shape: Shape, options: argparse.Namespace) -> dict[str, Any]:
    """One engine on one log, in a process of its own."""
    words = [sys.executable, __file__, "--engine", engine, "--log", str(log), str(shape.rows)]
    words += ["--links", str(shape.links), "--cores", str(options.cores), "--memory", options.memory]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, check=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure; 1 if what an engine finds is not what is true."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=int, nargs="+", help="of the logs, for example 1000000 10000000")
    parser.add_argument("--links", type=int, default=10_000)
    parser.add_argument(
        "--skew", type=float, default=0.0, help="share of the links that are about one address"
    )
    parser.add_argument("--duplicates", type=float, default=0.01)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2G", help="heap of Spark, limit of DuckDB")
    parser.add_argument(
        "--folder", type=Path, help="where logs are made and kept; a temporary folder otherwise"
    )
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        if options.engine is not None:
            shape = Shape(options.rows[0], links=options.links)
            memory = options.memory if options.engine == "duckdb" else options.memory.lower()
            found = ENGINES[options.engine](options.log, Path(scratch), shape, options.cores, memory)
            print(json.dumps(found))
            return 0
        return compare(options, Path(scratch))


def compare(options: argparse.Namespace, scratch: Path) -> int:
    """All sizes with all engines; a line for each, and JSON at the end."""
    results, wrong = [], False
    for rows in options.rows:
        shape = Shape(rows, links=options.links, skew=options.skew, duplicates=options.duplicates)
        log = scratch / "log"
        _, truth = generate(empty(log), shape)
        true = [int(truth.sums[name].sum()) for name in ("deliveries", "octets")]
        there = truth.rows + truth.duplicates
        for engine in ENGINES:
            found = measured(engine, log, shape, options)
            good = found["sums"] == true and found["duplicates"] == truth.duplicates
            wrong = wrong or not good
            results.append({"engine": engine, "rows": there, "skew": options.skew, "right": good, **found})
            per_core, per_cpu = there / found["seconds"] / options.cores, there / found["cpu_seconds"]
            print(
                f"{engine:7} {there:>12,} rows: {found['seconds']:8.1f} s ({found['read_seconds']:.1f} until read), "
                f"{found['cpu_seconds']:8.1f} s of CPU, {per_core:>10,.0f} rows/s/core, {per_cpu:>10,.0f} rows per "
                f"CPU-second, {found['most_mib']:>6,} MiB{'' if good else '  WRONG'}",
                file=sys.stderr,
            )
        shutil.rmtree(log)
    print(json.dumps(results, indent=1))
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
