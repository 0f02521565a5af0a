"""Answers requests sent to `$management`.

Sans-IO: `ManagementAgent.handle` takes a decoded request and returns the encoded response, which the
caller sends, settled, to the request's reply-to. Operations, attribute names and status codes are those
of skupper-router 3.4.0, whose tools (skstat, skmanage) work against it; both its type prefix and
qpid-dispatch's are understood, and short names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from isthmus_router.config import edit
from isthmus_router.config.diff import diff
from isthmus_router.config.errors import ConfigError
from isthmus_router.config.model import Configuration
from isthmus_router.config.sources import Sources, SystemSources
from isthmus_router.core.roles import Role
from isthmus_router.management.entity_types import EntityType, entity_types, find_type
from isthmus_router.management.errors import (
    BadRequestError,
    ForbiddenError,
    ManagementError,
    NotFoundError,
    UnimplementedError,
)
from isthmus_router.management.port import (
    ActionRefusedError,
    ConnectionRow,
    ManagementActions,
    ManagementView,
)
from isthmus_router.management.schema import schema
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import Int

logger = logging.getLogger("isthmus_router.AGENT")

ROW_LIMIT = 1000
"""Most rows in one QUERY response, so that a large router stays responsive; ask for the rest by offset."""

_OWN_ATTRIBUTES = ("type", "identity")


class LogRecords(Protocol):
    """The most recent log records."""

    def recent(self, limit: int | None) -> Sequence[Sequence[object]]:
        """`[module, level, text, file, line, seconds since the epoch]` each, oldest first."""


class ManagementAgent:
    """Performs management operations on a router."""

    def __init__(
        self,
        view: ManagementView,
        actions: ManagementActions | None = None,
        *,
        log: LogRecords | None = None,
        sources: Sources | None = None,
    ) -> None:
        """Without `actions` the router is read-only; `sources` resolves secrets and certificate files."""
        self._view = view
        self._actions = actions
        self._log = log
        self._sources = sources or SystemSources()
        self._types = entity_types(view)
        self._may_close_connections = True
        """Whether the policy lets the requester do so."""
        self._operations: Mapping[str, Callable[[Message], tuple[int, object]]] = {
            "QUERY": self._query,
            "READ": self._read,
            "CREATE": self._create,
            "UPDATE": self._update,
            "DELETE": self._delete,
            "GET-TYPES": lambda request: (200, self._per_type(request, lambda _: [])),
            "GET-ANNOTATIONS": lambda request: (200, self._per_type(request, lambda _: [])),
            "GET-ATTRIBUTES": lambda request: (200, self._per_type(request, lambda t: list(t.columns))),
            "GET-OPERATIONS": lambda request: (200, self._per_type(request, lambda t: list(t.operations))),
            "GET-MGMT-NODES": lambda _: (200, self._management_nodes()),
            "GET-SCHEMA": lambda _: (200, schema(self._types)),
            "GET-JSON-SCHEMA": lambda _: (200, json.dumps(schema(self._types))),
            "GET-LOG": self._get_log,
        }

    def handle(self, request: Message, *, may_close_connections: bool = True) -> bytes | None:
        """The encoded response, or None when the request names no reply-to."""
        if not request.properties.reply_to:
            return None
        self._may_close_connections = may_close_connections
        body: object
        try:
            status, body = self._perform(request)
            description = {200: "OK", 201: "Created", 204: "No Content"}[status]
            return _response(request, status, description, body)
        except ManagementError as error:
            status, description = error.status, str(error)
        except Exception:
            logger.exception("management request failed")
            status, description = 500, "the request failed in the router; its log says why"
        return _response(request, status, description, {})

    def _perform(self, request: Message) -> tuple[int, object]:
        operation = request.application_properties.get("operation")
        if not isinstance(operation, str):
            raise BadRequestError("No operation: the application property 'operation' is missing")
        perform = self._operations.get(operation.upper())
        if not perform:
            raise UnimplementedError(f"Operation {operation!r} not implemented")
        return perform(request)

    # Reading

    def _query(self, request: Message) -> tuple[int, object]:
        offset, count = _paging(request)
        names = _asked_attributes(request.body)
        entity_type = self._type_asked(request, "entityType")
        if entity_type:
            types = [entity_type]
            unknown = [name for name in names if name not in entity_type.columns]
            if unknown and not entity_type.lenient:
                raise NotFoundError(f"Unknown attributes {unknown} for type {entity_type.full_name!r}")
        else:
            types = [t for t in self._types.values() if t.listed]
        names = names or list(dict.fromkeys(name for t in types for name in t.columns))
        rows = islice(self._rows(types, offset), count)
        results = [[_value(t, row, name) for name in names] for t, row in rows]
        return 200, {"attributeNames": names, "results": results}

    def _rows(self, types: Sequence[EntityType], offset: int) -> Iterator[tuple[EntityType, Any]]:
        if len(types) == 1:
            yield from ((types[0], row) for row in types[0].rows(self._view, offset))
        else:
            everything = ((t, row) for t in types for row in t.rows(self._view, 0))
            yield from islice(everything, offset, None)

    def _read(self, request: Message) -> tuple[int, object]:
        entity_type, row = self._find(request, "READ")
        return 200, entity_type.attributes_of(row)

    def _find(self, request: Message, operation: str) -> tuple[EntityType, Any]:
        """The entity a request is about, by identity or name."""
        entity_type = self._type_asked(request, "type")
        if entity_type:
            _check_operation(entity_type, operation)
        properties = request.application_properties
        key = "identity" if properties.get("identity") is not None else "name"
        wanted = properties.get(key)
        if wanted is None:
            raise BadRequestError("No name or identity provided")
        for found_type in [entity_type] if entity_type else self._types.values():
            column = found_type.columns.get(key)
            for row in found_type.rows(self._view, 0) if column else ():
                if column and column(row) == wanted:
                    _check_operation(found_type, operation)
                    return found_type, row
        of_type = f" of type {entity_type.full_name!r}" if entity_type else ""
        raise NotFoundError(f"No entity{of_type} with {key}={wanted!r}")

    def _type_asked(self, request: Message, key: str) -> EntityType | None:
        name = request.application_properties.get(key)
        if name is None or name == "":
            return None
        entity_type = find_type(self._types, name) if isinstance(name, str) else None
        if not entity_type:
            raise BadRequestError(f"No such entity type {name!r}")
        return entity_type

    def _per_type(self, request: Message, tell: Callable[[EntityType], object]) -> dict[str, object]:
        entity_type = self._type_asked(request, "entityType")
        types = [entity_type] if entity_type else self._types.values()
        return {t.full_name: tell(t) for t in types}

    def _management_nodes(self) -> list[str]:
        own = self._view.configuration.router.id
        others = [node.id for node in self._view.nodes() if node.id != own]
        return [f"amqp:/_topo/0/{router}/$management" for router in (own, *others)]

    def _get_log(self, request: Message) -> tuple[int, object]:
        limit = request.application_properties.get("limit")
        if limit is not None and not (isinstance(limit, int) and limit >= 0):
            raise BadRequestError(f"limit {limit!r} is not a number of records")
        records = self._log.recent(limit or None) if self._log else []
        return 200, [list(record) for record in records]

    # Changing

    def _create(self, request: Message) -> tuple[int, object]:
        self._check_changeable()
        entity_type = self._type_asked(request, "type")
        if not entity_type:
            raise BadRequestError("No type provided for CREATE")
        _check_operation(entity_type, "CREATE")
        section = entity_type.section
        assert section is not None
        attributes = _body_attributes(request)
        name = request.application_properties.get("name")
        if name is not None:
            attributes.setdefault("name", name)
        present = self._present()
        wanted = self._valid(lambda: edit.create(present, section, attributes, self._sources))
        self._apply(present, wanted)
        return 201, entity_type.attributes_of(entity_type.row_of(edit.entities_in(wanted, section)[-1]))

    def _update(self, request: Message) -> tuple[int, object]:
        self._check_changeable()
        entity_type, row = self._find(request, "UPDATE")
        attributes = _body_attributes(request)
        if isinstance(row, ConnectionRow):
            return 200, self._update_connection(entity_type, row, attributes)
        section = entity_type.section
        assert section is not None
        present = self._present()
        entity = _latest(entity_type, row, present)
        wanted = self._valid(lambda: edit.update(present, section, entity, attributes, self._sources))
        self._apply(present, wanted)
        return 200, entity_type.attributes_of(entity_type.row_of(edit.entities_in(wanted, section)[-1]))

    def _delete(self, request: Message) -> tuple[int, object]:
        self._check_changeable()
        entity_type, row = self._find(request, "DELETE")
        present = self._present()
        entity = _latest(entity_type, row, present)
        why_kept = entity_type.why_kept(entity)
        if why_kept is not None:
            name = entity_type.columns["name"](row)
            raise ForbiddenError(f"You are not allowed to delete {entity_type.name} {name!r}: {why_kept}")
        wanted = self._valid(lambda: edit.delete(present, entity, self._sources))
        self._apply(present, wanted)
        return 204, {}

    def _update_connection(
        self, entity_type: EntityType, row: ConnectionRow, attributes: Mapping[str, object]
    ) -> dict[str, object]:
        unknown = [name for name in attributes if name not in entity_type.columns]
        if unknown:
            raise BadRequestError(f"Unknown attribute {unknown[0]!r} for {entity_type.full_name!r}")
        fixed = [name for name in attributes if name != "adminStatus"]
        if fixed:
            raise BadRequestError(f"Attribute {fixed[0]!r} of {entity_type.full_name!r} cannot be updated")
        status = attributes.get("adminStatus", "enabled")
        if status not in ("enabled", "deleted"):
            raise BadRequestError(f"adminStatus {status!r} is not one of enabled, deleted")
        result = entity_type.attributes_of(row)
        if status == "deleted":
            if not self._may_close_connections:
                raise ForbiddenError(
                    "You are not allowed to delete connections: allowAdminStatusUpdate is not set"
                )
            if row.role in (Role.INTER_ROUTER, Role.INTER_ROUTER_DATA, Role.EDGE):
                raise ForbiddenError(f"You are not allowed to delete connections of role {row.role.label}")
            self._act(lambda actions: actions.close_connection(row.id))
            result["adminStatus"] = "deleted"
        return result

    def _check_changeable(self) -> None:
        if self._view.configuration.router.management_read_only:
            raise ForbiddenError("You are not allowed to change this router: managementReadOnly is set")

    def _present(self) -> Configuration:
        """What a change builds on."""
        return self._actions.wanted_configuration if self._actions else self._view.configuration

    def _valid(self, change: Callable[[], Configuration]) -> Configuration:
        try:
            return change()
        except ConfigError as error:
            raise BadRequestError("; ".join(p.text("") for p in error.problems)) from None

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


def _response(request: Message, status: int, description: str, body: object) -> bytes:
    properties = request.properties
    correlation_id = properties.correlation_id
    return encode_message(
        Message(
            properties=Properties(
                to=properties.reply_to,
                correlation_id=properties.message_id if correlation_id is None else correlation_id,
            ),
            application_properties={"statusCode": Int(status), "statusDescription": description},
            body=body,
        )
    )


def _value(entity_type: EntityType, row: object, name: str) -> object:
    read = entity_type.columns.get(name)
    return read(row) if read else None


def _check_operation(entity_type: EntityType, operation: str) -> None:
    if operation not in entity_type.operations:
        known = ", ".join(entity_type.operations)
        raise UnimplementedError(
            f"Operation {operation!r} not implemented for {entity_type.full_name!r} [{known}]"
        )


def _paging(request: Message) -> tuple[int, int]:
    values = []
    for key, default in (("offset", 0), ("count", ROW_LIMIT)):
        value = request.application_properties.get(key)
        if value is None:
            value = default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise BadRequestError(f"{key} {value!r} is not a number of rows")
        values.append(int(value))
    offset, count = values
    return offset, min(count, ROW_LIMIT)


def _asked_attributes(body: object) -> list[str]:
    names = body.get("attributeNames") if isinstance(body, dict) else None
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequestError("attributeNames is not a list of strings")
    return [str(name) for name in names]


def _body_attributes(request: Message) -> dict[str, object]:
    body = request.body
    if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
        raise BadRequestError("The body is not a map of attributes")
    return {str(key): value for key, value in body.items() if key not in _OWN_ATTRIBUTES}
