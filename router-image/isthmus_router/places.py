"""Places for connections at a port, of which no peer has all."""

from __future__ import annotations

from collections import Counter

LEAST = 64
"""Places that one peer may always have."""


class Places:
    """A peer gets another place if it has less than `LEAST`, or fewer than are free."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    def take(self, peer: str) -> bool:
        """Take a place for the peer. Returns whether it may have one more."""
        if self._taken[peer] >= max(LEAST, self._most - self._taken.total()):
            return False
        self._taken[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        """Give a place of the peer back."""
        self._taken[peer] -= 1
        if not self._taken[peer]:
            del self._taken[peer]
