"""CPU time that authentication and encryption between a driver and its executors add to an analysis.

Each run adds the same log up to the cubes that all tables are made from, with a driver and two executors, which are
processes of this machine. Runs with and without authentication take turns. The CPU time is that of all processes of a
run, with their start.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from flow_logs import Shape, empty, generate

from isthmus_operator.render.flows.analysis import AUTHENTICATION

_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of Linux: processes whose parent has ended become children of this one."""
_SETTINGS = {
    "spark.master": "local-cluster[2,1,1024]",
    "spark.app.name": "bench",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.executor.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
_AUTHENTICATION = {key: value for key, value in AUTHENTICATION.items() if not key.endswith(".file")}
_WORK = """
import sys
from datetime import datetime
from isthmus_flows.cubes import cubes
from isthmus_flows.log import Window, read_log
from isthmus_flows.session import make_room, spark_session
from isthmus_flows.store import keep
spark = spark_session()
make_room(spark, 2_000_000)
window = Window(*map(datetime.fromisoformat, sys.argv[3:]))
keep(cubes(read_log(spark, sys.argv[1], window).deliveries, 60), sys.argv[2])
spark.stop()
"""
VARIANTS = {
    "plain": {},
    "authenticated": _AUTHENTICATION,
    "disks": {**_AUTHENTICATION, "spark.io.encryption.enabled": "true"},
}
"""`disks`: what executors write to their disks is encrypted as well."""


def run(variant: str, log: Path, shape: Shape, scratch: Path) -> float:
    """Analyse `log`; returns the CPU time in seconds."""
    settings = {**_SETTINGS, **VARIANTS[variant], "spark.local.dir": str(scratch / "spark")}
    if "spark.authenticate" in settings:
        settings["spark.authenticate.secret"] = secrets.token_hex()
    (scratch / "spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in settings.items())
    )
    end = shape.end + timedelta(seconds=1)
    words = [
        sys.executable,
        "-c",
        _WORK,
        str(log),
        str(scratch / "cubes"),
        shape.start.isoformat(),
        end.isoformat(),
    ]
    own = {"SPARK_CONF_DIR": str(scratch), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(scratch)}
    before = _children()
    done = subprocess.run(words, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return _children() - before


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=int, help="of the log, for example 200000")
    parser.add_argument("--rounds", type=int, default=3, help="how many runs of each kind")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS)[:2])
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    found: dict[str, list[float]] = {name: [] for name in options.variants}
    with tempfile.TemporaryDirectory() as folder:
        shape = Shape(options.rows)
        log = Path(folder) / "log"
        generate(empty(log), shape)
        for number in range(options.rounds):
            for name in options.variants if number % 2 == 0 else reversed(options.variants):
                with tempfile.TemporaryDirectory(dir=folder) as scratch:
                    found[name].append(run(name, log, shape, Path(scratch)))
                print(f"{name:15} {found[name][-1]:8.1f} s of CPU", file=sys.stderr, flush=True)
    first = found[options.variants[0]]
    ratios = {
        name: statistics.median(a / b for a, b in zip(taken, first, strict=True))
        for name, taken in found.items()
    }
    print(json.dumps({"rows": options.rows, "cpu_seconds": found, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
