"""What a member keeps for other sites: as a holder of what all origins of the site publish, else of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import inf

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.views import View
from isthmus_router.relay.buffer import Buffer
from isthmus_router.relay.pacing import Pacing
from isthmus_router.relay.port import SiteStreams, StreamLog
from isthmus_router.relay.roles import holders_of
from isthmus_router.relay.settings import RelaySettings

_PRESSED = 32
"""Senders hear of acknowledgements early when so large a part (1/n) of the buffer waits for a site."""
DROPPED_INTERVAL = 5.0
"""Between two lines of the log about messages dropped."""


class Keeper:
    """The buffer counts, the streams have the batches."""

    def __init__(
        self,
        own: MemberId,
        settings: RelaySettings,
        streams: SiteStreams,
        dropped: Callable[[str, int], None],
        reachable: Callable[[str], bool],
    ) -> None:
        """`dropped` is told of so many messages for a site that are gone, now and then."""
        self._id = own
        self._settings = settings
        self._streams = streams
        self._tell = dropped
        self._reachable = reachable
        self.buffer = Buffer(settings)
        self.pacing = Pacing(own, settings, self.buffer, reachable)
        self.is_holder = False
        self._members = 1
        """Of the own site."""
        self._adopting = False
        """What others were asked for is not counted yet."""
        self._told: Counter[str] = Counter()
        """Messages for each site of which it was told that they were dropped,"""
        self._told_at = -inf
        """the last time."""

    def configure(self, settings: RelaySettings) -> None:
        """Other sites and bounds hold from now on."""
        self._settings = settings
        self.buffer.configure(settings)
        self.pacing.configure(settings, self._members)

    def view_installed(self, now: float, view: View) -> None:
        """Members of the own site."""
        holder = self._id in holders_of(view, self._settings.relays, self._settings.copies)
        was_holder, self.is_holder = self.is_holder, holder
        self._members = len(view.ids)
        self.pacing.configure(self._settings, self._members)
        if holder and not was_holder:
            self._hold(now)
        elif not holder:
            self.buffer.only(self._id)

    def delivered(self, now: float, batch: Batch) -> None:
        """The streams have delivered a batch of this site here."""
        if self.is_holder or batch.origin == self._id:
            self.buffer.take(now, batch)
            if batch.origin == self._id:
                self.pacing.published(now, batch)

    def acknowledge(self, now: float, site: str, origin: MemberId, number: int) -> bool:
        """A site has all batches of the origin up to the number; False: that was known. Raises FrameError."""
        if origin != self._id:
            return self.buffer.acknowledge(site, origin, number)
        own = self._streams.log(origin)
        if own is not None and number >= own.next:
            raise FrameError(f"acknowledgement of batch {number}, which this member has not published")
        messages, size = self.buffer.waiting(site, origin)
        if not self.buffer.acknowledge(site, origin, number):
            return False
        left, size_left = self.buffer.waiting(site, origin)
        self.pacing.acknowledged(now, site, messages - left, size - size_left)
        return True

    def pressed(self, site: str) -> bool:
        """Whether so much waits for a site that senders may have to."""
        messages, size = self.buffer.waiting(site)
        bounds = self._settings
        return messages * _PRESSED > bounds.buffer_messages or size * _PRESSED > bounds.buffer_bytes

    def has_stream(self, origin: MemberId) -> bool:
        """Whether there is a stream of the origin here."""
        return self._streams.log(origin) is not None

    def relayed(self, origin: MemberId) -> float:
        """Up to which number no batch of the origin is needed for other sites; `inf`: all, or it is not this member
        that keeps them. What the streams ask before they forget any."""
        if self.is_holder or origin == self._id:
            log = self._streams.log(origin)
            if log is not None and log.site == self._settings.site:
                return self.buffer.relayed(origin)
        return inf

    def is_awaited(self) -> bool:
        """Whether a site in reach has not acknowledged all batches of this member."""
        return any(
            self._reachable(site) and self.buffer.waiting(site, self._id)[0] > 0
            for site in self._settings.sites
            if site in self.buffer.contacted
        )

    def elsewhere(self, number: int) -> int:
        """The highest number up to which each batch of this member after `number` is held by another site."""
        log, best = self._streams.log(self._id), number
        if log is None:
            return number
        for site in self._settings.sites:
            acknowledged = self.buffer.acknowledged(site, self._id)
            reached = number
            for batch in log.batches(number + 1):
                if batch.number > acknowledged or not batch.is_for(site):
                    break
                reached = batch.number
            best = max(best, reached)
        return best

    def local_logs(self) -> Iterator[tuple[MemberId, StreamLog]]:
        """Of the origins of this site."""
        for origin in list(self._streams.origins()):
            log = self._streams.log(origin)
            if log is not None and log.site == self._settings.site:
                yield origin, log

    def _hold(self, now: float) -> None:
        """This member keeps what is to be relayed, from now on: what it lacks others have."""
        for origin, _ in self.local_logs():
            self._streams.backfill(now, origin, 1)
        self._adopt(now)

    def _adopt(self, now: float) -> None:
        """Keep count of what is in the streams; again when what others have been asked for is there."""
        self._adopting = not self._streams.ready
        if self._settings.sites:
            for origin, log in self.local_logs():
                self.buffer.adopt(now, origin, log.batches(log.low))
            self.buffer.shrink()

    def on_time(self, now: float) -> None:
        """Now and then: of bounds that are a matter of time, and of streams that are gone."""
        self.buffer.on_time(now, self._reachable)
        self._tell_dropped(now)
        gone = [origin for origin in self.buffer.origins() if self._streams.log(origin) is None]
        self.buffer.forget_all(gone)
        if self._adopting and self._streams.ready:
            self._adopt(now)

    def _tell_dropped(self, now: float) -> None:
        new = self.buffer.dropped - self._told
        if new and now - self._told_at >= DROPPED_INTERVAL:
            self._told, self._told_at = Counter(self.buffer.dropped), now
            for site, messages in new.items():
                self._tell(site, messages)
