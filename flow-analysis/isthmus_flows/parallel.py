"""Several of Spark's jobs at the same time: most are small, and leave executors idle while the next is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

AT_ONCE = 4

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(spark: SparkSession, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """What `work` makes of each item, in their order. Raises the first error, when nothing runs any more."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Each has properties of Spark's of its own, which begin as those here.
        running = [pool.submit(inheritable_thread_target(spark)(work), item) for item in items]
    return [future.result() for future in running]
