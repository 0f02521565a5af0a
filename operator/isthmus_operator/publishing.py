"""The metrics of all namespaces, where a change of one namespace takes no time for the others."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping

from prometheus_client import Gauge

from . import metrics
from .resources import RESOURCE_KINDS

Series = tuple[Gauge, tuple[str, ...]]
"""A metric and the values of its labels."""

MAX_SERIES = 1000
"""Series about the certificates of one namespace. A tenant chooses how many resources there are, and a scrape with too
many series would take long, or Prometheus would refuse it as a whole."""
_ORDINALS = frozenset({metrics.PROFILE_ORDINAL, metrics.PROFILE_OLDEST})
"""No alert needs these, so they are the first ones that are left out."""


class Publisher:
    """Sets the metrics of namespaces, and removes those that a namespace does not have any more.

    A namespace has at most `MAX_SERIES` series. Certificates that expire first and rotations come first, and
    `isthmus_operator_omitted_series` has the number of the others."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, str]] = Counter()
        self._readiness: dict[str, Counter[tuple[str, str]]] = {}
        """By namespace: number of resources by kind and status of `Ready`."""
        self._series: dict[str, Mapping[Series, float]] = {}
        self._excessive: set[str] = set()
        """Namespaces of which series are left out."""

    def publish(
        self, namespace: str, readiness: Counter[tuple[str, str]], series: Mapping[Series, float]
    ) -> None:
        """Replace the metrics of the namespace."""
        before = self._readiness.pop(namespace, Counter())
        self._totals.subtract(before)
        self._totals.update(readiness)
        if readiness:
            self._readiness[namespace] = readiness
        for kind in RESOURCE_KINDS:
            for ready in ("True", "False", "Unknown"):
                metrics.OBJECTS.labels(kind, ready).set(self._totals[kind, ready])
        known = self._series.pop(namespace, {})
        omitted = len(series) - MAX_SERIES
        if omitted > 0:
            series = dict(heapq.nsmallest(MAX_SERIES, series.items(), key=_rank))
            metrics.OMITTED.labels(namespace).set(omitted)
            self._excessive.add(namespace)
        elif namespace in self._excessive:
            self._excessive.remove(namespace)
            metrics.OMITTED.remove(namespace)
        for gauge, labels in known.keys() - series.keys():
            gauge.remove(*labels)
        for (gauge, labels), value in series.items():
            if known.get((gauge, labels)) != value:
                gauge.labels(*labels).set(value)
        if series:
            self._series[namespace] = series

    def forget(self, namespace: str) -> None:
        """Remove the metrics of the namespace."""
        self.publish(namespace, Counter(), {})


def _rank(item: tuple[Series, float]) -> tuple[bool, float]:
    """The order in which series are retained."""
    (gauge, _), value = item
    return gauge in _ORDINALS, value
