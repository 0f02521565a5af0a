"""Sketches of numbers: where they are counted, what can be told of them, and that merging loses nothing."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.amqp.kernel.histograms import Histograms
from isthmus_router.flows.sketch import BUCKETS, LARGEST, RELATIVE_ERROR, Sketch, bounds_of, bucket_of

NUMBERS = st.one_of(
    st.integers(0, 100), st.integers(0, LARGEST), st.integers(0, 32).map(lambda bits: (1 << bits) - 1)
)


def test_buckets_follow_each_other() -> None:
    after = 0
    for bucket in range(BUCKETS):
        least, most = bounds_of(bucket)
        assert least == after
        assert bucket_of(least) == bucket_of(most) == bucket
        after = most + 1
    assert after == LARGEST + 1


def test_what_is_out_of_range_counts_at_its_end() -> None:
    assert bucket_of(-5) == 0
    assert bucket_of(1 << 60) == bucket_of(LARGEST) == BUCKETS - 1


@given(st.lists(NUMBERS, min_size=1), st.floats(0, 1))
def test_a_quantile_is_as_near_as_it_says(numbers: list[int], share: float) -> None:
    sketch = Sketch()
    for number in numbers:
        sketch.add(number)
    exact = sorted(numbers)[max(1, math.ceil(share * len(numbers))) - 1]
    told = sketch.quantile(share)
    assert told is not None
    assert abs(told - exact) <= RELATIVE_ERROR * exact


@given(st.lists(st.lists(NUMBERS)))
def test_parts_merge_into_the_whole(parts: list[list[int]]) -> None:
    whole, merged = Sketch(), Sketch()
    for part in parts:
        sketch = Sketch()
        for number in part:
            sketch.add(number)
            whole.add(number)
        merged.merge(sketch.counts)
    assert merged.counts == whole.counts
    assert merged.total == sum(map(len, parts))
    assert merged.quantile(0.99) == whole.quantile(0.99)


def test_nothing_has_no_quantile() -> None:
    assert Sketch().quantile(0.5) is None


@given(st.lists(NUMBERS), st.lists(NUMBERS))
def test_histograms_are_two_sketches_and_begins_anew_when_taken(
    sizes: list[int], latencies: list[int]
) -> None:
    histograms = Histograms()
    for _ in range(2):
        for size in sizes:
            histograms.count_message(size)
        for latency in latencies:
            histograms.count_latency(latency)
        reading = histograms.take()
        if not sizes and not latencies:
            assert reading is None
            continue
        assert reading is not None
        assert reading.octets == sum(sizes)
        assert reading.sizes == Counter(map(bucket_of, sizes))
        assert reading.latencies == Counter(map(bucket_of, latencies))
    assert histograms.take() is None
