"""Which requests are for which level of `management` of a connection."""

from __future__ import annotations

from isthmus_router.core.access import ManagementLevel, level_for_own_link_routes
from isthmus_router.management.entity_types import CONNECTION_LINK_ROUTE
from isthmus_router.management.errors import ForbiddenError
from isthmus_router.management.request import Request

_CHANGES = frozenset({"CREATE", "UPDATE", "DELETE"})
_OF_THE_SCHEMA = frozenset(
    {
        "GET-TYPES",
        "GET-ATTRIBUTES",
        "GET-OPERATIONS",
        "GET-ANNOTATIONS",
        "GET-SCHEMA",
        "GET-JSON-SCHEMA",
    }
)
_BASIC_TYPES = frozenset({"router", "management"})
"""Entities that the level `basic` reads: the totals that `skstat -g` shows."""


def check_level(request: Request) -> None:
    """ForbiddenError unless the requester may make such a request."""
    needed = _needed(request)
    present = request.requester.level
    if present < needed:
        raise ForbiddenError(
            f"You are not allowed to {request.operation}: that needs management: {needed.label}, and this connection "
            f"has management: {present.label}. Set the attribute 'management' of the listener (or connector)"
        )


def _needed(request: Request) -> ManagementLevel:
    operation = request.operation
    if operation in _CHANGES:
        if not _is_about_link_route_of_connection(request):
            return ManagementLevel.WRITE
        requester = request.requester
        governed = requester.may_take_links is not None
        return level_for_own_link_routes(container=requester.container, governed=governed)
    if operation in _OF_THE_SCHEMA:
        return ManagementLevel.BASIC
    if operation in ("QUERY", "READ"):
        asked = request.type_queried if operation == "QUERY" else request.type_asked("type")
        if asked is not None and asked.name in _BASIC_TYPES:
            return ManagementLevel.BASIC
    return ManagementLevel.READ


def _is_about_link_route_of_connection(request: Request) -> bool:
    asked = request.type_asked("type")
    return asked is not None and asked.name == CONNECTION_LINK_ROUTE
