"""Changes of single entities in a valid configuration, as management makes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from isthmus_router.config.attributes import Section
from isthmus_router.config.diff import KEYS
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
    "relaySite": "relay_site",
    "relayRemote": "relay_remotes",
    "relayAddress": "relay_addresses",
    "policy": "policy",
    "vhost": "vhosts",
    "log": "logs",
}


def entities_in(configuration: Configuration, section: Section) -> tuple[Any, ...]:
    """The typed entities of one section."""
    found: Any = getattr(configuration, _FIELDS[section.name])
    if section.singleton:
        return () if found is None else (found,)
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


def made_here(present: Configuration, file: Configuration) -> list[tuple[Section, object]]:
    """What is in `present` and not in the `file` that it began with, by key: made by management."""
    found: list[tuple[Section, object]] = []
    for name, key in KEYS.items():
        section = SECTIONS[name]
        known = {key(entity) for entity in entities_in(file, section)}
        found += [(section, entity) for entity in entities_in(present, section) if key(entity) not in known]
    return found


def with_entities(
    file: Configuration, made: Sequence[tuple[Section, object]]
) -> tuple[Configuration, list[ConfigError]]:
    """What a new `file` and the entities that management `made` come to.

    The file comes first: of two with the same key its own stays, and one that does not go with it is left out; the
    errors say which and why.
    """
    known = {
        name: {key(entity) for entity in entities_in(file, SECTIONS[name])} for name, key in KEYS.items()
    }
    made = [(s, entity) for s, entity in made if KEYS[s.name](entity) not in known[s.name]]
    try:
        return _assembled(file, made), []
    except ConfigError:
        errors = []
        for entity in made:
            try:
                file = _assembled(file, [entity])
            except ConfigError as error:
                errors.append(error)
        return file, errors


def _assembled(configuration: Configuration, more: Sequence[tuple[Section, object]]) -> Configuration:
    return _finished(_checked([*_entities(configuration), *more]), configuration) if more else configuration


def _rebuilt(
    configuration: Configuration, without: object, added: RawSection | None, sources: Sources
) -> Configuration:
    checked = _checked(pair for pair in _entities(configuration) if pair[1] != without)
    if added:
        check_section(SECTIONS[added.name], added, sources, checked)
    return _finished(checked, configuration)


def _entities(configuration: Configuration) -> Iterator[tuple[Section, Any]]:
    for section in SECTIONS.values():
        for entity in entities_in(configuration, section):
            yield section, entity


def _checked(entities: Iterable[tuple[Section, object]]) -> Checked:
    checked = Checked()
    for section, entity in entities:
        digest = getattr(entity, "files_digest", "")
        values = _values(section, entity)
        lines: dict[str, int | None] = {key: None for key in ("name", "module") if values.get(key)}
        checked.entities.append(Entity(section, None, values, lines, digest=digest, present=entity))
    return checked


def _finished(checked: Checked, configuration: Configuration) -> Configuration:
    problems = checked.problems or cross_problems(checked)
    if problems:
        raise ConfigError(ORIGIN, problems)
    return assemble(checked, config_hash=configuration.config_hash, warnings=configuration.warnings)


def _raw(section: Section, attributes: Mapping[str, object]) -> RawSection:
    return RawSection(section.name, None, [RawAttribute(name, value) for name, value in attributes.items()])


def _values(section: Section, entity: object) -> dict[str, object]:
    return {a.name: getattr(entity, a.field, a.default) for a in section.attributes}
