"""How many routing messages for others a router passes on: a bound for each neighbor, and each origin behind it.

What is beyond it is dropped. The routing protocol repeats what it advertises, and asks again for what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
MOST_KNOWN = 1024
"""Buckets that are kept although they are full."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What may come at a time, and what may come in each second after that."""

    messages: float
    messages_a_second: float
    bytes: float
    bytes_a_second: float


OF_ORIGIN = Rate(1_500, 400, 128 * MIB, 48 * MIB)
"""In a network of 128 routers, each asks each other one twice and answers it twice, when all of them start."""
OF_NEIGHBOUR = Rate(32_000, 3_000, 256 * MIB, 96 * MIB)


class _Bucket:
    """What may still come, as of a time."""

    __slots__ = ("at", "bytes", "messages", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate, self.at = rate, now
        self.messages, self.bytes = rate.messages, rate.bytes

    def fill(self, now: float) -> None:
        """Time has passed."""
        rate, seconds = self.rate, max(0.0, now - self.at)
        self.at = now
        self.messages = min(rate.messages, self.messages + seconds * rate.messages_a_second)
        self.bytes = min(rate.bytes, self.bytes + seconds * rate.bytes_a_second)

    @property
    def full(self) -> bool:
        """Whether it need not be kept."""
        return self.messages == self.rate.messages and self.bytes == self.rate.bytes


class PassingRates:
    """Those of one router."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[int, str | None], _Bucket] = {}
        """By link to a neighbor and origin, the one of the neighbor itself without one."""
        self.dropped = 0
        """Messages that were not passed on."""

    def allows(self, link: int, origin: str, copies: int, size: int, now: float) -> bool:
        """Whether a message that came in on a link goes on to so many neighbors; if so it is counted.

        `origin` must be a known router, or empty, as peers can invent others.
        """
        messages = 1 + copies // 8
        buckets = (self._bucket(link, None, OF_NEIGHBOUR, now), self._bucket(link, origin, OF_ORIGIN, now))
        if any(bucket.messages < messages or bucket.bytes < size for bucket in buckets):
            self.dropped += 1
            return False
        for bucket in buckets:
            bucket.messages -= messages
            bucket.bytes -= size
        return True

    def _bucket(self, link: int, origin: str | None, rate: Rate, now: float) -> _Bucket:
        bucket = self._buckets.get((link, origin))
        if bucket is None:
            if len(self._buckets) >= MOST_KNOWN:
                self._forget(now)
            bucket = self._buckets[link, origin] = _Bucket(rate, now)
        else:
            bucket.fill(now)
        return bucket

    def _forget(self, now: float) -> None:
        """Those that are full again are as good as new ones."""
        for key, bucket in list(self._buckets.items()):
            bucket.fill(now)
            if bucket.full:
                del self._buckets[key]
