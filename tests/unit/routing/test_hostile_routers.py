"""A router that has joined the network and announces more than there is: the others keep their places."""

from __future__ import annotations

import pytest
from tests.unit.routing.driver import LINK, Driver

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing import actions as act
from isthmus_router.routing import engine, mobile
from isthmus_router.routing.engine import MOST_REPORTED, MOST_STEPS
from isthmus_router.routing.linkstate import LinkState
from isthmus_router.routing.messages import (
    LONGEST_ID,
    MAX_PEERS,
    ControlMessage,
    Hello,
    LinkStateUpdate,
    MobileAddress,
    MobileAddressRequest,
    MobileAddressUpdate,
    RouterAdvertisement,
    encode_control,
)
from isthmus_router.routing.nodes import MAX_ROUTERS

OTHER_LINK = LINK + 1
INVENTED = 100


def invented(driver: Driver, *, speaking: bool, link: int = LINK) -> None:
    """The neighbour on `link` fills the table with routers that do not exist."""
    names = [f"X{number:03d}" for number in range(2 * MAX_ROUTERS)]
    for at in range(0, len(names), MAX_PEERS - 1):
        peers = {"ME": 1, **dict.fromkeys(names[at : at + MAX_PEERS - 1], 1)}
        driver.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2 + at, peers)), link)
    if speaking:
        for name in names:
            driver.receive(RouterAdvertisement(name, 7, 1, 0), link)
            driver.receive(LinkStateUpdate(name, 7, LinkState(name, 1, {"PEER": 1})), link)
    assert len(driver.engine.nodes()) == MAX_ROUTERS


def known(driver: Driver) -> set[str]:
    return {node.id for node in driver.engine.nodes()}


def test_a_link_state_of_500_peers_is_refused(pair: Driver) -> None:
    before = known(pair)
    peers = {"ME": 1, **{f"X{number}": 1 for number in range(500)}}
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, peers)))
    assert len(pair.events(act.MessageRefused)) == 1
    assert known(pair) == before
    assert pair.engine.table.neighbours == {"PEER": LINK}


@pytest.mark.parametrize("name", ["x" * (LONGEST_ID + 1), "\u20ac" * 50])
def test_a_long_id_is_refused(pair: Driver, name: str) -> None:
    for message in (
        RouterAdvertisement(name, 7, 1, 0),
        Hello(name, 7, ("ME",)),
        LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, name: 1})),
    ):
        pair.receive(message)
        assert len(pair.events(act.MessageRefused)) == 1
    assert known(pair) == {"ME", "PEER"}


@pytest.mark.parametrize("speaking", [False, True])
def test_a_router_that_connects_is_a_neighbour_though_the_table_is_full(
    pair: Driver, *, speaking: bool
) -> None:
    invented(pair, speaking=speaking)
    pair.take(pair.engine.on_link_up(OTHER_LINK, 1, pair.now))
    pair.receive(Hello("HONEST", 3, ("ME",)), OTHER_LINK)
    assert pair.engine.table.neighbours == {"PEER": LINK, "HONEST": OTHER_LINK}
    assert pair.engine.table.routes["HONEST"].link == OTHER_LINK
    assert not pair.engine.has_neighbour_without_place(pair.now)
    assert pair.engine.displaced_routers == 1
    assert len(pair.engine.nodes()) == MAX_ROUTERS
    assert len({node.index for node in pair.engine.nodes()}) == MAX_ROUTERS


