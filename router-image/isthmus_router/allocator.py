"""How much freed memory the process keeps, with the allocator of glibc. Other C libraries decide that themselves.

By default, glibc gives the end of its heap back to the system whenever a large message has been freed. The kernel then
has to clear all pages of the next one: a fifth of the CPU time of messages of 1 MB.

Source: mallopt(3), malloc_trim(3).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEPT_BYTES = 16 * 1024 * 1024
"""Free at the end of a heap, beyond which it is given back at once."""
GROWTH_BYTES = 1024 * 1024
"""By which a heap grows beyond what is needed."""
MAPPED_BYTES = 2 * 1024 * 1024
"""Of a buffer that is a mapping of its own, and not a part of a heap. No message is in buffers as large as that."""

_libc = ctypes.CDLL(None)
_set_option: Callable[[int, int], int] = getattr(_libc, "mallopt", lambda *_: 0)
_trim: Callable[[int], int] = getattr(_libc, "malloc_trim", lambda _: 0)


def keep_freed_memory() -> None:
    """Keep a bounded amount of it for the next messages, from now on."""
    _set_option(M_MMAP_THRESHOLD, MAPPED_BYTES)
    _set_option(M_TRIM_THRESHOLD, KEPT_BYTES)
    _set_option(M_TOP_PAD, GROWTH_BYTES)


def give_memory_back() -> None:
    """All that is free, to the system."""
    _trim(0)
