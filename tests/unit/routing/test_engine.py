"""The engine event by event: what it answers, and what it keeps quiet about."""

import pytest
from tests.unit.routing.driver import LINK, keep_alive

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing import actions as act
from isthmus_router.routing.linkstate import LinkState
from isthmus_router.routing.messages import (
    ALL_ROUTERS_ADDRESS,
    ALL_ROUTERS_MOBILE_ADDRESS,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    MobileAddress,
    MobileAddressRequest,
    MobileAddressUpdate,
    RouterAdvertisement,
    encode_control,
)
from isthmus_router.routing.nodes import MAX_ROUTERS
from isthmus_router.routing.timers import Timers

# --- neighbours ---------------------------------------------------------------------------------------------


def test_hello_starts_at_once_and_repeats_every_second(driver):
    driver.take(driver.engine.on_link_up(LINK, 1, driver.now))
    assert driver.sent == [(LINK, Hello("ME", 1, ()))] * len(driver.sent)
    assert driver.sent
    driver.after(3.5)
    assert len(driver.sent) in (3, 4)


def test_a_router_heard_for_the_first_time_is_told_so_at_once(driver):
    driver.take(driver.engine.on_link_up(LINK, 1, driver.now))
    driver.receive(Hello("PEER", 7, ()))
    assert driver.sent == [(LINK, Hello("ME", 1, ("PEER",)))]
    assert driver.engine.table.routes == {}
    driver.receive(Hello("PEER", 7, ()))
    assert driver.sent == []


def test_a_router_that_names_us_is_a_neighbour_and_is_asked_for_everything(driver):
    driver.take(driver.engine.on_link_up(LINK, 3, driver.now))
    driver.receive(Hello("PEER", 7, ("ME",)))
    assert driver.events(act.NeighbourUp) == [act.NeighbourUp("PEER", LINK)]
    assert driver.engine.table.routes == {
        "PEER": act.Route("PEER", LINK, "PEER", 3, valid_origins=frozenset({"ME"}))
    }
    assert driver.engine.table.neighbours == {"PEER": LINK}
    assert ("PEER", LinkStateRequest("ME")) in driver.sent
    driver.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 1, {"ME": 1})))
    driver.after(0.2)
    assert driver.sent_of(MobileAddressRequest) == [MobileAddressRequest("ME", 0)]
    assert driver.sent_of(RouterAdvertisement) == [RouterAdvertisement("ME", 1, 1, 0)]


def test_routes_are_reported_before_messages_that_need_them(driver):
    driver.engine.on_link_up(LINK, 1, driver.now)
    actions = driver.engine.on_message(LINK, encode_control(Hello("PEER", 7, ("ME",)), "x"), driver.now)
    kinds = [type(action) for action in actions]
    assert kinds.index(act.RoutesChanged) < kinds.index(act.SendUnicast)


def test_messages_carry_the_addresses_of_the_protocol(pair):
    actions = pair.engine.local_address_added(MobileAddress("Mq", Treatment.CLOSEST), pair.now)
    pair.now += 0.2
    sent = {
        action.address
        for action in [*actions, *pair.engine.on_tick(pair.now)]
        if isinstance(action, act.SendUnicast | act.SendMulticast)
    }
    assert sent == {ALL_ROUTERS_ADDRESS, ALL_ROUTERS_MOBILE_ADDRESS}
    answers = [
        *pair.engine.on_message(LINK, encode_control(LinkStateRequest("PEER"), "x"), pair.now),
        *pair.engine.on_message(LINK, encode_control(MobileAddressRequest("PEER", 0), "x"), pair.now),
    ]
    assert [(answer.router, answer.address) for answer in answers] == [
        ("PEER", "amqp:/_topo/0/PEER/qdrouter"),
        ("PEER", "amqp:/_topo/0/PEER/qdrouter.ma"),
    ]


def test_a_neighbour_is_lost_after_three_silent_seconds(pair):
    pair.after(2.8)
    assert "PEER" in pair.engine.table.routes
    pair.after(0.2)
    assert pair.events(act.NeighbourLost) == [act.NeighbourLost("PEER", LINK, "no HELLO")]
    assert pair.engine.table.routes == {}
    assert pair.engine.table.neighbours == {}


