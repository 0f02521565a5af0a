"""Pods that attack the operator by what they answer to its polls, each of them in a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).parents[2]
MEMORY = 256 * 1024 * 1024
"""Peak of the polling process. It begins with some 80 MiB; the bomb alone is 1.2 GB."""
CPU_SECONDS = 60.0
PATIENCE_SECONDS = 120.0


@pytest.fixture
def pods() -> Iterator[dict[str, int]]:
    """Name of an attack to its port."""
    process = start("hostile_pod")
    assert process.stdout is not None
    assert process.stdin is not None
    yield json.loads(process.stdout.readline())
    process.stdin.close()
    process.wait(timeout=60)
    process.stdout.close()


def start(module: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.security.support.{module}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def lines(stream: IO[str]) -> Iterator[dict[str, Any]]:
    until = time.monotonic() + PATIENCE_SECONDS
    for line in stream:
        yield json.loads(line)
        assert time.monotonic() < until, line
    raise AssertionError("the polling process has ended")


def test_no_answer_of_a_pod_harms_the_operator(pods: dict[str, int]) -> None:
    visits = pods.pop("visits")
    poller = start("polling_process")
    assert poller.stdin is not None
    assert poller.stdout is not None
    try:
        poller.stdin.write(json.dumps(pods) + "\n")
        poller.stdin.flush()
        reports = lines(poller.stdout)
        found = next(item for item in reports if item["errors"].keys() == pods.keys())
        begun = found["cpu"]
        # Every attack once more, from a pod whose polling has gone on.
        found = [next(reports) for _ in range(20)][-1]
    finally:
        poller.kill()
        poller.wait()
        poller.stdin.close()
        poller.stdout.close()
    errors = found["errors"]
    assert errors.pop("good") is None, "the honest pod is observed all the time"
    assert [name for name, error in errors.items() if error is None] == [], "attacks that are believed"
    assert found["alive"] == sorted(pods), "no polling has ended"
    assert found["peak"] < MEMORY, f"{found['peak'] / 2**20:.0f} MiB"
    assert found["cpu"] - begun < CPU_SECONDS
    assert "content encoding" in errors["gzip"]
    assert "302" in errors["redirect"]
    assert "levels" in errors["deep-lists"]
    assert "levels" in errors["deep-objects"]
    with socket.create_connection(("127.0.0.1", visits)) as connection:
        assert connection.recv(16) == b"0", "no redirect was followed"
