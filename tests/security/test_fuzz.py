"""A few hundred random conversations with a router in memory; `make fuzz` holds more of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONVERSATIONS = 100
FIRST = {"compiled": 2000, "python": 2050}
FOUND = (71015606, 71016692)
"""Conversations in which something was wrong once."""


@pytest.mark.parametrize("kernel", FIRST)
def test_a_router_survives_random_conversations(kernel: str, tmp_path: Path) -> None:
    survives(kernel, FIRST[kernel], CONVERSATIONS, tmp_path / "last")


@pytest.mark.parametrize("kernel", FIRST)
@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once(kernel: str, seed: int, tmp_path: Path) -> None:
    survives(kernel, seed, 1, tmp_path / "last")


def survives(kernel: str, first: int, conversations: int, last: Path) -> None:
    arguments = [
        "--conversations",
        conversations,
        "--seed",
        first,
        "--kernel",
        kernel,
        "--last",
        last,
    ]
    # In a process of its own: an engine that fails would end this one.
    command = [sys.executable, "-m", "tests.security.fuzz", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    shown = f"status {ended.returncode} at seed {last.read_text()}: {ended.stderr[-4000:]}"
    assert ended.returncode == 0, shown
