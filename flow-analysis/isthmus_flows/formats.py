"""Numbers, times and names as people read them, in sentences and on the page: three figures, a unit, and a dash where
nothing is known."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "–"
_DECIMAL = ("", "k", "M", "G", "T", "P")


def number(value: float | None) -> str:
    """`0`, `412`, `12.3 k`, `4.56 M`."""
    return NOTHING if value is None else _scaled(value, "")


def rate(value: float | None) -> str:
    """Of something per second: `12.3 k/s`."""
    return NOTHING if value is None else _scaled(value, "/s")


def size(value: float | None) -> str:
    """Bytes: `512 B`, `4.5 MB`."""
    return NOTHING if value is None else _scaled(value, "B")


def throughput(value: float | None) -> str:
    """Bytes per second: `4.5 MB/s`."""
    return NOTHING if value is None else _scaled(value, "B/s")


def amount(value: float) -> str:
    """In a sentence, with separators: `12,345`; small ones that are not whole with three digits: `0.25`."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def counted(value: float, one: str, many: str | None = None) -> str:
    """`1 file`, `3 files`; `many` where an `s` does not do."""
    return f"{amount(value)} {one if value == 1 else many or one + 's'}"


def _scaled(value: float, unit: str) -> str:
    step = 0
    while abs(value) >= 999.5 and step < len(_DECIMAL) - 1:
        value, step = value / 1000, step + 1
    gap = " " if _DECIMAL[step] or unit.startswith("B") else ""
    return f"{_figures(value)}{gap}{_DECIMAL[step]}{unit}"


def _figures(value: float) -> str:
    """At most three figures that count."""
    if value == int(value) and abs(value) < 1000:
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2g}"


def duration(microseconds: float | None) -> str:
    """`850 µs`, `2.1 ms`, `3.2 s`, `4 min 5 s`, `2 h 3 min`, `3 d 4 h`."""
    if microseconds is None:
        return NOTHING
    if microseconds < 999.5:
        return f"{_figures(microseconds)} µs"
    if microseconds < 999_500:
        return f"{_figures(microseconds / 1000)} ms"
    seconds = microseconds / 1_000_000
    if seconds < 60:
        return f"{_figures(seconds)} s"
    whole = round(seconds)
    for large, small, many, few in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {many}" + (f" {rest} {few}" if rest else "")
    return f"{whole} s"


def seconds(value: float | None) -> str:
    """As `duration`, of seconds."""
    return NOTHING if value is None else duration(value * 1_000_000) if value else "0 s"


def share(value: float | None) -> str:
    """`12 %`, `0.3 %`, `< 0.1 %`."""
    if value is None:
        return NOTHING
    if 0 < value < 0.001:
        return "< 0.1 %"
    return f"{100 * value:.0f} %" if value >= 0.1 or value == 0 else f"{100 * value:.1f} %"


def moment(value: datetime | str | None) -> str:
    """`23 Nov 08:15:30`, UTC."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return f"{utc.day} {utc:%b %H:%M:%S}"


def clock(value: str) -> str:
    """In a sentence, a time of ISO 8601 in UTC: `2026-11-23 08:15:02 UTC`."""
    return f"{value[:10]} {value[11:19]} UTC"


def short(name: str, most: int = 44) -> str:
    """A name with its beginning and its end, if it is longer."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most - most // 2 - 1) :]}"


def text(value: object) -> str:
    """Anything else."""
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
