"""The certificates of SslProfiles, and how many connections use which ordinal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from isthmus_operator.render.material import is_section_of

from .report import RouterReport


@dataclass(frozen=True)
class OrdinalCount:
    """Open connections on one ordinal."""

    ordinal: int
    connections: int


@dataclass(frozen=True)
class ProfileRow:
    """One SslProfile."""

    name: str
    state: str
    """`ready`, `rotating`, `expiring` or a reason why it is none of these."""
    ordinal: int | None
    oldest_valid: int | None
    expires: str | None
    """ISO 8601."""
    connections: tuple[OrdinalCount, ...]
    message: str | None


def connections(profile: str, reports: Iterable[RouterReport]) -> tuple[OrdinalCount, ...]:
    """Open connections by ordinal, from what each router says of its own ends."""
    total = Counter[int]()
    for report in reports:
        for item in report.entries("sslProfiles"):
            if is_section_of(str(item["name"]), profile):
                total.update({int(ordinal): number for ordinal, number in item["connections"].items()})
    return tuple(OrdinalCount(*item) for item in sorted(total.items()))
