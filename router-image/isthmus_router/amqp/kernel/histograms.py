"""What the kernel counts of a link's deliveries besides their number: bytes, sizes and latencies.

Counted by `drain.pyx` in place (`histograms.pxd`), or here; read, and set to zero, once per interval of flow records.
"""

from __future__ import annotations

from array import array

from cproton_ffi import ffi

from isthmus_router.flows.sketch import BUCKETS, bucket_of
from isthmus_router.flows.summary import Reading

LATE_US = 1_000_000
VERY_LATE_US = 10_000_000
"""A delivery that takes longer than that to settle is counted as such."""

_OCTETS_BYTES = 8
_COUNT_BYTES = 4
_SIZE = _OCTETS_BYTES + 2 * _COUNT_BYTES * BUCKETS
_NOTHING = bytes(_SIZE)


class Histograms:
    """Counters of one link: octets (64 bits), then messages by size and deliveries by latency (32 bits each)."""

    __slots__ = ("_counts", "_octets", "cell")

    def __init__(self) -> None:
        self.cell = ffi.new("char[]", _SIZE)
        view = memoryview(ffi.buffer(self.cell)).cast("B")
        self._octets = view[:_OCTETS_BYTES].cast("Q")
        self._counts = view[_OCTETS_BYTES:].cast("I")

    def count_message(self, size: int) -> None:
        """A message of `size` bytes has passed."""
        self._octets[0] += size
        self._counts[bucket_of(size)] += 1

    def count_latency(self, microseconds: int) -> None:
        """A delivery is settled, so long after it arrived."""
        self._counts[BUCKETS + bucket_of(microseconds)] += 1

    def take(self) -> Reading | None:
        """What was counted since the last time, None for nothing; the counters are zero after that."""
        cell = ffi.buffer(self.cell)
        raw = bytes(cell)
        if raw == _NOTHING:
            return None
        cell[:] = _NOTHING
        middle = _OCTETS_BYTES + _COUNT_BYTES * BUCKETS
        return Reading(
            int.from_bytes(raw[:_OCTETS_BYTES], "little"),
            _filled(raw[_OCTETS_BYTES:middle]),
            _filled(raw[middle:]),
        )


def _filled(raw: bytes) -> dict[int, int]:
    """The counts that are not zero, by bucket; mostly a few next to each other."""
    used = raw.rstrip(b"\0")
    end = -(-len(used) // _COUNT_BYTES)
    start = (len(used) - len(used.lstrip(b"\0"))) // _COUNT_BYTES
    counts = array("I", raw[start * _COUNT_BYTES : end * _COUNT_BYTES])
    return {start + at: count for at, count in enumerate(counts) if count}
