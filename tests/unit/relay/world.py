"""Sites, their members and the bridge between them, in memory and in virtual time; everything by one seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

from tests.unit.relay.node import LOCAL_DELAY, CrashError, Node

from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.messages import BridgeKind
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite

BRIDGE_DELAY = 0.005
DETECTION = 0.1


class Site:
    """Its members, by age, and their views."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Node] = []
        self.number = 0

    def live(self) -> list[Node]:
        return [node for node in self.nodes if node.alive]


class Link:
    """A bridge session: two ends, each a member and its number."""

    def __init__(self, a: Node, a_number: int, b: Node, b_number: int) -> None:
        self.ends = [(a, a_number), (b, b_number)]
        self.open = True
        self.last = [0.0, 0.0]


class World:
    """Events by time."""

    def __init__(self, seed: int, sites: dict[str, int], *, loss: float = 0.0, **options: object) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 100.0
        self.loss = loss
        self.options = options
        self.schedule: list[str] = []
        self._events: list[tuple[float, int, Callable[[], None], Node | None]] = []
        self._numbers = count()
        self._last: dict[tuple[int, int], float] = {}
        self.links: dict[tuple[int, int], Link] = {}
        self.cuts: set[frozenset[str]] = set()
        self.unreachable: set[str] = set()
        """Members that are reached from their own site only."""
        self.halves: dict[int, int] = {}
        self.hooks: list[tuple[str, Node, str, int]] = []
        self.by_id: dict[MemberId, Node] = {}
        self.sites = {name: Site(name) for name in sites}
        self.one_way: set[str] = options.pop("cannot_be_dialled", set())  # type: ignore[arg-type,assignment]
        for name, number in sites.items():
            for index in range(number):
                self.join(name, f"{name}{index}", install=False)
        for site in self.sites.values():
            self.install(site, 0.0)

    def settings(self, site: str, name: str) -> RelaySettings:
        remotes = {
            other: RemoteSite(() if other in self.one_way else (Endpoint(f"any.{other}", 1),), (other,))
            for other in self.sites
            if other != site
        }
        options = {
            "sites": remotes,
            "group": "g",
            "domain": f"ns/{site}",
            "own_certificate_names": (site,),
            **self.options,
        }
        return RelaySettings(site=site, own_endpoints=(Endpoint(name, 1),), **options)  # type: ignore[arg-type]

    def join(
        self, site: str, name: str, *, install: bool = True, settings: RelaySettings | None = None
    ) -> Node:
        self.sites.setdefault(site, Site(site))
        node = Node(self, self.sites[site], name, settings or self.settings(site, name))
        live = self.sites[site].live()
        if live:
            node.streams.take_baseline(self.now, live[0].streams.baseline())
        self.sites[site].nodes.append(node)
        self.by_id[node.id] = node
        if install:
            self.note(f"join {name}")
            self.install(self.sites[site], 0.01)
        return node

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes() if node.name == name)

    def nodes(self) -> Iterator[Node]:
        for site in self.sites.values():
            yield from site.nodes

    def live(self) -> Iterator[Node]:
        return (node for node in self.nodes() if node.alive)

    def note(self, what: str) -> None:
        self.schedule.append(f"{self.now - 100:.4f} {what}")

    def together(self, a: Node, b: Node) -> bool:
        return self.halves.get(id(a), 0) == self.halves.get(id(b), 0)

    def install(self, site: Site, delay: float) -> None:
        """A view of those that live, at each after a while of its own; of each half, if the site is divided."""
        for half in {self.halves.get(id(node), 0) for node in site.live()}:
            members = [node for node in site.live() if self.halves.get(id(node), 0) == half]
            site.number += 1
            view = View(ViewId(site.number, members[0].id), tuple(node.info for node in members))
            for node in members:
                wait = delay * self.random.uniform(0.8, 1.2)
                self.at(self.now + wait, lambda n=node, v=view: self._install(n, v), node)

    def _install(self, node: Node, view: View) -> None:
        if view.id <= node.view.id and node.view.id.number:
            return
        if node.id == view.coordinator.id:
            for other in node.site.live():
                if other is not node and other.id in view:
                    node.streams.take_positions(self.now, other.id, other.streams.positions())
        node.view = view
        node.relay.view_installed(self.now, view)
        node.streams.view_installed(self.now, view)
        node.relay.origins_changed(self.now)

    def crash(self, node: Node, *, silent: bool = False) -> None:
        """Gone: what it sent last may be gone with it; others see its connections end, or hear nothing more."""
        if not node.alive:
            return
        self.note(f"crash {node.name}")
        node.alive = False
        for key, link in list(self.links.items()):
            if any(end is node for end, _ in link.ends):
                if not silent:
                    self._end(link, node)
                self.links.pop(key, None)
        self.at(self.now + DETECTION, lambda: self.install(node.site, 0.01) if node.site.live() else None)

    def leave(self, node: Node) -> None:
        """In the order of a graceful end: the relay, then the membership."""
        self.note(f"leave {node.name}")
        node.relay.leave(self.now)

        def gone() -> None:
            if not node.left:
                self.at(self.now + 0.005, gone, node)
                return
            node.alive = False
            if node.site.live():
                self.install(node.site, 0.005)

        self.at(self.now, gone, node)

    def cut(self, a: str, b: str, *, silent: bool = False) -> None:
        self.note(f"cut {a} {b}")
        self.cuts.add(frozenset((a, b)))
        for link in list(self.links.values()):
            if link.open and {end.site.name for end, _ in link.ends} == {a, b} and not silent:
                self._end(link, None)

    def heal(self, a: str, b: str) -> None:
        self.note(f"heal {a} {b}")
        self.cuts.discard(frozenset((a, b)))

    def hook(self, node: Node, point: str, site: str) -> None:
        for index, (where, who, of, left) in enumerate(self.hooks):
            if (where, who) == (point, node) and of in ("", site):
                if left > 1:
                    self.hooks[index] = (where, who, of, left - 1)
                    continue
                del self.hooks[index]
                self.note(f"at {point}")
                raise CrashError

    def at(self, time: float, action: Callable[[], None], node: Node | None = None) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), action, node))

    def fifo(self, a: Node, b: Node, delay: float, action: Callable[[], None]) -> None:
        key = (id(a), id(b))
        time = max(self._last.get(key, 0.0), self.now + delay * self.random.uniform(1, 3))
        self._last[key] = time
        self.at(time, action, b)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            time, _, action, node = heapq.heappop(self._events)
            self.now = max(self.now, time)
            if node is None:
                action()
            elif node.alive:
                self.do(node, action)
            for touched in [node] if node is not None else list(self.live()):
                self._arm(touched)
        self.now = end

    def do(self, node: Node, action: Callable[[], None]) -> None:
        try:
            action()
            if node.alive:
                node.streams.flush(self.now)
        except CrashError:
            self.crash(node)

    def _arm(self, node: Node) -> None:
        """Have its timers called."""
        deadline = max(min(node.relay.deadline, node.streams.deadline), self.now)
        if node.alive and deadline < node.due:
            node.due = deadline

            def due() -> None:
                if node.due <= self.now:
                    node.due = float("inf")
                    node.streams.on_time(self.now)
                    node.relay.on_time(self.now)

            self.at(deadline, due, node)

    # Bridge

    def dial(self, node: Node, session: int, endpoint: Endpoint) -> None:
        def connect() -> None:
            target = self._target(endpoint)
            if (
                target is None
                or not target.alive
                or not node.alive
                or target.name in self.unreachable
                or frozenset((node.site.name, target.site.name)) in self.cuts
            ):
                if node.alive:
                    self.do(node, lambda: node.relay.closed(self.now, session, "connection refused"))
                return
            number = next(target.accepted)
            link = Link(node, session, target, number)
            self.links[id(node), session] = self.links[id(target), number] = link
            self.do(target, lambda: target.relay.opened(self.now, number, node.certificate))
            self.do(node, lambda: node.relay.opened(self.now, session, target.certificate))

        self.at(self.now + BRIDGE_DELAY, connect)

    def _target(self, endpoint: Endpoint) -> Node | None:
        """`any.SITE` is a service: somebody who lives."""
        if endpoint.host.startswith("any."):
            live = self.sites[endpoint.host[4:]].live()
            return self.random.choice(live) if live else None
        return next((node for node in self.nodes() if node.name == endpoint.host), None)

    def transmit(self, node: Node, session: int, frame: bytes) -> None:
        link = self.links.get((id(node), session))
        if link is None or not link.open:
            return
        way = 0 if link.ends[0] == (node, session) else 1
        peer, number = link.ends[1 - way]
        if self.random.random() < self.loss:
            return
        time = max(link.last[way], self.now + BRIDGE_DELAY * self.random.uniform(1, 1.5))
        link.last[way] = time

        def arrive() -> None:
            if link.open and frozenset((node.site.name, peer.site.name)) not in self.cuts:
                if frame[0] == BridgeKind.BATCH:
                    peer.hook("after_bridge_recv")
                peer.relay.frame(self.now, number, frame)

        self.at(time, arrive, peer)

    def close(self, node: Node, session: int) -> None:
        link = self.links.pop((id(node), session), None)
        if link is not None:
            # What was sent before is written first.
            last = max(link.last)
            self.at(max(last, self.now) + BRIDGE_DELAY, lambda: self._end(link, node))

    def _end(self, link: Link, by: Node | None) -> None:
        if not link.open:
            return
        link.open = False
        for end, number in link.ends:
            if end is not by and self.links.pop((id(end), number), None) is not None:
                self.at(
                    self.now + BRIDGE_DELAY,
                    lambda e=end, n=number: e.relay.closed(self.now, n, "connection lost"),
                    end,
                )

    def splice(self, node: Node, session: int, endpoint: Endpoint, first: bytes) -> None:
        link = self.links.pop((id(node), session))
        target = self._target(endpoint)
        if target is None or not target.alive:
            self._end(link, node)
            return
        number = next(target.accepted)
        way = 0 if link.ends[0] == (node, session) else 1
        link.ends[way] = (target, number)
        self.links[id(target), number] = link
        self.do(target, lambda: target.relay.opened(self.now, number, node.certificate))
        self.at(self.now + LOCAL_DELAY, lambda: target.relay.frame(self.now, number, first), target)

    # What must be true

    def check_safety(self) -> None:
        """R1, R2: nothing twice, ascending by origin."""
        for node in self.nodes():
            for origin, numbers in node.deliveries.items():
                assert numbers == sorted(set(numbers)), self.story(f"{node.name}: {numbers[:50]}")
                assert not numbers or numbers[-1] < self.by_id[origin].published

    def check_complete(
        self, origins: list[Node], nodes: list[Node] | None = None, *, gaps: bool = False
    ) -> None:
        """R3, R4: all messages of the origins are everywhere, without a gap unless they are allowed."""
        self.check_safety()
        for node in nodes if nodes is not None else list(self.live()):
            for origin in origins:
                got = len(node.deliveries[origin.id])
                lost = sum(count for _, _, count in node.gaps[origin.id])
                assert gaps or not node.gaps[origin.id], self.story(
                    f"{node.name}: gaps {node.gaps[origin.id]}"
                )
                assert got + lost == origin.published, self.story(
                    f"{node.name} has {got} of {origin.name}'s {origin.published}, {lost} told to be lost"
                )

    def check_views(self) -> None:
        """V1, V2: the same global view everywhere, with everybody in it once."""
        views = {node.name: node.relay.global_view for node in self.live()}
        (first, *rest) = views.values()
        assert all(view == first for view in rest), self.story(str(views))
        assert first is not None
        members = [member.id for _, member in first.members]
        assert sorted(members) == sorted(node.id for node in self.live()), self.story(str(first))

    def story(self, what: str) -> str:
        return "\n".join((f"seed {self.seed}: {what}", *self.schedule))


def load(world: World, origins: list[Node], rounds: int, *, every: float = 0.005) -> None:
    """Each origin publishes in each round, as long as it lives."""
    for _ in range(rounds):
        for origin in origins:
            if origin.alive:
                world.do(origin, origin.publish)
        world.run(every)
