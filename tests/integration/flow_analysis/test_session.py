"""Sessions of their own: into how many partitions shuffles are divided, and how Spark ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SESSIONS = """
import json, sys
from isthmus_flows.session import prepare_for, spark_session
settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
all_found = []
for more in json.loads(sys.argv[1]):
    spark = spark_session(master="local[1]", settings=settings | more)
    found = []
    for rows in (0, 250_000, 2_600_000, 10):
        prepare_for(spark, rows)
        found.append([spark.conf.get(f"spark.sql.{name}") for name in ("shuffle.partitions", "codegen.wholeStage")])
    all_found.append(found)
    spark.stop()
print(json.dumps(all_found))
"""


def test_shuffles_are_divided_by_rows_and_never_fewer_unless_configured() -> None:
    """One session after the other, in a Java virtual machine that both share, as it takes seconds to start."""
    configured = {"spark.sql.shuffle.partitions": "7", "spark.sql.codegen.wholeStage": "false"}
    command = [sys.executable, "-c", _SESSIONS, json.dumps([{}, configured])]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=540)
    by_rows, as_configured = json.loads(result.stdout)
    assert by_rows == [["1", "false"], ["1", "true"], ["11", "true"], ["11", "true"]]
    assert as_configured == [["7", "false"]] * 4


_ENDS = """
import sys
from pathlib import Path
from isthmus_flows import batch, entry
def run(spark, *_):
    if sys.argv[1] == "killed":
        spark.sparkContext._gateway.proc.kill()
    else:
        spark.sparkContext._jvm.System.exit(int(sys.argv[1]))
    spark.range(3).count()
batch.run = run
sys.exit(entry.main(["run", "--log=l", "--output=o", f"--termination-log={sys.argv[2]}"]))
"""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param("killed", "driver needs more memory", id="killed-for-memory"),
        pytest.param("11", "its executors end again and again", id="executors-are-lost"),
        pytest.param("3", "has ended with 3", id="for-another-reason"),
    ],
)
def test_a_driver_that_ends_is_told_with_its_reason(how: str, expected: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = [sys.executable, "-c", _ENDS, how, str(told)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert result.returncode == 1, result.stderr
    assert expected in json.loads(told.read_text())["reason"]
