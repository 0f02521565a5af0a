"""Names of routed links: what they tell on the way, and that none is used twice."""

from __future__ import annotations

import re
from itertools import chain, count

from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.model import Connection
from isthmus_router.core.terms import Direction
from isthmus_router.linkroute.names import LONGEST_CONTAINER, MOST_TRIED, NamesInUse, RouteName

IN, OUT = Direction.IN, Direction.OUT
MANY = 2000
texts = st.text(st.characters(codec="utf-8"), max_size=12)
ids = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@example("a//b", "c/d@e", ["A/B", "//", "%2F"])
@given(texts, texts, st.lists(ids, min_size=1, max_size=4))
def test_a_name_tells_the_routers_that_have_been_passed(own: str, container: str, routers: list[str]) -> None:
    name = RouteName.of_client(own, container)
    assert (name.name, name.passed) == (f"{own}@{container}", ())
    for router in routers:
        read = RouteName.read(name.beyond(router))
        assert read is not None
        name = read
    assert (name.name, name.passed) == (f"{own}@{container}", tuple(routers))


users = st.one_of(st.none(), texts.filter(bool))
parts = st.one_of(
    texts, st.text("@user=jo.2%", max_size=12), st.sampled_from(["a@user=joe", "c@user=", "@user="])
)


@example("a", "c@user=joe", None, "a", "c", "joe")
@example("a", "c@user=", None, "a", "c", None)
@example("a@c@user=joe", "", None, "a@c", "", "joe")
@given(parts, parts, users, parts, parts, users)
def test_links_of_two_users_never_have_the_same_name(
    own: str, container: str, user: str | None, other: str, its_container: str, its_user: str | None
) -> None:
    name = RouteName.of_client(own, container, user).name
    assume(user != its_user)
    assert name != RouteName.of_client(other, its_container, its_user).name


@given(parts, parts, users, users)
def test_numbers_of_names_in_use_are_no_part_of_a_user(
    own: str, container: str, user: str | None, its_user: str | None
) -> None:
    assume(user != its_user)
    names, connection = NamesInUse(), RouterInMemory().connection()
    mine = RouteName.of_client(own, container, user).name
    used = {names.take(connection, IN, mine) for _ in range(3)}
    assert RouteName.of_client(own, container, its_user).name not in used


@given(texts, texts, texts.filter(bool))
def test_a_user_does_not_hide_a_loop_and_makes_none_up(name: str, container: str, user: str) -> None:
    connection = RouterInMemory().connection()
    connection.properties, connection.container = {"product": "isthmus-router"}, "A"
    came = RouteName.of_client(name, container, user).name
    assert RouteName.returns(came, connection) is RouteName.returns(f"{name}@{container}", connection)
    assert RouteName.returns(RouteName.of_client(name, "A", user).name, connection)
    assert not RouteName.returns(RouteName.of_client("mine", "client", "x@A@y").name, connection)


def test_names_of_anonymous_clients_have_no_user() -> None:
    assert RouteName.of_client("mine", "client").name == "mine@client"
    assert (
        RouteName.of_client("mine", "client", "joe@example.com").name
        == "mine@client@user=joe%40example%2Ecom"
    )


@given(texts)
def test_other_links_of_routers_are_told_apart(name: str) -> None:
    assert RouteName.read(name) is None
    assert RouteName.read(f"qd.link-route/{name.replace('/', '')}") is None


def test_a_name_is_used_once_on_a_connection_and_direction() -> None:
    router = RouterInMemory()
    one, other = router.connection(), router.connection()
    names = NamesInUse()
    assert [names.take(one, IN, "x") for _ in range(3)] == ["x", "x.2", "x.3"]
    assert (names.take(one, OUT, "x"), names.take(other, IN, "x")) == ("x", "x")
    assert names.take(one, IN, "x.2") == "x.2.2"
    names.free(one, IN, "x.2")
    assert [names.take(one, IN, "x") for _ in range(2)] == ["x.2", "x.4"]
    names.free(one, IN, "unknown")


