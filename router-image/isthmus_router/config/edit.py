"""Changes of single entities in a valid configuration, as management makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus_router.config.attributes import Section
from isthmus_router.config.entities import Checked, Entity, check_section
from isthmus_router.config.errors import ConfigError
from isthmus_router.config.loader import assemble, cross_problems
from isthmus_router.config.model import Configuration
from isthmus_router.config.reading import RawAttribute, RawSection
from isthmus_router.config.schema import SECTIONS
from isthmus_router.config.sources import Sources

ORIGIN = "management request"

_FIELDS: Mapping[str, str] = {
    "router": "router",
    "network": "network",
    "site": "site",
    "sslProfile": "ssl_profiles",
    "listener": "listeners",
    "connector": "connectors",
    "address": "addresses",
    "linkRoute": "link_routes",
    "autoLink": "auto_links",
    "policy": "policy",
    "vhost": "vhosts",
    "log": "logs",
}


def entities_in(configuration: Configuration, section: Section) -> tuple[Any, ...]:
    """The typed entities of one section."""
    found: Any = getattr(configuration, _FIELDS[section.name])
    if section.singleton:
        return (found,)
    return tuple(found.values()) if isinstance(found, Mapping) else tuple(found)


def create(
    configuration: Configuration, section: Section, attributes: Mapping[str, object], sources: Sources
) -> Configuration:
    """`configuration` with one more entity. ConfigError when that is not valid."""
    return _rebuilt(configuration, None, _raw(section, attributes), sources)


def update(
    configuration: Configuration,
    section: Section,
    entity: object,
    attributes: Mapping[str, object],
    sources: Sources,
) -> Configuration:
    """`configuration` with some attributes of one of its entities changed. Files are read again."""
    raw = _raw(section, attributes)
    raw.base = _values(section, entity)
    return _rebuilt(configuration, entity, raw, sources)


def delete(configuration: Configuration, entity: object, sources: Sources) -> Configuration:
    """`configuration` without one of its entities. ConfigError when another one refers to it.

    The entity is found by its value: no two are equal.
    """
    return _rebuilt(configuration, entity, None, sources)


def _rebuilt(
    configuration: Configuration, without: object, added: RawSection | None, sources: Sources
) -> Configuration:
    checked = Checked()
    for section in SECTIONS.values():
        for entity in entities_in(configuration, section):
            if entity != without:
                values = _values(section, entity)
                checked.entities.append(
                    Entity(section, None, values, digest=getattr(entity, "files_digest", ""))
                )
    if added:
        check_section(SECTIONS[added.name], added, sources, checked)
    problems = checked.problems or cross_problems(checked)
    if problems:
        raise ConfigError(ORIGIN, problems)
    return assemble(checked, config_hash=configuration.config_hash, warnings=configuration.warnings)


def _raw(section: Section, attributes: Mapping[str, object]) -> RawSection:
    return RawSection(section.name, None, [RawAttribute(name, value) for name, value in attributes.items()])


def _values(section: Section, entity: object) -> dict[str, object]:
    return {a.name: getattr(entity, a.field, a.default) for a in section.attributes}