@pytest.mark.parametrize("speaking", [False, True])
def test_routers_behind_another_link_get_their_share_of_a_full_table(pair: Driver, *, speaking: bool) -> None:
    invented(pair, speaking=speaking)
    pair.take(pair.engine.on_link_up(OTHER_LINK, 1, pair.now))
    pair.receive(Hello("HONEST", 3, ("ME",)), OTHER_LINK)
    behind = {f"H{number}" for number in range(50)}
    pair.receive(
        LinkStateUpdate("HONEST", 3, LinkState("HONEST", 1, dict.fromkeys(("ME", *behind), 1))), OTHER_LINK
    )
    for name in behind:
        pair.receive(RouterAdvertisement(name, 9, 1, 0), OTHER_LINK)
        pair.receive(LinkStateUpdate(name, 9, LinkState(name, 1, {"HONEST": 1})), OTHER_LINK)
    pair.after(2)
    assert behind <= pair.engine.table.routes.keys()
    # The hostile one does not get these places back.
    displaced = pair.engine.displaced_routers
    for number in range(100):
        pair.receive(RouterAdvertisement(f"Y{number}", 9, 1, 0))
    assert behind <= known(pair)
    assert pair.engine.displaced_routers <= displaced + 100
    assert {"PEER", "HONEST"} <= pair.engine.table.neighbours.keys()


def test_a_router_that_speaks_goes_before_one_that_is_only_named(pair: Driver) -> None:
    invented(pair, speaking=False)
    for number in range(20):
        pair.receive(RouterAdvertisement(f"H{number}", 9, 1, 0))
    assert {f"H{number}" for number in range(20)} <= known(pair)


def test_one_link_leads_to_one_router(pair: Driver) -> None:
    for number in range(2 * MAX_ROUTERS):
        pair.receive(Hello(f"X{number}", 7, ("ME",)))
        assert len(pair.events(act.MessageRefused)) == 1
    assert pair.engine.table.neighbours == {"PEER": LINK}
    assert known(pair) == {"ME", "PEER"}


def test_one_link_leads_to_one_router_however_long_it_lasts(pair: Driver) -> None:
    """The names follow each other, so that each is forgotten as a neighbor before the next one."""
    for number in range(2 * MAX_ROUTERS):
        pair.after(pair.engine.timers.hello_max_age + 1)
        pair.receive(Hello(f"X{number}", 7, ("ME",)))
    assert not pair.engine.table.neighbours
    assert known(pair) <= {"ME", "PEER"}
    pair.receive(Hello("PEER", 7, ("ME",)))
    assert pair.engine.table.neighbours == {"PEER": LINK}


def test_another_router_may_take_over_a_link_that_was_lost(pair: Driver) -> None:
    pair.take(pair.engine.on_link_lost(LINK, pair.now))
    pair.take(pair.engine.on_link_up(LINK, 1, pair.now))
    pair.receive(Hello("NEXT", 7, ("ME",)))
    assert pair.engine.table.neighbours == {"NEXT": LINK}


def test_a_neighbour_without_a_place_is_reported(pair: Driver) -> None:
    for number in range(MAX_ROUTERS):
        link = LINK + 1 + number
        pair.take(pair.engine.on_link_up(link, 1, pair.now))
        pair.receive(Hello(f"N{number}", 7, ("ME",)), link)
    assert pair.engine.has_neighbour_without_place(pair.now)
    pair.after(1)
    assert len(pair.engine.table.neighbours) == MAX_ROUTERS - 1
    assert pair.engine.refused_routers == 2
    assert not pair.engine.has_neighbour_without_place(pair.now + 100)


def stay(pair: Driver) -> None:
    """Time passes; the neighbour is there."""
    for _ in range(3):
        pair.after(1)
        pair.receive(Hello("PEER", 7, ("ME",)))


def mesh(pair: Driver) -> LinkStateUpdate:
    """Many invented routers, each with links to all others; the next link state of the last one."""
    names = [f"X{number}" for number in range(INVENTED)]
    everybody = dict.fromkeys(["PEER", *names], 1)
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, **dict.fromkeys(names, 1)})))
    for name in names:
        pair.receive(LinkStateUpdate(name, 7, LinkState(name, 1, everybody)))
    stay(pair)
    assert len(pair.engine.table.routes) == INVENTED + 1
    return LinkStateUpdate(names[-1], 7, LinkState(names[-1], 2, {"PEER": 5}))


