"""Fixtures: collectors that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.flow_collector import FlowCollector

Collectors = Callable[..., FlowCollector]


@pytest.fixture
def collectors(tmp_path: Path) -> Iterator[Collectors]:
    """Makes collectors of one test."""
    made: list[FlowCollector] = []

    def make(*ports: int, **settings: Any) -> FlowCollector:
        made.append(FlowCollector(tmp_path / f"collector-{len(made)}", *ports, **settings))
        return made[-1]

    yield make
    for collector in made:
        collector.stop()
