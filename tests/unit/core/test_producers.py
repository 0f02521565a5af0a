"""Producers: credit follows destinations, attaches are accepted or refused, nothing is left behind."""

from itertools import pairwise

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.model import Link
from isthmus_router.core.planner import LONGEST_SPELLING, MOST_SPELLINGS
from isthmus_router.core.reachability import AT_ONCE
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.core.treatment import Treatment


@pytest.fixture
def router() -> RouterInMemory:
    return RouterInMemory(treatments={"closed": Treatment.UNAVAILABLE})


def test_credit_comes_with_the_first_consumer_and_goes_with_the_last(router: RouterInMemory) -> None:
    sender = router.sender("q")
    assert sender not in router.port.credit
    one, two = router.receiver("q"), router.receiver("q")
    assert router.port.credit[sender]
    router.core.link_closed(one)
    assert router.port.credit[sender]
    router.core.link_closed(two)
    assert not router.port.credit[sender]


def test_consumers_on_other_routers_count(router: RouterInMemory) -> None:
    sender = router.sender("q")
    router.neighbour("B")
    router.consumers_at("B", "Mq")
    assert router.port.credit[sender]
    node = router.core.remotes.node("B")
    node.hop = None
    router.core.remotes.paths_changed()
    assert not router.port.credit[sender]
    router.core.remotes.remove_node("B")
    assert "RB" not in router.core.addresses


def test_an_anonymous_sender_has_credit_at_once(router: RouterInMemory) -> None:
    assert router.port.credit[router.sender(None)]


@pytest.mark.parametrize("target", ["closed", "closed/below"])
def test_an_unavailable_address_refuses_both_ends(router: RouterInMemory, target: str) -> None:
    for link in (router.sender(target), router.receiver(target)):
        assert router.port.refused[link].name == "amqp:not-found"
    assert "M" + target not in router.core.addresses


def test_a_receiver_needs_an_address(router: RouterInMemory) -> None:
    assert router.port.refused[router.receiver(None)].name == "qd:no-route-to-dest"


def test_a_client_cannot_attach_where_routers_talk(router: RouterInMemory) -> None:
    link = router.sender("q", router.connection(Role.INTER_ROUTER))
    assert router.port.refused[link].name == "qd:connection-role"
    assert router.core.counters.link_refusals == {"qd:connection-role": 1}


def test_temporary_addresses_lead_back_to_this_router(router: RouterInMemory) -> None:
    receiver = router.attach(router.connection(), Direction.OUT, Terminus(dynamic=True), Terminus())
    source, _ = router.port.accepted[receiver]
    assert source.address is not None
    assert source.address.startswith("amqp:/_topo/0/ME/temp.")
    assert router.core.route_for(None, source.address).sinks == [receiver]


def test_a_route_to_nobody_is_asked_for_again_when_somebody_comes(router: RouterInMemory) -> None:
    route = router.core.route_for(None, "late")
    assert route.kind is RouteKind.NONE
    receiver = router.receiver("late")
    assert not route.valid
    assert router.core.route_for(None, "late").sinks == [receiver]


def test_nothing_is_left_of_links_that_are_gone(router: RouterInMemory) -> None:
    before = len(router.core.addresses)
    connection = router.connection()
    for number in range(20):
        router.sender(f"q{number}", connection)
        router.receiver(f"q{number}", connection)
    router.core.connection_closed(connection)
    assert len(router.core.addresses) == before
    assert not connection.links


def test_senders_with_one_target_share_one_route(router: RouterInMemory) -> None:
    router.receiver("q")
    one, two = router.sender("q"), router.sender("q")
    assert one.route is two.route
    router.core.link_closed(one)
    assert two.route is not None
    assert two.route.valid


def test_a_changed_treatment_reaches_addresses_in_use(router: RouterInMemory) -> None:
    sender = router.sender("q")
    router.receiver("q")
    router.receiver("q")
    router.core.configured.patterns.add_prefix("q", ConfiguredAddress(Treatment.MULTICAST))
    list(router.core.configure_addresses(router.core.configured.patterns, Treatment.BALANCED))
    assert router.core.target_route(sender).kind is RouteKind.MULTICAST


