"""A world of hosts in memory: virtual time, seeded faults, and every order of events that a network can make of them.

Whoever lives in it is told what a driver would tell: frames, connections that were refused or ended, sessions of the
bridge, names looked up, time passed. Nothing in it knows what the frames say.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from isthmus_router.groups.identity import PhysicalAddress

DIAL_SECONDS = 1.0
"""How long a connection is tried where nothing answers."""


class Inhabitant(Protocol):
    """A member, or a gossip router: what the world calls."""

    deadline: float

    def on_frame(self, now: float, physical: PhysicalAddress | None, frame: bytes) -> None: ...
    def connection_lost(self, now: float, physical: PhysicalAddress, refused: bool) -> None: ...
    def on_resolved(self, now: float, host: str, addresses: tuple[str, ...]) -> None: ...
    def on_time(self, now: float) -> None: ...
    def flush(self, now: float) -> None: ...
    def bridge_opened(self, now: float, session: int, names: tuple[str, ...]) -> None: ...
    def bridge_frame(self, now: float, session: int, frame: bytes) -> None: ...
    def bridge_closed(self, now: float, session: int, reason: str) -> None: ...


@dataclass(slots=True)
class Conditions:
    """Of the way from one place to another."""

    delay: float = 0.001
    jitter: float = 0.0
    loss: float = 0.0
    duplicates: float = 0.0
    disorder: float = 0.0
    """Part of frames that others overtake."""
    cut: bool = False


@dataclass(slots=True, eq=False)
class Process:
    """Somebody at a host and port; a new one for each start."""

    host: Host
    port: int
    inhabitant: Inhabitant
    alive: bool = True
    paused_until: float = 0.0
    timer: float = float("inf")
    connections: set[PhysicalAddress] = field(default_factory=set)
    """Where it has a connection to, or from."""
    sessions: dict[int, Session] = field(default_factory=dict)
    dirty: bool = False
    names: int = 0

    @property
    def address(self) -> PhysicalAddress:
        return PhysicalAddress(self.host.name, self.port)


@dataclass(slots=True, eq=False)
class Host:
    """A place with a network interface; `place` is what conditions are stated about (a site, a rack)."""

    name: str
    place: str
    processes: dict[int, Process] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Session:
    """A connection of the bridge: the two ends and what either calls it."""

    ends: list[tuple[Process, int]]
    lossy: bool = False
    open: bool = False

    def peer(self, process: Process) -> tuple[Process, int]:
        return self.ends[1] if self.ends[0][0] is process else self.ends[0]


class World:
    """Hosts, the ways between them, and time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.hosts: dict[str, Host] = {}
        self.names: dict[str, tuple[str, ...]] = {}
        self.conditions: dict[tuple[str, str], Conditions] = {}
        self.default = Conditions()
        self._last: dict[tuple[str, str], float] = {}
        self.frames = 0
        self.bytes = 0

    # Time

    def at(self, when: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(when, self.now), next(self._order), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        self.at(self.now + seconds, call)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let so much time pass, or until something is true; whether it is."""
        end = self.now + seconds
        while True:
            if until is not None and until():
                return True
            if not self._events or self._events[0][0] > end:
                break
            self.now, _, call = heapq.heappop(self._events)
            call()
        self.now = end
        return until is not None and until()

    # Places

    def host(self, name: str, place: str) -> Host:
        if name not in self.hosts:
            self.hosts[name] = Host(name, place)
        return self.hosts[name]

    def start(self, host: Host, port: int, make: Callable[[Process], Inhabitant]) -> Process:
        """Start somebody at a free port."""
        assert port not in host.processes, f"{host.name}:{port} is taken"
        process = Process(host, port, None)  # type: ignore[arg-type]
        host.processes[port] = process
        process.inhabitant = make(process)
        self.turned(process)
        return process

    def crash(self, process: Process) -> None:
        """End it at once: whoever was connected sees that the connection ends, where the network lets it."""
        self._end(process, "the connection was reset")

    def _end(self, process: Process, reason: str) -> None:
        process.alive = False
        process.host.processes.pop(process.port, None)
        for address in list(process.connections):
            peer = self.find(address)
            if peer is not None:
                peer.connections.discard(process.address)
                self._tell(process, peer, lambda peer=peer: self._lost(peer, process.address, refused=False))
        for session in list(process.sessions.values()):
            self._end_session(session, process, reason)

    def pause(self, process: Process, seconds: float) -> None:
        """It does nothing for so long: what comes waits."""
        process.paused_until = self.now + seconds
        self.at(process.paused_until, lambda: self.turned(process))

    def find(self, address: PhysicalAddress) -> Process | None:
        host = self.hosts.get(address.host)
        return host.processes.get(address.port) if host else None

    def between(self, one: str, other: str) -> Conditions:
        """The conditions from one place to another, to be changed."""
        return self.conditions.setdefault((one, other), Conditions(self.default.delay, self.default.jitter))

    def cut(self, ones: Iterable[str], others: Iterable[str], *, both: bool = True) -> None:
        """Nothing passes from one to the other, until `heal`."""
        for one in ones:
            for other in others:
                self.between(one, other).cut = True
                if both:
                    self.between(other, one).cut = True

    def heal(self) -> None:
        """Whatever was cut passes again; so does everything that was slow or lossy."""
        self.conditions.clear()

    def _way(self, source: Process, target: Process) -> Conditions:
        for pair in (
            (source.host.name, target.host.name),
            (source.host.place, target.host.place),
        ):
            if pair in self.conditions:
                return self.conditions[pair]
        return self.default

    # What a driver does for its process

    def send(self, source: Process, to: PhysicalAddress, frame: bytes) -> None:
        """A frame to whoever is there."""
        if not source.alive:
            return
        self.frames += 1
        self.bytes += len(frame)
        host = self.hosts.get(to.host)
        target = self.find(to)
        if target is None:
            if host is not None and not self._cut_off(source, host):
                self.after(2 * self.default.delay, lambda: self._lost(source, to, refused=True))
            else:
                self.after(DIAL_SECONDS, lambda: self._lost(source, to, refused=False))
            return
        way = self._way(source, target)
        if way.cut or self._way(target, source).cut:
            if to not in source.connections:
                self.after(DIAL_SECONDS, lambda: self._lost(source, to, refused=False))
            if way.cut:
                return
        source.connections.add(to)
        target.connections.add(source.address)
        for _ in range(1 + (self.random.random() < way.duplicates)):
            if self.random.random() < way.loss:
                continue
            self._deliver(way, source, target, lambda: self._frame(target, source.address, frame))

    def _cut_off(self, source: Process, host: Host) -> bool:
        for pair in ((source.host.name, host.name), (source.host.place, host.place)):
            if pair in self.conditions:
                return self.conditions[pair].cut
        return False

    def multicast(self, source: Process, frame: bytes) -> None:
        """Within a place."""
        for host in [host for host in self.hosts.values() if host.place == source.host.place]:
            for target in list(host.processes.values()):
                if target is not source:
                    way = self._way(source, target)
                    if not way.cut and self.random.random() >= way.loss:
                        self._deliver(
                            way, source, target, lambda target=target: self._frame(target, None, frame)
                        )

    def resolve(self, source: Process, host: str) -> None:
        self.after(
            0.001,
            lambda: self._call(
                source, lambda: source.inhabitant.on_resolved(self.now, host, self.names.get(host, ()))
            ),
        )

    def drop(self, source: Process, to: PhysicalAddress) -> None:
        source.connections.discard(to)

    def dial(self, source: Process, number: int, to: PhysicalAddress, *, lossy: bool = False) -> None:
        """A session of the bridge."""
        target = self.find(to)
        way = self._way(source, target) if target is not None else self.default
        if target is None or way.cut or self._way(target, source).cut:
            wait = DIAL_SECONDS if target is not None else 2 * way.delay
            self.after(
                wait,
                lambda: self._call(
                    source, lambda: source.inhabitant.bridge_closed(self.now, number, "refused")
                ),
            )
            return
        target.names += 1
        session = Session([(source, number), (target, -target.names)], lossy)
        source.sessions[number] = session
        target.sessions[-target.names] = session
        name = -target.names

        def accepted() -> None:
            if session.peer(source)[1] in target.sessions:
                self._call(
                    target, lambda: target.inhabitant.bridge_opened(self.now, name, (source.host.place,))
                )

        def opened() -> None:
            if number in source.sessions:
                self._call(
                    source, lambda: source.inhabitant.bridge_opened(self.now, number, (target.host.place,))
                )

        self._deliver(way, source, target, accepted)
        self.after(2.1 * way.delay, opened)

    def bridge_send(self, source: Process, number: int, frame: bytes) -> None:
        session = source.sessions.get(number)
        if session is None or not source.alive:
            return
        target, name = session.peer(source)
        way = self._way(source, target)
        self.frames += 1
        self.bytes += len(frame)
        if way.cut or (session.lossy and self.random.random() < way.loss):
            return

        def arrive() -> None:
            if name in target.sessions:
                self._call(target, lambda: target.inhabitant.bridge_frame(self.now, name, frame))

        self._deliver(way, source, target, arrive, disorder=session.lossy)

    def bridge_splice(self, source: Process, number: int, to: PhysicalAddress, first: bytes) -> None:
        """A process hands a session on to another, whose frames go straight from then on."""
        session, target = source.sessions.pop(number, None), self.find(to)
        if session is None:
            return
        if target is None:
            source.sessions[number] = session
            self._end_session(session, source, "refused")
            return
        target.names += 1
        name = -target.names
        session.ends = [session.peer(source), (target, name)]
        target.sessions[name] = session
        place = source.host.place

        def arrive() -> None:
            if name in target.sessions:
                self._call(target, lambda: target.inhabitant.bridge_opened(self.now, name, (place,)))
                self._call(target, lambda: target.inhabitant.bridge_frame(self.now, name, first))

        self._deliver(self._way(source, target), source, target, arrive)

    def bridge_close(self, source: Process, number: int, reason: str) -> None:
        session = source.sessions.get(number)
        if session is not None:
            self._end_session(session, source, reason)

    def _end_session(self, session: Session, by: Process, reason: str) -> None:
        other, name = session.peer(by)
        by.sessions.pop(next(number for process, number in session.ends if process is by), None)

        def ended() -> None:
            if other.sessions.pop(name, None) is not None:
                self._call(other, lambda: other.inhabitant.bridge_closed(self.now, name, reason))

        self._tell(by, other, ended)

    # Delivery

    def _tell(self, source: Process, target: Process, call: Callable[[], None]) -> None:
        """What the network stack of `source` tells that of `target`; lost when it is cut off."""
        way = self._way(source, target)
        if not way.cut:
            self._deliver(way, source, target, call, disorder=False)

    def _deliver(
        self,
        way: Conditions,
        source: Process,
        target: Process,
        call: Callable[[], None],
        *,
        disorder: bool = True,
    ) -> None:
        when = self.now + way.delay + self.random.random() * way.jitter
        key = (f"{source.address}", f"{target.address}")
        if disorder and self.random.random() < way.disorder:
            when += self.random.random() * 10 * way.delay
        else:
            when = max(when, self._last.get(key, 0.0))
            self._last[key] = when
        self.at(when, call)

    def _frame(self, target: Process, source: PhysicalAddress | None, frame: bytes) -> None:
        self._call(target, lambda: target.inhabitant.on_frame(self.now, source, frame))

    def _lost(self, process: Process, address: PhysicalAddress, *, refused: bool) -> None:
        process.connections.discard(address)
        self._call(process, lambda: process.inhabitant.connection_lost(self.now, address, refused))

    def _call(self, process: Process, call: Callable[[], None]) -> None:
        if not process.alive:
            return
        if process.paused_until > self.now:
            self.at(process.paused_until, lambda: self._call(process, call))
            return
        call()
        self.turned(process)

    def turned(self, process: Process) -> None:
        """Something happened at the process: let its turn end, and keep its timer."""
        if not process.dirty:
            process.dirty = True
            self.at(self.now, lambda: self._end_turn(process))

    def _end_turn(self, process: Process) -> None:
        process.dirty = False
        if not process.alive:
            return
        if process.paused_until > self.now:
            self.at(process.paused_until, lambda: self.turned(process))
            return
        process.inhabitant.flush(self.now)
        deadline = process.inhabitant.deadline
        if deadline < process.timer or process.timer <= self.now:
            process.timer = deadline
            if deadline != float("inf"):
                self.at(deadline, lambda: self._timer(process, deadline))

    def _timer(self, process: Process, deadline: float) -> None:
        if not process.alive or process.timer != deadline:
            return
        if process.paused_until > self.now:
            self.at(process.paused_until, lambda: self._timer(process, deadline))
            return
        process.timer = float("inf")
        if process.inhabitant.deadline <= self.now:
            process.inhabitant.on_time(self.now)
        self.turned(process)
