"""What a request asks for, read from its properties and body."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from sys import maxsize
from typing import TypeAlias

from isthmus_router.management.entity_types import EntityType, find_type
from isthmus_router.management.errors import BadRequestError
from isthmus_router.management.family import Family, family_of
from isthmus_router.management.port import ANYBODY, Requester
from isthmus_router.message.control import Message

Work: TypeAlias = Generator[None, None, tuple[int, object]]
"""A request under way: yields after each slice, returns status and body of the response."""

MOST_ATTRIBUTES = 100
"""In the body of one request."""

_OWN_ATTRIBUTES = ("type", "identity")


class Request:
    """One request."""

    def __init__(
        self, message: Message, types: Mapping[str, EntityType], requester: Requester = ANYBODY
    ) -> None:
        self._message = message
        self._types = types
        self.requester = requester
        self.properties = message.application_properties

    @property
    def operation(self) -> str:
        """In capitals."""
        operation = self.properties.get("operation")
        if not isinstance(operation, str):
            raise BadRequestError("No operation: the application property 'operation' is missing")
        return operation.upper()

    @property
    def family(self) -> Family:
        """The family of type names that the client uses."""
        return family_of(self.properties.get("entityType") or self.properties.get("type"))

    def type_asked(self, key: str) -> EntityType | None:
        """The type in the application property `key`; None when there is none."""
        name = self.properties.get(key)
        if name is None or name == "":
            return None
        entity_type = find_type(self._types, name) if isinstance(name, str) else None
        if not entity_type:
            raise BadRequestError(f"No such entity type {name!r}")
        return entity_type

    @property
    def type_queried(self) -> EntityType | None:
        """The type of a QUERY, which many clients put into `type`, the place of the agent's own; None: all types."""
        entity_type = self.type_asked("entityType")
        if entity_type is None:
            entity_type = self.type_asked("type")
            if entity_type is self._types["management"]:
                return None
        return entity_type

    @property
    def key(self) -> tuple[str, object]:
        """By which attribute, `identity` or `name`, one entity is meant, and its value."""
        key = "identity" if self.properties.get("identity") is not None else "name"
        wanted = self.properties.get(key)
        if wanted is None:
            raise BadRequestError("No name or identity provided")
        return key, wanted

    @property
    def paging(self) -> tuple[int, int | None]:
        """Offset, and the most rows; None: all."""
        offset, count = (self.properties.get(key) for key in ("offset", "count"))
        return (
            0 if offset is None else _number("offset", offset, "rows"),
            None if count is None else _number("count", count, "rows"),
        )

    @property
    def attribute_names(self) -> list[str]:
        """The columns asked for; empty: all."""
        body = self._message.body
        names = body.get("attributeNames") if isinstance(body, dict) else None
        if names is None:
            return []
        if isinstance(names, list) and len(names) > MOST_ATTRIBUTES:
            raise BadRequestError(
                f"attributeNames has {len(names)} names: no entity has more than {MOST_ATTRIBUTES}"
            )
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BadRequestError("attributeNames is not a list of strings")
        return [str(name) for name in names]

    @property
    def attributes(self) -> dict[str, object]:
        """The attributes in the body of a CREATE or UPDATE."""
        body = self._message.body
        if isinstance(body, dict) and len(body) > MOST_ATTRIBUTES:
            raise BadRequestError(
                f"The body has {len(body)} attributes: no entity has more than {MOST_ATTRIBUTES}"
            )
        if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
            raise BadRequestError("The body is not a map of attributes")
        return {str(key): value for key, value in body.items() if key not in _OWN_ATTRIBUTES}

    @property
    def limit(self) -> int | None:
        """Most log records; None: all that are kept."""
        limit = self.properties.get("limit")
        return None if limit is None else _number("limit", limit, "records") or None


def _number(key: str, value: object, what: str) -> int:
    """A number, which skmanage writes as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadRequestError(f"{key} {value!r} is not a number of {what}")
    if value > maxsize:
        raise BadRequestError(f"{key} {int(value)} is more than {maxsize} {what}")
    return int(value)
