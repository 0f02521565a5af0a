"""One member of a relay site without AMQP, for relay.py: `group_member.py SETTINGS` (JSON, see `Place`).

It does what it is told on standard input, a JSON object a line, and answers each with a line:

    {"do": "send", "rate": R, "seconds": S, "size": N}     multicast; rate 0: as fast as the group takes it
    {"do": "listen"}                                       forget what was heard
    {"do": "heard"}                                        what came since, of one sender
    {"do": "state"}                                        who is there

A message carries its number and the time it was due, so what the sender was late counts as latency.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import struct
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from random import Random, SystemRandom
from typing import Any, NamedTuple

import uvloop

from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.discovery.host_list import Host, HostList
from isthmus_router.groups.identity import GroupName, MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.views import View
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite
from isthmus_router.sites.filters import BATCH_BYTES
from isthmus_router.sites.member import Member
from isthmus_router.sites.port import SiteMember
from isthmus_router.sites.settings import MemberSettings
from isthmus_router.transport.driver import MemberDriver
from isthmus_router.transport.hello import Hello
from isthmus_router.transport.settings import TransportSettings

HOST = "127.0.0.1"
GROUP = "bench"
ADDRESS = "relay/bench"
STAMP = struct.Struct("=QQ")
TICK_NS = 200_000
"""Messages are sent at the ticks of a clock; at more than 5,000 a second, several at a time."""
_libc = ctypes.CDLL(None, use_errno=True)


class Place(NamedTuple):
    """Where a member is."""

    site: str
    name: str
    port: int
    bridge: int
    members: tuple[int, ...]
    """Ports of all members of the site."""
    remotes: dict[str, list[int]]
    """Ports that bridges of other sites are reached at."""
    announced: int
    """At which port this member's bridge is reached."""
    relays: int = 1