def test_numbers_in_names_of_other_links_are_left_out() -> None:
    names, connection = NamesInUse(), RouterInMemory().connection()
    for number in (2, 3, 5):
        names.take(connection, IN, f"x.{number}")
    assert [names.take(connection, IN, "x") for _ in range(3)] == ["x", "x.4", "x.6"]
    names.free(connection, IN, "x.3")
    names.free(connection, IN, "x.4")
    assert [names.take(connection, IN, "x") for _ in range(3)] == ["x.3", "x.4", "x.7"]


class Counted(str):
    """A name that counts how often the names that begin with it are formed."""

    __slots__ = ()
    formed = 0

    def __format__(self, spec: str) -> str:
        Counted.formed += 1
        return super().__format__(spec)


def formed(names: NamesInUse, connection: Connection, name: str) -> int:
    """Names that were tried for one more link."""
    Counted.formed = 0
    names.take(connection, IN, Counted(name))
    return Counted.formed


def test_one_more_link_with_a_name_of_many_costs_the_same() -> None:
    names, connection = NamesInUse(), RouterInMemory().connection()
    taken = [names.take(connection, IN, "x") for _ in range(MANY)]
    assert taken == ["x", *(f"x.{number}" for number in range(2, MANY + 1))]
    assert formed(names, connection, "x") == 1
    for name in ("x.7", "x.900", "x", "x.30"):
        names.free(connection, IN, name)
    assert [names.take(connection, IN, "x") for _ in range(5)] == [
        "x", "x.7", "x.30", "x.900", f"x.{MANY + 2}"
    ]  # fmt: skip
    for number in range(2, MANY + 3):
        names.free(connection, IN, f"x.{number}")
    assert [names.take(connection, IN, "x") for _ in range(2)] == ["x.2", "x.3"]


def test_links_that_occupy_the_numbers_of_a_name_make_it_cost_little_more() -> None:
    names, connection = NamesInUse(), RouterInMemory().connection()
    for number in range(2, MANY):
        names.take(connection, IN, f"x.{number}")
    names.take(connection, IN, "x")
    for _ in range(3):
        assert formed(names, connection, "x") <= MOST_TRIED + 1
    more = [names.take(connection, IN, "x") for _ in range(3)]
    assert len({*more, *(f"x.{number}" for number in range(2, MANY))}) == MANY + 1
    assert all(re.fullmatch(r"x\.[0-9a-f]{16}", name) for name in more)
    for name in more:
        names.free(connection, IN, name)
    names.free(connection, IN, "x.2")
    assert names.take(connection, IN, "x") == "x.2"


class NamesByTrial(RuleBasedStateMachine):
    """The names are those that a search by trial finds, whatever comes and goes."""

    def __init__(self) -> None:
        super().__init__()
        self.names, self.connection = NamesInUse(), RouterInMemory().connection()
        self.used: set[str] = set()

    @rule(name=st.sampled_from(["x", "x.2", "x.2.2", "x.3", "y"]))
    def take(self, name: str) -> None:
        tried = chain([name], (f"{name}.{number}" for number in count(2)))
        if len(self.used) <= MOST_TRIED:
            expected = next(free for free in tried if free not in self.used)
            assert self.names.take(self.connection, IN, name) == expected
            self.used.add(expected)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.used:
            name = data.draw(st.sampled_from(sorted(self.used)))
            self.names.free(self.connection, IN, name)
            self.used.remove(name)


TestNamesByTrial = NamesByTrial.TestCase


def test_names_have_the_digest_of_a_long_container_id() -> None:
    container = "é" * LONGEST_CONTAINER
    assert RouteName.of_client("mine", container).name == f"mine@{container}"
    name = RouteName.of_client("mine", container + "x", "joe").name
    assert re.fullmatch("mine@sha256:[0-9a-f]{64}@user=joe", name)
    assert name != RouteName.of_client("mine", container + "y", "joe").name
    connection = RouterInMemory().connection()
    connection.properties, connection.container = {"product": "isthmus-router"}, container + "x"
    assert RouteName.returns(name, connection)
