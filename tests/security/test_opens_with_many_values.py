"""Attack: open connections with frames whose values take much memory when they are decoded."""

from __future__ import annotations

import contextlib

import pytest
from tests.integration.support.by_hand import open_frame
from tests.integration.support.raw import AMQP_HEADER
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood

from isthmus_router.amqp.opening import MOST_PROPERTY_BYTES, MOST_VALUES_OF_CLIENT, retained_properties
from isthmus_router.message.types import Array, Symbol

CONNECTIONS = 100
MOST_BYTES_OF_A_CONNECTION = 130_000
"""An ordinary one takes 38,000."""
MOST_BYTES_IN_ALL = 20 * 2**20
"""Of all that the router closes. The engine holds the decoded properties until the end of each."""


def opening(values: int, length: int) -> bytes:
    """Offered and desired capabilities, and properties, with so many values of so many characters."""
    texts = [f"{number:0{length}}" for number in range(values)]
    many = Array(Symbol, tuple(map(Symbol, texts)))
    properties = {Symbol(key): value for key, value in zip(texts[::2], texts[1::2], strict=False)}
    return AMQP_HEADER + open_frame(None, "localhost", *[None] * 5, many, many, properties)


@pytest.fixture
def attacked(routers: Routers) -> Router:
    return routers.start("A")


def grown(attacked: Router, opened: bytes, *, refused: bool) -> int:
    """Bytes that connections with this open take, or took, if each of them is refused."""
    with Canary(attacked) as canary, contextlib.ExitStack() as stack:
        before, connections = attacked.memory(), attacked.metric("connections")
        floods = [stack.enter_context(Flood(attacked.port)) for _ in range(CONNECTIONS)]
        for flood in floods:
            flood.send(opened)
        if refused:
            eventually(lambda: all(flood.closed.is_set() for flood in floods), "they are closed", 60)
        else:
            eventually(
                lambda: attacked.metric("connections") >= connections + CONNECTIONS, "they are open", 60
            )
        size = attacked.memory() - before
    canary.report.check()
    return size


def test_many_values_are_refused(attacked: Router) -> None:
    assert grown(attacked, opening(800, 3), refused=True) < MOST_BYTES_IN_ALL


def test_as_many_values_as_are_allowed(attacked: Router) -> None:
    opened = opening(MOST_VALUES_OF_CLIENT - 10, 45)
    assert len(opened) > 3 * MOST_PROPERTY_BYTES
    assert grown(attacked, opened, refused=False) < CONNECTIONS * MOST_BYTES_OF_A_CONNECTION


def test_properties_within_the_bound_are_retained() -> None:
    ordinary: dict[str, object] = {"product": "x", "version": "1", "many": [1] * 10}
    assert retained_properties(ordinary) == ordinary
    large: dict[str, object] = {"first": "x" * 3000, "second": "x" * 3000}
    assert retained_properties(large | ordinary) == {"first": large["first"]} | ordinary
