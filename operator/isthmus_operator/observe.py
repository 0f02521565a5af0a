"""What routers, gossip routers, collectors and runs of Spark say of themselves: polling every pod.

With bounded concurrency and jitter; the reconciler of a namespace is told only when something that matters
has changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from .decoding import apart
from .fetch import MAX_ANSWER_BYTES, fetch
from .metrics import POLLS
from .report import Observation, Report, RouterReport, occupied, parse_report
from .slots import Slots
from .untrusted import document

logger = logging.getLogger(__name__)

MAX_PARALLEL = 32
MAX_PARALLEL_PER_NAMESPACE = 8
"""The pods of one namespace cannot use up the time for all others by not answering."""
MAX_REPORT_BYTES = 96 * 1024 * 1024
"""Of memory, for the reports of all pods. One namespace has at most as much of it as is free for others."""
RESERVED_BYTES = 256 * 1024
"""For the reports of each namespace, whatever others have. The report of a router takes a few KB."""
READING_SHARE = 0.2
"""Of one processor: the part that the answers of one namespace take at most."""
REQUESTS_PER_SECOND = 50.0
"""To pods of all namespaces together, if each namespace has as many pods."""
POLL_TIMEOUT_SECONDS = 3.0
POLL_SECONDS = 0.1
"""The time of a request that counts as one turn of its namespace."""
POLL_CREDIT = 32.0
"""Turns that a namespace has in advance whose pods answer at once."""
HURRIED_SECONDS = 1.0
FAILURES_BEFORE_UNKNOWN = 2
"""One lost poll says nothing about a router; a report is given up after this many in a row."""


@dataclass(frozen=True)
class Target:
    """A pod to poll, and how its answer is read: `parse` raises ValueError."""

    uid: str
    ip: str
    """The pod's own address; nothing that the pod answers leads to another one."""
    port: int
    path: str = "/status"
    parse: Callable[[Any, datetime], Report] = parse_report


