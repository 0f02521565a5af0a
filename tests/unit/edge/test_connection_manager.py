"""Which uplink is active: first come, greater TLS ordinal, preferred by cost, failover."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.edge.network import Network

from isthmus_router.core.model import Connection
from isthmus_router.core.roles import Role
from isthmus_router.edge.connection_manager import PROVEN_SECONDS, ConnectionManager

_numbers = itertools.count(1)


class User:
    """Records which uplink is in use, and checks that it is told consistently."""

    def __init__(self) -> None:
        self.current: Connection | None = None

    def uplink_established(self, connection: Connection) -> None:
        assert connection is not self.current
        assert connection.active
        self.current = connection

    def uplink_lost(self, connection: Connection) -> None:
        assert connection is self.current
        self.current = None


def uplink(
    ordinal: int | None = None, *, cost: int = 1, role: Role = Role.EDGE, incoming: bool = False
) -> Connection:
    return Connection(
        next(_numbers), role, incoming=incoming, name="A", tls_ordinal=ordinal, cost=cost, own_cost=cost
    )


def manager() -> tuple[ConnectionManager, User]:
    user = User()
    return ConnectionManager(user, Network().call_later), user


@pytest.fixture
def time() -> Network:
    return Network()


@pytest.fixture
def user() -> User:
    return User()


@pytest.fixture
def connections(time: Network, user: User) -> ConnectionManager:
    return ConnectionManager(user, time.call_later)


def test_first_becomes_active_others_stand_by() -> None:
    connections, user = manager()
    first, second = uplink(), uplink()
    connections.connection_opened(first)
    connections.connection_opened(second)
    assert (first.active, second.active) == (True, False)
    assert user.current is first
    assert connections.standbys == [second]


@pytest.mark.parametrize(
    ("ordinals", "active"),
    [
        ((1, 2), 1),
        ((0, 1), 1),
        ((2, 2), 0),
        ((2, 1), 0),
        ((1, None), 0),
        ((None, 5), 0),
        ((1, 3, 2), 1),
        ((1, 2, 3), 2),
    ],
)
def test_greater_ordinal_takes_over(ordinals: tuple[int | None, ...], active: int) -> None:
    connections, user = manager()
    opened = [uplink(ordinal) for ordinal in ordinals]
    for connection in opened:
        connections.connection_opened(connection)
    assert user.current is opened[active]
    assert [connection.active for connection in opened] == [
        connection is opened[active] for connection in opened
    ]


@pytest.mark.parametrize(
    ("standbys", "follows"),
    [((1, 3, 2), 1), ((None, None), 0), ((3, 3), 0), ((None, 0), 1)],
)
def test_failover_to_the_greatest_ordinal_then_the_oldest(
    standbys: tuple[int | None, ...], follows: int
) -> None:
    connections, user = manager()
    active = uplink(3)
    opened = [uplink(ordinal) for ordinal in standbys]
    for connection in (active, *opened):
        connections.connection_opened(connection)
    connections.connection_closed(active)
    assert user.current is opened[follows]


def test_rotation_then_loss_of_the_new_then_its_return() -> None:
    connections, user = manager()
    old, new, again = uplink(1), uplink(2), uplink(2)
    connections.connection_opened(old)
    connections.connection_opened(new)
    assert user.current is new
    connections.connection_closed(new)
    assert user.current is old
    connections.connection_opened(again)
    assert user.current is again
    assert connections.standbys == [old]


def test_failover_prefers_the_least_cost_to_a_greater_ordinal(
    connections: ConnectionManager, user: User
) -> None:
    active, dear, cheap = uplink(3), uplink(9, cost=30), uplink(2, cost=20)
    for connection in (active, dear, cheap):
        connections.connection_opened(connection)
    assert user.current is active
    connections.connection_closed(active)
    assert user.current is cheap


def test_the_preferred_uplink_is_taken_again_once_it_has_proven_itself(
    connections: ConnectionManager, user: User, time: Network
) -> None:
    reserve, preferred = uplink(cost=2), uplink(cost=1)
    connections.connection_opened(reserve)
    connections.connection_opened(preferred)
    time.advance(PROVEN_SECONDS - 0.1)
    assert user.current is reserve
    time.advance(0.2)
    assert user.current is preferred
    assert (preferred.active, reserve.active) == (True, False)
    assert connections.standbys == [reserve]


def test_a_preferred_uplink_that_comes_and_goes_is_left_alone(
    connections: ConnectionManager, user: User, time: Network
) -> None:
    reserve = uplink(cost=2)
    connections.connection_opened(reserve)
    for _ in range(5):
        preferred = uplink(cost=1)
        connections.connection_opened(preferred)
        time.advance(PROVEN_SECONDS - 1)
        connections.connection_closed(preferred)
    time.advance(10 * PROVEN_SECONDS)
    assert user.current is reserve
    assert connections.changes == 1


def test_each_preferred_uplink_has_to_prove_itself(
    connections: ConnectionManager, user: User, time: Network
) -> None:
    older, newer = uplink(cost=5), uplink(cost=1)
    connections.connection_opened(uplink(cost=10))
    connections.connection_opened(older)
    time.advance(PROVEN_SECONDS - 0.1)
    connections.connection_opened(newer)
    time.advance(0.2)
    assert user.current is older
    time.advance(PROVEN_SECONDS)
    assert user.current is newer


def test_a_preference_that_changes_its_mind_begins_anew(
    connections: ConnectionManager, user: User, time: Network
) -> None:
    active, standby = uplink(cost=2), uplink(cost=3)
    for connection in (active, standby):
        connections.connection_opened(connection)
    for cost in (1, 3, 1):
        standby.cost = cost
        connections.preference_changed()
        time.advance(PROVEN_SECONDS - 1)
        assert user.current is active
    time.advance(2)
    assert user.current is standby


def test_an_unfit_uplink_gives_way_at_once_to_one_that_is_not(
    connections: ConnectionManager, user: User, time: Network
) -> None:
    unfit, dear, cheap = uplink(cost=1), uplink(cost=9), uplink(cost=8)
    for connection in (unfit, dear, cheap):
        connections.connection_opened(connection)
    unfit.problem = "does not serve"
    connections.preference_changed()
    time.advance(0.0)
    assert user.current is cheap
    time.advance(10 * PROVEN_SECONDS)
    assert user.current is cheap
    unfit.problem = None
    connections.preference_changed()
    time.advance(PROVEN_SECONDS + 0.1)
    assert user.current is unfit


def test_unfit_uplinks_do_not_take_turns(connections: ConnectionManager, time: Network) -> None:
    for _ in range(2):
        connection = uplink()
        connection.problem = "does not serve"
        connections.connection_opened(connection)
    connections.preference_changed()
    time.advance(10 * PROVEN_SECONDS)
    assert connections.changes == 1


def test_a_greater_ordinal_of_a_higher_cost_stands_by(
    connections: ConnectionManager, user: User, time: Network
) -> None:
    active = uplink(1, cost=1)
    connections.connection_opened(active)
    connections.connection_opened(uplink(2, cost=2))
    time.advance(2 * PROVEN_SECONDS)
    assert user.current is active


def test_a_changed_preference_counts_for_what_is_open(
    connections: ConnectionManager, user: User, time: Network
) -> None:
    active, standby = uplink(cost=1), uplink(cost=2)
    connections.connection_opened(active)
    connections.connection_opened(standby)
    active.cost = 3
    connections.preference_changed()
    time.advance(2 * PROVEN_SECONDS)
    assert user.current is standby


@pytest.mark.parametrize(
    "connection", [uplink(role=Role.NORMAL), uplink(role=Role.INTER_ROUTER), uplink(incoming=True)]
)
def test_other_connections_are_no_uplinks(connection: Connection) -> None:
    connections, user = manager()
    connections.connection_opened(connection)
    connections.connection_closed(connection)
    assert user.current is None
    assert connection.active


@given(st.lists(st.tuples(st.booleans(), st.integers(-1, 3), st.integers(0, 10))))
def test_any_order_of_opening_and_closing(events: list[tuple[bool, int, int]]) -> None:
    connections, user = manager()
    opened: list[Connection] = []
    for opens, ordinal, which in events:
        if opens:
            opened.append(uplink(None if ordinal < 0 else ordinal))
            connections.connection_opened(opened[-1])
        elif opened:
            connection = opened.pop(which % len(opened))
            connections.connection_closed(connection)
        assert user.current is connections.active
        assert (user.current is None) == (not opened)
        assert [c for c in opened if c.active] == ([user.current] if user.current else [])
        assert sorted(c.id for c in connections.standbys) == sorted(c.id for c in opened if not c.active)
        if user.current is not None and user.current.tls_ordinal is not None:
            assert all((c.tls_ordinal or 0) <= user.current.tls_ordinal for c in opened)
