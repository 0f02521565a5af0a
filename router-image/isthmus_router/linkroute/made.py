"""Link routes that containers have made for their own connections, by management.

Each ends with its connection. A container may have 1,000 of them, so that many end in steps between other work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from isthmus_router.core.model import Connection
from isthmus_router.core.router import RouterCore
from isthmus_router.core.steps import begin
from isthmus_router.core.terms import Condition, Direction
from isthmus_router.linkroute.table import Declaration, LinkRoute, LinkRouteTable, route_key

FEW = 16
"""Link routes that end within the event in which their connection ends. More of them in steps."""


class MadeLinkRoutes:
    """Those of one router."""

    def __init__(self, core: RouterCore, table: LinkRouteTable, changed: Callable[[LinkRoute], None]) -> None:
        """`changed` is called when containers for a link route have come or gone."""
        self.of: dict[Connection, dict[str, Declaration]] = {}
        """By name, for each connection that has some."""
        self._core = core
        self._table = table
        self._changed = changed

    def has(self, connection: Connection, pattern: str, direction: Direction) -> bool:
        """Whether the container has made a link route for the same links on this connection."""
        route = self._table.all.get(route_key(pattern, direction))
        return route is not None and connection in route.makers

    def make(self, connection: Connection, name: str, pattern: str, direction: Direction) -> Condition | None:
        """The container at the other end takes such links on this connection, as long as both are there.

        `has` must be false. Returns why it may not: its client has used up its share of the addresses of this router.
        """
        route = self._table.obtain(pattern, direction)
        full = self._core.claims.refusal(connection, route.address)
        if full is not None:
            self._core.addresses.forget_if_unused(route.address)
            return full
        declaration = Declaration(None, None, pattern=pattern)
        self._table.declare(((pattern, direction),), declaration)
        declaration.serve(connection)
        route.makers[connection] = None
        self.of.setdefault(connection, {})[name] = declaration
        self._core.claims.added(connection, route.address)
        self._changed(route)
        return None

    def unmake(self, connection: Connection, name: str) -> None:
        """It takes no new ones any more."""
        made = self.of.get(connection, {})
        declaration = made.pop(name, None)
        if declaration is not None:
            if not made:
                del self.of[connection]
            self._end(connection, declaration)
            self._forget(connection, declaration)

    def connection_closed(self, connection: Connection) -> None:
        """No further links go to the container."""
        made = self.of.pop(connection, {}).values()
        for declaration in made:
            self._end(connection, declaration)
        begin(self._core.port.work, self._forget_all(connection, made), FEW)

    @staticmethod
    def _end(connection: Connection, declaration: Declaration) -> None:
        declaration.leave(connection)
        for route in declaration.routes:
            del route.makers[connection]

    def _forget(self, connection: Connection, declaration: Declaration) -> None:
        for route in declaration.routes:
            del route.declarations[declaration]
            self._core.claims.removed(connection, route.address)
            self._changed(route)

    def _forget_all(self, connection: Connection, made: Iterable[Declaration]) -> Iterator[None]:
        for declaration in made:
            self._forget(connection, declaration)
            yield
