"""Into how many partitions shuffles are divided, in sessions of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

_SESSION = """
import json, sys
from isthmus_flows.session import make_room, spark_session
settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
spark = spark_session(master="local[1]", settings=settings | json.loads(sys.argv[1]))
found = []
for rows in (0, 250_000, 2_600_000, 10):
    make_room(spark, rows)
    found.append(spark.conf.get("spark.sql.shuffle.partitions"))
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, ["1", "1", "11", "11"], id="by-rows-and-never-fewer"),
        pytest.param({"spark.sql.shuffle.partitions": "7"}, ["7"] * 4, id="as-somebody-has-said"),
    ],
)
def test_shuffles_are_divided(settings: dict[str, str], expected: list[str]) -> None:
    command = [sys.executable, "-c", _SESSION, json.dumps(settings)]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(result.stdout) == expected
