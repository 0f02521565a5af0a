"""What comes from other sites waits for receivers of this one that are behind, as they are after an outage.

A member whose receivers are behind says so to all others, again and again. Relays that hear it acknowledge nothing as
long as that lasts, so no more than the window comes. That is for what was kept, not for receivers that are too slow for
what is sent: it holds in the first minute of a session only.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.port import MemberPort
from isthmus_router.relay.session import Session

TELL_INTERVAL = 0.05
LASTS = 0.2
"""Seconds that BEHIND counts; it may be lost, and so may the member that said it."""
CATCH_UP = 60.0
"""Seconds from the beginning of a session in which it is minded."""


class Backpressure:
    """At every member what it says, at a relay what it minds."""

    def __init__(self, port: MemberPort, behind: Callable[[float], bool]) -> None:
        """`behind`: whether receivers of this member are."""
        self._port = port
        self._behind = behind
        self._until = -inf
        self.deadline = inf
        """When to call `look`."""

    def delivered(self, now: float) -> None:
        """Something has come from another site."""
        if self.deadline == inf:
            self.look(now)

    def look(self, now: float) -> None:
        """Say whether receivers are behind, as long as they are."""
        self.deadline = inf
        if self._behind(now):
            self.deadline = now + TELL_INTERVAL
            self.heard(now)
            self._port.send_all(now, Kind.BEHIND, b"")

    def heard(self, now: float) -> None:
        """A member of the own site is behind."""
        self._until = now + LASTS

    def until(self, session: Session) -> float:
        """When what comes by a session may be acknowledged; that may be long ago."""
        return min(self._until, session.since + CATCH_UP)
