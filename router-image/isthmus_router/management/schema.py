"""The answer to GET-SCHEMA, from the configuration schema and the entity types."""

from __future__ import annotations

from collections.abc import Mapping

from isthmus_router.config.attributes import Attribute, Kind, Update
from isthmus_router.core.roles import Role
from isthmus_router.management.columns import PREFIX
from isthmus_router.management.entity_types import EntityType


def schema(types: Mapping[str, EntityType]) -> dict[str, object]:
    """All entity types with their attributes and operations."""
    return {
        "prefix": PREFIX.removesuffix("."),
        "description": "Entities managed by the router.",
        "annotations": {},
        "entityTypes": {entity_type.name: _entity_type(entity_type) for entity_type in types.values()},
    }


def _entity_type(entity_type: EntityType) -> dict[str, object]:
    section = entity_type.section or entity_type.schema_of
    return {
        "description": entity_type.description,
        "operations": list(entity_type.operations),
        "attributes": {
            name: _attribute(section.attribute(name) if section else None) for name in entity_type.columns
        },
        "singleton": bool(entity_type.section and entity_type.section.singleton),
        "fullyQualifiedType": entity_type.full_name,
        "deprecated": False,
    }


def _attribute(attribute: Attribute | None) -> dict[str, object]:
    if not attribute:
        return {"type": "string", "required": False}
    shown: dict[str, object] = {
        "type": list(attribute.choices) if attribute.kind is Kind.ENUM else _TYPES[attribute.kind],
        "description": attribute.description,
        "required": attribute.required,
        "create": True,
        "update": attribute.update is Update.LIVE,
    }
    default = attribute.default
    if default is not None:
        shown["default"] = _plain(default)
    return shown


def _plain(default: object) -> object:
    if isinstance(default, Role):
        return default.label
    if isinstance(default, tuple):
        return ", ".join(default)
    return str(default) if isinstance(default, str) else default


_TYPES: Mapping[Kind, str] = {
    Kind.STRING: "string",
    Kind.INTEGER: "integer",
    Kind.BOOLEAN: "boolean",
    Kind.PORT: "string",
    Kind.PATH: "path",
    Kind.SECRET: "string",
    Kind.WORDS: "string",
    Kind.LIST: "string",
    Kind.ENDPOINTS: "string",
    Kind.MAP: "map",
    Kind.GROUPS: "map",
}
