"""The metrics of all namespaces, where a change of one namespace takes no time for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from prometheus_client import Gauge

from . import metrics
from .resources import RESOURCE_KINDS

Series = tuple[Gauge, tuple[str, ...]]
"""A metric and the values of its labels."""


class Publisher:
    """Sets the metrics of namespaces, and removes those that a namespace does not have any more."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, str]] = Counter()
        self._readiness: dict[str, Counter[tuple[str, str]]] = {}
        """By namespace: number of resources by kind and status of `Ready`."""
        self._series: dict[str, Mapping[Series, float]] = {}

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
