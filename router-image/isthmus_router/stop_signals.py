"""SIGTERM and SIGINT: the first signal stops the process, and further signals change nothing."""

from __future__ import annotations

import asyncio
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def heed(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    """Handle the signals from now on. The first one sets the event that is returned.

    `loop.add_signal_handler` is not used: between the removal of its handler and the next handler, a signal would end
    the process immediately.
    """
    stop = asyncio.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    return stop


def ignore() -> None:
    """Ignore the signals from now on. Otherwise a further signal could end the interpreter while it finishes."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