def test_paths_through_a_mesh_of_invented_routers_are_computed_in_steps(pair: Driver) -> None:
    update = mesh(pair)
    stay(pair)
    actions = pair.engine.on_message(LINK, encode_control(update, "x"), pair.now)
    steps = 0
    while pair.engine.has_work(pair.now):
        assert not [action for action in actions if isinstance(action, act.RoutesChanged)]
        actions = pair.engine.work(pair.now)
        steps += 1
    assert steps > INVENTED / 2
    assert pair.engine.table.routes[update.router].cost == 2


def test_a_neighbour_that_is_lost_while_paths_are_computed_has_no_route_afterwards(pair: Driver) -> None:
    update = mesh(pair)
    stay(pair)
    pair.engine.on_message(LINK, encode_control(update, "x"), pair.now)
    pair.engine.work(pair.now)
    pair.engine.on_link_lost(LINK, pair.now)
    assert pair.engine.has_work(pair.now)
    while pair.engine.has_work(pair.now):
        pair.engine.work(pair.now)
    assert not pair.engine.table.routes
    assert not pair.engine.table.neighbours


def test_a_link_that_comes_and_goes_makes_paths_be_computed_at_a_bounded_rate(pair: Driver) -> None:
    before = pair.engine.recomputations
    for _ in range(500):
        pair.take(pair.engine.on_link_lost(LINK, pair.now))
        pair.take(pair.engine.on_link_up(LINK, 1, pair.now))
        pair.receive(Hello("PEER", 7, ("ME",)))
        pair.after(0.02)
    assert pair.engine.recomputations - before < 50
    pair.after(1)
    assert pair.engine.table.neighbours == {"PEER": LINK}


@pytest.mark.parametrize("absolute", [True, False])
def test_addresses_beyond_the_bound_are_ignored(
    pair: Driver, monkeypatch: pytest.MonkeyPatch, *, absolute: bool
) -> None:
    monkeypatch.setattr(mobile, "MOST_ADDRESSES", 10)
    taken: set[str] = set()
    for sequence in range(1, 4):
        present = tuple(MobileAddress(f"M{sequence}/{number}", Treatment.CLOSEST) for number in range(8))
        update = MobileAddressUpdate("PEER", sequence, absolute=absolute, present=present)
        pair.receive(update)
        for change in pair.events(act.RemoteAddressesChanged):
            taken = (taken | change.added.keys()) - change.removed
        assert len(taken) <= 10
        refused = 0 if absolute else max(0, 8 * sequence - 10)
        assert pair.engine.refused_addresses == refused
    assert len(taken) == (8 if absolute else 10)


def announce(driver: Driver, router: str, sequence: int, *names: str, absolute: bool = True) -> set[str]:
    """The keys that are taken over."""
    present = tuple(MobileAddress(name, Treatment.CLOSEST) for name in names)
    driver.receive(MobileAddressUpdate(router, sequence, absolute=absolute, present=present))
    return {key for change in driver.events(act.RemoteAddressesChanged) for key in change.added}


def test_each_router_has_its_share_when_another_one_has_filled_the_table(
    pair: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mobile, "MAX_ADDRESSES_OF_ALL", 20)
    monkeypatch.setattr(mobile, "SHARE_OF_ADDRESSES", 3)
    pair.take(pair.engine.on_link_up(OTHER_LINK, 1, pair.now))
    pair.receive(Hello("HONEST", 3, ("ME",)), OTHER_LINK)
    assert len(announce(pair, "PEER", 1, *(f"M{number}" for number in range(30)))) == 20
    assert announce(pair, "HONEST", 1, "Ma", "Mb", "Mc", "Md", "Me") == {"Ma", "Mb", "Mc"}
    assert pair.engine.refused_addresses == 12
    # When there is room again, the router asks for what it has refused.
    announce(pair, "PEER", 2)
    pair.after(1)
    pair.receive(LinkStateUpdate("HONEST", 3, LinkState("HONEST", 1, {"ME": 1})), OTHER_LINK)
    pair.receive(RouterAdvertisement("HONEST", 3, 1, 1), OTHER_LINK)
    assert ("HONEST", MobileAddressRequest("ME", 0)) in pair.sent
    assert announce(pair, "HONEST", 1, "Ma", "Mb", "Mc", "Md", "Me") == {"Md", "Me"}
    pair.after(5)
    assert pair.sent_of(MobileAddressRequest) == []