def test_a_neighbour_that_stops_naming_us_is_lost(pair):
    keep_alive(pair, 5, seen=("OTHER",))
    assert pair.events(act.NeighbourLost)


def test_a_lost_link_loses_the_neighbour_at_once(pair):
    pair.take(pair.engine.on_link_lost(LINK, pair.now))
    assert pair.events(act.NeighbourLost) == [act.NeighbourLost("PEER", LINK, "control link lost")]
    assert pair.engine.table.routes == {}


def test_being_stalled_does_not_lose_neighbours(pair):
    pair.now += 20
    pair.take(pair.engine.on_tick(pair.now))
    assert pair.events(act.NeighbourLost) == []
    pair.after(3.1)
    assert pair.events(act.NeighbourLost)


def test_of_two_links_the_cheaper_then_the_newer_is_used_without_touching_link_state(pair):
    before = pair.engine.recomputations
    pair.engine.on_link_up(6, 1, pair.now)
    pair.receive(Hello("PEER", 7, ("ME",)), link=6)
    assert pair.events(act.NeighbourMoved) == [act.NeighbourMoved("PEER", 6, LINK)]
    assert pair.engine.table.routes["PEER"].link == 6
    pair.receive(Hello("PEER", 7, ("ME",)), link=LINK)
    assert pair.other == []
    pair.engine.on_link_up(7, 2, pair.now)
    pair.receive(Hello("PEER", 7, ("ME",)), link=7)
    assert pair.other == []
    pair.take(pair.engine.on_link_lost(6, pair.now))
    assert pair.events(act.NeighbourLost) == []
    assert pair.engine.table.routes["PEER"].link == LINK
    assert pair.engine.recomputations == before
    assert pair.engine.nodes()[0].link_state == ("PEER",)


def test_own_id_is_never_a_neighbour_and_another_instance_is_reported_once(driver):
    driver.engine.on_link_up(LINK, 1, driver.now)
    driver.receive(Hello("ME", 1, ("ME",)))
    assert driver.other == []
    driver.receive(Hello("ME", 2, ("ME",)))
    assert driver.other == [act.DuplicateRouterId("ME", frozenset({1, 2}))]
    driver.receive(Hello("ME", 2, ("ME",)))
    assert driver.other == []
    assert driver.engine.table.routes == {}


def test_an_advertisement_with_our_id_is_an_echo_at_first_and_a_duplicate_later(pair):
    pair.receive(RouterAdvertisement("ME", 0, 5, 5))
    assert pair.other == []
    keep_alive(pair, 12)
    pair.receive(RouterAdvertisement("ME", 0, 5, 5))
    assert pair.other == [act.DuplicateRouterId("ME", frozenset({0, 1}))]


def test_hello_on_a_link_that_is_not_up_counts_for_nothing(driver):
    driver.receive(Hello("PEER", 7, ("ME",)))
    assert driver.engine.table.routes == {}


# --- link state ---------------------------------------------------------------------------------------------


def test_link_state_is_answered_with_the_current_sequence(pair):
    pair.receive(LinkStateRequest("PEER"))
    assert pair.sent == [("PEER", LinkStateUpdate("ME", 1, LinkState("ME", 1, {"PEER": 1})))]
    pair.take(pair.engine.on_link_cost(LINK, 4, pair.now))
    assert pair.engine.table.routes["PEER"].cost == 4
    pair.receive(LinkStateRequest("PEER"))
    assert pair.sent == [("PEER", LinkStateUpdate("ME", 1, LinkState("ME", 2, {"PEER": 4})))]
    before = pair.engine.recomputations
    pair.take(pair.engine.on_link_cost(LINK, 4, pair.now))
    assert pair.engine.recomputations == before


def test_the_cost_of_an_accepted_link_follows_what_the_peer_announces(driver):
    driver.take(driver.engine.on_link_up(LINK, 3, driver.now, least=2))
    for sequence, announced, counts in ((1, 3, 3), (2, 9, 9), (3, 1, 2), (4, 2, 2)):
        driver.receive(Hello("PEER", 7, ("ME",)))
        driver.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", sequence, {"ME": announced})))
        driver.after(1)
        assert driver.engine.table.routes["PEER"].cost == counts
    driver.receive(LinkStateUpdate("OTHER", 7, LinkState("OTHER", 1, {"ME": 9})))
    driver.after(1)
    assert driver.engine.table.routes["PEER"].cost == 2


