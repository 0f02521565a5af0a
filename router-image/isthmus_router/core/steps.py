"""Work in steps: the first ones within the event that causes it, the others between other work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice


def begin(work: Callable[[Iterator[None]], None], job: Iterator[None], at_once: int) -> None:
    """Carry out the first `at_once` steps of `job`, and give the others, if any, to `work`."""
    if len(list(islice(job, at_once))) == at_once:
        work(job)
