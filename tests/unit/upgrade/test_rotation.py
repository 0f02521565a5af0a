"""Two routers and a rotation, frame by frame: what they tell each other, and what routing sees of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.edge.network import End
from tests.unit.upgrade.network import Connector, Network, Router, is_open, other_end

from isthmus_router.core.model import PRIORITIES
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.interior.abandoned import LEAST_SECONDS, LONGEST_SECONDS, LOOK_SECONDS
from isthmus_router.interior.connections import MAX_HOPS


class Pair(Network):
    """One router with a connector to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.connector: Connector = self.connector_of(self.one)
        self.old = self.connector.dial()
        self.old_data = self.connector.dial_data()
        self.rest()
        self.before = self.disturbances

    @property
    def disturbances(self) -> list[tuple[int, int, int]]:
        """What routing has seen of connections, at both routers."""
        return [self.one.disturbances, self.other.disturbances]

    def rotate(self) -> End:
        """The control connection of the next ordinal, about to be opened."""
        self.connector.ordinal += 1
        return self.connector.dial()

    def until(self, condition: Callable[[], bool], *ends: End) -> None:
        """Move frames of these connections until the condition holds, those for the connecting router first."""
        while not condition():
            busy = next(side for end in ends for side in (end, other_end(end)) if side.inbox)
            self.step(busy)

    def await_swap(self, end: End) -> None:
        """Until the connecting router has gone over to a connection, and the other one has not."""
        self.until(lambda: not self.old.connection.active, end)
        assert not other_end(end).connection.active

    def uses(self, end: End) -> bool:
        """Whether both routers send what is new over this connection."""
        return all(
            (hop := side.connection.hop) is not None and hop.up and hop.connection is side.connection
            for side in (end, other_end(end))
        )


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_rotation_is_none_of_routings_business(pair: Pair) -> None:
    new, data = pair.rotate(), pair.connector.dial_data()
    pair.rest()
    assert pair.uses(new)
    assert pair.disturbances == pair.before
    for end in (new, other_end(new)):
        hop = end.connection.hop
        assert hop is not None
        assert {hop.link_for(priority) for priority in range(PRIORITIES)} == set(end.connection.data_links)
        assert hop.connection_for_stream() in (data.connection, other_end(data).connection)
        assert end.router.routing.connections.groups.upgrades == 1


def test_what_waits_is_handed_over_priority_by_priority(pair: Pair) -> None:
    links = [list(end.connection.data_links) for end in (pair.old, other_end(pair.old))]
    new = pair.rotate()
    pair.rest()
    for end, old in zip((new, other_end(new)), links, strict=True):
        assert end.router.port.handed_over == list(zip(old, end.connection.data_links, strict=True))


def test_the_connecting_router_closes_the_old_control_links_and_nothing_else(pair: Pair) -> None:
    control = [pair.old.connection.control_in, pair.old.connection.control_out]
    pair.rotate()
    pair.rest()
    assert pair.one.port.detached == control
    assert pair.other.port.detached == []
    for end in (pair.old, other_end(pair.old), pair.old_data, other_end(pair.old_data)):
        assert is_open(end)
    assert None not in pair.old.connection.data_links


def test_nothing_new_takes_the_new_connection_before_the_swap(pair: Pair) -> None:
    new, data = pair.rotate(), pair.connector.dial_data()
    pair.until(lambda: is_open(new), new)
    pair.until(lambda: is_open(data), data)
    assert pair.uses(pair.old)
    assert not new.connection.active
    hop = pair.old.connection.hop
    assert hop is not None
    assert hop.connection_for_stream() is pair.old_data.connection


def test_a_lost_connection_is_taken_over_from_at_once(pair: Pair) -> None:
    new = pair.rotate()
    pair.until(lambda: is_open(new), new)
    pair.cut(pair.old)
    pair.rest()
    assert pair.uses(new)
    assert pair.disturbances == pair.before


def test_after_the_swap_the_old_connection_is_not_used_again(pair: Pair) -> None:
    new = pair.rotate()
    pair.rest()
    pair.cut(new)
    pair.rest()
    assert is_open(pair.old)
    for router in (pair.one, pair.other):
        assert router.routing.connections.hops == {}
        assert router.engine.table.routes == {}
    again = pair.connector.dial()
    pair.rest()
    assert pair.uses(again)


