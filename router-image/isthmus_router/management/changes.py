"""CREATE, UPDATE and DELETE: entities of the configuration, and the end of connections and links."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from isthmus_router.config import edit
from isthmus_router.config.attributes import Update
from isthmus_router.config.diff import diff
from isthmus_router.config.errors import ConfigError
from isthmus_router.config.model import Configuration
from isthmus_router.config.sources import Sources
from isthmus_router.management.connection_link_routes import check_own_link_route, wanted_link_route
from isthmus_router.management.entity_types import CONNECTION_LINK_ROUTE, EntityType
from isthmus_router.management.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    UnimplementedError,
)
from isthmus_router.management.port import (
    ActionRefusedError,
    ConnectionLinkRouteRow,
    ConnectionRow,
    LinkRow,
    ManagementActions,
    ManagementView,
)
from isthmus_router.management.query import check_operation, find
from isthmus_router.management.request import Request, Work

MOST_ENTITIES = 2000
"""Of one type, for CREATE: a change takes milliseconds for every thousand."""


class Changer:
    """Makes the changes that requests ask for."""

    def __init__(
        self,
        view: ManagementView,
        actions: ManagementActions | None,
        sources: Sources,
        types: Mapping[str, EntityType],
    ) -> None:
        """Without `actions` the router is read-only; `sources` resolves secrets and certificate files."""
        self._view = view
        self._actions = actions
        self._sources = sources
        self._types = types

    def create(self, request: Request) -> tuple[int, object]:
        """A new entity: 201 and its attributes."""
        self._check_changeable()
        entity_type = request.type_asked("type")
        if not entity_type:
            raise BadRequestError("No type provided for CREATE")
        check_operation(entity_type, "CREATE", request)
        if entity_type.name == CONNECTION_LINK_ROUTE:
            made = wanted_link_route(request, self._view.link_routes_of)
            self._act(lambda actions: actions.make_link_route(made))
            return 201, request.family.attributes_of(entity_type, made)
        section = entity_type.section
        assert section is not None
        attributes = request.attributes
        name = request.properties.get("name")
        if name is not None and section.attribute("name") is not None:
            attributes.setdefault("name", name)
        present = self._present()
        if len(edit.entities_in(present, section)) >= MOST_ENTITIES:
            raise BadRequestError(
                f"There are {MOST_ENTITIES} of {request.family.type_name(entity_type)!r}: "
                "put more into the configuration file"
            )
        wanted = self._valid(lambda: edit.create(present, section, attributes, self._sources))
        self._apply(present, wanted)
        created = entity_type.row_of(edit.entities_in(wanted, section)[-1])
        return 201, request.family.attributes_of(entity_type, created)

    def update(self, request: Request) -> Work:
        """Other attributes for an entity: 200 and all of them. What has its present value already is no change."""
        self._check_changeable()
        entity_type, row = yield from find(self._view, self._types, request, "UPDATE")
        if isinstance(row, ConnectionRow | LinkRow):
            return 200, self._end(entity_type, row, request)
        section = entity_type.section
        assert section is not None
        present = self._present()
        entity = _latest(entity_type, row, present)
        _check_kept(entity_type, entity, "update")
        shown = request.family.attributes_of(entity_type, _row_with(entity_type, row, entity))
        attributes = {
            name: value
            for name, value in request.attributes.items()
            if name not in shown or not _same(shown[name], value)
        }
        for name in attributes:
            if name == "name" or (name in shown and section.attribute(name) is None):
                _refuse_attribute(entity_type, name, request)
        if not attributes:
            return 200, shown
        try:
            wanted = self._valid(lambda: edit.update(present, section, entity, attributes, self._sources))
        except BadRequestError as error:
            asked = [section.attribute(name) for name in attributes]
            fixed = [a.name for a in asked if a is not None and a.update is Update.RESTART]
            if not fixed:
                raise
            raise BadRequestError(f"{error}; {', '.join(fixed)} of {section.name} needs a restart") from None
        self._apply(present, wanted)
        updated = _row_with(entity_type, row, edit.entities_in(wanted, section)[-1])
        return 200, request.family.attributes_of(entity_type, updated)

    def delete(self, request: Request) -> Work:
        """One entity less: 204."""
        self._check_changeable()
        entity_type, row = yield from find(self._view, self._types, request, "DELETE")
        if isinstance(row, ConnectionLinkRouteRow):
            check_own_link_route(request, row)
            self._act(lambda actions: actions.end_link_route(row))
            return 204, {}
        present = self._present()
        entity = _latest(entity_type, row, present)
        _check_kept(entity_type, entity, "delete")
        wanted = self._valid(lambda: edit.delete(present, entity, self._sources))
        self._apply(present, wanted)
        return 204, {}

    def _end(
        self, entity_type: EntityType, row: ConnectionRow | LinkRow, request: Request
    ) -> dict[str, object]:
        """Connections and links can only be ended."""
        result = request.family.attributes_of(entity_type, row)
        for name, value in request.attributes.items():
            if name not in entity_type.columns:
                full_name = request.family.type_name(entity_type)
                raise BadRequestError(f"Unknown attribute {name!r} for {full_name!r}")
            if name != "adminStatus" and not _same(result[name], value):
                if row.role.is_between_routers:
                    raise ForbiddenError(f"You are not allowed to change what is of role {row.role.label}")
                _refuse_attribute(entity_type, name, request)
        status = request.attributes.get("adminStatus", "enabled")
        if status not in ("enabled", "deleted"):
            raise BadRequestError(f"adminStatus {status!r} is not one of enabled, deleted")
        if status == "deleted":
            kind = "connections" if isinstance(row, ConnectionRow) else "links"
            if not request.requester.may_close_connections:
                raise ForbiddenError(
                    f"You are not allowed to delete {kind}: allowAdminStatusUpdate is not set"
                )
            if row.role.is_between_routers:
                raise ForbiddenError(f"You are not allowed to delete {kind} of role {row.role.label}")
            if isinstance(row, ConnectionRow):
                self._act(lambda actions: actions.close_connection(row.id))
            else:
                self._act(lambda actions: actions.detach_link(row.connection_id, row.id))
            result["adminStatus"] = "deleted"
        return result

    def _check_changeable(self) -> None:
        if self._view.configuration.router.management_read_only:
            raise ForbiddenError(
                "You are not allowed to change this router: managementReadOnly is set. "
                "Change its configuration file, or the Router and Connectors it was made from"
            )

    def _present(self) -> Configuration:
        """What a change builds on."""
        return self._actions.wanted_configuration if self._actions else self._view.configuration

    def _valid(self, change: Callable[[], Configuration]) -> Configuration:
        try:
            return change()
        except ConfigError as error:
            text = "; ".join(problem.text("") for problem in error.problems)
            if any(problem.duplicate for problem in error.problems):
                raise ConflictError(f"{text}; update or delete the one that exists") from None
            raise BadRequestError(text) from None

    def _apply(self, present: Configuration, wanted: Configuration) -> None:
        changes = diff(present, wanted)
        impossible = (*changes.refused, *(f"{text} needs a restart" for text in changes.needs_restart))
        if impossible:
            raise BadRequestError("; ".join(impossible))
        if changes:
            self._act(lambda actions: actions.apply(wanted, changes))

    def _act(self, act: Callable[[ManagementActions], None]) -> None:
        if not self._actions:
            raise UnimplementedError("This router is read-only")
        try:
            act(self._actions)
        except ActionRefusedError as error:
            raise BadRequestError(str(error)) from None


def _latest(entity_type: EntityType, row: object, present: Configuration) -> object:
    """The entity as changes that are not carried out yet have left it."""
    section, identity = entity_type.section, entity_type.columns["identity"]
    assert section is not None
    same = (e for e in edit.entities_in(present, section) if identity(entity_type.row_of(e)) == identity(row))
    return next(same, entity_type.config_of(row))


def _row_with(entity_type: EntityType, row: Any, entity: object) -> object:
    """The row that was found, of an entity that is configured otherwise by now."""
    return replace(row, config=entity) if hasattr(row, "config") else entity_type.row_of(entity)


def _check_kept(entity_type: EntityType, entity: object, verb: str) -> None:
    why_kept = entity_type.why_kept(entity)
    if why_kept is not None:
        name = entity_type.columns["name"](entity_type.row_of(entity))
        raise ForbiddenError(f"You are not allowed to {verb} {entity_type.name} {name!r}: {why_kept}")


def _same(shown: object, asked: object) -> bool:
    return type(shown) is type(asked) and shown == asked


def _refuse_attribute(entity_type: EntityType, name: str, request: Request) -> NoReturn:
    full_name = request.family.type_name(entity_type)
    anew = "; delete the entity and create it anew" if name == "name" else ""
    raise BadRequestError(f"Attribute {name!r} of {full_name!r} cannot be updated{anew}")
