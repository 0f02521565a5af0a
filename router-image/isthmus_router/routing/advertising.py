"""When a router advertises itself: periodically, more often while the topology moves, at once with news."""

from __future__ import annotations

from .timers import Timers

_NEVER = float("inf")


class AdvertisementSchedule:
    """Decides when the next router advertisement is due. Times are in seconds."""

    def __init__(self, timers: Timers, now: float) -> None:
        self._timers = timers
        self._last = now
        self._news_at = _NEVER
        self._repeat_after = timers.ra_interval
        self._flux_until = now
        self.topology_changed(now)

    def topology_changed(self, now: float) -> None:
        """Paths were computed anew: advertise more often for a while."""
        self._flux_until = now + 2 * self._timers.ra_interval_flux

    def news(self, now: float) -> None:
        """There is something new to advertise: at once, and again after growing times.

        Routers in between pass an advertisement on by what they know, and may not know of the change yet
        when the first one comes by.
        """
        self._news_at = min(self._news_at, max(now, self._last + self._timers.ra_interval_news))
        self._repeat_after = self._timers.ra_interval_repeat

    def due(self, now: float) -> float:
        """When the next advertisement is to be sent, as things stand at ``now``."""
        in_flux = now < self._flux_until
        period = self._timers.ra_interval_flux if in_flux else self._timers.ra_interval
        return min(self._news_at, self._last + min(self._repeat_after, period))

    def sent(self, now: float) -> None:
        """An advertisement went out."""
        if now < self._news_at:
            self._repeat_after = min(2 * self._repeat_after, self._timers.ra_interval)
        self._news_at = _NEVER
        self._last = now
