"""Names of routed links: what they tell on the way, and that none is used twice."""

from __future__ import annotations

from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.terms import Direction
from isthmus_router.linkroute.names import NamesInUse, RouteName

IN, OUT = Direction.IN, Direction.OUT
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
