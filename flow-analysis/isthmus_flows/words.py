"""Numbers and times as a person reads them in a sentence."""

from __future__ import annotations

_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def amount(number: float) -> str:
    """With separators: `12,345`; small ones that are not whole with three digits: `0.25`."""
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def counted(number: float, one: str, many: str | None = None) -> str:
    """`1 file`, `3 files`; `many` where an `s` does not do."""
    return f"{amount(number)} {one if number == 1 else many or one + 's'}"


def share(part: float) -> str:
    """Of 1, as percent: `12 %`, `0.25 %`."""
    return f"{100 * part:.0f} %" if part >= 0.1 else f"{100 * part:.2g} %"


def duration(seconds: float) -> str:
    """`850 µs`, `2.1 ms`, `43 s`, `2.5 min`, `3 h`."""
    for length, unit in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return "0 s"


def clock(moment: str) -> str:
    """A time of ISO 8601, in UTC, to the second: `2026-11-23 08:15:02 UTC`."""
    return f"{moment[:10]} {moment[11:19]} UTC"
