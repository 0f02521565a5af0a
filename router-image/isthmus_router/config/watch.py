"""Notices a changed configuration file, and changed files it refers to.

Contents are compared, not timestamps: the kubelet replaces a mounted Secret by swapping a symbolic link,
and the files' own metadata say nothing then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable

from isthmus_router.config.errors import ConfigError
from isthmus_router.config.loader import load
from isthmus_router.config.model import Configuration
from isthmus_router.config.sources import Sources, SystemSources


class _RecordingSources:
    """Remembers the contents (as digests) of everything that was read."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.digests: dict[str, bytes | None] = {}
        self.listings: dict[str, list[str] | None] = {}
        """Names of the files in directories."""

    def read(self, path: str) -> bytes:
        self.digests[path] = None
        contents = self.sources.read(path)
        self.digests[path] = hashlib.sha256(contents).digest()
        return contents

    def names(self, folder: str) -> list[str]:
        self.listings[folder] = None
        names = self.listings[folder] = sorted(self.sources.names(folder))
        return names

    def variable(self, name: str) -> str | None:
        return self.sources.variable(name)

    def is_current(self) -> bool:
        """Whether every file read is still there with the same contents (or still unreadable), and no other."""
        return (
            bool(self.digests)
            and all(self._digest(path) == seen for path, seen in self.digests.items())
            and all(self._listing(folder) == seen for folder, seen in self.listings.items())
        )

    def _listing(self, folder: str) -> list[str] | None:
        try:
            return sorted(self.sources.names(folder))
        except OSError:
            return None

    def _digest(self, path: str) -> bytes | None:
        try:
            return hashlib.sha256(self.sources.read(path)).digest()
        except (OSError, ValueError):
            return None


class ConfigWatcher:
    """Polls a configuration file and calls back, on the event loop, once per change.

    A file that could not be used and is back to what it was counts as a change, so that the error can be
    taken back.
    """

    def __init__(
        self,
        path: str,
        current: Configuration,
        on_change: Callable[[Configuration], None],
        on_error: Callable[[ConfigError], None],
        *,
        router_id_override: str | None = None,
        interval: float = 1.0,
        sources: Sources | None = None,
    ) -> None:
        """`current` is the configuration in force; `interval` is in seconds."""
        self.path = path
        self.current = current
        self.last_error: ConfigError | None = None
        """Why the file cannot be used at present; None when it can."""
        self._on_change = on_change
        self._on_error = on_error
        self._router_id_override = router_id_override
        self._interval = interval
        self._sources = sources or SystemSources()
        self._seen = _RecordingSources(self._sources)

    async def run(self) -> None:
        """Polls until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            await self.poll()

    async def poll(self) -> None:
        """Looks once. Reading and parsing happen in a thread, the callbacks here."""
        outcome = await asyncio.to_thread(self._read_if_changed)
        if isinstance(outcome, ConfigError):
            self.last_error = outcome
            self._on_error(outcome)
        elif outcome is not None:
            recovered, self.last_error = self.last_error is not None, None
            # The comparison of tens of thousands of sections takes tens of milliseconds.
            if recovered or await asyncio.to_thread(self._is_new, outcome):
                self.current = outcome
                self._on_change(outcome)

    def _is_new(self, outcome: Configuration) -> bool:
        """The same settings in another text count too: observers wait to see the hash of what they wrote."""
        return outcome != self.current or outcome.config_hash != self.current.config_hash

    def _read_if_changed(self) -> Configuration | ConfigError | None:
        if self._seen.is_current():
            return None
        seen = _RecordingSources(self._sources)
        outcome: Configuration | ConfigError
        try:
            outcome = load(
                self.path,
                self._router_id_override,
                default_router_id=self.current.router.id,
                sources=seen,
            )
        except ConfigError as error:
            outcome = error
        if not seen.is_current():
            # Caught in the middle of a replacement: the parts may not belong together.
            return None
        self._seen = seen
        return outcome
