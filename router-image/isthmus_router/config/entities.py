"""Sections checked one by one against the schema: names, types, required attributes."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from isthmus_router.config.attributes import Attribute, Section
from isthmus_router.config.convert import convert
from isthmus_router.config.errors import Problem
from isthmus_router.config.reading import RawSection
from isthmus_router.config.schema import SECTIONS, UNSUPPORTED_SECTIONS
from isthmus_router.config.sources import Sources, reason

_PREFIXES = ("io.skupper.router.", "org.apache.qpid.dispatch.")


_TITLES = {"log": "module", "vhost": "hostname", "relayRemote": "site", "relayAddress": "pattern"}
MOST_HINTS = 5
"""On unknown attributes of one section: to find what was meant takes time."""


@dataclass(slots=True)
class Entity:
    """A section whose attributes have their typed form; those not given have their default."""

    section: Section
    line: int | None
    values: dict[str, object] = field(default_factory=dict)
    lines: dict[str, int | None] = field(default_factory=dict)
    """Where each given attribute stands."""
    broken: set[str] = field(default_factory=set)
    """Attributes with a problem; nothing more is to be said about them."""
    digest: str = ""
    """SHA-256 over the contents of the files named by the attributes."""
    present: object = None
    """The typed form, if it is there already."""

    @property
    def title(self) -> str:
        """The section and the name given to it, for messages."""
        key = _TITLES.get(self.section.name, "name")
        name = self.values.get(key) if key in self.lines else None
        return f"{self.section.name} {name!r}" if isinstance(name, str) else self.section.name

    def problem(self, attribute: str | None, message: str) -> Problem:
        """A problem with an attribute, or with the whole section."""
        line = self.lines.get(attribute or "", self.line)
        return Problem(line, f"{self.title}, attribute {attribute}" if attribute else self.title, message)


@dataclass(slots=True)
class Checked:
    """The outcome of `check_sections`."""

    entities: list[Entity] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def section_named(name: str) -> Section | None:
    """The section with that name, short or full management type."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    section = SECTIONS.get(name)
    return section or next((s for s in SECTIONS.values() if s.short_type == name), None)


def check_sections(sections: Sequence[RawSection], sources: Sources | None) -> Checked:
    """Every section against the schema; goes on after problems."""
    checked = Checked()
    for raw in sections:
        section = section_named(raw.name)
        if section:
            check_section(section, raw, sources, checked)
        elif raw.name in UNSUPPORTED_SECTIONS:
            why = UNSUPPORTED_SECTIONS[raw.name]
            checked.problems.append(Problem(raw.line, f"section {raw.name}", f"not supported: {why}"))
        else:
            hint = suggestion(raw.name, SECTIONS, "sections")
            checked.problems.append(Problem(raw.line, "", f"unknown section {raw.name!r}; {hint}"))
    return checked


def suggestion(name: str, known: Collection[str], plural: str) -> str:
    """`did you mean …?`, or all that is known."""
    close = nearest(name, known, 0.6)
    return f"did you mean {close!r}?" if close is not None else f"{plural} are {', '.join(sorted(known))}"


def nearest(name: str, known: Collection[str], likeness: float = 0.8) -> str | None:
    """What is known by nearly the same name; `likeness` of 1 is the same."""
    lowered = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower()[:100], lowered, n=1, cutoff=likeness)
    return lowered[close[0]] if close else None


def check_section(section: Section, raw: RawSection, sources: Sources | None, checked: Checked) -> None:
    """Adds the entity of one section, and its problems and warnings, to `checked`."""
    entity = Entity(section, raw.line, {a.name: a.default for a in section.attributes} | dict(raw.base))
    checked.entities.append(entity)
    problems: list[tuple[str, str]] = []
    given: dict[str, Attribute] = {}
    for item in raw.attributes:
        attribute = section.attribute(item.name)
        name = attribute.name if attribute else item.name
        if name in given:
            problems.append((name, f"given twice{first_line(entity.lines[name])}"))
            entity.lines[name] = item.line
            continue
        entity.lines[name] = item.line
        if not attribute:
            hint = ""
            if len(problems) < MOST_HINTS:
                hint = f"; {suggestion(name, [a.name for a in section.attributes], 'attributes')}"
            problems.append((name, f"unknown{hint}"))
            continue
        given[name] = attribute
        try:
            in_file = item.name == attribute.file_alias and item.value
            entity.values[name] = convert(attribute, f"file:{item.value}" if in_file else item.value, sources)
        except ValueError as error:
            problems.append((name, str(error)))
    for attribute in section.attributes:
        if attribute.required and entity.values[attribute.name] in (None, "") and attribute.name not in given:
            choices = f": one of {', '.join(attribute.choices)}" if attribute.choices else ""
            problems.append((attribute.name, f"required and missing{choices}"))
    entity.broken.update(name for name, _ in problems)
    if sources:
        problems += _read_files(entity, sources)
    entity.broken.update(name for name, _ in problems)
    checked.problems += [entity.problem(name, message) for name, message in problems]
    if section.inert:
        checked.warnings.append(entity.problem(None, f"accepted, without effect: {section.inert}"))
    for name, attribute in given.items():
        if attribute.inert and entity.values[name] != attribute.default:
            checked.warnings.append(entity.problem(name, f"accepted, without effect: {attribute.inert}"))


def first_line(line: int | None) -> str:
    """Where the first of two was."""
    return "" if line is None else f", first in line {line}"


def _read_files(entity: Entity, sources: Sources) -> list[tuple[str, str]]:
    digest = hashlib.sha256()
    problems = []
    named = False
    for attribute in entity.section.attributes:
        name, path = attribute.name, entity.values[attribute.name]
        if not attribute.contents or not isinstance(path, str) or name in entity.broken:
            continue
        named = True
        try:
            contents = sources.read(path)
        except (OSError, ValueError) as error:
            problems.append((name, f"file {path!r} cannot be read: {reason(error)}"))
            continue
        digest.update(f"{name} {len(contents)} ".encode() + contents)
    entity.digest = digest.hexdigest() if named else ""
    return problems
