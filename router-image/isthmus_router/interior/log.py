"""The routing engine's events as log lines: what a peer can cause at will is logged sparingly."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from isthmus_router.routing import actions as act

log = logging.getLogger("ROUTER_LS")

PERIOD_SECONDS = 60.0
LINES_PER_PERIOD = 10
"""Of one kind about one subject; what follows within the period is only counted."""
LINES_ABOUT_ROUTERS = 500
"""Of one kind about all routers, which peers can name at will."""
_MAX_SUBJECTS = 1000


@dataclass(slots=True)
class _Period:
    start: float
    count: int = 0


class RoutingLog:
    """Times are in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._periods: dict[Hashable, _Period] = {}

    def event(self, action: act.Action, now: float) -> None:
        """Log what the engine reports; actions that are no events are not for here."""
        match action:
            case act.NeighbourUp(router, link):
                log.info("neighbour up", extra={"router": router, "hop": link})
            case act.NeighbourMoved(router, link, previous):
                log.info("neighbour moved", extra={"router": router, "hop": link, "previous": previous})
            case act.NeighbourLost(router, link, reason):
                log.warning("neighbour lost", extra={"router": router, "hop": link, "reason": reason})
            case act.RouterAdded(router, index):
                self._about(router, now, logging.INFO, "router added", index=index)
            case act.RouterRemoved(router, _):
                self._about(router, now, logging.INFO, "router removed")
            case act.RouterRestarted(router, instance, previous):
                self._sparingly(
                    now,
                    router,
                    logging.INFO,
                    "router restarted",
                    {"router": router, "instance": instance, "previous": previous},
                )
            case act.LinkStateExpired(router):
                self._about(router, now, logging.WARNING, "router not heard of any more")
            case act.DuplicateRouterId(router, instances):
                namesakes = {"router": router, "instances": sorted(instances)}
                self._sparingly(now, None, logging.CRITICAL, "duplicate router id", namesakes)
            case act.TooManyRouters(router, limit):
                self._sparingly(
                    now, None, logging.ERROR, "too many routers", {"router": router, "limit": limit}
                )
            case act.VersionUnsupported(router, version):
                fields = {"router": router, "version": version}
                self._sparingly(now, None, logging.WARNING, "protocol version not supported", fields)
            case act.MessageRefused(link, reason):
                self.refused(link, reason, now)

    def refused(self, hop: int | None, reason: str, now: float) -> None:
        """A control message that came from a hop cannot be used."""
        fields = {"event": "control.refused", "hop": hop, "reason": reason}
        self._sparingly(now, hop, logging.WARNING, "control message refused", fields)

    def _about(self, router: str, now: float, level: int, text: str, **fields: object) -> None:
        most = LINES_ABOUT_ROUTERS
        self._sparingly(now, None, level, text, {"router": router, **fields}, most)

    def _sparingly(
        self,
        now: float,
        subject: Hashable,
        level: int,
        text: str,
        fields: Mapping[str, object],
        most: int = LINES_PER_PERIOD,
    ) -> None:
        period = self._periods.get((text, subject))
        if period is None or now >= period.start + PERIOD_SECONDS:
            if period is not None and period.count > most:
                fields = {**fields, "not_logged_before": period.count - most}
            if len(self._periods) >= _MAX_SUBJECTS:
                self._periods.clear()
            period = self._periods[(text, subject)] = _Period(now)
        period.count += 1
        if period.count == most:
            fields = {**fields, "more_like_this": f"not logged for {PERIOD_SECONDS:.0f} s"}
        if period.count <= most:
            log.log(level, text, extra=fields)
