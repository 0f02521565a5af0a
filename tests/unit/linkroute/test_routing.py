"""Where a link is routed to, or why it is refused, as containers, routers and sections come and go."""

from __future__ import annotations

import itertools

import pytest
from tests.unit.linkroute.network import FULL, Network, Router, section
from tests.unit.linkroute.peers import ABSENT, IN, OUT, Peer, PeerLink

from isthmus_router.core.model import Connection
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Condition, Direction, Terminus
from isthmus_router.core.treatment import Treatment
from isthmus_router.linkroute.names import RouteName
from isthmus_router.linkroute.routing import MOST_TRIED, LinkRouting

SHELF = section(container_id="shelf")
NO_ROUTE = "qd:no-route-to-dest"


def line(*sections: object, routers: str = "ABC") -> Network:
    """Routers in a row, all with the same sections."""
    network = Network(routers, sections or (SHELF,))  # type: ignore[arg-type]
    for one, other in itertools.pairwise(routers):
        network.connect(one, other)
    network.settle()
    return network


def container(network: Network, at: str, name: str = "shelf", endpoint: str = "broker") -> Peer:
    """A container attaches, and the whole network knows."""
    peer = network.peer(at, name, container=True, endpoint=endpoint)
    network.settle()
    return peer


def attach(
    network: Network,
    at: str,
    address: str | None = "b2.q",
    *,
    terminus: Terminus | None = None,
    sends: bool = True,
) -> PeerLink:
    """A client attaches a link, and has its answer."""
    link = network.peer(at, "client").attach(address, sends=sends, terminus=terminus)
    network.settle()
    return link


def refusal(link: PeerLink) -> Condition:
    """Why it is refused."""
    assert link.condition is not None
    assert (link.source, link.target) == (ABSENT, ABSENT)
    return link.condition


def goes_to(network: Network, link: PeerLink) -> str:
    """The router whose container it is attached to."""
    found = network.beyond(link)
    assert found is not None
    router = found.end.other.node
    assert isinstance(router, Router)
    return router.core.id


def row(routing: LinkRouting, number: int = 0) -> tuple[int, int, int, int]:
    """Of a section: containers, other routers that have some, links, refusals."""
    entry = list(routing.sections.values())[number]
    route = entry.routes[0]
    return (
        len(entry.destinations),
        max(one.remote_count for one in entry.routes),
        entry.link_count,
        route.refusals.count,
    )


def test_the_nearest_container_has_the_link() -> None:
    network = line(routers="ABCD")
    container(network, "A")
    container(network, "D")
    assert [goes_to(network, attach(network, at)) for at in "ABCD"] == ["A", "A", "D", "D"]
    network.check()


def test_of_routers_that_are_as_near_each_has_its_turn() -> None:
    network = Network("ABC", (SHELF,))
    for other in "BC":
        network.connect("A", other)
        container(network, other)
    found = [goes_to(network, attach(network, "A")) for _ in range(4)]
    assert sorted(found) == ["B", "B", "C", "C"]
    assert found[:2] == found[2:]


def test_of_containers_of_a_router_the_one_with_the_fewest_links() -> None:
    network = line(routers="A")
    containers = [container(network, "A") for _ in range(3)]
    links = [attach(network, "A") for _ in range(6)]
    assert [len(peer.links) for peer in containers] == [2, 2, 2]
    for link in links:
        if link in (links[0], links[3]):
            link.peer.detach(link)
    network.settle()
    emptied = network.routers["A"].routing
    assert row(emptied) == (3, 0, 4, 0)
    for _ in range(2):
        attach(network, "A")
    assert [sum(link.attached for link in peer.links) for peer in containers] == [2, 2, 2]


def test_of_containers_those_that_have_room() -> None:
    network = line()
    near, other = container(network, "B"), container(network, "B")
    container(network, "C")
    router = network.routers["B"]
    router.full = lambda end: end.node is near
    for _ in range(4):
        attach(network, "B")
    assert (len(near.links), len(other.links)) == (0, 4)
    router.full = lambda end: end.node in (near, other)
    assert goes_to(network, attach(network, "B")) == "C"
    router.full = lambda _end: True
    assert refusal(attach(network, "B")) == FULL
    network.check()


