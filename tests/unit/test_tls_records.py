"""TLS records of connections in steps: none is read for long, and each has its turn."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from isthmus_router.tls_records import STEP_RECORDS, STEPS, SteppedObject, Steps


class Reader(SteppedObject):
    """A connection whose peer has sent records without end. It decrypts none."""

    def __init__(self, steps: Steps) -> None:
        self.count = 0
        self.waits = False
        self.begin(steps, self._told)

    def _told(self, waits: bool) -> None:
        self.waits = waits

    def read_all(self) -> None:
        """Until it is the turn of others."""
        while not self.waits:
            if not self._may_read():
                break
            self.count += 1


async def test_an_iteration_has_a_bound_over_all_connections() -> None:
    steps = Steps(asyncio.get_running_loop())
    readers = [Reader(steps) for _ in range(3 * STEPS)]
    for reader in readers:
        reader.read_all()
    assert sum(reader.count for reader in readers) == STEPS * STEP_RECORDS
    assert all(reader.waits for reader in readers)


async def test_each_has_its_turn() -> None:
    steps = Steps(asyncio.get_running_loop())
    readers = [Reader(steps) for _ in range(3 * STEPS)]
    for _ in range(31):
        for reader in readers:
            reader.read_all()
        await asyncio.sleep(0)
    counts = [reader.count for reader in readers]
    assert sum(counts) >= 30 * STEPS * STEP_RECORDS
    assert max(counts) - min(counts) <= (STEPS + 2) * STEP_RECORDS


async def test_one_that_had_nothing_to_read_comes_after_those_that_wait() -> None:
    steps = Steps(asyncio.get_running_loop())
    busy = [Reader(steps) for _ in range(STEPS + 1)]
    for reader in busy:
        reader.read_all()
    late = Reader(steps)
    late.read_all()
    assert late.count == 0
    for _ in range(2):
        await asyncio.sleep(0)
        late.read_all()
    assert late.count >= STEP_RECORDS


async def test_what_is_told_last_does_not_wait() -> None:
    steps = Steps(asyncio.get_running_loop())
    readers = [Reader(steps) for _ in range(2)]
    readers[0].read_all()
    with pytest.raises(ssl.SSLWantReadError):
        readers[1].read()
    readers[1].end()
    assert readers[1]._may_read()
