"""Attack: attach links with frames whose values take much memory when they are decoded."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.support.raw import ATTACH, frame
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, begin, opening

from isthmus_router.amqp.checked import MOST_ITEMS_OF_CLIENT
from isthmus_router.message.types import Array, Described, Symbol, UInt, ULong

LINKS = 300
VALUES, TOO_MANY = MOST_ITEMS_OF_CLIENT - 5, 1000
AT_ONCE = 25
MOST_BYTES_OF_A_LINK = 40_000
"""An ordinary one takes 5,500, and the values are retained as they came."""
NAMES, LENGTH = 4000, 15_000
MOST_BYTES_OF_NAMES = 110 * 2**20
MOST_CPU_SECONDS = 0.05
"""For anything while a message of the canary is on its way."""


def capabilities(values: int = VALUES) -> tuple[list[Any], list[Any]]:
    """Fields of source and target with many symbols, which differ."""
    many = Array(Symbol, tuple(Symbol(f"{number:03}") for number in range(values)))
    return ["x", *[None] * 9, many], [None, *[None] * 5, many]


def filters(values: int = VALUES) -> tuple[list[Any], list[Any]]:
    """Fields of a source whose filter and outcomes are many nulls."""
    return ["x", *[None] * 6, [None] * values, None, [None] * values], []


def attach(handle: int, source: list[Any], target: list[Any], name: str | None = None) -> bytes:
    """A receiver with these termini."""
    termini = [Described(ULong(0x28), source), Described(ULong(0x29), target)]
    fields: list[Any] = [name or f"r{handle}", UInt(handle), True, None, None, *termini, None, None, UInt(0)]
    return frame(ATTACH, fields)


@pytest.fixture
def attacked(routers: Routers) -> Router:
    return routers.start("A")


@pytest.mark.parametrize("termini", [capabilities(), filters()], ids=["capabilities", "filters"])
def test_links_with_many_values(attacked: Router, termini: tuple[list[Any], list[Any]]) -> None:
    with Canary(attacked) as canary, Flood(attacked.port) as flood:
        flood.send(opening(), begin())
        before, links = attacked.memory(), attacked.metric("links_attached_total")
        for first in range(0, LINKS, AT_ONCE):
            assert flood.send(*(attach(first + n, *termini) for n in range(AT_ONCE)))
        eventually(
            lambda: attacked.metric("links_attached_total") >= links + LINKS, "the links are attached", 60
        )
        grown = attacked.memory() - before
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert grown < LINKS * MOST_BYTES_OF_A_LINK


@pytest.mark.parametrize(
    "termini", [capabilities(TOO_MANY), filters(TOO_MANY)], ids=["capabilities", "filters"]
)
def test_links_with_too_many_values(attacked: Router, termini: tuple[list[Any], list[Any]]) -> None:
    links = attacked.metric("links_attached_total")
    with Flood(attacked.port) as flood:
        flood.send(opening(), begin(), attach(0, *termini))
        assert flood.closed.wait(60)
        assert b"amqp:decode-error" in flood.tail
    assert attacked.metric("links_attached_total") == links


def test_links_with_long_names(attacked: Router) -> None:
    """Sixty megabytes of names, of which the router accepts one."""
    with Canary(attacked) as canary, Flood(attacked.port) as flood:
        flood.send(opening(), begin())
        before = attacked.memory()
        for handle in range(NAMES):
            if not flood.send(attach(handle, ["x"], [], str(handle).ljust(LENGTH, "n"))):
                break
        assert flood.closed.wait(60)
        eventually(lambda: attacked.metric("links", 'type="endpoint"') < 100, "the links are gone", 60)
        grown = attacked.memory() - before
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert grown < MOST_BYTES_OF_NAMES
