"""A histogram of numbers from which quantiles can be told, and which merges with others by addition.

The buckets are the same everywhere. Below 8 each number has its own; from there on every power of two has 8 of
equal width, so that a bucket is no wider than an eighth of its lower bound. A quantile told by the middle of its
bucket is off by at most `RELATIVE_ERROR`. Numbers from 2^32 on count as 2^32 - 1.

With more buckets the memory of a router that has very many links would be mostly histograms.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

STEP_BITS = 3
STEPS = 1 << STEP_BITS
MOST_BITS = 32
LARGEST = (1 << MOST_BITS) - 1
BUCKETS = (MOST_BITS - STEP_BITS + 1) << STEP_BITS
RELATIVE_ERROR = 1 / (2 * STEPS)
"""Of a quantile, for numbers up to `LARGEST`; what is below 16 is exact."""


def bucket_of(number: int) -> int:
    """The bucket that counts a number; negative ones count as 0."""
    if number < STEPS:
        return max(number, 0)
    number = min(number, LARGEST)
    shift = number.bit_length() - 1 - STEP_BITS
    return (shift << STEP_BITS) + (number >> shift)


def bounds_of(bucket: int) -> tuple[int, int]:
    """The least and the greatest number that a bucket counts."""
    if bucket < STEPS:
        return bucket, bucket
    shift = (bucket >> STEP_BITS) - 1
    least = (STEPS + (bucket & STEPS - 1)) << shift
    return least, least + (1 << shift) - 1


class Sketch:
    """Counts by bucket."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts or {})

    def add(self, number: int, times: int = 1) -> None:
        """Count a number."""
        self.counts[bucket_of(number)] += times

    def merge(self, other: Mapping[int, int]) -> None:
        """Take over what another one has counted."""
        for bucket, count in other.items():
            self.counts[bucket] += count

    @property
    def total(self) -> int:
        """How many numbers it has counted."""
        return self.counts.total()

    def quantile(self, share: float) -> float | None:
        """The number that `share` (0 to 1) of all are not above, within `RELATIVE_ERROR`; None without any."""
        rank = max(1, math.ceil(share * self.total))
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= rank:
                least, most = bounds_of(bucket)
                return (least + most) / 2
        return None
