"""What changes for hundreds of thousands of announced addresses is found out in steps."""

from __future__ import annotations

from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.remotes import AT_ONCE
from isthmus_router.core.routes import Route

MANY = 4 * AT_ONCE


def announced(router: RouterInMemory, node: str, name: str = "orders", count: int = MANY) -> list[str]:
    """Let a router announce that many addresses."""
    keys = [f"M{name}.{number}" for number in range(count)]
    for key in keys:
        router.consumers_at(node, key)
    return keys


def known(router: RouterInMemory, keys: list[str]) -> int:
    return sum(key in router.core.addresses for key in keys)


def finish(router: RouterInMemory) -> int:
    """Do all steps of all work; how many there were."""
    steps = 0
    while router.port.step():
        steps += 1
    return steps


def routes(router: RouterInMemory, keys: list[str]) -> list[Route]:
    """A route to each address, as a message from a client needs it."""
    client = router.sender(None)
    addresses = [router.core.addresses[key] for key in keys]
    return [router.core.planner.plan(address, client) for address in addresses]


def test_addresses_of_a_restarted_router_are_removed_in_steps() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    keys = announced(router, "X")
    router.core.remotes.flush_node(router.core.nodes["X"])
    assert known(router, keys) == MANY - AT_ONCE
    assert finish(router) >= MANY - AT_ONCE
    assert known(router, keys) == 0
    assert "RX" in router.core.addresses


def test_addresses_that_a_restarted_router_announces_again_stay() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    keys = announced(router, "X")
    node = router.core.nodes["X"]
    router.core.remotes.flush_node(node)
    again = announced(router, "X", count=10)
    router.core.remotes.remove(node, again[0])
    finish(router)
    assert known(router, keys) == 9
    assert all(node in router.core.addresses[key].remotes for key in again[1:])


def test_a_router_that_was_removed_comes_back() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    keys = announced(router, "X")
    router.core.remotes.remove_node("X")
    hop = router.neighbour("X")
    again = announced(router, "X", count=10)
    assert [route.sinks for route in routes(router, again)] == [[hop]] * 10
    finish(router)
    assert known(router, keys) == 10
    assert {node.hop for key in again for node in router.core.addresses[key].remotes} == {hop}
    assert router.core.addresses["RX"].remotes == {router.core.nodes["X"]}


def test_messages_do_not_go_to_a_router_that_was_removed() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    keys = announced(router, "X")
    router.core.remotes.remove_node("X")
    left = [key for key in keys if key in router.core.addresses]
    assert left
    assert {len(route.sinks) for route in routes(router, left)} == {0}


def test_senders_are_told_of_the_loss_of_every_address() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    keys = announced(router, "X")
    senders = [router.sender(key[1:]) for key in keys]
    assert all(router.port.credit[sender] for sender in senders)
    router.core.remotes.remove_node("X")
    finish(router)
    assert not any(router.port.credit[sender] for sender in senders)


def test_restarts_in_quick_succession_leave_no_more_addresses_than_twice_as_many() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    for life in range(10):
        announced(router, "X", f"life.{life}")
        assert len(router.core.addresses) <= 2 * MANY
        router.core.remotes.flush_node(router.core.nodes["X"])


def test_routes_to_many_addresses_change_in_steps() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    near = router.neighbour("Y", cost=2)
    keys = announced(router, "X")
    before = routes(router, keys)
    router.core.nodes["X"].hop = near
    router.core.remotes.paths_changed()
    assert sum(not route.valid for route in before) == AT_ONCE
    finish(router)
    assert not any(route.valid for route in before)
    assert [route.sinks for route in routes(router, keys)] == [[near]] * MANY


def test_paths_that_change_while_routes_are_reviewed_count_as_well() -> None:
    router = RouterInMemory()
    first = router.neighbour("X")
    second = router.neighbour("Y")
    keys = announced(router, "X")
    routes(router, keys)
    node = router.core.nodes["X"]
    router.core.remotes.paths_changed()
    for _ in range(AT_ONCE):
        router.port.step()
    middle = routes(router, keys)
    assert {hop for route in middle for hop in route.sinks} == {first}
    node.hop = second
    router.core.remotes.paths_changed()
    finish(router)
    assert [route.sinks for route in routes(router, keys)] == [[second]] * MANY


def test_a_change_of_paths_takes_no_time_for_addresses_that_nobody_uses() -> None:
    router = RouterInMemory()
    router.neighbour("X")
    announced(router, "X")
    assert finish(router) == 0
    router.core.remotes.paths_changed()
    assert not router.port.jobs