def test_a_link_of_our_own_does_not_follow_the_peer(pair):
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 5, {"ME": 9})))
    pair.after(1)
    assert pair.engine.table.routes["PEER"].cost == 1


def test_requests_of_routers_without_a_path_are_not_answered(pair):
    pair.receive(LinkStateRequest("STRANGER"))
    assert pair.sent == []


def test_an_unchanged_advertisement_costs_nothing(pair):
    pair.after(0.5)
    before = pair.engine.recomputations
    for _ in range(10):
        pair.receive(RouterAdvertisement("PEER", 7, 1, 0))
        assert pair.sent == []
        assert pair.other == []
    assert pair.engine.recomputations == before


def test_a_newer_advertisement_asks_for_link_state_and_addresses(pair):
    pair.after(0.5)
    pair.receive(RouterAdvertisement("PEER", 7, 2, 3))
    assert pair.sent
    pair.receive(RouterAdvertisement("PEER", 7, 2, 3))
    assert pair.sent == []  # both were asked for just now
    pair.after(0.6)
    assert pair.sent_of(LinkStateRequest)
    assert pair.sent_of(MobileAddressRequest) == [MobileAddressRequest("ME", 0)]


def test_after_an_answer_the_next_news_are_asked_for_at_once(pair):
    pair.after(0.5)
    for sequence in (2, 3, 4):
        pair.receive(RouterAdvertisement("PEER", 7, sequence, sequence))
        assert pair.sent_of(LinkStateRequest) == [LinkStateRequest("ME")]
        assert pair.sent_of(MobileAddressRequest) == [
            MobileAddressRequest("ME", sequence - 1 if sequence > 2 else 0)
        ]
        pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", sequence, {"ME": 1})))
        addresses = (MobileAddress(f"M{sequence}", Treatment.CLOSEST),)
        pair.receive(MobileAddressUpdate("PEER", sequence, absolute=True, present=addresses))


def test_an_answer_that_is_behind_what_was_announced_does_not_hurry_the_next_request(pair):
    pair.after(0.5)
    pair.receive(RouterAdvertisement("PEER", 7, 9, 0))
    assert pair.sent_of(LinkStateRequest)
    for sequence in (2, 3, 4):
        pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", sequence, {"ME": 1})))
        assert pair.sent_of(LinkStateRequest) == []


def test_unanswered_requests_are_repeated_ever_more_slowly(driver):
    driver.engine.on_link_up(LINK, 1, driver.now)
    driver.receive(Hello("PEER", 7, ("ME",)))
    keep_alive(driver, 60)
    assert len(driver.sent_of(LinkStateRequest)) == 6  # after 0.5, 1.5, 3.5, 7.5, 15.5 and 31.5 seconds
    driver.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 1, {"ME": 1})))
    keep_alive(driver, 40)
    assert driver.sent_of(LinkStateRequest) == []


def test_only_newer_link_state_is_taken_and_only_a_different_one_recomputes(pair):
    pair.after(0.5)
    before = pair.engine.recomputations
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 1, {"ME": 1, "C": 1})))
    assert "C" not in pair.engine.table.routes
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1})))
    assert pair.engine.recomputations == before
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 3, {"ME": 1, "C": 1})))
    assert pair.engine.recomputations == before + 1
    assert pair.engine.table.routes["C"].next_hop == "PEER"
    assert pair.sent == [("C", LinkStateRequest("ME"))]
    assert [info.link_state for info in pair.engine.nodes()] == [("PEER",), ("C", "ME"), ()]


def test_link_state_of_a_former_life_is_not_taken(pair):
    pair.receive(LinkStateUpdate("PEER", 6, LinkState("PEER", 50, {"ME": 1, "C": 1})))
    pair.after(0.5)
    assert "C" not in pair.engine.table.routes


def test_bursts_of_remote_changes_share_a_computation(pair):
    pair.after(0.5)
    before = pair.engine.recomputations
    for sequence in range(2, 12):
        state = LinkState("PEER", sequence, {"ME": 1, f"C{sequence}": 1})
        pair.receive(LinkStateUpdate("PEER", 7, state))
    pair.after(0.1)
    assert pair.engine.recomputations == before + 2
    assert set(pair.engine.table.routes) == {"PEER", "C11"}