def test_few_containers_are_tried() -> None:
    network = line(routers="A")
    router = network.routers["A"]
    for _ in range(MOST_TRIED + 2):
        container(network, "A")
    router.full = lambda _end: True
    assert refusal(attach(network, "A")) == FULL
    assert len(router.tried) == len(set(router.tried)) == MOST_TRIED
    assert row(router.routing)[3] == 1


@pytest.mark.parametrize(
    ("name", "endpoint", "expected"), [("shelf", "x", [0, 1]), ("x", "broker", [1, 0]), ("x", "x", [0, 0])]
)
def test_which_container_is_whose(name: str, endpoint: str, expected: list[int]) -> None:
    network = line(section("one", connection="broker"), section("two", container_id="shelf"), routers="A")
    peer = container(network, "A", name, endpoint)
    routing = network.routers["A"].routing
    assert [row(routing, number)[0] for number in (0, 1)] == expected
    assert [attach(network, "A", f"{one}.q").attached for one in ("one", "two")] == [
        bool(x) for x in expected
    ]
    peer.die()
    network.settle()
    assert [row(routing, number)[:3] for number in (0, 1)] == [(0, 0, 0)] * 2


def test_a_link_does_not_go_back_to_where_it_comes_from() -> None:
    network = line(routers="AB")
    peer = container(network, "A")
    link = peer.attach("b2.q", sends=True)
    network.settle()
    assert refusal(link).name == NO_ROUTE
    other = container(network, "B")
    link = peer.attach("b2.q", sends=True)
    network.settle()
    assert network.beyond(link) in other.links


def test_it_is_advertised_while_there_is_a_container() -> None:
    network = line()
    first, second = (container(network, "C") for _ in range(2))
    routing = network.routers["A"].routing
    assert row(routing) == (0, 1, 0, 0)
    first.die()
    network.settle()
    assert network.routers["C"].known == {"Cb2", "Db2"}
    end = second.end.other
    network.cut(end)
    network.step(end)
    assert network.routers["C"].known == set(), "withdrawn at once"
    network.settle()
    assert row(routing) == (0, 0, 0, 0)


def test_attaches_without_a_container_are_refused_and_counted() -> None:
    network = line()
    for sends, count in ((True, 1), (True, 2), (False, 2)):
        condition = refusal(attach(network, "A", "/b2/q", sends=sends))
        assert (condition.name, "'/b2/q'" in condition.description) == (NO_ROUTE, True)
        route = network.routers["A"].routing.table.find("b2", IN)
        assert route is not None
        assert (route.refusals.count, route.refusals.address) == (count, "/b2/q")
        assert route.refusals.description == condition.description
    out = network.routers["A"].routing.table.find("b2", OUT)
    assert out is not None
    assert out.refusals.count == 1
    assert not any(network.routers[other].routing.table.all["Cb2"].refusals.count for other in "BC")


def test_an_address_that_no_section_is_about_is_a_mobile_one() -> None:
    network = line(section(direction="in", container_id="shelf"))
    assert attach(network, "A", "b2x").attached
    assert attach(network, "A", "b2.q", sends=False).attached
    assert not attach(network, "A", "b2.q").attached
    assert not network.routers["A"].routing.routed


def test_a_section_that_is_gone_takes_no_more_links() -> None:
    network = line()
    container(network, "C")
    before = attach(network, "A")
    for router in network.routers.values():
        router.routing.configure([])
    network.settle()
    assert before.attached
    assert network.beyond(before) is not None
    assert attach(network, "A").attached, "as of a mobile address"
    routing = network.routers["C"].routing
    assert not routing.table.all
    routing.configure([SHELF])
    network.settle()
    assert row(routing) == (1, 0, 0, 0)
    after = attach(network, "C")
    assert network.beyond(after) is not None
    assert row(routing) == (1, 0, 1, 0)
    before.peer.detach(before)
    network.settle()
    assert row(routing) == (1, 0, 1, 0)
    assert len(routing.routed) == 2


