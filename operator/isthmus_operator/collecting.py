"""Garbage collection while documents are decoded.

The decoder makes all values of a document in one call, and starts a collection after each 700 lists and objects. No
other thread runs meanwhile, and the collections take several times as long as the decoding. The values of a document
refer to no value that refers to them, so that they need no collection.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection starts in this context. Of threads that are in it at the same time, the first one ends that."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
