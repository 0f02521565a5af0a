"""Finding the route of a message: by its annotation section, else by its `to` field.

Source: the router annotations of the skupper-router protocol; AMQP 1.0 part 3, 3.2.4 (properties).
"""

from __future__ import annotations

from dataclasses import replace

from isthmus_router.core.model import Link
from isthmus_router.core.receivers import RouteKind
from isthmus_router.core.remembered import retire
from isthmus_router.core.router import RouterCore
from isthmus_router.core.routes import Route
from isthmus_router.message.sections import (
    ANNOTATION_DESCRIPTOR,
    IncompleteError,
    SectionError,
    annotations_length,
    decode_annotations,
    find_to,
)

LONGEST_KEY_BYTES = 1024
NO_KEY = b""
"""Of the route of one message alone; it goes with the next."""


class RouteLookup:
    """Looks into the message in the receive buffer, and asks the core for what it does not know."""

    def __init__(self, core: RouterCore, view: memoryview) -> None:
        self.core = core
        self.view = view
        self.skip = 0
        """Length of the annotation section of the message looked at last."""
        self.to: bytes | None = None
        """The address that it names itself; None: the target of its link is its address."""

    def find(self, link: Link, available: int, *, complete: bool = True) -> Route:
        """The route of the message in the buffer, by its annotation section or its `to`.

        Sets `skip` to the length of the annotation section. Raises SectionError on a malformed message and,
        when the message is not `complete`, IncompleteError if more of it is needed.
        """
        view = self.view
        self.to = None
        if not complete and available < 12 and ANNOTATION_DESCRIPTOR.startswith(bytes(view[:available][:10])):
            raise IncompleteError  # perhaps of that section, of which there is hardly the beginning
        try:
            skip = annotations_length(view, available)
        except IncompleteError:
            if not complete:
                raise
            raise SectionError(
                "Invalid router annotations section: truncated", "amqp:invalid-field"
            ) from None
        self.skip = skip
        guard = link.guard
        if guard is not None:
            guard.check_sender(view, skip, available, complete=complete)
        if link.connection.strips_in or skip == 0:
            if link.address is not None and link.route is not None:
                return link.route if link.route.valid else self.core.target_route(link)
            return self._route_by_to(link, skip, available, b"", complete)
        section = bytes(view[:skip])
        route = link.routes.get(section)
        if route is not None and route.valid:
            return route
        annotations = decode_annotations(section)
        if annotations.to_override is None:
            return self._route_by_to(link, skip, available, section, complete)
        self.to = annotations.to_override.encode()
        self.core.check_destination(link, annotations.to_override)
        route = self.core.route_for(link, annotations.to_override, annotations)
        self._remember(link, section, route)
        return route

    def _route_by_to(self, link: Link, skip: int, available: int, section: bytes, complete: bool) -> Route:
        try:
            to = find_to(self.view, skip, available)
        except IncompleteError:
            if not complete:
                raise
            raise SectionError("invalid message format: truncated") from None
        by_target = to is None
        if to is None:
            named = link.target.address or link.source.address
            if named is not None and section:
                to = named.encode()
            else:
                raise SectionError("Routing failure: no address present", "amqp:precondition-failed")
        self.to = to
        key = section + (b"\1" if by_target else b"\0") + to
        route = link.routes.get(key)
        if route is None or not route.valid:
            annotations = decode_annotations(section) if section else None
            destination = to.decode("utf-8", "replace")
            if annotations is not None and by_target:
                annotations = replace(annotations, to_override=destination)  # for the routers to come
            self.core.check_destination(link, destination)
            route = self.core.route_for(link, destination, annotations)
            self._remember(link, key, route)
        if (
            route.kind is RouteKind.NONE
            and not link.connection.role.is_between_routers
            and self.core.configured.leave_out(to.decode("utf-8", "replace"))
        ):
            raise SectionError("Deliveries cannot be sent to an unavailable address", "amqp:not-found")
        return route

    def _remember(self, link: Link, key: bytes, route: Route) -> None:
        if (
            len(key) > LONGEST_KEY_BYTES
            or (link.guard is not None and link.guard.every_message)
            or route.kind is RouteKind.NONE
        ):
            # By its first bytes it must not be found: each message is looked into, or there is too much to keep.
            before = link.routes.get(NO_KEY)
            if before is not route:
                retire(before)
            link.routes[NO_KEY] = route
            return
        self.core.remember_route(link, key, route)
