"""Rows of a running router: tables that peers fill are walked over in steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.sums import LINKS_PER_STEP
from isthmus_router.view import LINKS_SORTED_AT_ONCE, RouterView, in_order_of_id

MANY = 3 * LINKS_SORTED_AT_ONCE + 5


def view_of(router: RouterInMemory) -> RouterView:
    table: Any = SimpleNamespace(all={})
    process: Any = SimpleNamespace(core=router.core, link_routing=SimpleNamespace(table=table))
    return RouterView(process)


class Lookups(dict[Any, Any]):
    """Counts them."""

    count = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)


def test_rows_of_link_routes_are_made_when_they_are_asked_for() -> None:
    configs = [object() for _ in range(5)]
    sections = Lookups()
    process: Any = SimpleNamespace(
        configuration=SimpleNamespace(link_routes=configs),
        link_routing=SimpleNamespace(sections=sections, now=0.0),
    )
    rows = RouterView(process).link_routes(3)
    assert sections.count == 0
    found: list[object] = [next(rows).config]
    assert found == [configs[3]]
    assert sections.count == 1
    found += [row.config for row in rows]
    assert found == configs[3:]


def test_rows_of_connectors_are_made_when_they_are_asked_for() -> None:
    asked: list[int] = []

    class Connector:
        state, message, connection = "connecting", "", None

        def __init__(self, number: int) -> None:
            self.number = number

        @property
        def config(self) -> int:
            asked.append(self.number)
            return self.number

    connectors = {str(number): Connector(number) for number in range(5)}
    process: Any = SimpleNamespace(endpoints=SimpleNamespace(connectors=connectors))
    rows = RouterView(process).connectors(3)
    assert asked == []
    next(rows)
    assert asked == [3]
    del connectors["4"]  # a reload
    next(rows)
    assert asked == [3, 4]


def test_the_row_of_an_address_with_many_links_is_made_in_steps() -> None:
    router = RouterInMemory()
    connection = router.connection()
    for _ in range(3 * LINKS_PER_STEP):
        router.receiver("a", connection)
    router.receiver("b", connection)
    rows = list(view_of(router).addresses())
    assert [None if row is None else (row.key, row.subscriber_count) for row in rows] == [
        None,
        None,
        ("Ma", 3 * LINKS_PER_STEP),
        ("Mb", 1),
    ]


def test_the_first_addresses_are_those_of_the_call() -> None:
    router = RouterInMemory()
    links = [router.receiver(f"a{number}") for number in range(3)]
    rows = view_of(router).first_addresses(2)
    router.core.link_closed(links[0])
    router.receiver("a3")
    assert [row and (row.key, row.subscriber_count) for row in rows] == [("Ma0", 0), ("Ma1", 1)]


@pytest.mark.parametrize("offset", [0, 1, LINKS_SORTED_AT_ONCE, MANY - 1, MANY])
def test_links_are_sorted_in_steps(offset: int) -> None:
    links: Any = [SimpleNamespace(id=7 + number * 5 % MANY) for number in range(MANY)]
    found = list(in_order_of_id(links, offset))
    assert [link.id for link in found if link is not None] == list(range(7 + offset, 7 + MANY))
    assert found.count(None) >= 3
