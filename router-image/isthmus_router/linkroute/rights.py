"""Link routes examined again when the rights of those change that take their links.

The router withdraws a link route that its client has created for itself and could not create any more, and detaches the
links that it has brought to the client. That includes links of a link route that the client has deleted since. So it
does with the link routes of the configuration that a container has by its container id.

A client may have 1,000 link routes, and each may take milliseconds to examine. So this is done in steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from isthmus_router.core.access import UNAUTHORIZED, level_for_own_link_routes
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.patterns import TooManyPatternsError
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Condition, Direction
from isthmus_router.linkroute.routing import LinkRouting
from isthmus_router.linkroute.table import SHOWN, Declaration, pattern_of
from isthmus_router.policy.denied import detach_denied
from isthmus_router.policy.grant import Grant

log = logging.getLogger("POLICY")


class RightsReview:
    """Keeps the link routes of clients to what the policy allows them now."""

    def __init__(self, routing: LinkRouting) -> None:
        self._routing = routing

    def examine(self, connection: Connection) -> Iterator[None]:
        """The steps to be taken when the rights of a client have changed, or may have."""
        made = self._routing.made.of
        for name, declaration in list(made.get(connection, {}).items()):
            allowed = _may_have(connection, declaration)
            if not allowed and made.get(connection, {}).get(name) is declaration:
                links = list(declaration.destinations[connection])
                self._withdraw(connection, name, declaration)
                for link in links:
                    self._detach(link, declaration)
            yield
        container = connection.role is Role.ROUTE_CONTAINER
        for declaration in self._routing.declared(connection) if container else ():
            if connection not in declaration.destinations:
                self._routing.serve(connection, declaration)
            elif not _may_have(connection, declaration):
                links = list(declaration.destinations[connection])
                self._routing.leave(connection, declaration)
                for link in links:
                    self._detach(link, declaration)
            yield
        # Nothing leads to former ones any more, so that no further links come to be of them.
        answers: dict[Declaration, bool] = {}
        for link in list(connection.links):
            former = self._former(link)
            if former is None:
                continue
            if former not in answers:
                answers[former] = _may_have(connection, former)
            if not answers[former]:
                self._detach(link, former)
            yield

    def _former(self, link: Link) -> Declaration | None:
        """The link route that has brought a link to its client, if it has been deleted or withdrawn since."""
        routed = self._routing.routed.get(link)
        if routed is None or link is not routed.far or routed.declaration is None:
            return None
        declaration = routed.declaration
        return declaration if link.connection not in declaration.destinations else None

    def _withdraw(self, connection: Connection, name: str, declaration: Declaration) -> None:
        log.info(
            "link route withdrawn",
            extra={
                "connection": connection.id,
                "user": connection.user,
                "linkRoute": name[:SHOWN],
                "pattern": declaration.pattern[:SHOWN],
            },
        )
        self._routing.made.unmake(connection, name)

    def _detach(self, link: Link, declaration: Declaration) -> None:
        routed = self._routing.routed.get(link)
        if routed is None:
            return
        pattern = declaration.pattern or pattern_of(routed.route.key)
        condition = Condition(UNAUTHORIZED, f"this user may not take links to {pattern[:SHOWN]!r} any more")
        detach_denied(self._routing.core.port, link, link.connection.grant, condition)


def _may_have(connection: Connection, declaration: Declaration) -> bool:
    """Whether the client could create a link route now, or have it by the configuration."""
    if not declaration.is_own:
        return declaration.is_allowed(connection)
    grant: Grant | None = connection.grant
    container = connection.role is Role.ROUTE_CONTAINER
    needed = level_for_own_link_routes(container=container, governed=grant is not None)
    if connection.access.management < needed:
        return False
    if grant is None:
        return True
    (route,) = declaration.routes
    try:
        return grant.may_take_links(declaration.pattern, route.direction is Direction.IN)
    except TooManyPatternsError:
        return False
