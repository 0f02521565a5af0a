"""Delivery summaries: what a link has carried within an interval, from what the kernel has counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from isthmus_router.core.model import Link
from isthmus_router.flows.records import Attr, Value
from isthmus_router.flows.sketch import Sketch


@dataclass(frozen=True, slots=True)
class Reading:
    """What the kernel has counted of a link since the last reading."""

    octets: int
    """Of whole messages, without router annotations."""
    sizes: dict[int, int]
    """Messages by bucket of their size in bytes."""
    latencies: dict[int, int]
    """Settled deliveries by bucket of the microseconds from arrival to outcome."""


_COUNTERS: tuple[tuple[Attr, str], ...] = (
    (Attr.DELIVERIES, "deliveries"),
    (Attr.ACCEPTED, "accepted"),
    (Attr.REJECTED, "rejected"),
    (Attr.RELEASED, "released"),
    (Attr.MODIFIED, "modified"),
    (Attr.PRESETTLED, "presettled"),
    (Attr.DROPPED, "dropped_presettled"),
    (Attr.LATE_1_SECOND, "delayed_1_second"),
    (Attr.LATE_10_SECONDS, "delayed_10_seconds"),
)
"""Counters of a link, which grow from its attach on."""


class LinkCounts:
    """What a link has carried so far, and how much of that was in a summary already."""

    __slots__ = ("_counted", "octets")

    def __init__(self) -> None:
        self.octets = 0
        self._counted = [0] * len(_COUNTERS)

    def growth(self, link: Link) -> dict[Attr, int]:
        """By how much its counters have grown since the last time."""
        counts = [getattr(link, name) for _, name in _COUNTERS]
        grown = {
            attribute: count - before
            for (attribute, _), count, before in zip(_COUNTERS, counts, self._counted, strict=True)
            if count != before
        }
        self._counted = counts
        return grown

    @property
    def totals(self) -> dict[Attr, Value | None]:
        """Since the attach."""
        counted = {attribute: count for (attribute, _), count in zip(_COUNTERS, self._counted, strict=True)}
        return {Attr.OCTETS: self.octets, **counted}


@dataclass(slots=True)
class Summary:
    """An interval of one link, or of all links of a connection in one direction, that is not told of yet."""

    start: int
    counts: dict[Attr, int] = field(default_factory=dict)
    octets: int = 0
    sizes: Sketch = field(default_factory=Sketch)
    latencies: Sketch = field(default_factory=Sketch)

    def add(self, grown: Mapping[Attr, int], reading: Reading | None) -> None:
        """More has happened within the interval."""
        for attribute, count in grown.items():
            self.counts[attribute] = self.counts.get(attribute, 0) + count
        if reading is not None:
            self.octets += reading.octets
            self.sizes.merge(reading.sizes)
            self.latencies.merge(reading.latencies)

    @property
    def empty(self) -> bool:
        """Nothing has happened."""
        return not self.counts and not self.sizes.counts and not self.latencies.counts

    def values(self) -> dict[Attr, Value | None]:
        """As attributes of a record."""
        found: dict[Attr, Value | None] = {
            Attr.OCTETS: self.octets,
            **{attribute: self.counts.get(attribute, 0) for attribute, _ in _COUNTERS},
        }
        if self.sizes.counts:
            found[Attr.SIZES] = dict(self.sizes.counts)
        if self.latencies.counts:
            found[Attr.LATENCIES] = dict(self.latencies.counts)
        return found
