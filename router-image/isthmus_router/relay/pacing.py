"""How fast this member may publish: not faster than other sites take it, as long as they take anything.

Of what a site has not acknowledged each member of the own site may have a share, half of the buffer divided by their
number. So the buffer does not overflow whoever sends, and nobody waits for what another member sends. Who is above it,
as after an outage, may publish half as much as the site acknowledges, until what was kept has gone there.

Each member judges for itself, by what it hears of acknowledgements; so there is nobody whose crash would hold it back.
A site that is out of reach, or acknowledges nothing for `STALLED_AFTER`, holds nobody back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.relay.buffer import Buffer
from isthmus_router.relay.settings import RelaySettings

STALLED_AFTER = 1.0
"""Seconds; more than another relay takes to go on where one has crashed."""
ENDLESS = 1 << 62


@dataclass(slots=True)
class _Site:
    since: float = -inf
    """When it acknowledged something last, or there began to be something to acknowledge."""
    messages: float = 0.0
    bytes: float = 0.0
    """That may be published although the share is used up."""
    held: float = 0.0
    """Seconds that it held senders back, until `looked_at`."""
    looked_at: float = 0.0
    holds: bool = False

    def held_until(self, now: float) -> float:
        return self.held + (now - self.looked_at if self.holds else 0.0)

    def look(self, now: float, holds: bool) -> None:
        self.held, self.looked_at, self.holds = self.held_until(now), now, holds


class Pacing:
    """Of one member. `reachable`: whether a site has a session, or had one not long ago."""

    def __init__(
        self, own: MemberId, settings: RelaySettings, buffer: Buffer, reachable: Callable[[str], bool]
    ) -> None:
        self._id = own
        self._buffer = buffer
        self._reachable = reachable
        self._sites: dict[str, _Site] = {}
        self._share_messages = self._share_bytes = 0.0
        self.room = ENDLESS
        """Bytes that may be published; at 0 or less, wait until `update` says that there is room. The last batch may
        exceed it."""
        self.deadline = inf
        """When to call `update`."""
        self.configure(settings, 1)

    def configure(self, settings: RelaySettings, members: int) -> None:
        """Other sites, bounds of the buffer and numbers of members hold from now on."""
        self._sites = {site: self._sites.get(site) or _Site() for site in settings.sites}
        self._share_messages = settings.buffer_messages / 2 / members
        self._share_bytes = settings.buffer_bytes / 2 / members

    def published(self, now: float, batch: Batch) -> None:
        """One of this member is in the buffer."""
        for name, site in self._sites.items():
            if batch.is_for(name):
                if self._buffer.waiting(name, self._id)[0] <= batch.count:
                    site.since = now
                site.messages = max(0.0, site.messages - batch.count)
                site.bytes = max(0.0, site.bytes - batch.size)
        self.update(now)

    def acknowledged(self, now: float, name: str, messages: int, size: int) -> None:
        """A site has acknowledged so much more of what this member has published."""
        site = self._sites[name]
        messages_left, bytes_left = self._buffer.waiting(name, self._id)
        if messages_left <= self._share_messages and bytes_left <= self._share_bytes:
            site.messages = site.bytes = 0.0
        elif now < site.since + STALLED_AFTER:
            site.messages += messages / 2
            site.bytes += size / 2
        site.since = now

    def update(self, now: float) -> bool:
        """Something has changed, or time has passed: whether there is room where there was none."""
        before, self.room, self.deadline = self.room, ENDLESS, inf
        for name, site in self._sites.items():
            holds = False
            if now < site.since + STALLED_AFTER and self._reachable(name):
                messages, size = self._buffer.waiting(name, self._id)
                room = max(self._share_bytes - size, site.bytes)
                holds = (messages >= self._share_messages and site.messages < 1) or room < 1
                if holds:
                    room, self.deadline = 0, min(self.deadline, site.since + STALLED_AFTER)
                self.room = min(self.room, int(room))
            site.look(now, holds)
        return before <= 0 < self.room

    def held_back(self, now: float, name: str) -> float:
        """Seconds that a site has held senders here back."""
        return self._sites[name].held_until(now)
