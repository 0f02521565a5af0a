"""One namespace has a bounded number of series in the metrics of the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client import Gauge

from isthmus_operator import metrics
from isthmus_operator.publishing import MAX_SERIES, Publisher, Series


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    found = Publisher()
    yield found
    for namespace in ("net", "other"):
        found.forget(namespace)


def profiles(namespace: str, number: int) -> dict[Series, float]:
    """The later a profile, the earlier its certificate expires."""
    found: dict[Series, float] = {}
    for each in range(number):
        labels = (namespace, f"p{each:05}")
        found[metrics.PROFILE_ORDINAL, labels] = 1
        found[metrics.PROFILE_OLDEST, labels] = 1
        found[metrics.PROFILE_EXPIRY, labels] = 2e9 - each
    return found


def of(gauge: Gauge, namespace: str) -> dict[str, float]:
    """The values of a metric by the name of the profile."""
    (family,) = gauge.collect()
    return {
        item.labels.get("profile", ""): item.value
        for item in family.samples
        if item.labels["namespace"] == namespace
    }


def test_a_namespace_has_a_maximum_of_series_and_the_others_are_counted(publisher: Publisher) -> None:
    publisher.publish("net", Counter(), profiles("net", 2000))
    publisher.publish("other", Counter(), profiles("other", 2))
    expiries = of(metrics.PROFILE_EXPIRY, "net")
    assert len(expiries) == MAX_SERIES
    assert min(expiries) == f"p{2000 - MAX_SERIES:05}", "the certificates that expire first stay"
    assert not of(metrics.PROFILE_ORDINAL, "net")
    assert of(metrics.OMITTED, "net") == {"": 3 * 2000 - MAX_SERIES}
    assert len(of(metrics.PROFILE_ORDINAL, "other")) == 2
    assert not of(metrics.OMITTED, "other")


def test_series_that_have_room_again_come_back(publisher: Publisher) -> None:
    publisher.publish("net", Counter(), profiles("net", 2000))
    publisher.publish("net", Counter(), profiles("net", 2))
    assert sorted(of(metrics.PROFILE_EXPIRY, "net")) == ["p00000", "p00001"]
    assert len(of(metrics.PROFILE_ORDINAL, "net")) == 2
    assert not of(metrics.OMITTED, "net")
    publisher.publish("net", Counter(), profiles("net", 2000))
    publisher.forget("net")
    assert not of(metrics.PROFILE_EXPIRY, "net")
    assert not of(metrics.OMITTED, "net")