def test_sections_that_stay_keep_what_they_have() -> None:
    network = line(routers="A")
    container(network, "A")
    attach(network, "A")
    routing = network.routers["A"].routing
    deep = section("b2.deep", container_id="shelf")
    routing.configure([deep, SHELF])
    assert [row(routing, number)[:3] for number in (0, 1)] == [(1, 0, 0), (1, 0, 1)]
    routing.configure([SHELF])
    assert row(routing)[:3] == (1, 0, 1)
    assert set(routing.table.all) == {"Cb2", "Db2"}


def test_the_most_specific_section_alone_counts() -> None:
    network = line(SHELF, section("b2.deep", container_id="cave"), routers="A")
    container(network, "A")
    assert attach(network, "A", "b2.q").attached
    assert refusal(attach(network, "A", "b2.deep.q")).name == NO_ROUTE
    container(network, "A", "cave")
    assert attach(network, "A", "b2.deep.q").attached


def test_a_coordinator_and_a_dynamic_node_are_routed_by_name() -> None:
    network = line(SHELF, section("$coordinator", "in", container_id="shelf"))
    peer = container(network, "C")
    coordinator = attach(network, "A", terminus=Terminus(coordinator=True))
    assert coordinator.attached
    dynamic = attach(network, "A", terminus=Terminus(dynamic=True, node_address="b2.new"), sends=False)
    assert [link.source.dynamic for link in peer.links] == [False, True]
    assert peer.links[0].target.coordinator
    assert dynamic.attached
    assert not attach(
        network, "A", terminus=Terminus(dynamic=True, node_address="b2x"), sends=False
    ).condition
    assert len(peer.links) == 2
    network.check()


@pytest.mark.parametrize("resumable", [True, False])
def test_termini_that_outlive_their_links_may_be_refused(resumable: bool) -> None:
    network = line()
    for router in network.routers.values():
        router.routing._resumable = resumable
    peer = container(network, "C")
    link = attach(network, "A", terminus=Terminus("b2.q", outlives=True), sends=False)
    assert link.attached is resumable
    if not resumable:
        assert refusal(link).name == "qd:link-expiration"
        return
    peer.die()
    network.settle()
    assert link.condition is not None
    assert link.condition.name == "qd:routed-link-lost"


@pytest.mark.parametrize(
    ("added", "removed", "outside", "inside"),
    [
        (None, None, "/b2/q", "/b2/q"),
        ("queue/", None, "queue/b2/q", "/b2/q"),
        (None, "b2/", "q", "/b2/q"),
        ("queue/", "b2/", "queue/q", "/b2/q"),
        (None, "b2.", "b2/q", "/b2/q"),
    ],
)
@pytest.mark.parametrize("sends", [True, False])
def test_prefixes_of_the_container(
    added: str | None, removed: str | None, outside: str, inside: str, sends: bool
) -> None:
    """The container hears its own name of the address, the client the one that it has asked for."""
    network = line(section(container_id="shelf", add_external_prefix=added, del_external_prefix=removed))
    peer = container(network, "C")
    link = attach(network, "A", "/b2/q", sends=sends)
    assert peer.links[0].address == outside
    assert (link.target if sends else link.source).address == inside


def test_a_node_that_the_container_makes_has_the_prefixes_of_the_network() -> None:
    network = line(section(container_id="shelf", add_external_prefix="queue/", del_external_prefix="b2/"))
    peer = network.peer("C", "shelf", container=True)
    network.settle()
    client = network.peer("A", "client")
    link = client.attach(None, sends=False, terminus=Terminus(dynamic=True, node_address="b2.new"))
    for answer in ("queue/made", "elsewhere"):
        if answer == "elsewhere":
            link = client.attach(None, sends=False, terminus=Terminus(dynamic=True, node_address="b2.new"))
        while not peer.due:
            for end in network.ends:
                if end.inbox:
                    network.step(end)
        peer.due[-1].source = Terminus(answer, dynamic=True)
        network.settle()
        assert link.source.address == {"queue/made": "b2/made"}.get(answer, answer)


