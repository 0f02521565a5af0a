"""A member that leaves in good order: other sites get what is under way, and learn whether it was the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from isthmus_router.groups.views import View
from isthmus_router.relay.inlet import Inlet
from isthmus_router.relay.outlet import Outlet
from isthmus_router.relay.session import Session
from isthmus_router.relay.site_table import SiteTable
from isthmus_router.relay.sites import SiteState

OTHERS_LEAVE = 0.05
"""Seconds that a relay which is to leave goes on: all may have been told to, and the last one sends the rest."""


class Leaving:
    """Waits for what is sent to be acknowledged there, and for what was taken to be safe here; then `over` is called
    with whether this is the last member."""

    def __init__(
        self,
        inlet: Inlet,
        table: SiteTable,
        sessions: Callable[[], Iterable[Session]],
        over: Callable[[float, bool], None],
    ) -> None:
        self.outlets: Mapping[str, Outlet] = {}
        self._inlet = inlet
        self._table = table
        self._sessions = sessions
        self._over = over
        self._is_last = False
        self._drain_at = inf
        self._leave_by = inf

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(self._drain_at, self._leave_by)

    def begin(self, now: float, timeout: float) -> None:
        """The member is to leave; a relay within `timeout` seconds, who is none at once (0)."""
        self._leave_by = now + timeout
        self._drain_at = now if self._is_last else now + OTHERS_LEAVE

    def view_installed(self, now: float, view: View) -> None:
        """Of the own site."""
        self._is_last = len(view.ids) == 1
        if self._drain_at < inf and self._is_last:
            self._drain_at = now

    def look(self, now: float) -> None:
        """Something was acknowledged, or became safe, or a session has begun or ended."""
        if self._leave_by == inf or self._drain_at < inf or self._lacks_session():
            return
        if all(outlet.drained for outlet in self.outlets.values()):
            self._inlet.stop()
            if self._inlet.settled(self._sessions()):
                self._leave_by = now

    def on_time(self, now: float) -> None:
        """Whatever is due."""
        if now >= self._drain_at:
            self._drain_at = inf
            if not self._is_last:
                for outlet in self.outlets.values():
                    outlet.drain()
            self.look(now)
        if now >= self._leave_by:
            self._leave_by = self._drain_at = inf
            self._inlet.end(self._sessions())
            self._over(now, self._is_last)

    def _lacks_session(self) -> bool:
        """With a site that is there, to which nobody else will send what is left of this one."""
        return self._is_last and any(
            not outlet.open
            and (report := self._table.sites.get(site)) is not None
            and report.state in (SiteState.UP, SiteState.SUSPECT)
            for site, outlet in self.outlets.items()
        )
