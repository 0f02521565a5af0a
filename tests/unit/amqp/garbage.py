"""What only a full collection of garbage would free, which the router puts off because it stops everything."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_left_to_collect() -> Iterator[None]:
    """Fail if objects of the router refer to each other, and nobody else to them, at the end of the block."""
    gc.collect(1)
    gc.freeze()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(found).__qualname__ for found in gc.garbage if _is_of_router(found))
        assert not left, left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()


def _is_of_router(found: object) -> bool:
    return type(found).__module__.startswith("isthmus_router.")
