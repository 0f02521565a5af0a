"""Hostile sources of flow records: the collector lives, and what honest sources send is collected."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.integration.flow_log.conftest import collectors
from tests.integration.support.flow_collector import FlowCollector
from tests.integration.support.hostile_router import HostileRouter, router_record, summary
from tests.integration.support.routers import eventually

__all__ = ["collectors"]
PATIENCE = 60.0
HONEST = "hones:0"


@pytest.fixture
def hostile() -> Iterator[HostileRouter]:
    router = HostileRouter().start()
    yield router
    router.stop()


class Canary:
    """An honest source: what it sends is in the log."""

    def __init__(self, router: HostileRouter, collector: FlowCollector) -> None:
        self._router = router
        self._collector = collector
        self._numbers = itertools.count(1)
        router.await_link("mc/sfe.all")
        router.introduce(HONEST, "honest")

    def lives(self) -> None:
        """The collector writes what the source sends now."""
        number = next(self._numbers)
        self._router.await_link(f"mc/sfe.{HONEST}.flows")
        self._router.records(f"mc/sfe.{HONEST}.flows", summary(HONEST, number, octets=1000 + number))
        eventually(
            lambda: self._collector.rows("deliveries", source=HONEST, sequence=number),
            f"summary {number} of the honest source: {self._collector.log[-2000:]}",
            PATIENCE,
        )
        assert self._collector.process is not None
        assert self._collector.process.poll() is None


def test_sources_are_released_while_parts_of_their_messages_arrive(
    hostile: HostileRouter, collectors
) -> None:
    collector = collectors(hostile.port, exclude=["bad*"]).start()
    canary = Canary(hostile, collector)
    for number in range(30):
        source = f"bad{number:02}:0"
        hostile.beacon(source)
        flows, records = f"mc/sfe.{source}.flows", f"mc/sfe.{source}"
        hostile.await_link(flows)
        hostile.send(flows, b"\x00" * 5000, whole=False)
        hostile.records(records, router_record(source, f"bad{number}"))
        for part in range(5):
            hostile.more(flows, b"x" * 40_000)
            if part == number % 6:
                hostile.abort(flows)
        if number % 3 == 0:
            hostile.abort(flows)
    canary.lives()


def test_links_end_while_parts_of_messages_arrive(hostile: HostileRouter, collectors) -> None:
    collector = collectors(hostile.port).start()
    canary = Canary(hostile, collector)
    for number in range(30):
        source = f"ended{number}:0"
        hostile.beacon(source)
        address = f"mc/sfe.{source}"
        hostile.await_link(address)
        hostile.send(address, b"x" * 40_000, whole=False)
        if number % 2:
            hostile.abort(address)
        hostile.detach(address, close=number % 3 > 0)
    canary.lives()