def test_periodic_advertisements_are_frequent_in_flux_only(pair):
    pair.after(0.5)
    keep_alive(pair, 8)
    assert len(pair.sent_of(RouterAdvertisement)) in (3, 4)
    keep_alive(pair, 45)
    assert len(pair.sent_of(RouterAdvertisement)) in (1, 2)


def test_a_link_state_that_is_not_refreshed_expires(pair):
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, "C": 1})))
    pair.receive(LinkStateUpdate("C", 9, LinkState("C", 1, {"PEER": 1})))
    keep_alive(pair, 58)
    assert pair.events(act.LinkStateExpired) == []
    pair.receive(RouterAdvertisement("PEER", 7, 2, 0))
    keep_alive(pair, 4)
    assert pair.events(act.LinkStateExpired) == [act.LinkStateExpired("C")]
    assert "C" in pair.engine.table.routes  # PEER still has a link to it


def test_a_router_that_nobody_mentions_any_more_loses_its_place(pair):
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, "C": 1})))
    assert len(pair.engine.nodes()) == 3
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 3, {"ME": 1})))
    keep_alive(pair, 5)
    assert pair.events(act.RouterRemoved) == [act.RouterRemoved("C", 2)]
    assert len(pair.engine.nodes()) == 2


def test_changed_link_states_are_relayed_to_neighbours_that_do_not_hear_them(pair):
    pair.engine.on_link_up(6, 1, pair.now)
    pair.receive(Hello("FAR", 8, ("ME",)), link=6)
    pair.receive(LinkStateUpdate("FAR", 8, LinkState("FAR", 1, {"ME": 1})), link=6)
    pair.after(0.2)
    state = LinkState("PEER", 2, {"ME": 1, "C": 1})
    pair.receive(LinkStateUpdate("PEER", 7, state))
    assert [item for item in pair.sent if item[0] == "FAR"] == [("FAR", LinkStateUpdate("PEER", 7, state))]
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 3, state.peers)))
    pair.after(0.2)
    assert pair.sent_of(LinkStateUpdate) == []
    both = LinkState("PEER", 4, {"ME": 1, "FAR": 1})
    pair.receive(LinkStateUpdate("PEER", 7, both))
    pair.after(0.2)
    assert pair.sent_of(LinkStateUpdate) == []


def test_a_new_neighbour_gets_all_link_states(pair):
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, "C": 1})))
    pair.receive(LinkStateUpdate("C", 9, LinkState("C", 4, {"PEER": 1})))
    pair.after(0.2)
    pair.engine.on_link_up(6, 1, pair.now)
    pair.receive(Hello("FAR", 8, ("ME",)), link=6)
    assert [(to, message.router) for to, message in pair.sent if isinstance(message, LinkStateUpdate)] == [
        ("FAR", "PEER"),
        ("FAR", "C"),
    ]


def test_link_states_from_before_an_interruption_are_not_handed_on(pair):
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, "C": 1})))
    pair.receive(LinkStateUpdate("C", 9, LinkState("C", 4, {"PEER": 1})))
    pair.engine.on_link_lost(LINK, pair.now)
    pair.after(5)
    for link, router in ((LINK, "PEER"), (6, "FAR")):
        pair.engine.on_link_up(link, 1, pair.now)
        pair.receive(Hello(router, 7, ("ME",)), link=link)
    assert {"PEER", "C", "FAR"} <= pair.engine.table.routes.keys()
    assert pair.sent_of(LinkStateUpdate) == []


# --- restarts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [RouterAdvertisement("PEER", 8, 1, 0), Hello("PEER", 8, ("ME",))])
def test_a_new_instance_is_a_restart(pair, message):
    pair.receive(RouterAdvertisement("PEER", 7, 5, 1))
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 5, {"ME": 1, "C": 1})))
    update = MobileAddressUpdate("PEER", 1, absolute=True, present=(MobileAddress("Mq", Treatment.CLOSEST),))
    pair.receive(update)
    pair.after(1.5)
    pair.receive(message)
    assert pair.events(act.RouterRestarted) == [act.RouterRestarted("PEER", 8, 7)]
    assert pair.events(act.RouterFlushed) == [act.RouterFlushed("PEER")]
    assert set(pair.engine.table.routes) == {"PEER"}
    assert ("PEER", LinkStateRequest("ME")) in pair.sent
    pair.receive(LinkStateUpdate("PEER", 8, LinkState("PEER", 1, {"ME": 1, "D": 1})))
    pair.after(0.1)
    assert set(pair.engine.table.routes) == {"PEER", "D"}