def test_the_characters_of_addresses_are_bounded(pair: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mobile, "MOST_CHARACTERS", 1000)
    assert len(announce(pair, "PEER", 1, *(f"M{number:099}" for number in range(30)))) == 10
    assert len(announce(pair, "PEER", 2, *(f"M{number:099}" for number in range(5, 35)))) == 5


def test_a_long_mesh_id_is_none(pair: Driver) -> None:
    present = (MobileAddress("HE", Treatment.BALANCED, mesh_id="m" * 65_000),)
    pair.receive(MobileAddressUpdate("PEER", 1, absolute=True, present=present))
    [change] = pair.events(act.RemoteAddressesChanged)
    assert change.added["HE"].mesh_id is None


# Messages in the name of another router


FAR = 2**62


@pytest.fixture
def two(pair: Driver) -> Driver:
    """PEER, which has an address, and a hostile neighbour on another link."""
    pair.take(pair.engine.on_link_up(OTHER_LINK, 1, pair.now))
    pair.receive(Hello("HOSTILE", 3, ("ME",)), OTHER_LINK)
    pair.receive(LinkStateUpdate("HOSTILE", 3, LinkState("HOSTILE", 1, {"ME": 1})), OTHER_LINK)
    announce(pair, "PEER", 1, "Morders")
    pair.receive(RouterAdvertisement("PEER", 7, 1, 1))
    pair.after(1)
    return pair


def live(driver: Driver, seconds: int) -> None:
    """HELLO of both neighbours for a while."""
    for _ in range(seconds):
        driver.receive(Hello("PEER", 7, ("ME",)))
        driver.receive(Hello("HOSTILE", 3, ("ME",)), OTHER_LINK)
        driver.after(1)


@pytest.mark.parametrize(
    "forged",
    [
        RouterAdvertisement("PEER", 7, FAR, 1),
        RouterAdvertisement("PEER", 7, 1, FAR),
        RouterAdvertisement("PEER", 8, 1, 1),
        LinkStateUpdate("PEER", 7, LinkState("PEER", FAR, {"HOSTILE": 1})),
        LinkStateUpdate("PEER", FAR, LinkState("PEER", 1, {"HOSTILE": 1})),
        MobileAddressUpdate("PEER", FAR, absolute=True),
        MobileAddressUpdate("PEER", MOST_STEPS + 2, absolute=True),
    ],
)
def test_a_message_that_a_router_cannot_have_sent_is_refused(two: Driver, forged: ControlMessage) -> None:
    before = two.engine.nodes()
    two.receive(forged, OTHER_LINK)
    assert len(two.events(act.MessageRefused)) == 1
    assert two.engine.refused_messages == 1
    assert two.engine.nodes() == before
    assert two.events(act.RouterRestarted) == two.events(act.RouterFlushed) == []
    live(two, 2)
    assert announce(two, "PEER", 2, "Mmore", absolute=False) == {"Mmore"}
    two.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, "C": 1})))
    two.after(0.1)
    assert "C" in two.engine.table.routes


def test_a_router_is_heard_again_though_another_one_repeats_what_it_forged(two: Driver) -> None:
    forged = LinkState("PEER", 1000, {"HOSTILE": 1})
    two.receive(LinkStateUpdate("PEER", 7, forged), OTHER_LINK)
    for _ in range(2):
        two.receive(RouterAdvertisement("PEER", 7, 1000, 1), OTHER_LINK)
        two.receive(RouterAdvertisement("PEER", 7, 1, 1))
    live(two, 1)
    assert two.engine.refused_messages == 0
    two.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 1, {"ME": 1, "C": 1})))
    two.after(0.1)
    assert "C" in two.engine.table.routes


