"""Room at one member for batches of others that are not stable.

An origin stops at `window_bytes` of batches that not all members have, so a receiver has at most two windows of it: one
that has become stable without the receiver having received that, and the present one. A batch for which there is no
room is not taken. The member requests it again later, as one that was lost on its way.

All streams together have a bound, too. Beyond it each stream has an equal share of as much again, and the first one, in
the order of ids, that has batches which are not stable has room as before. That is the same stream at all members as
soon as they have received the same positions, so it becomes stable, and then the next one. Without such an order, two
members that are full of batches of different streams would wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from isthmus_router.groups.batch import BATCH_BYTES, MOST_MESSAGE_BYTES
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.stream import Stream
from isthmus_router.groups.streams.user import StreamsSettings

_FIRST_SECONDS = 0.05
"""Between two searches for the first stream that is not settled."""
_COUNT_SECONDS = 0.05
"""Between two counts of the batches that are kept for other sites."""


class Room:
    """Of all streams of a member but its own."""

    def __init__(self, settings: StreamsSettings, streams: Mapping[MemberId, Stream]) -> None:
        self._most = 2 * settings.window_bytes + MOST_MESSAGE_BYTES + BATCH_BYTES
        self._slack = settings.window_bytes + MOST_MESSAGE_BYTES + BATCH_BYTES
        self._relayed_bytes = settings.relayed_bytes
        self._stable_bytes, self._stable_at = 0, 0.0
        self._most_together = settings.windows_together * settings.window_bytes
        self._share = self._most_together // settings.most_streams
        self._streams = streams
        self._first: MemberId | None = None
        self._first_at = 0.0
        self.unstable_bytes = 0
        """Of batches that are not stable."""

    def has(self, now: float, stream: Stream, size: int = 1) -> bool:
        """Return whether the next batch of a stream, of that size, can be taken."""
        if self.unstable_bytes <= self._most_together:
            return stream.unstable_bytes <= self._most
        if stream.unstable_bytes + size <= self._share:
            return True
        return stream.unstable_bytes <= self._most and stream.origin == self._first_unsettled(now)

    def configure(self, settings: StreamsSettings) -> None:
        """Another bound of batches for other sites holds from now on."""
        self._relayed_bytes = settings.relayed_bytes

    def take_back(self, now: float, size: int) -> bool:
        """Return whether a batch that was delivered before can be taken back into a log, and count it."""
        if now >= self._stable_at:
            self._stable_at = now + _COUNT_SECONDS
            streams = self._streams.values()
            self._stable_bytes = sum(stream.log.bytes - stream.unstable_bytes for stream in streams)
        if self._stable_bytes > self._relayed_bytes + self._slack:
            return False
        self._stable_bytes += size
        return True

    def _first_unsettled(self, now: float) -> MemberId | None:
        if now >= self._first_at:
            self._first_at = now + _FIRST_SECONDS
            self._first = min(
                (stream.origin for stream in self._streams.values() if stream.started and not stream.settled),
                default=None,
            )
        return self._first
