"""Keeps a router's flow records going: time, the kernel's counters, and the way to the collectors.

A collector that listens for beacons makes the router take part in its own addresses; without any, nothing is sent and
no other router hears of them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from isthmus_router import __version__
from isthmus_router.config.diff import Changes
from isthmus_router.config.model import Configuration
from isthmus_router.core.address import AddressClass, InProcessConsumer
from isthmus_router.core.model import Link
from isthmus_router.core.router import random_name
from isthmus_router.flows.messages import BEACONS
from isthmus_router.flows.recorder import Recorder
from isthmus_router.flows.records import SCHEMA_VERSION, Attr, RecordType
from isthmus_router.flows.relay import RelayRecorder
from isthmus_router.flows.source import TICK_SECONDS, FlowSource
from isthmus_router.flows.summary import Reading, Standing
from isthmus_router.flows.topology import record_topology

if TYPE_CHECKING:
    from isthmus_router.process import RouterProcess

AT_ONCE_SECONDS = 0.002
"""For reading counters, before messages have their turn."""
SOURCE_NAME_LENGTH = 5
GONE_TICKS = 50
"""A collector that is away no longer than that finds everything as it left it."""


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


class FlowLog:
    """The flow records of one router process."""

    def __init__(self, process: RouterProcess) -> None:
        configuration = process.configuration
        self._process = process
        self._core = process.core
        self._driver = process.driver
        self._loop = process.loop
        self._edge = process.edge
        self._interval = configuration.router.flow_interval_seconds
        name = f"{random_name(SOURCE_NAME_LENGTH).replace('+', 'A').replace('_', 'B')}:0"
        self._source = FlowSource(name, self._router_values(configuration))
        self._record_site(configuration)
        self.recorder = Recorder(self._core, self._source, now_us, self._read, self._standing)
        self.relay = RelayRecorder(self._source, now_us)
        self._core.took_over = self.recorder.took_over
        if process.interior is not None:
            process.interior.on_event = lambda action: record_topology(self.recorder, action)
        self._endpoints = process.endpoints
        self._taking_part = False
        self._unheard_ticks = 0
        self._work: Iterator[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.configure(configuration)
        if self._edge is not None:
            self._edge.proxy.use(AddressClass.MOBILE + BEACONS, produces=True)

    def _router_values(self, configuration: Configuration) -> dict[Attr, int | str | None]:
        return {
            Attr.START_TIME: now_us(),
            Attr.NAME: self._core.name,
            Attr.MODE: configuration.router.mode.value,
            Attr.HOSTNAME: socket.gethostname(),
            Attr.NAMESPACE: configuration.site.namespace,
            Attr.BUILD_VERSION: __version__,
            Attr.SCHEMA: SCHEMA_VERSION,
        }

    def _record_site(self, configuration: Configuration) -> None:
        site = configuration.site
        if site.name is None:
            return
        record = self._source.begin(
            RecordType.SITE,
            None,
            now_us(),
            {
                Attr.NAME: site.name,
                Attr.LOCATION: site.location,
                Attr.PROVIDER: site.provider,
                Attr.PLATFORM: site.platform,
                Attr.NAMESPACE: site.namespace,
                Attr.BUILD_VERSION: site.version,
            },
        )
        self._source.update(self._source.router, {Attr.PARENT: record.identity})

    def configure(self, configuration: Configuration, changes: Changes | None = None) -> None:
        """Take over which connectors and listeners there are, and that there are new credentials."""
        self.recorder.configure(configuration.connectors, configuration.listeners)
        for change in changes.ssl_profiles_changed if changes is not None else ():
            if change.new.ordinal > change.old.ordinal:
                self.recorder.ordinal_raised(change.new.name, change.new.ordinal, change.old.ordinal)

    def start(self) -> None:
        """Begin to keep time."""
        self._later("tick", TICK_SECONDS)
        self._later("interval", self._interval)

    def tell_the_end(self) -> None:
        """All that is not told of yet, up to now, and that the router ends."""
        for _ in self._readings():
            pass
        if self._core.has_consumers(self._source.addresses[1]):
            for _ in self.recorder.intervals_end():
                pass
        for message in self._source.on_end(now_us(), self._core.has_consumers):
            self._core.originate(message.to, message.payload)
        self._driver.flush()

    def stop(self) -> None:
        """Nothing more is sent."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _later(self, what: str, seconds: float) -> None:
        call = {"tick": self._tick, "interval": self._interval_ends, "work": self._go_on}[what]
        self._timers[what] = self._loop.call_later(seconds, call)

    # Sending

    def _tick(self) -> None:
        self._later("tick", TICK_SECONDS)
        self._take_part()
        for message in self._source.on_tick(now_us(), self._core.has_consumers):
            self._core.originate(message.to, message.payload)
        self._driver.flush()

    def _take_part(self) -> None:
        """Listen to collectors while there are any, and let the network know; on an edge, by links for that."""
        if self._core.has_consumers(BEACONS):
            self._unheard_ticks = 0
            if not self._taking_part:
                self._set_part(True)
        elif self._taking_part:
            self._unheard_ticks += 1
            if self._unheard_ticks > GONE_TICKS:
                self._set_part(False)

    def _set_part(self, taking: bool) -> None:
        self._taking_part = taking
        commands = self._source.commands
        if taking:
            consumer = InProcessConsumer(lambda payload, _: self._source.on_command(payload), for_all=True)
            self._core.register(commands, consumer, mobile=True)
        else:
            self._core.unregister(commands)
        if self._edge is not None:
            change = self._edge.proxy.use if taking else self._edge.proxy.end_use
            change(AddressClass.MOBILE + commands, produces=False)
            for address in self._source.addresses:
                change(AddressClass.MOBILE + address, produces=True)

    # Counting

    def _interval_ends(self) -> None:
        """Read all counters, and tell of them if anybody listens; else they go on adding up."""
        self._later("interval", self._interval)
        if self._work is None:
            self._work = self._interval_work()
            self._go_on()

    def _go_on(self) -> None:
        end = time.monotonic() + AT_ONCE_SECONDS
        assert self._work is not None
        for _ in self._work:
            if time.monotonic() >= end:
                self._later("work", AT_ONCE_SECONDS)
                return
        self._work = None

    def _interval_work(self) -> Iterator[None]:
        for name, connector in list(self._endpoints.connectors.items()):
            if connector.message:
                self.recorder.connector_failed(name, connector.message)
            yield
        yield from self._readings()
        if self._core.has_consumers(self._source.addresses[1]):
            yield from self.recorder.intervals_end()
            figures = self._process.relay_site.flow_figures()
            if figures is not None:
                self.relay.interval_ends(figures)
        else:
            yield from self.recorder.unheard_interval_ends()

    def _readings(self) -> Iterable[None]:
        counted = self._driver.forwarder.settlement.histograms
        for link in list(counted):
            histograms = counted.get(link)
            if histograms is None:
                continue
            reading = histograms.take()
            if reading is None:  # idle for an interval: the memory is for others
                del counted[link]
                link.histograms = None
            self.recorder.reading(link, reading)
            yield

    def _read(self, link: Link) -> Reading | None:
        return link.histograms.take() if link.histograms is not None else None

    def _standing(self, link: Link) -> Standing:
        clock = self._driver.forwarder.settlement.now
        oldest = next(iter(link.unsettled.values()), None)
        return Standing(
            len(link.unsettled),
            0 if oldest is None else max(0, clock - oldest.arrived),
            self._driver.activity.take_starved_seconds(link, time.monotonic(), clock) * 1_000_000,
        )
