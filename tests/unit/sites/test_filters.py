"""Which addresses go to which sites."""

from __future__ import annotations

import tracemalloc

import pytest

from isthmus_router.sites.filters import Filter, Filters


def test_the_most_specific_filter_counts() -> None:
    filters = Filters(
        [
            Filter("orders/#", ("sfo",)),
            Filter("orders/local/#", ()),
            Filter("orders/*/audit", ("sfo", "lon")),
            Filter("all/#", None),
        ]
    )
    assert filters.targets("orders") == ("sfo",)
    assert filters.targets("orders/7/lines") == ("sfo",)
    assert filters.targets("orders/local/7") == ()
    assert filters.targets("orders/7/audit") == ("sfo", "lon")
    assert filters.targets("all/of/it") is None
    assert filters.targets("relay/trades") is None


def test_only_short_addresses_are_remembered() -> None:
    filters = Filters([Filter("orders/#", ("sfo",))])
    filters.targets("orders/short")
    tracemalloc.start()
    try:
        for number in range(4_096):
            assert filters.targets(f"orders/{number:04d}{chr(0x1F600) * 1_000}") == ("sfo",)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert filters._targets.cache_info().currsize == 1


def test_a_filter_names_no_more_sites_than_a_batch_can() -> None:
    Filters([Filter("#", tuple(map(str, range(254))))])
    with pytest.raises(ValueError, match="more than 254"):
        Filters([Filter("#", tuple(map(str, range(255))))])
