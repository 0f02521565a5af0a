"""The time that is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)


def number_of(moment: datetime) -> int:
    """The hour that a time is in, counted from the epoch."""
    return (moment - _EPOCH) // _HOUR


def hour_of(number: int) -> datetime:
    """When an hour begins."""
    return _EPOCH + number * _HOUR


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

    @property
    def hours(self) -> range:
        """All hours that some of it is in, counted from the epoch."""
        return range(number_of(self.start), number_of(self.end - MICROSECOND) + 1)

    def earlier(self, days: int) -> list[int]:
        """The hours, counted from the epoch, before it that are the same of the day, of so many days."""
        found = {hour - 24 * day for day in range(1, days + 1) for hour in self.hours}
        return sorted(hour for hour in found if hour_of(hour) < self.start)

    def in_whole_hours(self) -> Window:
        """The same, but from the beginning of the hour in which it starts."""
        return Window(hour_of(number_of(self.start)), self.end)


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
