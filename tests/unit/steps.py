"""Work that is done in steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def finished(steps: Generator[None, None, Result]) -> Result:
    """Take all steps, and return what comes of them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