@pytest.mark.parametrize("first", ["honest", "forged"])
def test_two_updates_with_one_number_lead_to_a_request_for_all(two: Driver, first: str) -> None:
    forged = MobileAddressUpdate("PEER", 2, absolute=False, gone=("Morders",))
    honest = MobileAddressUpdate(
        "PEER", 2, absolute=False, present=(MobileAddress("Mmore", Treatment.CLOSEST),)
    )
    pairs = [(forged, OTHER_LINK), (honest, LINK)]
    requests = []
    for update, link in pairs if first == "forged" else reversed(pairs):
        two.receive(update, link)
        requests += two.sent_of(MobileAddressRequest)
    assert requests == [MobileAddressRequest("ME", 0)]
    # Nothing that follows on the doubtful set is taken.
    assert announce(two, "PEER", 3, "Mlast", absolute=False) == set()
    announce(two, "PEER", 3, "Morders", "Mmore", "Mlast")
    assert announce(two, "PEER", 4, "Mnext", absolute=False) == {"Mnext"}
    assert [node.id for node in two.engine.nodes()] == ["ME", "PEER", "HOSTILE"]


def test_the_same_update_twice_is_no_contradiction(two: Driver) -> None:
    for _ in range(2):
        announce(two, "PEER", 2, "Mmore", absolute=False)
        assert two.sent_of(MobileAddressRequest) == []


def test_answers_to_requests_for_addresses_have_a_bounded_rate(
    two: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ADDRESSES_ANSWERED", 400)
    for number in range(100):
        two.engine.local_address_added(MobileAddress(f"M{number}", Treatment.CLOSEST), two.now)
    two.after(1)
    answers = 0
    start = two.now
    for _ in range(40):
        for name, link in (("PEER", LINK), ("HOSTILE", OTHER_LINK)):
            two.receive(MobileAddressRequest(name, 0), link)
            answers += len(two.sent_of(MobileAddressUpdate))
        two.after(0.05)
        answers += len(two.sent_of(MobileAddressUpdate))
    # 80 requests for 100 addresses: those of two seconds, and of the two seconds that pass.
    assert two.now - start < 2.1
    assert 10 <= answers <= 17
    two.receive(Hello("PEER", 7, ("ME",)))
    two.receive(MobileAddressRequest("PEER", 0))
    answered = two.sent_of(MobileAddressUpdate)
    assert [*answered, *two.after(1).sent_of(MobileAddressUpdate)] != []


@pytest.mark.parametrize("kind", ["restarts", "link states", "invented routers"])
def test_changes_without_end_do_not_make_paths_be_computed_without_end(two: Driver, kind: str) -> None:
    before = two.engine.recomputations
    for number in range(500):
        if kind == "restarts":
            two.receive(RouterAdvertisement("HOSTILE", 4 + number % 2, 1, 0), OTHER_LINK)
            state = LinkState("HOSTILE", 1, {"ME": 1})
            two.receive(LinkStateUpdate("HOSTILE", 4 + number % 2, state), OTHER_LINK)
        else:
            peers = {"ME": 1, f"C{number % 2}": 1}
            if kind == "invented routers":
                peers |= {f"X{number}/{at}": 1 for at in range(20)}
            two.receive(LinkStateUpdate("HOSTILE", 3, LinkState("HOSTILE", 2 + number, peers)), OTHER_LINK)
        if number % 50 == 49:
            live(two, 1)
    assert two.engine.recomputations - before < 60
    # A quiet minute later, changes count as fast as before.
    live(two, 60)
    two.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, "D": 1})))
    two.after(0.05)
    assert "D" in two.engine.table.routes


def test_invented_routers_do_not_keep_another_problem_from_being_reported(pair: Driver) -> None:
    for number in range(2 * MOST_REPORTED):
        pair.receive(RouterAdvertisement(f"X{number}", 9, 1, 0))
    assert pair.events(act.TooManyRouters)
    assert len(pair.engine._reported) == MOST_REPORTED
    pair.receive(Hello("ME", 99, ()))
    assert len(pair.events(act.DuplicateRouterId)) == 1
