"""The engine and addresses with consumers: announced, asked for, applied."""

from tests.unit.routing.driver import LINK, keep_alive

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing import actions as act
from isthmus_router.routing.messages import (
    Hello,
    MobileAddress,
    MobileAddressRequest,
    MobileAddressUpdate,
    RouterAdvertisement,
)

A, B, C = (MobileAddress(key, Treatment.BALANCED) for key in ("Ma", "Mb", "Mc"))


def test_a_change_is_announced_at_once_and_advertised(pair):
    keep_alive(pair, 5)
    pair.take(pair.engine.local_address_added(A, pair.now))
    assert pair.sent_of(MobileAddressUpdate) == [MobileAddressUpdate("ME", 1, absolute=False, present=(A,))]
    keep_alive(pair, 1)
    assert pair.sent_of(RouterAdvertisement)[0].mobile_sequence == 1
    pair.take(pair.engine.local_address_removed("Ma", pair.now))
    assert pair.sent_of(MobileAddressUpdate) == [MobileAddressUpdate("ME", 2, absolute=False, gone=("Ma",))]


def test_changes_that_follow_closely_are_collected(pair):
    keep_alive(pair, 5)
    pair.engine.local_address_added(A, pair.now)
    for address in (B, C):
        pair.take(pair.engine.local_address_added(address, pair.now))
        assert pair.sent == []
    pair.engine.local_address_removed("Mb", pair.now)
    pair.after(pair.engine.timers.mobile_update_interval)
    assert pair.sent_of(MobileAddressUpdate) == [MobileAddressUpdate("ME", 2, absolute=False, present=(C,))]


def test_a_flood_of_changes_is_announced_at_a_bounded_rate(pair):
    updates = 0
    for number in range(1000):
        address = MobileAddress(f"M{number}", Treatment.BALANCED)
        pair.take(pair.engine.local_address_added(address, pair.now))
        updates += len(pair.sent_of(MobileAddressUpdate))
        pair.after(0.001)
        updates += len(pair.sent_of(MobileAddressUpdate))
    assert 45 <= updates <= 51


def test_what_changes_back_is_not_announced(pair):
    pair.engine.local_address_added(B, pair.now)
    pair.engine.local_address_added(A, pair.now)
    pair.engine.local_address_removed("Ma", pair.now)
    keep_alive(pair, 2)
    assert pair.sent_of(MobileAddressUpdate) == []
    assert {message.mobile_sequence for message in pair.sent_of(RouterAdvertisement)} == {1}


def test_changed_attributes_are_announced_again(pair):
    pair.engine.local_address_added(A, pair.now)
    keep_alive(pair, 2)
    changed = MobileAddress("Ma", Treatment.BALANCED, in_links=2)
    pair.take(pair.engine.local_address_added(changed, pair.now))
    assert pair.sent_of(MobileAddressUpdate) == [
        MobileAddressUpdate("ME", 2, absolute=False, present=(changed,))
    ]
    pair.engine.local_address_added(changed, pair.now)
    assert keep_alive(pair, 2).sent_of(MobileAddressUpdate) == []


def test_a_request_is_answered_only_if_the_other_has_less(pair):
    pair.receive(MobileAddressRequest("PEER", 0))
    assert pair.sent == []
    pair.engine.local_address_added(A, pair.now)
    pair.engine.local_address_added(B, pair.now)
    pair.receive(MobileAddressRequest("PEER", 0))
    # B is part of the next number.
    assert pair.sent == [("PEER", MobileAddressUpdate("ME", 1, absolute=True, present=(A,)))]
    pair.receive(MobileAddressRequest("PEER", 1))
    assert pair.sent == []


def change(router, added=(), removed=()):
    return [act.RemoteAddressesChanged(router, {item.key: item for item in added}, frozenset(removed))]


def test_updates_are_applied_in_sequence_only(pair):
    pair.after(1.5)
    pair.receive(MobileAddressUpdate("PEER", 1, absolute=False, present=(A, B)))
    assert pair.other == change("PEER", added=(A, B))
    pair.receive(MobileAddressUpdate("PEER", 1, absolute=False, present=(A, B)))
    assert pair.other == []
    pair.receive(MobileAddressUpdate("PEER", 3, absolute=False, gone=("Mb",)))
    assert pair.other == []
    assert pair.sent_of(MobileAddressRequest) == [MobileAddressRequest("ME", 1)]
    pair.receive(MobileAddressUpdate("PEER", 3, absolute=True, present=(A, C)))
    assert pair.other == change("PEER", added=(C,), removed=("Mb",))
    pair.receive(MobileAddressUpdate("PEER", 4, absolute=False, present=(A,), gone=("Mc", "Munknown")))
    assert pair.other == change("PEER", removed=("Mc",))


def test_being_ahead_of_an_advertisement_asks_for_everything(pair):
    pair.receive(MobileAddressUpdate("PEER", 9, absolute=True, present=(A,)))
    pair.after(1.5)
    pair.receive(RouterAdvertisement("PEER", 7, 1, 2))
    assert pair.sent_of(MobileAddressRequest) == [MobileAddressRequest("ME", 0)]


def test_addresses_outlive_the_path_by_the_holdoff_only(pair):
    pair.receive(MobileAddressUpdate("PEER", 1, absolute=True, present=(A,)))
    pair.take(pair.engine.on_link_lost(LINK, pair.now))
    assert pair.events(act.RouterFlushed) == []
    pair.after(0.9)
    assert pair.events(act.RouterFlushed) == []
    pair.after(0.2)
    assert pair.events(act.RouterFlushed) == [act.RouterFlushed("PEER")]
    pair.engine.on_link_up(LINK, 1, pair.now)
    pair.receive(Hello("PEER", 7, ("ME",)))
    assert pair.sent_of(MobileAddressRequest) == [MobileAddressRequest("ME", 0)]


def test_a_short_interruption_keeps_addresses(pair):
    pair.receive(MobileAddressUpdate("PEER", 1, absolute=True, present=(A,)))
    pair.engine.on_link_lost(LINK, pair.now)
    pair.after(0.5)
    pair.engine.on_link_up(LINK, 1, pair.now)
    pair.receive(Hello("PEER", 7, ("ME",)))
    keep_alive(pair, 3)
    assert pair.events(act.RouterFlushed) == []


def test_addresses_of_an_unreachable_router_are_not_taken(pair):
    pair.receive(MobileAddressUpdate("STRANGER", 1, absolute=True, present=(A,)))
    assert pair.events(act.RemoteAddressesChanged) == []
