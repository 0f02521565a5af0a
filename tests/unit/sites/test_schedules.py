"""Hundreds of random schedules of faults over whole sites: what is true of all of them (`properties.everything`).

Each is made from its number: `ISTHMUS_SCHEDULES=20` runs twenty times as many. One that fails is shown as short as it
gets, to be kept in `test_found.py`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from tests.unit.sites.schedules import Kind, check

LOSS = Kind(
    faults=("crash", "restart", "leave", "crash relay"), apart=2.0, seconds=5.0, most_faults=3, messages=25
)
"""One at a time: nothing that was accepted is lost."""
ANY = Kind(faults=("cut member", "crash relay", "pause"), gaps_allowed=True, seconds=5.0, messages=25)
"""Anything at once: whoever misses something is told."""

KINDS = {
    "single losses": LOSS,
    "pauses": replace(LOSS, faults=("pause", "crash relay")),
    "bridge": replace(LOSS, faults=("cut bridge", "cut one way", "crash relay")),
    "lossy": replace(LOSS, loss=0.05, jitter=0.005, disorder=0.05, duplicates=0.05, lossy_bridge=True),
    "three sites": replace(LOSS, sites=3, members=(1, 2), faults=("crash", "crash relay", "cut bridge")),
    "two relays": replace(LOSS, relays=2, members=(2, 4)),
    "points": replace(LOSS, faults=("crash at",), most_faults=2),
    "points at once": replace(ANY, faults=("crash at", "crash at", "crash relay")),
    "partitions": ANY,
    "losses at once": replace(ANY, faults=("crash", "restart", "leave", "crash relay"), most_faults=6),
    "whole sites": replace(ANY, faults=("restart site", "leave", "restart")),
    "garbage and clocks": replace(LOSS, faults=("garbage", "crash relay"), skewed=True),
    "dns": replace(LOSS, discovery="dns"),
    "multicast": replace(LOSS, discovery="multicast"),
    "gossip": replace(LOSS, discovery="gossip"),
    "tunnel": replace(LOSS, discovery="tunnel"),
    "senders without end": replace(LOSS, buffer=600, faults=("crash", "restart", "leave", "crash relay")),
    "senders without end, cuts": replace(
        ANY, buffer=600, faults=("cut bridge", "cut one way", "crash relay", "cut member", "pause")
    ),
}
CHUNK = 12
COSTLY = 4
"""Of senders without end, each of which takes as long as several others."""
CHUNKS = int(os.environ.get("ISTHMUS_SCHEDULES", "1"))


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("kind", KINDS)
def test_schedules(kind: str, chunk: int) -> None:
    size = COSTLY if "without end" in kind else CHUNK
    for seed in range(chunk * size, (chunk + 1) * size):
        check(KINDS[kind], seed)