def say(**fields: object) -> None:
    """One answer."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


class Heard:
    """What one receiver got of one sender's messages."""

    def __init__(self) -> None:
        self.latencies = array("q")
        self.first = self.last = self.gap = 0
        self.highest = -1
        self.behind = 0
        """Of a lower number than one before: again, or late."""
        self.told_lost = 0

    def take(self, messages: Sequence[GroupMessage]) -> None:
        """They have been delivered."""
        now = time.monotonic_ns()
        if not self.first:
            self.first = self.last = now
        self.gap = max(self.gap, now - self.last)
        self.last = now
        for message in messages:
            number, due = STAMP.unpack_from(message.payload)
            self.latencies.append(now - due)
            if number <= self.highest:
                self.behind += 1
            else:
                self.highest = number

    def report(self) -> dict[str, object]:
        """In messages, seconds and milliseconds."""
        count = len(self.latencies)
        if not count:
            return {"received": 0, "highest": -1, "behind": 0, "told_lost": self.told_lost}
        ranked = sorted(self.latencies)
        seconds = (self.last - self.first) / 1e9
        return {
            "received": count,
            "highest": self.highest,
            "behind": self.behind,
            "told_lost": self.told_lost,
            "seconds": seconds,
            "per_second": (count - 1) / seconds if seconds else 0.0,
            "median_ms": ranked[count // 2] / 1e6,
            "p99_ms": ranked[count * 99 // 100] / 1e6,
            "max_ms": ranked[-1] / 1e6,
            "longest_gap_ms": self.gap / 1e6,
        }


class Ticks:
    """A timer of the system in the event loop, whose own are exact to a millisecond."""

    def __init__(self, interval_ns: int, call: Callable[[], None]) -> None:
        self._call = call
        self._fd = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        interval = divmod(interval_ns, 1_000_000_000)
        _libc.timerfd_settime(self._fd, 0, (ctypes.c_long * 4)(*interval, *interval), None)
        asyncio.get_running_loop().add_reader(self._fd, self._due)

    def _due(self) -> None:
        os.read(self._fd, 8)
        self._call()

    def stop(self) -> None:
        """No more."""
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)


class Sender:
    """One run of messages; `answer` when the last one is published."""

    def __init__(self, process: Process, rate: float, seconds: float, size: int) -> None:
        self._process, self._rate = process, rate
        self._rest = bytes(size - STAMP.size)
        self._sent = self._late = 0
        self._start = time.monotonic_ns()
        self._end = self._start + int(seconds * 1e9)
        self._most = max(1, BATCH_BYTES // size)
        if rate:
            self._ticks = Ticks(max(TICK_NS, int(1e9 / rate)), self._tick)
        else:
            process.loop.call_soon(self._flood)

    def _tick(self) -> None:
        now = time.monotonic_ns()
        due = int((min(now, self._end) - self._start) * self._rate / 1e9) - self._sent
        start, period = self._start, 1e9 / self._rate
        if due > 0 and self._process.member.room > 0:
            numbers = range(self._sent, self._sent + due)
            self._publish([(number, start + int((number + 1) * period)) for number in numbers])
        elif due > 0:
            self._late += 1
        if now >= self._end and self._sent >= int((self._end - start) * self._rate / 1e9):
            self._ticks.stop()
            self._finish()

    def _flood(self) -> None:
        now = time.monotonic_ns()
        if now >= self._end:
            self._finish()
        elif self._process.member.room > 0:
            self._publish([(number, now) for number in range(self._sent, self._sent + self._most)])
            self._process.loop.call_soon(self._flood)
        else:
            self._late += 1
            self._process.when_room = self._flood

    def _publish(self, stamps: list[tuple[int, int]]) -> None:
        self._sent += len(stamps)
        rest = self._rest
        self._process.member.publish(
            [GroupMessage(ADDRESS, STAMP.pack(*each) + rest) for each in stamps], None
        )
        self._process.driver.wake()

    def _finish(self) -> None:
        say(sent=self._sent, seconds=(time.monotonic_ns() - self._start) / 1e9, without_room=self._late)


class Process:
    """The member, and its user and observer."""

    def __init__(self, place: Place) -> None:
        self.loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        self.heard = Heard()
        self.when_room: Callable[[], None] | None = None
        self.members: Sequence[SiteMember] = ()
        transport = TransportSettings(host=HOST, port=place.port, bridge_host=HOST, bridge_port=place.bridge)
        self.driver = MemberDriver(transport, Random(SystemRandom().random()))
        group = GroupName(GROUP, place.site, f"{GROUP}/{place.site}")
        remotes = {
            site: RemoteSite(tuple(Endpoint(HOST, port) for port in ports))
            for site, ports in place.remotes.items()
        }
        announced = (Endpoint(HOST, place.announced),)
        settings = MemberSettings(
            group,
            (partial(HostList, [Host(HOST, port, 1) for port in place.members]),),
            RelaySettings(
                GROUP, place.site, group.domain, remotes, own_endpoints=announced, relays=place.relays
            ),
            streams=StreamsSettings(relays=place.relays),
        )
        info = MemberInfo(member_id(os.urandom(16)), place.name, (PhysicalAddress(HOST, place.port),))
        random = Random(SystemRandom().random())
        self.member = Member(info, settings, self.driver, self.driver.bridge, self, self.driver.clock, random)
        self.member.user = self
        self.driver.start(self.member, Hello(group, info))
        self.member.start(self.driver.clock())
        self.driver.wake()
        self.loop.add_reader(sys.stdin.fileno(), self._command)

    def _command(self) -> None:
        line = sys.stdin.readline()
        if not line:
            self.loop.remove_reader(sys.stdin.fileno())
            self.over.set()
            return
        command: dict[str, Any] = json.loads(line)
        match command.pop("do"):
            case "send":
                Sender(self, **command)
            case "listen":
                self.heard = Heard()
                gc.collect()
                say()
            case "heard":
                say(**self.heard.report())
            case "state":
                view = self.member.membership.view
                snapshot = self.member.relay.snapshot(self.driver.clock())
                say(
                    view=[info.name for info in view.members] if view else [],
                    everybody=len(self.members),
                    open=all(site.relay is not None for site in snapshot.sites),
                    is_relay=snapshot.is_relay,
                    faults=self.driver.statistics(),
                )

    # SiteUser

    def deliver(self, origin: SiteMember, messages: Sequence[GroupMessage], number: int) -> None:
        """Implements SiteUser."""
        self.heard.take(messages)

    def gap(self, origin: SiteMember, messages: int) -> None:
        """Implements SiteUser."""
        self.heard.told_lost += messages

    def room_changed(self) -> None:
        """Implements SiteUser."""
        if self.when_room is not None:
            call, self.when_room = self.when_room, None
            self.loop.call_soon(call)

    def behind(self, now: float) -> bool:
        """Implements SiteUser."""
        return False

    def members_changed(self, members: Sequence[SiteMember]) -> None:
        """Implements SiteUser."""
        self.members = members

    def protected(self, token: object) -> None:
        """Implements SiteUser; nothing is sent with a token."""

    def failed(self, token: object, outcome: Outcome) -> None:
        """Implements SiteUser."""

    def received(self, sender: SiteMember, message: GroupMessage) -> None:
        """Implements SiteUser; nothing is sent to one member."""

    # MemberObserver

    def view_installed(self, view: View) -> None:
        """Implements MemberObserver."""

    def left(self) -> None:
        """Implements MemberObserver."""

    def event(self, name: str, *, trouble: bool = False, **fields: object) -> None:
        """Implements MemberObserver."""

    def problem(self, who: str, reason: str) -> None:
        """Implements MemberObserver."""


async def run(place: Place) -> None:
    """Until standard input ends."""
    await Process(place).over.wait()


if __name__ == "__main__":
    uvloop.run(run(Place(**json.loads(sys.argv[1]))))
