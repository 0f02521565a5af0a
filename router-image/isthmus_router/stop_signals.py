"""SIGTERM and SIGINT: the first one has the process stop, and those that follow change nothing."""

from __future__ import annotations

import asyncio
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def heed(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Set by the first signal, from now on.

    The loop does not handle these signals itself: when its handler is removed, and until the next one is there, a
    signal would end the process at once.
    """
    stop = asyncio.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    return stop


def ignore() -> None:
    """Whoever asks again while the interpreter ends would have it end by the signal."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
