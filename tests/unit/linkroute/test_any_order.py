"""Routed links under any order of events: what holds in the whole network once everything has been said."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.unit.linkroute.network import Network, section
from tests.unit.linkroute.peers import Peer, PeerLink

from isthmus_router.core.terms import Condition
from isthmus_router.linkroute import edges as exchanges
from isthmus_router.linkroute import routing

REASON = Condition("test:reason", "as it pleases")
CONDITIONS = {"qd:no-route-to-dest", "qd:routed-link-lost", REASON.name}
SECTIONS = (
    section(container_id="shelf"),
    section("b2.deep", connection="mine", add_external_prefix="x/"),
    section(None, "in", pattern="*.deep.#", container_id="shelf"),
)
ADDRESSES = ("b2", "b2.q", "b2.deep.q", "a.deep", "plain")
SHAPES = (
    ("AB",),
    ("AB", "BC"),
    ("AB", "BC", "CD", "DA"),
    ("AB", "BC", "CA"),
    ("Ae", "Af"),
    ("AB", "Ae", "Bf"),
    ("AB", "BC", "CA", "Ae", "Ce"),
)
"""Who may be joined with whom; edges have small letters, and one uplink each."""

numbers = st.integers(0, 100)
arriving = st.integers(0, 3)


class RoutedNetwork(RuleBasedStateMachine):
    """Random events, frame by frame; `comes_to_rest` checks the whole network."""

    @initialize(
        shape=st.sampled_from(SHAPES),
        most_news=st.sampled_from((1, exchanges.MOST_NEWS)),
        few=st.sampled_from((0, routing.FEW)),
    )
    def build(self, shape: tuple[str, ...], most_news: int, few: int) -> None:
        self.changed = pytest.MonkeyPatch()
        self.changed.setattr(routing, "FEW", few)
        self.changed.setattr(exchanges, "MOST_NEWS", most_news)
        self.names = sorted(set("".join(shape)))
        interiors = [name for name in self.names if name.isupper()]
        edges = [name for name in self.names if name.islower()]
        self.network = Network(interiors, SECTIONS, edges=edges)
        self.joins = shape
        for one, other in shape:
            self.network.connect(one, other)
        for router in self.network.routers.values():
            self.network.find_paths(router)

    def _router(self, which: int) -> str:
        return self.names[which % len(self.names)]

    def _peers(self, *, containers: bool | None = None) -> list[Peer]:
        return [
            peer for peer in self.network.peers if peer.open and containers in (None, peer.name == "shelf")
        ]

    def _links(self) -> list[PeerLink]:
        return [link for peer in self._peers() for link in peer.links if link.attached]

    # Clients and containers

    @rule(where=numbers, endpoint=st.sampled_from(("mine", "other")))
    def container_connects(self, where: int, endpoint: str) -> None:
        if len(self._peers(containers=True)) < 4:
            self.network.peer(self._router(where), "shelf", container=True, endpoint=endpoint)

    @rule(where=numbers)
    def client_connects(self, where: int) -> None:
        if len(self._peers(containers=False)) < 4:
            self.network.peer(self._router(where), "client")

    @rule(
        which=numbers,
        address=st.sampled_from(ADDRESSES),
        sends=st.booleans(),
        name=st.sampled_from((None, None, "same")),
    )
    def attaches(self, which: int, address: str, sends: bool, name: str | None) -> None:
        peers = [
            peer
            for peer in self._peers()
            if name is None or all(link.name != name or (link.told and link.heard) for link in peer.links)
        ]
        if peers:
            peers[which % len(peers)].attach(address, sends=sends, name=name)

    @rule(which=numbers, count=st.integers(1, 3), refusal=st.sampled_from((None, None, REASON)))
    def peer_answers(self, which: int, count: int, refusal: Condition | None) -> None:
        peers = [peer for peer in self._peers() if peer.due]
        for _ in range(count):
            if peers and peers[which % len(peers)].due:
                peers[which % len(peers)].act(refusal)

    @rule(which=numbers, condition=st.sampled_from((None, REASON)), closed=st.booleans())
    def peer_detaches(self, which: int, condition: Condition | None, closed: bool) -> None:
        """One that it has attached, answered or not, or has answered."""
        links = [
            (peer, link)
            for peer in self._peers()
            for link in peer.links
            if not link.told and (link.answered or link not in peer.due)
        ]
        if links:
            peer, link = links[which % len(links)]
            if link in peer.due:
                peer.due.remove(link)
            peer.detach(link, condition, closed=closed)

    @rule(which=numbers, credit=st.integers(1, 5))
    def receiver_grants(self, which: int, credit: int) -> None:
        links = [link for link in self._links() if not link.sends]
        if links:
            links[which % len(links)].peer.grant(links[which % len(links)], credit)

    @rule(which=numbers, count=st.integers(1, 3), settled=st.booleans())
    def sender_sends(self, which: int, count: int, settled: bool) -> None:
        links = [link for link in self._links() if link.sends and link.credit]
        for _ in range(count if links else 0):
            links[which % len(links)].peer.send(links[which % len(links)], settled=settled)

    @rule(which=numbers)
    def peer_settles(self, which: int) -> None:
        links = [link for link in self._links() if link.unsettled]
        if links:
            links[which % len(links)].peer.settle(links[which % len(links)])

    @rule(which=numbers, arriving=arriving)
    def peer_dies(self, which: int, arriving: int) -> None:
        peers = self._peers()
        if peers:
            peers[which % len(peers)].die(arriving)

    # Routers

    @rule(which=numbers, arriving=arriving)
    def routers_lose_each_other(self, which: int, arriving: int) -> None:
        ends = [end for end in self.network.ends if end.connection is not None and not end.broken]
        ends = [end for end in ends if end.connection.role.is_between_routers]
        if ends:
            self.network.cut(ends[which % len(ends)], arriving)

    @rule(which=numbers)
    def routers_join(self, which: int) -> None:
        self.network.connect(*self.joins[which % len(self.joins)])

    @rule(which=numbers)
    def router_restarts(self, which: int) -> None:
        """All that it had is gone."""
        router = self.network.routers[self._router(which)]
        for end in list(router.ends.values()):
            self.network.cut(end)

    @rule(which=numbers)
    def link_of_an_exchange_is_detached(self, which: int) -> None:
        """A link on which routers and edges tell each other of link routes."""
        links = [
            (router, link)
            for router in self.network.routers.values()
            for exchange in router.exchange.exchanges.values()
            for link in (exchange.tells, exchange.hears)
            if link is not None
        ]
        if links:
            router, link = links[which % len(links)]
            router.core.port.detach_link(link)

    @rule(which=numbers)
    def paths_are_found(self, which: int) -> None:
        self.network.find_paths(self.network.routers[self._router(which)])

    @rule(which=numbers, node=numbers, hop=numbers)
    def path_is_wrong(self, which: int, node: int, hop: int) -> None:
        """While paths change, routers do not agree on them."""
        router = self.network.routers[self._router(which)]
        found = router.core.nodes.get(self._router(node))
        if found is not None and router.hops:
            found.hop = list(router.hops.values())[hop % len(router.hops)]
            router.core.remotes.paths_changed()

    @rule(which=numbers, count=st.integers(1, 4))
    def word_arrives(self, which: int, count: int) -> None:
        for _ in range(count):
            ways = [way for way, queue in self.network.news.items() if queue]
            if ways:
                self.network.hear(ways[which % len(ways)])

    @rule(which=numbers, count=st.integers(1, 6))
    def frames_arrive(self, which: int, count: int) -> None:
        for _ in range(count):
            busy = [end for end in self.network.ends if end.inbox]
            if busy:
                self.network.step(busy[which % len(busy)])

    @rule(count=st.integers(1, 4))
    def work_goes_on(self, count: int) -> None:
        for _ in range(count):
            self.network.work_on()

    @rule(which=numbers, sections=st.sets(st.sampled_from(SECTIONS)))
    def is_configured(self, which: int, sections: set[object]) -> None:
        router = self.network.routers[self._router(which)]
        router.routing.configure([one for one in SECTIONS if one in sections])

    # What holds

    @rule()
    def comes_to_rest(self) -> None:
        self.network.settle()
        self.network.check()
        for peer in self._peers():
            for link in peer.links:
                if link.condition is not None:
                    assert link.condition.name in CONDITIONS
                    if link.condition.name == "qd:no-route-to-dest":
                        assert repr(link.address) in link.condition.description

    def teardown(self) -> None:
        if not hasattr(self, "network"):
            return
        try:
            self._comes_to_its_end()
        finally:
            self.changed.undo()

    def _comes_to_its_end(self) -> None:
        self.comes_to_rest()
        for router in self.network.routers.values():
            router.routing.configure(SECTIONS)
        for join in self.joins:
            self.network.connect(*join)
        self.network.settle()
        self._everyone_is_served()
        for peer in self._peers(containers=True):
            peer.die()
        self.comes_to_rest()
        self._nobody_is_served()
        for router in self.network.routers.values():
            assert not router.routing.routed
            assert not router.known
            router.routing.configure([])
        self.network.settle()
        for router in self.network.routers.values():
            assert not router.routing.table.all

    def _everyone_is_served(self) -> None:
        """With good paths, a link is attached if there is a container for it anywhere."""
        for name in self.names:
            client = self.network.peer(name, "client")
            links = [client.attach(address, sends=sends) for address in ADDRESSES for sends in (True, False)]
            self.network.settle()
            self.network.check()
            endpoints = {peer.endpoint for peer in self._peers(containers=True)}
            for link in links:
                if link.address == "plain" or (link.address == "a.deep" and not link.sends):
                    assert link.attached
                elif link.address == "b2.deep.q":
                    assert link.attached is ("mine" in endpoints)
                else:
                    assert link.attached is bool(endpoints)
            client.die()
            self.network.settle()

    def _nobody_is_served(self) -> None:
        for name in self.names:
            client = self.network.peer(name, "client")
            links = [client.attach(address, sends=True) for address in ADDRESSES]
            self.network.settle()
            assert [link.attached for link in links] == [False, False, False, False, True]


TestRoutedNetwork = RoutedNetwork.TestCase
TestRoutedNetwork.settings = settings(max_examples=120, stateful_step_count=60, report_multiple_bugs=False)
