"""Watches that fail again and again, and the end of the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kopf
import pytest
from kopf._cogs.structs import references

from isthmus_operator import __main__ as main
from isthmus_operator import watch_failures
from isthmus_operator.watch_failures import (
    CALM_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_SECONDS,
    WatchFailedError,
    WatchFailures,
)

ROUTERS = references.Resource("isthmus.dev", "v1alpha1", "routers", kind="Router", namespaced=True)
A = references.NamespaceName("a")
ERROR = ValueError("no")


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        monkeypatch.setattr(watch_failures.asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


async def test_pauses_grow_and_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    failures = WatchFailures(lambda: clock.now)
    for _ in range(7):
        await failures.failed(ROUTERS, A, ERROR)
        failures.listed(ROUTERS, A)
    assert clock.pauses == [1, 2, 4, 8, 16, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    clock.now += CALM_SECONDS + 1
    await failures.failed(ROUTERS, A, ERROR)
    assert clock.pauses[-1] == 1


async def test_a_watch_without_a_list_for_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    failures = WatchFailures(lambda: clock.now)
    told = asyncio.ensure_future(failures.run())
    began = clock.now
    while not told.done():
        await failures.failed(ROUTERS, A, ERROR)
        await failures.failed(ROUTERS, None, ERROR)
        failures.listed(ROUTERS, None)
        await asyncio.wait([told], timeout=0)
        assert clock.now - began < MOST_SECONDS + 3 * LONGEST_PAUSE_SECONDS
    assert clock.now - began > MOST_SECONDS
    with pytest.raises(
        WatchFailedError, match="the watch of routers in namespace a has failed for 300 seconds"
    ):
        await told


async def test_the_time_of_a_list_that_does_not_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    failures = WatchFailures(lambda: clock.now)
    told = asyncio.ensure_future(failures.run())
    delivered = clock.now
    clock.now += MOST_SECONDS / 2
    await failures.failed(ROUTERS, A, ERROR, delivered)
    clock.now += MOST_SECONDS / 2 + 1
    await asyncio.wait([told], timeout=0)
    assert not told.done()
    await failures.failed(ROUTERS, A, ERROR, clock.now)
    with pytest.raises(WatchFailedError):
        await told


async def test_a_namespace_beside_others_that_work_is_given_up_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    failures = WatchFailures(lambda: clock.now)
    told = asyncio.ensure_future(failures.run())
    began, why = clock.now, None
    while why is None:
        assert clock.now - began < MOST_SECONDS + LONGEST_PAUSE_SECONDS
        why = await failures.failed(ROUTERS, A, ERROR, others=True)
        assert failures.works("b")
        assert failures.works("a") == (why is not None)
    assert clock.now - began > MOST_SECONDS
    assert why == "the watch of routers in namespace a has failed for 300 seconds: ValueError: no"
    # Its first list holds up all namespaces.
    pauses = len(clock.pauses)
    assert await failures.failed(ROUTERS, A, ERROR, others=True) is None
    assert await failures.failed(ROUTERS, A, ERROR, clock.now, others=True) is not None
    assert len(clock.pauses) == pauses + 1
    await asyncio.wait([told], timeout=0)
    assert not told.done()
    told.cancel()


async def test_answers_of_the_api_server_do_not_get_into_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch)
    failures = WatchFailures(lambda: clock.now)
    told = asyncio.ensure_future(failures.run())
    answer = b'{"data": {"key": "secret"}}\xff' + bytes(100_000)
    await failures.failed(ROUTERS, A, UnicodeDecodeError("utf-8", answer, 27, 28, "invalid start byte"), 0.0)
    await failures.failed(ROUTERS, A, ValueError("long" * 100_000), 0.0)
    with pytest.raises(WatchFailedError) as found:
        await told
    for text in (caplog.text, str(found.value)):
        assert "secret" not in text
        assert "invalid start byte" in text
        assert len(text) < 2_000


async def test_the_watches_end_with_the_first_task_of_kopf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks of kopf may wait without an end, even when they are cancelled."""
    stays = asyncio.Event()

    async def fails() -> None:
        raise RuntimeError("a watch failed")

    async def hangs() -> None:
        while not stays.is_set():
            try:
                await stays.wait()
            except asyncio.CancelledError:
                continue

    tasks: list[asyncio.Task[None]] = []

    async def spawn(**_: Any) -> list[asyncio.Task[None]]:
        tasks.extend(asyncio.create_task(one()) for one in (hangs, fails))
        return tasks

    async def readable(_: object) -> None:
        return None

    monkeypatch.setattr(kopf, "spawn_tasks", spawn)
    monkeypatch.setattr(main, "_anything_readable", readable)
    monkeypatch.setattr(main, "_registry", lambda *_, **__: kopf.OperatorRegistry())
    anything: Any = type("Anything", (), {"__getattr__": lambda self, name: None})()
    with pytest.raises(RuntimeError, match="a watch failed"):
        await asyncio.wait_for(main._watch(anything, anything, anything, asyncio.Event()), 10)
    stays.set()
    await asyncio.wait(tasks)


HANGS = """
import asyncio, sys
from isthmus_operator import __main__ as main

main.END_SECONDS = 0.2

async def hangs():
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

async def serve():
    asyncio.create_task(hangs())
    await asyncio.sleep(0)
    return 3

sys.exit(asyncio.run(main._end_in_time(serve())))
"""


def test_the_process_ends_though_a_task_does_not(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    began = time.monotonic()
    ended = subprocess.run([sys.executable, str(script)], timeout=60, check=False)
    assert ended.returncode == 3
    assert time.monotonic() - began < 50