def test_what_the_peer_uses_already_is_not_closed_by_the_next_rotation(pair: Pair) -> None:
    """The connecting router swaps as soon as it may; the other one learns of yet another connection first."""
    new = pair.rotate()
    pair.await_swap(new)
    newest = pair.rotate()
    pair.until(lambda: is_open(newest), newest)
    pair.rest()
    assert is_open(new)
    assert is_open(other_end(new))
    assert pair.uses(newest)
    assert pair.disturbances == pair.before


def test_what_was_passed_over_is_answered_late(pair: Pair) -> None:
    """Its control links are closed when they are attached at last."""
    passed = pair.rotate()
    pair.until(lambda: is_open(passed), passed)
    newest = pair.rotate()
    pair.await_swap(newest)
    assert passed.connection.control_in is None
    pair.rest()
    assert pair.uses(newest)
    for end in (passed, other_end(passed)):
        assert is_open(end)
        assert end.connection.control_in is end.connection.control_out is None
    assert pair.disturbances == pair.before


@pytest.mark.parametrize("links_first", [True, False])
def test_both_routers_know_when_the_new_connection_dies_after_one_of_them_swapped(
    pair: Pair, *, links_first: bool
) -> None:
    """The other one goes back to the old connection, whose control links are closed, before or after that."""
    new = pair.rotate()
    pair.await_swap(new)
    pair.cut(new)
    old = other_end(pair.old)
    for end in (old, other_end(new)) if links_first else (other_end(new), old):
        while end.inbox:
            pair.step(end)
    pair.rest()
    for router in (pair.one, pair.other):
        assert router.engine.links_lost == 1
        assert router.engine.table.routes == {}
    again = pair.connector.dial()
    pair.rest()
    assert pair.uses(again)


@pytest.mark.parametrize("connecting", [True, False])
def test_a_router_leaves_in_the_middle_of_a_rotation(pair: Pair, *, connecting: bool) -> None:
    new = pair.rotate()
    pair.until(lambda: is_open(new), new)
    leaving, staying = (pair.one, pair.other) if connecting else (pair.other, pair.one)
    leaving.routing.leave()
    pair.rest()
    again = pair.connector.dial()
    pair.rest()
    assert staying.engine.links_lost == 1
    assert staying.engine.table.routes == {}
    assert is_open(pair.old)
    assert is_open(again)


def test_a_connection_for_which_there_was_no_identifier_is_replaced_by_one_that_gets_it(pair: Pair) -> None:
    hops = pair.one.routing.connections.hops
    mine = hops.popitem()[1]
    others = dict.fromkeys(range(MAX_HOPS), mine)
    hops.update(others)
    connector = pair.connector_of(pair.one)
    connector.correlator = "one too many"
    connector.dial()
    pair.rest()
    hops.clear()
    hops[mine.number] = mine
    connector.ordinal += 1
    new = connector.dial()
    pair.rest()
    assert pair.uses(new)
    assert pair.uses(pair.old)


def test_what_was_replaced_is_not_gone_back_to_when_what_replaced_it_is_lost(pair: Pair) -> None:
    """The connector may not have changed to the new one yet; it must not think that the old one still serves."""
    new = pair.rotate()
    pair.await_swap(new)
    pair.until(lambda: other_end(new).connection.active, new)
    pair.cut(new)
    pair.step(other_end(new))
    old = other_end(pair.old).connection
    assert (old.control_in, old.control_out, old.hop) == (None, None, None)


def steal(pair: Pair, ordinal: int) -> End:
    """Somebody else says to be the connecting router and the same group, with a greater ordinal; then goes."""
    thief = Router(pair, pair.one.core.id)
    stolen = Connector(thief, pair.other, pair.old.connection.group_correlator or "", ordinal).dial()
    pair.rest()
    assert other_end(stolen).connection.active
    assert pair.old.connection.hop is not None
    pair.cut(stolen)
    pair.rest()
    assert not pair.old.connection.hop.up
    return stolen


def test_an_abandoned_connection_is_given_up_and_made_anew_as_another_group(pair: Pair) -> None:
    steal(pair, 900)
    old = (pair.old, other_end(pair.old), pair.old_data, other_end(pair.old_data))
    assert all(is_open(end) for end in old)
    pair.advance(LEAST_SECONDS)
    pair.rest()
    assert not any(is_open(end) for end in old)
    assert pair.uses(pair.connector.controls[-1])
    assert set(pair.one.engine.table.routes) == {"OTHER"}
    assert set(pair.other.engine.table.routes) == {"ONE"}


