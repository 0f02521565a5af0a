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


@dataclass(frozen=True, slots=True)
class Standing:
    """How a link is at the end of an interval."""

    unsettled: int = 0
    """Deliveries without an outcome."""
    oldest_us: int = 0
    """Age of the oldest of these, in microseconds."""
    no_credit_us: int = 0
    """Microseconds since the last time in which nothing could be sent on it for lack of credit."""

    @property
    def well(self) -> bool:
        """There is nothing to tell of."""
        return not self.unsettled and not self.no_credit_us


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
    unsettled: int = 0
    oldest_us: int = 0
    no_credit_us: int = 0

    def add(self, grown: Mapping[Attr, int], reading: Reading | None) -> None:
        """More has happened within the interval."""
        for attribute, count in grown.items():
            self.counts[attribute] = self.counts.get(attribute, 0) + count
        if reading is not None:
            self.octets += reading.octets
            self.sizes.merge(reading.sizes)
            self.latencies.merge(reading.latencies)

    def ends(self, now: int, standing: Standing) -> None:
        """The interval ends at `now`; how one of the links is that it is about."""
        self.unsettled += standing.unsettled
        self.oldest_us = max(self.oldest_us, standing.oldest_us)
        self.no_credit_us = max(self.no_credit_us, min(standing.no_credit_us, now - self.start))

    @property
    def empty(self) -> bool:
        """Nothing has happened, and nothing waits."""
        return not (
            self.counts or self.sizes.counts or self.latencies.counts or self.unsettled or self.no_credit_us
        )

    def values(self) -> dict[Attr, Value | None]:
        """As attributes of a record."""
        found: dict[Attr, Value | None] = {
            Attr.OCTETS: self.octets,
            **{attribute: self.counts.get(attribute, 0) for attribute, _ in _COUNTERS},
            Attr.UNSETTLED: self.unsettled,
            Attr.OLDEST_UNSETTLED: self.oldest_us,
            Attr.NO_CREDIT: self.no_credit_us,
        }
        if self.sizes.counts:
            found[Attr.SIZES] = dict(self.sizes.counts)
        if self.latencies.counts:
            found[Attr.LATENCIES] = dict(self.latencies.counts)
        return found