def test_an_instance_that_comes_back_is_a_duplicate_id_somewhere(pair):
    pair.receive(RouterAdvertisement("PEER", 8, 1, 0))
    assert pair.events(act.DuplicateRouterId) == []
    pair.receive(RouterAdvertisement("PEER", 7, 1, 0))
    assert pair.events(act.DuplicateRouterId) == [act.DuplicateRouterId("PEER", frozenset({7, 8}))]


def test_a_restart_under_the_same_instance_is_noticed_by_lower_sequences(pair):
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 9, {"ME": 1, "C": 1})))
    pair.after(0.1)
    pair.receive(RouterAdvertisement("PEER", 7, 2, 0))
    assert "C" in pair.engine.table.routes  # may have been overtaken
    pair.receive(RouterAdvertisement("PEER", 7, 2, 0))
    assert "C" not in pair.engine.table.routes


# --- limits and garbage -------------------------------------------------------------------------------------


def test_the_table_holds_128_routers(pair):
    peers = {f"R{number:03d}": 1 for number in range(MAX_ROUTERS - 1)}
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, **peers})))
    assert len(pair.events(act.TooManyRouters)) == 1
    pair.after(1.0)
    assert len(pair.engine.table.routes) == MAX_ROUTERS - 1
    assert sorted(info.index for info in pair.engine.nodes()) == list(range(MAX_ROUTERS))
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 3, {"ME": 1, **peers})))
    assert pair.events(act.TooManyRouters) == []


def test_a_large_network_in_flux_leaves_time_for_the_rest(pair):
    """With 128 routers one computation takes up to a tenth of a second; with a few, next to nothing."""
    counts = []
    for size in (8, MAX_ROUTERS - 2):
        peers = {f"R{number:03d}": 1 for number in range(size)}
        pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 1000 * size, {"ME": 1, **peers})))
        pair.after(1.0)
        before = pair.engine.recomputations
        for number in range(40):
            changed = {"ME": 1, **peers, "R000": 2 + number}
            pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 1000 * size + 1 + number, changed)))
            pair.after(0.05)
        counts.append(pair.engine.recomputations - before)
    assert counts[0] >= 20
    assert counts[1] <= 4


def test_garbage_is_counted_and_reported(pair):
    for payload in (b"", b"\x00", b"garbage" * 100, encode_control(LinkStateRequest("X"), "x")[:-4]):
        pair.take(pair.engine.on_message(LINK, payload, pair.now))
        assert len(pair.events(act.MessageRefused)) == 1
        assert pair.sent == []
    assert pair.engine.refused_messages == 4


def test_newer_versions_are_ignored_and_reported_once(pair):
    payload = encode_control(LinkStateRequest("PEER"), "x").replace(b"pv\x54\x01", b"pv\x54\x02")
    pair.take(pair.engine.on_message(LINK, payload, pair.now))
    assert pair.other == [act.VersionUnsupported("PEER", 2)]
    pair.take(pair.engine.on_message(LINK, payload, pair.now))
    assert pair.other == []
    assert pair.engine.refused_messages == 2


def test_an_idle_engine_rests_until_its_next_deadline(driver):
    driver.after(1)
    assert driver.engine.next_deadline > driver.now + 1
    driver.engine.on_link_up(LINK, 1, driver.now)
    driver.after(0)
    assert driver.now < driver.engine.next_deadline <= driver.now + Timers().hello_interval


def test_the_management_view(pair):
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, "C": 2})))
    pair.after(0.1)
    me, peer, far = pair.engine.nodes()
    assert (me.id, me.index, me.instance, me.next_hop, me.cost, me.link) == ("ME", 0, 1, None, None, None)
    assert (peer.id, peer.index, peer.instance, peer.next_hop, peer.cost, peer.link) == (
        *("PEER", 1, 7),
        *(None, 1, LINK),
    )
    assert (far.id, far.index, far.instance, far.next_hop, far.cost, far.link) == ("C", 2, 0, "PEER", 3, None)
    assert far.valid_origins == ("ME",)
    assert me.last_topology_change >= peer.last_topology_change >= far.last_topology_change - 0.1
