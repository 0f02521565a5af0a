"""Answers requests sent to `$management`.

Sans-IO: `ManagementAgent.handle` takes a decoded request and makes the encoded response in slices; the
caller goes on with other things between them, and sends the response, settled, to the request's reply-to.
Operations, attribute names and status codes are those of skupper-router 3.4.0, whose tools (skstat, skmanage) work
against it; both its type prefix and qpid-dispatch's are understood, and short names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol

from isthmus_router.config.sources import GuardedSources, Sources
from isthmus_router.core.address import Purpose, purpose
from isthmus_router.management.changes import Changer
from isthmus_router.management.entity_types import EntityType, entity_types
from isthmus_router.management.errors import ManagementError, UnimplementedError
from isthmus_router.management.family import Family
from isthmus_router.management.levels import check_level
from isthmus_router.management.port import ANYBODY, ManagementActions, ManagementView, Requester
from isthmus_router.management.query import ROWS_PER_SLICE, find, query
from isthmus_router.management.request import Request, Work
from isthmus_router.management.schema import schema
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.sections import LONGEST_ADDRESS_BYTES
from isthmus_router.message.types import Encoded, Int, encode

logger = logging.getLogger("AGENT")

DESCRIPTION_LENGTH = 2000
"""Of what is wrong with a request, in characters."""

_ONE_ENTITY = ("READ", "CREATE", "UPDATE")

_LOGGED = {
    "operation": "operation",
    "type": "type",
    "entityType": "type",
    "name": "entity",
    "identity": "entity",
}
"""Properties of a request and what the log calls them; its body may contain secrets."""

_DESCRIPTIONS = {200: "OK", 201: "Created", 204: "No Content"}


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
        self._log = log
        self._types = entity_types(view)
        self._schema: Encoded | None = None
        changer = Changer(view, actions, sources or GuardedSources(), self._types)
        self._operations: Mapping[str, Callable[[Request], Work]] = {
            "QUERY": lambda request: query(view, self._types, request),
            "READ": self._read,
            "CREATE": _at_once(changer.create),
            "UPDATE": changer.update,
            "DELETE": changer.delete,
            "GET-ANNOTATIONS": _at_once(lambda _: (200, {})),
            "GET-TYPES": self._per_type(lambda t, family: family.bases_of(t)),
            "GET-ATTRIBUTES": self._per_type(lambda t, _: list(t.columns)),
            "GET-OPERATIONS": self._per_type(lambda t, _: list(t.operations)),
            "GET-MGMT-NODES": _at_once(lambda _: (200, self._management_nodes())),
            "GET-SCHEMA": _at_once(lambda _: (200, self._encoded_schema())),
            "GET-JSON-SCHEMA": _at_once(lambda _: (200, json.dumps(schema(self._types)))),
            "GET-LOG": self._get_log,
        }

    def handle(self, message: Message, requester: Requester = ANYBODY) -> Generator[None, None, bytes | None]:
        """Perform a request, a slice at a time; returns the response, or None when there is no address for it.

        The router itself sends the response, so that it goes to no address that the requester may not use.
        """
        reply_to = message.properties.reply_to
        if not reply_to or len(reply_to) > LONGEST_ADDRESS_BYTES or purpose(reply_to) is not Purpose.CLIENTS:
            return None
        if requester.may_be_answered_at is not None and not requester.may_be_answered_at(reply_to):
            logger.info("response withheld", extra={"address": reply_to[:DESCRIPTION_LENGTH]})
            return None
        body: object = {}
        told = {
            shown: str(message.application_properties[name])[:DESCRIPTION_LENGTH]
            for name, shown in _LOGGED.items()
            if name in message.application_properties
        }
        logger.debug("request", extra=told)
        try:
            request = Request(message, self._types, requester)
            perform = self._operations.get(request.operation)
            if not perform:
                raise UnimplementedError(
                    f"Operation {message.application_properties['operation']!r} not implemented"
                )
            check_level(request)
            status, body = yield from perform(request)
            if request.operation in _ONE_ENTITY and isinstance(body, dict):
                body = _without_nulls(body, request.family)
            description = _DESCRIPTIONS[status]
            return _response(message, status, description, body)
        except ManagementError as error:
            status, description = error.status, str(error)[:DESCRIPTION_LENGTH]
            logger.info("request refused", extra={**told, "status": status, "reason": description})
        except Exception:
            logger.exception("management request failed")
            status, description = 500, "the request failed in the router; its log says why"
        return _response(message, status, description, {})

    def _read(self, request: Request) -> Work:
        entity_type, row = yield from find(self._view, self._types, request, "READ")
        return 200, request.family.attributes_of(entity_type, row)

    def _per_type(self, tell: Callable[[EntityType, Family], object]) -> Callable[[Request], Work]:
        def per_type(request: Request) -> tuple[int, object]:
            entity_type = request.type_asked("entityType")
            types = [entity_type] if entity_type else self._types.values()
            return 200, {request.family.type_name(t): tell(t, request.family) for t in types}

        return _at_once(per_type)

    def _management_nodes(self) -> list[str]:
        own = self._view.configuration.router.id
        others = [node.id for node in self._view.nodes() if node.id != own]
        return [f"amqp:/_topo/0/{router}/$management" for router in (own, *others)]

    def _encoded_schema(self) -> Encoded:
        """It never changes, and takes milliseconds to encode."""
        if self._schema is None:
            self._schema = Encoded(encode(schema(self._types)))
        return self._schema

    def _get_log(self, request: Request) -> Work:
        records: list[Encoded] = []
        limit = request.limit
        for record in self._log.recent(limit) if self._log else ():
            records.append(Encoded(encode(list(record))))
            if len(records) % ROWS_PER_SLICE == 0:
                yield
        return 200, records


def _at_once(perform: Callable[[Request], tuple[int, object]]) -> Callable[[Request], Work]:
    """An operation that takes little time."""

    def work(request: Request) -> Work:
        yield from ()
        return perform(request)

    return work


def _without_nulls(entity: Mapping[str, object], family: Family) -> Mapping[str, object]:
    """What one entity is told as, in the manner of skupper-router: of the types `router.…` nulls are told, too."""
    if str(entity.get("type")).startswith(f"{family.prefix}router."):
        return entity
    return {name: value for name, value in entity.items() if value is not None}


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
