"""The benchmark of link routes, small: clients and a container on another build of the engine, written in C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LINK_ROUTES = Path(__file__).parents[3] / "bench" / "link_routes.py"
MESSAGES = 3000
ATTACHES = 150
"""More than one session of the client has, and more than are under way at a time."""


def measured(what: str, *options: str) -> Any:
    """What the script prints."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    ended = subprocess.run(
        [
            *(sys.executable, str(LINK_ROUTES), what, "--topology", "pair", "--rounds", "1", *options),
            *("--messages", str(MESSAGES), "--attaches", str(ATTACHES), "--idle-seconds", "0.1"),
            *("--router-cores", cores, "--client-cores", cores),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)[what]


@pytest.mark.timeout(120)
def test_messages_pass_both_ways() -> None:
    cpu = {(row["topology"], row["direction"]): row["cpu_us"] for row in measured("messages")}
    assert set(cpu) == {(where, way) for where in ("direct", "pair") for way in ("in", "out")}
    assert set(cpu["pair", "in"]) == {"A", "B", "container"}


@pytest.mark.timeout(120)
def test_no_attach_is_refused_and_no_link_is_left() -> None:
    rows = measured("attaches")
    assert len(rows) == 2 * 2 * 2 * 2, "direct and pair, in and out, detached and left, one and many at once"
    assert all(row["attach_us"]["p50"] > 0 for row in rows)


@pytest.mark.timeout(120)
def test_links_that_stand_by_are_in_nobodys_way() -> None:
    points = measured("curves", "--direction", "in", "--curve", "routed links", "--most", "100")
    assert [point["count"] for (routed,) in [points["routed links, in"].values()] for point in routed] == [
        1,
        100,
    ]
