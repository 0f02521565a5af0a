"""A network of routing engines under simulated time: delay, loss, duplicates, partitions, crashes, restarts.

Everything random comes from one seed. Between the engines stands what a router core does with control
messages: HELLO goes over one link, unicast along next hops, multicast along the tree (valid origins, one copy
per link, trace limit). A link keeps its order; what is under way on it when it breaks is lost.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing import actions as act
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.messages import MobileAddress
from isthmus_router.routing.timers import Timers


@dataclass(frozen=True)
class Packet:
    """A control message under way. ``to`` is None for HELLO, "all" for multicast."""

    payload: bytes
    to: str | None
    ingress: str
    trace: tuple[str, ...] = ()


@dataclass(eq=False)
class Cable:
    """A connection between two routers; ``ends`` are (router id, link mask bit there)."""

    ends: tuple[tuple[str, int], tuple[str, int]]
    cost: int
    delay: float
    up: bool = False
    silent: bool = False
    """Up for all the routers know, but nothing arrives."""
    loss: float = 0.0
    """Probability of losing a message other than HELLO."""
    duplicates: float = 0.0
    generation: int = 0
    last_arrival: list[float] = field(default_factory=lambda: [0.0, 0.0])

    @property
    def routers(self) -> tuple[str, str]:
        return self.ends[0][0], self.ends[1][0]


class SimulatedRouter:
    """One engine and the part of a core that it needs."""

    def __init__(self, network: Network, router_id: str, instance: int) -> None:
        self.network = network
        self.id = router_id
        self.engine = RoutingEngine(router_id, instance=instance, now=network.now, timers=network.timers)
        self.table = act.RouteTable()
        self.remote: dict[str, dict[str, MobileAddress]] = {}
        self.local: dict[str, MobileAddress] = {}
        self.cables: dict[int, Cable] = {}
        self.events: list[act.Action] = []
        self.alive = True
        self._wake_at = float("inf")
        self.schedule_wake()

    def perform(self, actions: list[act.Action]) -> None:
        for action in actions:
            match action:
                case act.SendHello(link, payload):
                    self.transmit(link, Packet(payload, None, self.id))
                case act.SendUnicast(router, _, payload):
                    self.forward(Packet(payload, router, self.id), None)
                case act.SendMulticast(_, payload):
                    self.forward(Packet(payload, "all", self.id), None)
                case act.RoutesChanged(table):
                    assert table != self.table
                    self.table = table
                case act.RemoteAddressesChanged(router, added, removed):
                    known = self.remote.setdefault(router, {})
                    assert removed <= known.keys()
                    known.update(added)
                    for key in removed:
                        del known[key]
                case act.RouterFlushed(router):
                    assert self.remote.pop(router)
                case _:
                    self.events.append(action)
        self.schedule_wake()

    def schedule_wake(self) -> None:
        deadline = max(self.engine.next_deadline, self.network.now)
        if deadline < self._wake_at:
            self._wake_at = deadline
            self.network.at(deadline, self._wake)

    def _wake(self) -> None:
        if not self.alive or self._wake_at > self.network.now:
            return
        self._wake_at = float("inf")
        self.perform(self.engine.on_tick(self.network.now))
        self._work()

    def transmit(self, link: int, packet: Packet) -> None:
        cable = self.cables.get(link)
        if cable is not None:
            self.network.transmit(cable, self.id, packet)

    def receive(self, link: int, packet: Packet) -> None:
        if not self.alive or link not in self.cables:
            return
        if packet.to is None:
            self._take(link, packet)
            return
        if len(packet.trace) > self.table.radius + 1:
            return
        if packet.to in ("all", self.id):
            self._take(link, packet)
        if packet.to != self.id:
            self.forward(packet, link)

    def _take(self, link: int, packet: Packet) -> None:
        self.perform(self.engine.on_message(link, packet.payload, self.network.now))
        self._work()

    def _work(self) -> None:
        while self.engine.has_work(self.network.now):
            self.perform(self.engine.work(self.network.now))

    def forward(self, packet: Packet, came_on: int | None) -> None:
        passed_on = replace(packet, trace=(*packet.trace, self.id))
        for link in sorted(self.links_towards(packet, came_on)):
            self.transmit(link, passed_on)

    def links_towards(self, packet: Packet, came_on: int | None) -> set[int]:
        routes = self.table.routes
        if packet.to != "all":
            route = routes.get(packet.to or "")
            if route is None or route.link == came_on:
                return set()
            stray = packet.ingress in routes and packet.ingress not in route.valid_origins
            return set() if stray else {route.link}
        behind = {self.table.neighbours.get(router) for router in packet.trace} | {came_on}
        return {route.link for route in routes.values() if packet.ingress in route.valid_origins} - behind


class Network:
    """Routers, cables and the clock."""

    def __init__(self, seed: int = 0, timers: Timers | None = None) -> None:
        self.now = 1000.0
        self.timers = timers or Timers()
        self.random = random.Random(seed)
        self.routers: dict[str, SimulatedRouter] = {}
        self.cables: list[Cable] = []
        self.sent = 0
        self._instance = 1_700_000_000
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = 0

    # --- time -----------------------------------------------------------------------------------------------

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._counter += 1
        heapq.heappush(self._events, (time, self._counter, event))

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def run_until_converged(self, limit: float, step: float = 0.1) -> float:
        """Seconds until :meth:`problems` finds none; fails after ``limit``."""
        start = self.now
        while True:
            problem = next(self.problems(), None)
            if problem is None:
                return self.now - start
            assert self.now - start < limit, f"after {limit} s: {problem}"
            self.run(step)

    # --- topology and faults --------------------------------------------------------------------------------

    def add_router(self, router_id: str) -> SimulatedRouter:
        self._instance += 1
        router = self.routers[router_id] = SimulatedRouter(self, router_id, self._instance)
        return router

    def connect(self, one: str, other: str, cost: int = 1, delay: float | None = None) -> Cable:
        ends = tuple((router, self._free_link(router)) for router in (one, other))
        cable = Cable(ends, cost, self.random.uniform(0.001, 0.05) if delay is None else delay)  # type: ignore[arg-type]
        self.cables.append(cable)
        self.restore(cable)
        return cable

    def _free_link(self, router: str) -> int:
        taken = {bit for cable in self.cables for end, bit in cable.ends if end == router}
        return next(bit for bit in range(128) if bit not in taken)

    def cut(self, cable: Cable) -> None:
        """Break a connection; both sides notice at once."""
        if cable.up:
            cable.up = False
            cable.generation += 1
            for router_id, link in cable.ends:
                self._unplug(self.routers[router_id], link)

    def _unplug(self, router: SimulatedRouter, link: int) -> None:
        if router.alive and router.cables.pop(link, None) is not None:
            router.perform(router.engine.on_link_lost(link, self.now))

    def restore(self, cable: Cable) -> None:
        if not cable.up and all(self.routers[router].alive for router in cable.routers):
            cable.up, cable.silent = True, False
            cable.last_arrival = [self.now, self.now]
            for router_id, link in cable.ends:
                router = self.routers[router_id]
                router.cables[link] = cable
                router.perform(router.engine.on_link_up(link, cable.cost, self.now))

    def set_cost(self, cable: Cable, cost: int) -> None:
        cable.cost = cost
        for router_id, link in cable.ends:
            router = self.routers[router_id]
            if cable.up:
                router.perform(router.engine.on_link_cost(link, cost, self.now))

    def crash(self, router_id: str) -> None:
        """Stop a router; its neighbours notice at once."""
        router = self.routers[router_id]
        router.alive = False
        for cable in list(router.cables.values()):
            self.cut(cable)

    def restart(self, router_id: str) -> None:
        """A new life: new instance, nothing remembered, the same local addresses, all connections remade."""
        if self.routers[router_id].alive:
            self.crash(router_id)
        local = self.routers[router_id].local
        self.add_router(router_id)
        for key in local:
            self.add_address(router_id, key)
        for cable in self.cables:
            if router_id in cable.routers:
                self.restore(cable)

    def heal(self) -> None:
        """End every fault."""
        for router in list(self.routers.values()):
            if not router.alive:
                self.restart(router.id)
        for cable in self.cables:
            cable.loss = cable.duplicates = 0.0
            if cable.silent:
                self.cut(cable)
            self.restore(cable)

    def add_address(self, router_id: str, key: str, treatment: Treatment = Treatment.BALANCED) -> None:
        router = self.routers[router_id]
        address = router.local[key] = MobileAddress(key, treatment)
        if router.alive:
            router.perform(router.engine.local_address_added(address, self.now))

    def remove_address(self, router_id: str, key: str) -> None:
        router = self.routers[router_id]
        if router.local.pop(key, None) is not None and router.alive:
            router.perform(router.engine.local_address_removed(key, self.now))

    def transmit(self, cable: Cable, sender: str, packet: Packet) -> None:
        self.sent += 1
        if not cable.up or cable.silent:
            return
        if packet.to is not None and self.random.random() < cable.loss:
            return
        copies = 2 if packet.to is not None and self.random.random() < cable.duplicates else 1
        side = 0 if cable.ends[1][0] == sender else 1
        receiver, link = cable.ends[side]
        arrival = max(cable.last_arrival[side], self.now + cable.delay * self.random.uniform(0.5, 1.5))
        cable.last_arrival[side] = arrival
        generation = cable.generation

        def deliver() -> None:
            if cable.generation == generation and not cable.silent:
                self.routers[receiver].receive(link, packet)

        for _ in range(copies):
            self.at(arrival, deliver)

    # --- judgement ------------------------------------------------------------------------------------------

    def true_costs(self) -> dict[str, dict[str, int]]:
        """Cost between all live routers by Floyd-Warshall over the cables that are up; absent if cut off."""
        alive = [router.id for router in self.routers.values() if router.alive]
        costs: dict[str, dict[str, int]] = {router: {router: 0} for router in alive}
        for cable in self.cables:
            if cable.up and not cable.silent:
                for one, other in (cable.routers, cable.routers[::-1]):
                    costs[one][other] = min(costs[one].get(other, cable.cost), cable.cost)
        for via in alive:
            for one in alive:
                if via in costs[one]:
                    for other, cost in list(costs[via].items()):
                        total = costs[one][via] + cost
                        if total < costs[one].get(other, total + 1):
                            costs[one][other] = total
        return costs

    def problems(self) -> Iterator[str]:
        """What differs from the routes and addresses that every router should know by now."""
        costs = self.true_costs()
        for router_id, expected in costs.items():
            router = self.routers[router_id]
            known = {other: route.cost for other, route in router.table.routes.items()}
            wanted = {other: cost for other, cost in expected.items() if other != router_id}
            if known != wanted:
                yield f"{router_id} at {self.now}: routes {known} instead of {wanted}"
            remote = {other: set(addresses) for other, addresses in router.remote.items() if addresses}
            local = {other: set(self.routers[other].local) for other in wanted if self.routers[other].local}
            if remote != local:
                yield f"{router_id} at {self.now}: addresses {remote} instead of {local}"
        for router_id, expected in costs.items():
            for destination in expected:
                path = self.unicast_path(router_id, destination)
                if path is None or path[-1] != destination:
                    yield f"unicast from {router_id} to {destination} ends up at {path}"
            copies = self.multicast_copies(router_id)
            if copies != dict.fromkeys(expected.keys() - {router_id}, 1):
                yield f"multicast from {router_id} arrives {copies} times"

    def unicast_path(self, origin: str, destination: str) -> list[str] | None:
        """Where a message goes by the present tables; None if it loops or is stopped by trace limit."""
        path = [origin]
        packet = Packet(b"", destination, origin)
        while path[-1] != destination:
            router = self.routers[path[-1]]
            if len(packet.trace) > router.table.radius + 1 or len(path) > len(self.routers):
                return None
            links = router.links_towards(packet, None)
            if len(links) != 1:
                return path
            path.append(self.peer_on(router, links.pop()))
            packet = replace(packet, trace=tuple(path[:-1]))
        return path

    def multicast_copies(self, origin: str) -> dict[str, int]:
        """How many copies of a multicast message from ``origin`` reach each router by the present tables."""
        copies: dict[str, int] = {}
        queue = [(origin, Packet(b"", "all", origin), None)]
        while queue and len(queue) < 1000:
            router_id, packet, came_on = queue.pop()
            router = self.routers[router_id]
            passed_on = replace(packet, trace=(*packet.trace, router_id))
            for link in router.links_towards(packet, came_on):
                peer = self.peer_on(router, link)
                copies[peer] = copies.get(peer, 0) + 1
                cable = router.cables[link]
                peer_link = next(bit for end, bit in cable.ends if end == peer)
                if len(passed_on.trace) <= self.routers[peer].table.radius + 1:
                    queue.append((peer, passed_on, peer_link))  # type: ignore[arg-type]
        return copies

    def peer_on(self, router: SimulatedRouter, link: int) -> str:
        one, other = router.cables[link].routers
        return other if one == router.id else one
