"""Frames of members that are not in the view, which come through gossip routers on the connection of all members.

Discovery and membership need some of them. Of each sender so many are taken as these need, and the others are dropped
before they are decoded, so that nobody who is registered at a gossip router delays the frames of members. Sans-IO.
"""

from __future__ import annotations

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId

PER_SECOND = 50
"""Frames of a sender."""
AT_ONCE = 100
"""After a time without any."""
MALFORMED_FRAMES = 20
"""That a malformed one counts as."""
MOST_SENDERS = 2_000
"""That are remembered."""


class Strangers:
    """A token bucket of each sender for discovery and membership, and one for all else (as the virtual scheduling
    algorithm: the time at which it is full again)."""

    def __init__(self) -> None:
        self._full_at: dict[tuple[MemberId, bool], float] = {}

    def takes(self, now: float, sender: MemberId, frame: bytes) -> bool:
        """Whether a frame is to be decoded."""
        key = (sender, frame[0] >= Kind.BATCH)
        full_at = self._full_at.get(key)
        if full_at is None:
            self._make_room(now)
            full_at = now
        full_at = max(now, full_at) + 1 / PER_SECOND
        if full_at > now + AT_ONCE / PER_SECOND:
            return False
        self._full_at[key] = full_at
        return True

    def malformed(self, sender: MemberId, frame: bytes) -> None:
        """That was one which it takes."""
        self._full_at[sender, frame[0] >= Kind.BATCH] += (MALFORMED_FRAMES - 1) / PER_SECOND

    def _make_room(self, now: float) -> None:
        if len(self._full_at) >= MOST_SENDERS:
            self._full_at = {key: at for key, at in self._full_at.items() if at > now}
            if len(self._full_at) >= MOST_SENDERS:
                del self._full_at[next(iter(self._full_at))]
