"""Statuses that change again and again, such as those about a host that accepts and closes connections by turns.

Routers penalize routes that flap for the same reason (RFC 2439): each change costs a write, and somebody else decides
how many there are. The first changes of a status are written at once. After several ones within minutes, the pause
before the next one grows. Meanwhile the stored status claims no more than is true: the loss of a condition is written
at once, and only its return waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from .contests import PERIOD_SECONDS, Contests
from .status import INSECURE, condition_status, normal, without

MAX_PAUSE_SECONDS = 240.0
"""Longest time for which a message is not written."""
FIRST_RETURN_PAUSE_SECONDS, MAX_RETURN_PAUSE_SECONDS = 10.0, 60.0
"""For a condition that has returned."""
MOST_AT_ONCE = 20
"""Returns of conditions, and changes of numbers and lists, within `PERIOD_SECONDS` that are written at once: one in 15
seconds, which is how often the observer reports numbers that are no news. Restarts of several pods cause fewer."""
FIRST_DETAILS_PAUSE_SECONDS = 15.0
MAX_DETAILS_PAUSE_SECONDS = 60.0

Status = Mapping[str, Any]


class Dampening:
    """The statuses of resources, by uid. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._messages = Contests(clock, MAX_PAUSE_SECONDS)
        """Nothing but messages change, such as what a host answers to each attempt."""
        self._details = Contests(
            clock,
            MAX_DETAILS_PAUSE_SECONDS,
            first_pause=FIRST_DETAILS_PAUSE_SECONDS,
            most_changes=MOST_AT_ONCE,
        )
        """Neither conditions nor states change."""
        self._returns = Contests(
            clock,
            MAX_RETURN_PAUSE_SECONDS,
            first_pause=FIRST_RETURN_PAUSE_SECONDS,
            most_changes=MOST_AT_ONCE,
        )
        """Conditions and states become what they have been a short time ago."""
        self._seen: dict[str, dict[Any, float]] = {}
        """What statuses claimed, and until when."""

    def __len__(self) -> int:
        return len(self._seen)

    def holds(self, uid: str, before: Status, after: Status) -> bool:
        """Return whether `after` is not to be written now in place of `before`."""
        damped = self._kind(uid, before, after)
        return damped is not None and damped.holds(uid)

    def written(self, uid: str, before: Status, after: Status, version: int) -> bool:
        """`after` was written in place of `before`, in this version of the resource. Return whether a pause begins."""
        if _generation(before) != _generation(after):
            self._forget(uid)
        damped = self._kind(uid, before, after)
        now = self._clock()
        seen = {
            claim: last for claim, last in self._seen.get(uid, {}).items() if now - last <= PERIOD_SECONDS
        }
        self._seen[uid] = seen | dict.fromkeys((_claims(before), _claims(after)), now)
        return damped is not None and damped.changed(uid, version)

    def _kind(self, uid: str, before: Status, after: Status) -> Contests | None:
        """What counts a change. None: it is written at once."""
        if _generation(before) != _generation(after):
            return None
        if without("message", normal(before)) == without("message", normal(after)):
            return self._messages
        claims = _claims(after)
        if _claims(before) == claims:
            return self._details
        last = self._seen.get(uid, {}).get(claims)
        is_return = last is not None and self._clock() - last <= PERIOD_SECONDS
        return self._returns if is_return and not _loses(before, after) else None

    def _forget(self, uid: str) -> None:
        self._seen.pop(uid, None)
        for contests in self._all():
            contests.forget(uid)

    def retain(self, uids: Collection[str]) -> None:
        """Forgets resources other than these."""
        self._seen = {uid: item for uid, item in self._seen.items() if uid in uids}
        for contests in self._all():
            contests.retain(uids)

    def due(self, since: float) -> float | None:
        """Return after how many seconds the next pause ends, without those that ended before `since`."""
        return min((due for item in self._all() if (due := item.due(since)) is not None), default=None)

    def _all(self) -> Iterator[Contests]:
        yield from (self._messages, self._details, self._returns)


def _generation(status: Status) -> Any:
    return status.get("observedGeneration")


def _claims(status: Status) -> Any:
    """The conditions without messages, and the state and the runs of a FlowAnalysis. Their number is bounded, but for
    runs, which the API server or the author begins."""
    conditions = status.get("conditions") or ()
    runs = status.get("runs") or ()
    return (
        tuple(sorted((item["type"], item["status"], item["reason"]) for item in conditions)),
        status.get("state"),
        tuple((run["name"], run["state"]) for run in runs),
    )


def _loses(before: Status, after: Status) -> bool:
    """Whether a condition that was good is so no more."""
    for item in before.get("conditions") or ():
        good = "False" if item["type"] == INSECURE else "True"
        if item["status"] == good != condition_status(after, item["type"]):
            return True
    return False