def test_a_changed_treatment_reaches_one_address_in_each_step(router: RouterInMemory) -> None:
    addresses = [router.sender(f"q.{number}").address for number in range(5)]
    router.core.configured.patterns.add_prefix("q", ConfiguredAddress(Treatment.MULTICAST))
    changed = []
    for _ in router.core.configure_addresses(router.core.configured.patterns, Treatment.BALANCED):
        changed.append(sum(one is not None and one.treatment is Treatment.MULTICAST for one in addresses))
    assert changed[-1] == len(addresses)
    assert all(after - before <= 1 for before, after in pairwise([0, *changed]))


MANY = 3 * AT_ONCE


def senders(router: RouterInMemory, count: int = MANY) -> list[Link]:
    """So many of one address."""
    return [router.sender("q") for _ in range(count)]


def finish(router: RouterInMemory) -> int:
    """Do all work that waits; the number of its steps."""
    steps = 0
    while router.port.step():
        steps += 1
    return steps


def test_many_producers_get_credit_one_by_one(router: RouterInMemory) -> None:
    found = senders(router)
    receiver = router.receiver("q")
    assert not router.port.credit, "nothing happens within the event"
    for number in range(MANY):
        router.port.step()
        assert sum(router.port.credit.values()) == number + 1
    router.core.link_closed(receiver)
    finish(router)
    assert not any(router.port.credit[sender] for sender in found)


def test_a_receiver_that_comes_and_goes_costs_no_more_than_one_look_at_a_time(router: RouterInMemory) -> None:
    senders(router)
    for _ in range(50):
        router.core.link_closed(router.receiver("q"))
    assert len(router.port.jobs) == 1
    assert finish(router) <= 2 * MANY + 2
    assert not router.port.credit, "nobody was there when they were looked at"
    router.receiver("q")
    for _ in range(MANY // 2):
        router.port.step()
    for _ in range(50):
        router.core.link_closed(router.receiver("q"))
    assert finish(router) <= 2 * MANY + 2
    assert sum(router.port.credit.values()) == MANY


def test_producers_that_have_left_before_their_turn(router: RouterInMemory) -> None:
    found = senders(router)
    receiver = router.receiver("q")
    for sender in found[::2]:
        router.core.link_closed(sender)
    late = router.sender("q")
    finish(router)
    assert set(router.port.credit) == {*found[1::2], late}
    for link in (*found[1::2], late, receiver):
        router.core.link_closed(link)
    finish(router)
    assert "Mq" not in router.core.addresses


def test_credit_that_was_lost_before_the_turn_of_a_producer_comes_back(router: RouterInMemory) -> None:
    """A message was released while nobody was there, so that its credit was not given again."""
    sender = senders(router)[0]
    receiver = router.receiver("q")
    finish(router)
    router.core.link_closed(receiver)
    assert router.core.target_route(sender).kind is RouteKind.NONE
    router.receiver("q")
    router.port.credit.clear()
    finish(router)
    assert router.port.credit == {sender: True}


def test_a_delivery_before_the_turn_of_its_producer_goes_where_it_should(router: RouterInMemory) -> None:
    sender = senders(router)[0]
    receiver = router.receiver("q")
    assert router.core.target_route(sender).sinks == [receiver]
    finish(router)
    assert all(router.port.credit.values())
    router.core.link_closed(receiver)
    assert router.core.target_route(sender).kind is RouteKind.NONE
    finish(router)
    assert not any(router.port.credit.values())


def test_spellings_of_an_address_are_remembered_within_a_bound(router: RouterInMemory) -> None:
    """A client attaches again and again, each time with another spelling, to an address that stays."""
    router.receiver("q")
    address = router.core.addresses["Mq"]
    host = "h" * LONGEST_SPELLING
    spellings = [f"amqp://{host}{number}/q" for number in range(3)]
    spellings += [f"amqp://host{number}/q" for number in range(3 * MOST_SPELLINGS)]
    for spelling in spellings:
        sender = router.sender(spelling)
        assert sender.route is not None
        assert sender.route.valid
        router.core.link_closed(sender)
    assert len(address.client_routes) == MOST_SPELLINGS
    assert len(address.routes) == MOST_SPELLINGS
    assert all(override is not None and len(override) < 20 for override, *_ in address.client_routes)
