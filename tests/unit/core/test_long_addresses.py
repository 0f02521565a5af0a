"""Addresses that peers name have a bound of length, also those of nodes that a container is to create."""

from __future__ import annotations

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.terms import Direction, Terminus


@pytest.mark.parametrize("direction", [Direction.IN, Direction.OUT])
@pytest.mark.parametrize(("length", "accepted"), [(4096, True), (4097, False)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_link_with_a_long_address_is_refused(
    direction: Direction, length: int, *, accepted: bool, dynamic: bool
) -> None:
    router = RouterInMemory()
    name = "x" * length
    terminus = Terminus(dynamic=True, node_address=name) if dynamic else Terminus(name)
    incoming = direction is Direction.IN
    link = router.attach(
        None, direction, Terminus() if incoming else terminus, terminus if incoming else Terminus()
    )
    assert (link in router.port.accepted) == accepted
    if not accepted:
        assert router.port.refused[link].name == "amqp:invalid-field"
