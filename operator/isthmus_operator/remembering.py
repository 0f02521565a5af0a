"""Results of functions of key material, remembered within a number of bytes.

`functools.lru_cache` holds the arguments, which a tenant chooses: 512 bundles of 1 MiB each, and private keys, also
after their Secrets are gone. Here an argument counts with its digest alone.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

ENTRY_BYTES = 512
"""Added to the length of each result."""


class Memory:
    """Results of several functions. The one that was not used for the longest time goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._results: OrderedDict[bytes, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0
        """Of all results that are remembered."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """`function` with a memory. Its arguments and results are bytes, texts, numbers, moments, None, or tuples and
        frozen data classes of these. Errors are not remembered."""

        @functools.wraps(function)
        def remembering(*args: P.args, **kwargs: P.kwargs) -> R:
            key = _digest(f"{function.__module__}.{function.__qualname__}", (*args, *sorted(kwargs.items())))
            with self._lock:
                if key in self._results:
                    self._results.move_to_end(key)
                    result: R = self._results[key][0]
                    return result
            result = function(*args, **kwargs)
            self._add(key, result, ENTRY_BYTES + len(pickle.dumps(result)))
            return result

        return remembering

    def _add(self, key: bytes, result: object, size: int) -> None:
        with self._lock:
            if key in self._results or size > self._most // 8:
                return
            self._results[key] = result, size
            self.bytes += size
            while self.bytes > self._most:
                _, (_, freed) = self._results.popitem(last=False)
                self.bytes -= freed


def _digest(function: str, arguments: Iterable[object]) -> bytes:
    found = hashlib.sha256(function.encode())
    for item in arguments:
        text = item if isinstance(item, bytes) else repr(item).encode()
        found.update(b"%d %d " % (isinstance(item, bytes), len(text)))
        found.update(text)
    return found.digest()
