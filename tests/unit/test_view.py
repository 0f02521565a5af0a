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