class Observer:
    """Polls the pods of all namespaces."""

    def __init__(
        self,
        changed: Callable[[str], None],
        *,
        interval: float = 3.0,
        numbers_seconds: float = 15.0,
        max_bytes: int = MAX_ANSWER_BYTES,
        max_report_bytes: int = MAX_REPORT_BYTES,
        reserved_bytes: int = RESERVED_BYTES,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """`numbers_seconds`: how old the numbers of a router in the status of resources may get. `max_bytes`: the
        longest answer that is read. `max_report_bytes`: memory of all reports, `reserved_bytes`: of those of one
        namespace in any case. `cpu`: the time that the processor has worked, in seconds."""
        self._changed = changed
        self._interval = interval
        self._numbers_seconds = numbers_seconds
        self._slots = Slots(MAX_PARALLEL, MAX_PARALLEL_PER_NAMESPACE, POLL_CREDIT)
        self._max_bytes = max_bytes
        self._max_report_bytes = max_report_bytes
        self._reserved_bytes = reserved_bytes
        self._sizes: dict[str, dict[str, int]] = defaultdict(dict)
        """By namespace and pod: bytes of memory of the report that is kept."""
        self._cpu = cpu
        self._shares: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_PARALLEL_PER_NAMESPACE)
        )
        """By namespace."""
        self._tasks: dict[tuple[str, str], tuple[Target, asyncio.Task[None]]] = {}
        self._counts: dict[str, int] = {}
        """By namespace: the number of pods that are polled."""
        self._observations: dict[tuple[str, str], Observation] = {}
        self._hurried: set[str] = set()
        """Namespaces where something waits for what routers say."""
        self._told: dict[tuple[str, str], _Told] = {}
        """What was told of a pod last."""

    def observations(self, namespace: str) -> Mapping[str, Observation]:
        """Per pod name."""
        return {pod: item for (where, pod), item in self._observations.items() if where == namespace}

    def watch(self, namespace: str, targets: Mapping[str, Target], *, hurry: bool = False) -> None:
        """Polls exactly these pods of `namespace` from now on, and more often while something waits for what
        they say."""
        (self._hurried.add if hurry else self._hurried.discard)(namespace)
        for key in [key for key in self._tasks if key[0] == namespace]:
            if targets.get(key[1]) != self._tasks[key][0]:
                self._tasks.pop(key)[1].cancel()
                self._observations.pop(key, None)
                self._told.pop(key, None)
                self._sizes[namespace].pop(key[1], None)
        for pod, target in targets.items():
            key = (namespace, pod)
            if key not in self._tasks:
                self._tasks[key] = (target, asyncio.create_task(self._poll(key, target)))
        if targets:
            self._counts[namespace] = len(targets)
        else:
            self._counts.pop(namespace, None)
            self._shares.pop(namespace, None)
            self._sizes.pop(namespace, None)

    async def close(self) -> None:
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    async def _poll(self, key: tuple[str, str], target: Target) -> None:
        failures = 0
        while True:
            async with self._shares[key[0]]:
                observation, cost = await self._ask(key, target)
                failures = failures + 1 if observation.report is None else 0
                before = self._observations.get(key)
                if before is None or failures == 0 or failures >= FAILURES_BEFORE_UNKNOWN:
                    self._observations[key] = observation
                    if observation != before or self._is_time(key, observation):
                        self._told[key] = _Told.of(observation)
                        self._changed(key[0])
                # Other pods of the namespace wait meanwhile, so their number does not matter.
                await asyncio.sleep(cost * MAX_PARALLEL_PER_NAMESPACE / READING_SHARE)
            await asyncio.sleep(self._pause(key[0]))

    def _is_time(self, key: tuple[str, str], observation: Observation) -> bool:
        """Whether to tell what is no news by itself."""
        told, now = self._told[key], _Told.of(observation)
        if now.numbers == told.numbers:
            return False
        return told.lags or now.lags or now.at >= told.at + self._numbers_seconds

    def _pause(self, namespace: str) -> float:
        """Seconds until the next request to a pod. All pods together get about 50 requests a second, and at most twice
        as many: a namespace with few pods has an equal part of 50 in any case."""
        interval = min(HURRIED_SECONDS, self._interval) if namespace in self._hurried else self._interval
        everywhere, here = len(self._tasks), self._counts.get(namespace, 0) * len(self._counts)
        return max(interval, min(everywhere, here) / REQUESTS_PER_SECOND) * random.uniform(0.8, 1.2)

    async def _ask(self, key: tuple[str, str], target: Target) -> tuple[Observation, float]:
        """What a pod has answered, and how long the processor has worked on that, in seconds."""
        try:
            async with self._slots.slot(key[0]) as use:
                began = time.monotonic()
                try:
                    body = await fetch(
                        target.ip,
                        target.port,
                        target.path,
                        limit=self._max_bytes,
                        seconds=POLL_TIMEOUT_SECONDS,
                    )
                finally:
                    use.cost = (time.monotonic() - began) / POLL_SECONDS
        except (TimeoutError, OSError, EOFError, ValueError) as error:
            POLLS.labels("failed").inc()
            return Observation(None, _reason(error)), 0.0
        observation, size, cost = await apart(partial(self._timed, target), body)
        observation = self._counted(key, observation, size)
        POLLS.labels("ok" if observation.report is not None else "failed").inc()
        return observation, cost

    def _timed(self, target: Target, body: bytes) -> tuple[Observation, int, float]:
        """What `body` says, how many bytes of memory that takes, and how long this thread has worked on it, in
        seconds."""
        started = self._cpu()
        observation = _read(target, body)
        size = occupied(observation.report)
        return observation, size, self._cpu() - started

    def _counted(self, key: tuple[str, str], observation: Observation, size: int) -> Observation:
        """Count a report of `size` bytes in place of the pod's previous one. Return `observation`, or the one to keep
        if there is no room for it."""
        namespace, pod = key
        sizes = self._sizes[namespace]
        before = sizes.pop(pod, 0)
        own = sum(sizes.values()) + size
        everything = sum(sum(item.values()) for item in self._sizes.values()) + size
        free = self._max_report_bytes - everything
        if size > before and own > max(free, self._reserved_bytes):
            error = ValueError("the reports of all pods of the namespace take too much memory")
            return Observation(None, _reason(error))
        sizes[pod] = size
        return observation


@dataclass(frozen=True)
class _Told:
    """What was told of a pod. A report that has become old is not kept for it."""

    at: float
    numbers: int
    """A hash of them."""
    lags: bool

    @classmethod
    def of(cls, observation: Observation) -> _Told:
        report = observation.report
        numbers = hash(report.numbers) if report is not None else 0
        return cls(time.monotonic(), numbers, isinstance(report, RouterReport) and report.lags)


def _read(target: Target, body: bytes) -> Observation:
    try:
        return Observation(target.parse(document(body), datetime.now(UTC)))
    except ValueError as error:
        return Observation(None, _reason(error))
    except Exception:
        # A report that this code does not cope with must not end the polling of the pod.
        logger.exception("the answer of %s cannot be read", target.ip)
        return Observation(None, "does not answer as it should")


def _reason(error: Exception) -> str:
    """What is the matter, for people: no addresses, no words of libraries."""
    if isinstance(error, ValueError):
        return f"does not answer as it should: {error}"
    return f"does not answer on its health port: {_cause(error)}"


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {POLL_TIMEOUT_SECONDS:.0f} s"
    if isinstance(error, EOFError):
        return "it closed the connection"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return "no connection"
