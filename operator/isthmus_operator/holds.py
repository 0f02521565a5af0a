"""When to try writes again that the API server has refused. Each concerns its object alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any

from .cluster import ApiError

FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
"""Each pause between two attempts is twice as long as the one before, up to this."""
REFUSED_SECONDS = 30.0
"""Pause before the API server is asked again for what it has refused as invalid or forbidden."""


@dataclass(frozen=True)
class _Hold:
    content: Any
    error: ApiError
    pause: float
    until: float


class Holds:
    """The refused writes, by object. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holds: dict[Hashable, _Hold] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, key: Hashable, content: Any, error: ApiError) -> float:
        """The API server has refused to write `content`. Return the seconds of the pause, which grows with each failure
        of the API server itself."""
        pause = REFUSED_SECONDS
        if error.status >= 500:
            before = self._holds.get(key)
            pause = min(MAX_RETRY_SECONDS, 2 * before.pause) if before is not None else FIRST_RETRY_SECONDS
        self._holds[key] = _Hold(content, error, pause, self._clock() + pause)
        return pause

    def refusal(self, key: Hashable, content: Any) -> ApiError | None:
        """Return why `content` is not to be written now, or None if it may be."""
        held = self._holds.get(key)
        if held is None or held.content != content or self._clock() >= held.until:
            return None
        return held.error

    def remove(self, key: Hashable) -> None:
        """The object was written, or need not be."""
        self._holds.pop(key, None)

    def retain(self, keys: Collection[Hashable]) -> None:
        """Forgets objects other than these."""
        self._holds = {key: item for key, item in self._holds.items() if key in keys}

    def due(self, since: float) -> float | None:
        """Return after how many seconds the next pause ends, without those that ended before `since`."""
        ends = [item.until for item in self._holds.values() if item.until > since]
        return max(0.1, min(ends) - self._clock()) if ends else None
