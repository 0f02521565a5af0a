"""A member that leaves in good order: other sites get what is under way, and learn whether it was the last one.

All members of a site may leave at a time. So each one stays until other sites in reach have acknowledged what it has
published: nobody else may be left to send it. A relay sends the messages of all members until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from isthmus_router.groups.identity import MemberId
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
    with whether this is the last member. `awaited` is whether a site in reach has not acknowledged all that this member
    has published, `origins` are those whose messages it relays."""

    def __init__(
        self,
        inlet: Inlet,
        table: SiteTable,
        sessions: Callable[[], Iterable[Session]],
        over: Callable[[float, bool], None],
        awaited: Callable[[], bool],
        origins: Callable[[], Iterable[MemberId]],
    ) -> None:
        self.outlets: Mapping[str, Outlet] = {}
        self._inlet = inlet
        self._table = table
        self._sessions = sessions
        self._over = over
        self._awaited = awaited
        self._origins = origins
        self._is_last = False
        self._drain_at = inf
        self._may_drain = False
        self._leave_by = inf

    @property
    def deadline(self) -> float:
        """When `on_time` is due."""
        return min(self._drain_at, self._leave_by)

    def begin(self, now: float, timeout: float, *, is_relay: bool) -> None:
        """The member is to leave within `timeout` seconds."""
        self._leave_by = now + timeout
        self._drain_at = now + OTHERS_LEAVE if is_relay and not self._is_last else now

    def view_installed(self, now: float, view: View) -> None:
        """Of the own site."""
        self._is_last = len(view.ids) == 1
        if self._drain_at < inf and self._is_last:
            self._drain_at = now
        if self._may_drain and self._is_last:
            # The others, which were to send the rest, have gone as well.
            for outlet in self.outlets.values():
                outlet.resume(now, self._origins())
        self.look(now)

    def look(self, now: float) -> None:
        """Something was acknowledged, or became safe, or a session has begun or ended."""
        if not self._may_drain or self._lacks_session() or self._awaited():
            return
        if not self._is_last:
            for outlet in self.outlets.values():
                outlet.drain()
        if all(outlet.drained for outlet in self.outlets.values()):
            self._inlet.stop()
            if self._inlet.settled(self._sessions()):
                self._leave_by = now

    def on_time(self, now: float) -> None:
        """Whatever is due."""
        if now >= self._drain_at:
            self._drain_at = inf
            self._may_drain = True
            self.look(now)
        if now >= self._leave_by:
            self._leave_by = self._drain_at = inf
            self._may_drain = False
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