def test_names_at_the_container_are_the_clients_and_used_once() -> None:
    network = line()
    peer = container(network, "C")
    clients = [network.peer("A", "client") for _ in range(2)]
    links = [client.attach("b2.q", sends=True, name="mine") for client in clients]
    links.append(clients[0].attach("b2.q", sends=False, name="mine"))
    network.settle()
    assert [(link.name, link.sends) for link in peer.links] == [
        ("mine@client", False),
        ("mine@client.2", False),
        ("mine@client", True),
    ]
    clients[0].detach(links[0])
    network.settle()
    clients[1].attach("b2.q", sends=True, name="other")
    clients[0].attach("b2.q", sends=True, name="mine")
    network.settle()
    assert sorted(link.name for link in peer.links[3:]) == ["mine@client", "other@client"]
    network.check()


def between(router: Router, other: str) -> Connection:
    return router.hops[other].connection


@pytest.mark.parametrize("passed", [("A", "B"), ("X", "B", "A")])
def test_a_link_that_has_been_here_is_refused(passed: tuple[str, ...]) -> None:
    network = line()
    container(network, "C")
    router = network.routers["B"]
    end = router.ends[between(router, "A")]
    name = RouteName("mine@client", passed[:-1]).beyond(passed[-1])
    router.on_attach(end, 1000, name, Direction.IN, Terminus(), Terminus("b2.q"))
    assert end.other.inbox[-1][0] == "detach"
    assert end.other.inbox[-1][2].name == NO_ROUTE
    assert not router.routing.routed


def test_a_link_on_its_way_is_refused_where_nothing_is_known_of_it() -> None:
    network = line()
    container(network, "C")
    network.routers["C"].routing.configure([])
    network.routers["B"].routing.configure([])
    network.routers["A"].core.remotes.add(network.routers["A"].core.nodes["C"], "Cb2", Treatment.BALANCED)
    condition = refusal(attach(network, "A"))
    assert condition.name == NO_ROUTE
    assert "'b2.q'" in condition.description
    network.routers["A"].core.remotes.remove(network.routers["A"].core.nodes["C"], "Cb2")
    network.settle()
    network.check()


def test_other_links_of_routers_are_not_routed() -> None:
    network = line()
    container(network, "C")
    router = network.routers["B"]
    end = router.ends[between(router, "A")]
    assert end.connection is not None
    assert end.connection.role is Role.INTER_ROUTER
    router.on_attach(end, 1000, "qdlink.x", Direction.IN, Terminus(), Terminus("b2.q"))
    router.on_attach(
        end,
        1001,
        RouteName("x").beyond("A"),
        Direction.IN,
        Terminus(),
        Terminus("b2.q", capabilities=frozenset({"qd.router-data"})),
    )
    assert not router.routing.routed


def test_a_container_makes_a_link_route_for_its_own_connection() -> None:
    network = line(section("other", container_id="shelf"))
    peer = network.peer("C", "client")
    routing = network.routers["C"].routing
    connection = peer.end.other.connection
    assert connection is not None
    routing.made.make(connection, "own", "b3.*", IN)
    network.settle()
    link = attach(network, "A", "b3.q")
    assert network.beyond(link) in peer.links
    routing.made.unmake(connection, "own")
    network.settle()
    assert link.attached
    assert attach(network, "A", "b3.q").attached, "as of a mobile address"
    assert len(peer.links) == 1
    routing.made.make(connection, "own", "b3.*", IN)
    network.settle()
    peer.die()
    network.settle()
    network.check()
    assert link.condition is not None
    assert not routing.made.of
    assert {route.key for route in routing.table.all.values()} == {"Cother", "Dother"}
