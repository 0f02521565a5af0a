"""Names of routed links: what they tell on the way, and that none is used twice."""

from __future__ import annotations

from hypothesis import example, given
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
