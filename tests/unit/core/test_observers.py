"""One observer of the core closes a connection while the observers are told that it has opened."""

from __future__ import annotations

from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.router import RouterCore


class Observer:
    """Records what the core tells it of connections."""

    def __init__(self, core: RouterCore, *, closes: bool = False) -> None:
        self.told: list[str] = []
        self._core = core
        self._closes = closes
        core.observers.append(self)

    def connection_opened(self, connection: Connection) -> None:
        self.told.append("opened")
        if self._closes:
            self._core.connection_closed(connection)

    def connection_closed(self, connection: Connection) -> None:
        self.told.append("closed")

    def link_bound(self, link: Link) -> None:
        raise AssertionError("there are no links")

    link_unbound = link_bound

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        raise AssertionError("there are no links")


def test_those_that_were_not_told_of_a_connection_are_not_told_that_it_closes() -> None:
    router = RouterInMemory()
    before, closing, behind = (Observer(router.core, closes=closes) for closes in (False, True, False))
    connection = router.connection()
    assert before.told == closing.told == ["opened", "closed"]
    assert behind.told == []
    assert connection.id not in router.core.connections


def test_all_are_told_of_a_connection_that_stays() -> None:
    router = RouterInMemory()
    first, second = Observer(router.core), Observer(router.core)
    connection = router.connection()
    assert first.told == second.told == ["opened"]
    router.core.connection_closed(connection)
    assert first.told == second.told == ["opened", "closed"]
