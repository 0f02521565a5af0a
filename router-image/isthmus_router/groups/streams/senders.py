"""Which member may send which frame of a stream. What others send is ignored, and counted.

The *source* of a stream is its origin while that is in the view; of another site's stream it is each relay of the
view. Only a source sends batches, starts and gaps of its own accord. Any other member of the view sends them as
answers to a request for repair, in the range of numbers that it was asked for. Nobody else is asked for numbers that no
source has vouched for, so a member that claims to have them cannot make them up.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.stream import Stream
from isthmus_router.groups.streams.wire import Gap, Start

MOST_STEP = 1 << 33
"""A batch or a gap is at most so far ahead of the next number of its stream. That is a month of 3,000 batches per
second."""
MOST_STARTED = 1 << 61
"""The highest number with which a stream begins."""


class Senders:
    """At one member."""

    def __init__(self, self_id: MemberId, site: str) -> None:
        self._self_id = self_id
        self._site = site
        self._ids = frozenset((self_id,))
        self._relays: tuple[MemberId, ...] = (self_id,)

    def choose(self, ids: Sequence[MemberId], relays: int) -> None:
        """There is a new view, or another number of relays."""
        self._ids = frozenset(ids)
        self._relays = tuple(ids[:relays])

    def is_member(self, sender: MemberId) -> bool:
        """Whether it is in the view."""
        return sender in self._ids

    def sources(self, origin: MemberId, site: str) -> tuple[MemberId, ...]:
        """The other members that are sources of a stream. None: every member of the view is believed alike."""
        if origin in self._ids:
            return (origin,) if origin != self._self_id else ()
        if site == self._site or self._self_id in self._relays:
            return ()
        return self._relays

    def is_source(self, sender: MemberId, origin: MemberId, site: str) -> bool:
        """Whether a member is a source of a stream, to this member or to others."""
        if sender == origin:
            return True
        return origin not in self._ids and site != self._site and sender in self._relays

    def may_send_batch(self, sender: MemberId, batch: Batch, stream: Stream | None) -> bool:
        """A member that has left the view may send its own, which are under way for a while. Raises FrameError."""
        if batch.number > _reach(stream):
            raise FrameError(f"batch {batch.number} is too far ahead of its stream")
        site = (stream.log.site if stream is not None else "") or batch.site
        if batch.site != site or (
            batch.site != self._site and (sender == batch.origin or self._is_here(batch))
        ):
            raise FrameError(f"batch of site {batch.site} in a stream of site {site}")
        if sender == batch.origin:
            return True
        if sender not in self._ids:
            return False
        return self.is_source(sender, batch.origin, site) or _was_asked(stream, sender, batch.number)

    def _is_here(self, batch: Batch) -> bool:
        return batch.origin in self._ids

    def may_send_start(self, sender: MemberId, start: Start, stream: Stream | None) -> bool:
        """Streams of members of the view begin with it, without a word of others. Raises FrameError."""
        if start.number > MOST_STARTED:
            raise FrameError(f"stream that starts with {start.number}")
        if start.origin in self._ids or sender not in self._ids:
            return False
        if stream is not None and stream.log.site not in ("", start.site):
            return False
        return self.is_source(sender, start.origin, start.site) or _was_asked(stream, sender, 0)

    def may_send_gap(self, sender: MemberId, gap: Gap, stream: Stream | None) -> bool:
        """Gaps are of streams of other sites. Raises FrameError."""
        if not 1 <= gap.first <= gap.last or gap.last > _reach(stream):
            raise FrameError(f"gap from {gap.first} to {gap.last}")
        site = (stream.log.site if stream is not None else "") or gap.site
        if sender != gap.origin and (gap.origin in self._ids or site == self._site):
            raise FrameError("gap in the stream of another member")
        if sender not in self._ids or gap.site != site:
            return False
        return self.is_source(sender, gap.origin, site) or _was_asked(stream, sender, gap.first)


def _reach(stream: Stream | None) -> int:
    return stream.log.next + MOST_STEP if stream is not None and stream.started else MOST_STARTED


def _was_asked(stream: Stream | None, sender: MemberId, number: int) -> bool:
    first, last = stream.asked.get(sender, (1, 0)) if stream is not None else (1, 0)
    return first <= number <= last
