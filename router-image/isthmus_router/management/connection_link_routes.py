"""Link routes that containers make for their own connections, by management.

Source: `router.connection.linkRoute` of qpid-dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from isthmus_router.config.checks import LONGEST_NAME
from isthmus_router.core.patterns import TooManyPatternsError, pattern_problem
from isthmus_router.management.errors import BadRequestError, ConflictError, ForbiddenError
from isthmus_router.management.port import ConnectionLinkRouteRow
from isthmus_router.management.request import Request

MOST = 1000
"""On one connection."""
SHOWN = 200
"""Characters of a pattern in what is wrong with it."""


def wanted_link_route(
    request: Request, link_routes_of: Callable[[int], Sequence[ConnectionLinkRouteRow]]
) -> ConnectionLinkRouteRow:
    """The link route that a CREATE asks for, for the connection that it comes on. ManagementError if there is none.

    `link_routes_of` returns those that a connection has.
    """
    requester = request.requester
    if requester.connection_id is None:
        raise ForbiddenError(
            "You are not allowed to make a link route from elsewhere: the container itself has to ask, the router "
            "that it is connected to"
        )
    attributes = request.attributes
    unknown = sorted(attributes.keys() - {"pattern", "direction", "dir", "name"})
    if unknown:
        raise BadRequestError(f"Unknown attribute {unknown[0]!r}: there are pattern, direction and name")
    pattern = attributes.get("pattern")
    if not isinstance(pattern, str) or not pattern.strip("./"):
        raise BadRequestError("pattern: required and missing, tokens separated by '.' or '/'")
    if problem := pattern_problem(pattern):
        raise BadRequestError(f"pattern: {problem}")
    asked = request.properties.get("name", attributes.get("name"))
    if asked is not None and not isinstance(asked, str):
        raise BadRequestError("name is not a string")
    if asked is not None and len(asked) > LONGEST_NAME:
        raise BadRequestError(f"name has more than {LONGEST_NAME} characters; use a shorter one")
    direction = attributes.get("direction", attributes.get("dir"))
    if direction not in ("in", "out"):
        raise BadRequestError(f"direction {direction!r} is not one of in, out")
    if requester.may_take_links is not None:
        shown = repr(pattern if len(pattern) <= SHOWN else pattern[:SHOWN] + "...")
        try:
            allowed = requester.may_take_links(pattern, direction == "in")
        except TooManyPatternsError:
            raise ForbiddenError(
                f"The router cannot compare {shown} with the policy in reasonable time: use fewer '#', or several "
                "link routes"
            ) from None
        if not allowed:
            raise ForbiddenError(
                f"You are not allowed to take links to {shown}: that needs allowDynamicLinkRoutes, and the right "
                f"to {'receive from' if direction == 'in' else 'send to'} all these addresses"
            )
    name = f"{pattern}/{direction}" if asked is None else asked
    own = link_routes_of(requester.connection_id)
    if any(row.name == name for row in own):
        raise ConflictError(f"there is a link route {name!r} on this connection; delete the one that exists")
    if len(own) >= MOST:
        raise BadRequestError(f"There are {MOST} link routes on this connection")
    return ConnectionLinkRouteRow(requester.connection_id, name, pattern, incoming=direction == "in")


def check_own_link_route(request: Request, row: ConnectionLinkRouteRow) -> None:
    """ForbiddenError unless the link route is for the connection that the request comes on."""
    if row.connection_id != request.requester.connection_id:
        raise ForbiddenError("You are not allowed to delete the link route of another connection")
