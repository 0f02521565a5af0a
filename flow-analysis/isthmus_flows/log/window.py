"""The time that is looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` until before `end`, both UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(
                f"the window ends ({self.end.isoformat()}) before it begins ({self.start.isoformat()})"
            )

    @classmethod
    def last(cls, length: timedelta, now: datetime) -> Window:
        """So long, until `now`."""
        return cls(now - length, now)

    @property
    def seconds(self) -> float:
        """Its length."""
        return (self.end - self.start).total_seconds()

    def hours(self) -> Iterator[datetime]:
        """The beginnings of all hours that some of it is in."""
        hour = self.start.replace(minute=0, second=0, microsecond=0)
        while hour < self.end:
            yield hour
            hour += HOUR

    def earlier(self, days: int) -> Window:
        """The same time so many days before."""
        return Window(self.start - timedelta(days=days), self.end - timedelta(days=days))


def parse_duration(text: str) -> timedelta:
    """`90s`, `15m`, `24h` or `7d`. Raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    if match is None:
        raise ValueError(f"{text!r} is no duration; write a number and s, m, h or d, as in 24h")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def parse_moment(text: str) -> datetime:
    """A time of ISO 8601 with its zone, as UTC. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ValueError(f"{text!r} is no time; write it as in 2026-11-23T08:00:00Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it as in 2026-11-23T08:00:00Z")
    return moment.astimezone(UTC)
