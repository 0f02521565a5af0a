"""A thread that works until it is told to end. The collector is unhealthy if the thread ends or is silent."""

from __future__ import annotations

import logging
import threading
import time

logger = logging.getLogger("STORE")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
"""Seconds between attempts."""


class Worker:
    """Works on a thread of its own that does not end before its time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stopping = threading.Event()
        self.failed = False
        """It has ended before its time, by an error of the program."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ticked = time.monotonic()

    def start(self) -> None:
        """Work from now on."""
        self.tick()
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    def tick(self) -> None:
        """To be called by the thread again and again."""
        self._ticked = time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds since the thread has been heard of."""
        return time.monotonic() - self._ticked if self._thread.is_alive() else 0.0

    def _run(self) -> None:
        try:
            self.work()
        except Exception:
            logger.exception("a thread has ended", extra={"worker": self.name})
        finally:
            self.failed = not self.stopping.is_set()

    def work(self) -> None:
        """What it does until `stopping`."""
        raise NotImplementedError
