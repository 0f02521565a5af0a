"""A router that has joined the network and announces more than there is: the others keep their places."""

from __future__ import annotations

import pytest
from tests.unit.routing.driver import LINK, Driver

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing import actions as act
from isthmus_router.routing import mobile
from isthmus_router.routing.linkstate import LinkState
from isthmus_router.routing.messages import (
    LONGEST_ID,
    MAX_PEERS,
    Hello,
    LinkStateUpdate,
    MobileAddress,
    MobileAddressUpdate,
    RouterAdvertisement,
)
from isthmus_router.routing.nodes import MAX_ROUTERS

OTHER_LINK = LINK + 1


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


def test_another_router_may_take_over_a_link_that_was_lost_or_is_silent(pair: Driver) -> None:
    pair.take(pair.engine.on_link_lost(LINK, pair.now))
    pair.take(pair.engine.on_link_up(LINK, 1, pair.now))
    pair.receive(Hello("NEXT", 7, ("ME",)))
    assert pair.engine.table.neighbours == {"NEXT": LINK}
    pair.after(pair.engine.timers.hello_max_age + 1)
    pair.receive(Hello("PEER", 8, ("ME",)))
    assert pair.engine.table.neighbours == {"PEER": LINK}


def test_a_neighbour_without_a_place_is_reported(pair: Driver) -> None:
    for number in range(MAX_ROUTERS):
        link = LINK + 1 + number
        pair.take(pair.engine.on_link_up(link, 1, pair.now))
        pair.receive(Hello(f"N{number}", 7, ("ME",)), link)
    assert len(pair.engine.table.neighbours) == MAX_ROUTERS - 1
    assert pair.engine.has_neighbour_without_place(pair.now)
    assert pair.engine.refused_routers == 2
    assert not pair.engine.has_neighbour_without_place(pair.now + 100)


@pytest.mark.parametrize("absolute", [True, False])
def test_addresses_beyond_the_bound_are_ignored(
    pair: Driver, monkeypatch: pytest.MonkeyPatch, *, absolute: bool
) -> None:
    monkeypatch.setattr(mobile, "MAX_ADDRESSES", 10)
    taken: set[str] = set()
    for sequence in range(1, 4):
        present = tuple(MobileAddress(f"M{sequence}/{number}", Treatment.CLOSEST) for number in range(8))
        update = MobileAddressUpdate("PEER", sequence, absolute=absolute, present=present)
        pair.receive(update)
        for change in pair.events(act.RemoteAddressesChanged):
            taken = (taken | change.added.keys()) - change.removed
        assert len(taken) <= 10
    assert len(taken) == (8 if absolute else 10)
