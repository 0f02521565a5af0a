"""Random conversations with a router in memory, of which `make fuzz` holds more, and random values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONVERSATIONS = 100
FIRST = {"compiled": 2000, "python": 2050}
VALUES = 300_000
MOST_MEGABYTES = 90
"""Of a process that needs 63 MB."""


@pytest.mark.parametrize("kernel", FIRST)
def test_a_router_survives_random_conversations(kernel: str, tmp_path: Path) -> None:
    last = tmp_path / "last"
    arguments = (
        "--conversations",
        CONVERSATIONS,
        "--seed",
        FIRST[kernel],
        "--kernel",
        kernel,
        "--last",
        last,
        "--most-megabytes",
        MOST_MEGABYTES,
    )
    status, output = run_alone("tests.security.fuzz", *arguments)
    assert status == 0, f"status {status} at seed {last.read_text()}: {output}"


def test_random_values_pass_the_border_unchanged_or_not_at_all() -> None:
    status, output = run_alone("tests.security.fuzz.border", "--values", VALUES)
    assert status == 0, f"status {status}: {output}"


def run_alone(module: str, *arguments: object) -> tuple[int, str]:
    """Exit status and errors of a process of its own: an engine that fails would end this one."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    return ended.returncode, ended.stderr[-4000:]