def test_an_abandoned_connection_is_given_up_when_the_next_one_is_refused(pair: Pair) -> None:
    """A rotation does not help: the peer knows of a greater ordinal."""
    thief = Router(pair, pair.one.core.id)
    stolen = Connector(thief, pair.other, pair.old.connection.group_correlator or "", 900).dial()
    pair.rest()
    new, data = pair.rotate(), pair.connector.dial_data()
    pair.rest()
    assert not is_open(new)
    pair.cut(stolen)
    pair.rest()
    assert is_open(data)
    pair.advance(LEAST_SECONDS)
    pair.rest()
    assert pair.connector.controls[-1] is not new
    assert pair.uses(pair.connector.controls[-1])
    assert not is_open(data)


def test_an_abandoned_connection_is_given_up_when_what_was_to_follow_it_is_lost(pair: Pair) -> None:
    """The peer has closed its control links before this router knows that it has also refused the next one."""
    thief = Router(pair, pair.one.core.id)
    stolen = Connector(thief, pair.other, pair.old.connection.group_correlator or "", 900).dial()
    pair.rest()
    refused = pair.rotate()
    pair.until(lambda: is_open(refused), refused)
    pair.cut(stolen)
    pair.until(lambda: pair.old.connection.control_out is None, stolen, pair.old)
    assert is_open(refused)
    pair.rest()
    assert not is_open(refused)
    pair.advance(LEAST_SECONDS)
    pair.rest()
    assert pair.uses(pair.connector.controls[-1])


@pytest.mark.parametrize("data", [True, False])
def test_what_is_under_way_on_an_abandoned_connection_may_end(pair: Pair, *, data: bool) -> None:
    """Within reason: it would keep the two routers apart for ever."""
    steal(pair, 900)
    connection = (pair.old_data if data else pair.old).connection
    link = pair.link(connection, Direction.OUT, Terminus(), Terminus())
    link.unsettled[1] = b"without an outcome"
    connection.links.add(link)
    pair.advance(LONGEST_SECONDS - 3 * LOOK_SECONDS - 5.0)
    pair.settle()
    assert is_open(pair.old)
    pair.advance(5.0)
    pair.rest()
    assert not is_open(pair.old)
    assert pair.uses(pair.connector.controls[-1])


def test_an_abandoned_connection_is_given_up_once_nothing_is_under_way(pair: Pair) -> None:
    steal(pair, 900)
    link = pair.old.connection.data_links[0]
    assert link is not None
    link.unsettled[1] = b"without an outcome yet"
    pair.advance(2 * LEAST_SECONDS)
    assert is_open(pair.old)
    link.unsettled.clear()
    pair.advance(LOOK_SECONDS)
    pair.rest()
    assert not is_open(pair.old)
    assert pair.uses(pair.connector.controls[-1])


def test_a_router_that_leaves_itself_gives_up_nothing(pair: Pair) -> None:
    steal(pair, 900)
    pair.one.routing.leave()
    pair.advance(LONGEST_SECONDS + LOOK_SECONDS)
    assert is_open(pair.old)
    assert pair.connector.controls == [pair.old]


def test_a_control_connection_that_is_given_up_in_its_handshake_disturbs_nothing(pair: Pair) -> None:
    """The peer has opened it, or will."""
    for opened_there in (True, False):
        given_up = pair.rotate()
        pair.until(lambda opened=opened_there, end=given_up: is_open(other_end(end)) is opened, given_up)
        pair.connector.give_up()
        new = pair.rotate()
        pair.rest()
        assert not is_open(other_end(given_up))
        assert pair.uses(new)
        assert pair.disturbances == pair.before


def test_a_data_connection_that_opens_when_it_is_replaced_stays_open(pair: Pair) -> None:
    """The peer may use it, as it has opened it in time."""
    new, late = pair.rotate(), pair.connector.dial_data()
    pair.until(lambda: is_open(other_end(late)), late)
    there = pair.other.hop(pair.connector.correlator)
    assert there is not None
    pair.until(lambda: there.data_connections == (other_end(late).connection,), new)
    newest = pair.rotate()
    here = pair.one.hop(pair.connector.correlator)
    assert here is not None
    pair.until(lambda: here.connection is newest.connection, newest)
    pair.rest()
    assert is_open(late)
    assert is_open(other_end(late))
    assert late.connection.hop is here  # so that nothing goes back over it
    assert not late.connection.active
    assert pair.one.closed_in_use == 0
