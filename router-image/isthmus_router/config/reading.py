"""From text to sections with positions, for both forms of a configuration file.

`.conf` text has `section {`, one `attribute: value` per line, and `}`. JSON is a list of
`[section, {attribute: value}]` pairs. Nothing is known here about which sections and attributes exist.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from isthmus_router.config.errors import Problem

MAX_TEXT = 16 * 1024 * 1024
"""Greatest configuration accepted, in characters."""

MAX_DEPTH = 10
"""Of maps in maps, in `.conf` text."""


@dataclass(frozen=True, slots=True)
class RawAttribute:
    """An attribute as written: a string from `.conf`, any JSON value from JSON."""

    name: str
    value: object
    line: int | None = None


@dataclass(slots=True)
class RawSection:
    """A section as written."""

    name: str
    line: int | None = None
    attributes: list[RawAttribute] = field(default_factory=list)
    base: Mapping[str, object] = field(default_factory=dict)
    """Typed values of attributes that are not given; an existing entity that is being changed."""


def read(text: str, keeps_hash: Collection[str]) -> tuple[list[RawSection], list[Problem]]:
    """Sections of `text`, and what could not be understood.

    `keeps_hash` names the attributes whose values may contain `#` in `.conf` text.
    """
    if len(text) > MAX_TEXT:
        return [], [Problem(None, "", f"the file is larger than {MAX_TEXT} characters")]
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if _looks_like_json(text):
        return _JsonReader(text).read()
    return _ConfReader(text, keeps_hash).read()


def camel_case(name: str) -> str:
    """`max-frame-size` and `max_frame_size` become `maxFrameSize`."""
    first, *rest = [part for part in re.split(r"[-_]", name) if part] or [name]
    return first + "".join(part[0].upper() + part[1:] for part in rest)


def _looks_like_json(text: str) -> bool:
    for line in text.split("\n"):
        line = line.strip()
        if line and not line.startswith("#"):
            return line.startswith("[")
    return False


class _ConfReader:
    """Reads `.conf` text line by line, going on after errors."""

    SECTION = re.compile(r"([\w.-]+)\s*\{\s*(?:#.*)?$")
    ATTRIBUTE = re.compile(r"([\w-]+)\s*:\s*(.*)$")
    ENTRY = re.compile(r"([\w$@.-]+)\s*:\s*(.*)$")
    """A line of a nested map."""
    STRING_OR_SPARE_COMMA = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[\]}])')

    def __init__(self, text: str, keeps_hash: Collection[str]) -> None:
        self.lines = text.split("\n")
        self.keeps_hash = keeps_hash
        self.sections: list[RawSection] = []
        self.problems: list[Problem] = []
        self.next = 0

    def read(self) -> tuple[list[RawSection], list[Problem]]:
        current: RawSection | None = None
        while self.next < len(self.lines):
            number, line = self.next + 1, self.lines[self.next].strip()
            self.next += 1
            if not line or line.startswith("#"):
                continue
            if opening := self.SECTION.match(line):
                if current:
                    self.problem(
                        number, f"section {current.name!r} of line {current.line} is not closed by '}}'"
                    )
                current = RawSection(camel_case(opening[1]), number)
                self.sections.append(current)
            elif line.split("#")[0].strip() == "}":
                if not current:
                    self.problem(number, "'}' without a section to close")
                current = None
            elif attribute := self.ATTRIBUTE.match(line):
                raw = self.attribute(attribute[1], attribute[2], number)
                if current:
                    current.attributes.append(raw)
                else:
                    self.problem(number, f"attribute {raw.name!r} stands outside a section")
            else:
                expected = "'attribute: value' or '}'" if current else "'section {' alone on its line"
                self.problem(number, f"expected {expected}, found {_shortened(line)}")
        if current:
            self.problem(current.line, f"section {current.name!r} is not closed by '}}'")
        return self.sections, self.problems

    def attribute(self, name: str, value: str, number: int) -> RawAttribute:
        name = camel_case(name)
        if value.startswith("{"):
            return RawAttribute(name, self.nested(number), number)
        if name in self.keeps_hash:
            words = value.split()
            return RawAttribute(name, words[0] if words else "", number)
        return RawAttribute(name, value.partition("#")[0].strip(), number)

    def nested(self, number: int) -> object:
        """The map whose `{` is in line `number`: a JSON object, or `key: value` lines up to `}`."""
        rest = self.lines[number - 1 :]
        rest[0] = rest[0][rest[0].index("{") :]
        source = "\n".join("" if line.lstrip().startswith("#") else line for line in rest)
        source = self.STRING_OR_SPARE_COMMA.sub(lambda found: found[1] or "", source)
        try:
            value, end = _JSON.raw_decode(source)
        except (ValueError, RecursionError) as error:
            if rest[0].split("#")[0].strip() == "{" and (plain := self.plain_map(number)) is not None:
                values, self.next = plain
                return values
            self.problem(number, f"not a JSON object: {error}")
            self.skip_braces(number)
            return None
        last_line_rest = source[end:].split("\n")[0].strip()
        if last_line_rest and not last_line_rest.startswith("#"):
            self.problem(
                number + source.count("\n", 0, end),
                f"unexpected {_shortened(last_line_rest)} after the JSON object",
            )
        self.next = number + source.count("\n", 0, end)
        return value

    def plain_map(self, number: int, depth: int = 0) -> tuple[dict[str, object], int] | None:
        """The `key: value` lines after line `number` up to `}`, maps among them, and the line after; None if not so."""
        values: dict[str, object] = {}
        at = number
        while at < len(self.lines):
            line = self.lines[at].strip()
            at += 1
            entry = None if line.startswith("#") else self.ENTRY.match(line)
            if entry and entry[1] not in values:
                key, value = entry[1], entry[2]
                if key not in self.keeps_hash:
                    value = value.partition("#")[0]
                if value.strip() == "{":
                    inner = self.plain_map(at, depth + 1) if depth < MAX_DEPTH else None
                    if inner is None:
                        return None
                    values[key], at = inner
                elif value.startswith("{"):
                    return None
                else:
                    values[key] = value.strip()
            elif line.split("#")[0].strip() == "}":
                return values, at
            elif line and not line.startswith("#"):
                return None
        return None

    def skip_braces(self, number: int) -> None:
        """Go on after the `}` that balances the first `{` of line `number`, or with the next line."""
        depth = 0
        for index in range(number - 1, len(self.lines)):
            depth += self.lines[index].count("{") - self.lines[index].count("}")
            if depth <= 0:
                self.next = index + 1
                return

    def problem(self, line: int | None, message: str) -> None:
        self.problems.append(Problem(line, "", message))


class _SyntaxError(Exception):
    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position
        self.message = message


class _JsonReader:
    """Reads the two outer levels itself, for the positions; values are left to `json`."""

    SPACE = re.compile(r"[ \t\n\r]*")

    def __init__(self, text: str) -> None:
        lines = ["" if line.lstrip().startswith("#") else line for line in text.split("\n")]
        self.text = "\n".join(lines)
        self.line_starts = [0]
        for line in lines:
            self.line_starts.append(self.line_starts[-1] + len(line) + 1)
        self.at = 0
        self.sections: list[RawSection] = []

    def read(self) -> tuple[list[RawSection], list[Problem]]:
        try:
            self.list_of_sections()
        except _SyntaxError as error:
            return self.sections, [Problem(self.line_of(error.position), "", error.message)]
        return self.sections, []

    def list_of_sections(self) -> None:
        self.expect("[", "a list of [section, {attributes}] pairs")
        if not self.accept("]"):
            while True:
                self.section()
                if not self.accept(","):
                    break
            self.expect("]", "',' or ']'")
        self.skip_space()
        if self.at < len(self.text):
            raise _SyntaxError(self.at, f"unexpected {self.here()} after the list of sections")

    def section(self) -> None:
        self.expect("[", "a pair [section, {attributes}]")
        start = self.at
        section = RawSection(camel_case(self.string("the name of a section")), self.line_of(start))
        self.sections.append(section)
        if self.accept(","):
            self.expect("{", "an object of attributes")
            if not self.accept("}"):
                while True:
                    self.attribute(section)
                    if not self.accept(","):
                        break
                self.expect("}", "',' or '}'")
        self.expect("]", "']'")

    def attribute(self, section: RawSection) -> None:
        self.skip_space()
        line = self.line_of(self.at)
        name = camel_case(self.string("the name of an attribute"))
        self.expect(":", "':'")
        section.attributes.append(RawAttribute(name, self.value("a value"), line))

    def string(self, expected: str) -> str:
        value = self.value(expected)
        if not isinstance(value, str):
            raise _SyntaxError(self.at, f"expected {expected}, found {_shortened(value)}")
        return value

    def value(self, expected: str) -> object:
        self.skip_space()
        try:
            value, self.at = _JSON.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            if error.pos == self.at:
                raise _SyntaxError(self.at, f"expected {expected}, found {self.here()}") from None
            raise _SyntaxError(error.pos, f"invalid JSON: {error.msg}") from None
        except (ValueError, RecursionError) as error:
            raise _SyntaxError(self.at, f"invalid JSON value: {error}") from None
        result: object = value
        return result

    def accept(self, character: str) -> bool:
        self.skip_space()
        if self.text.startswith(character, self.at):
            self.at += 1
            return True
        return False

    def expect(self, character: str, expected: str) -> None:
        if not self.accept(character):
            raise _SyntaxError(self.at, f"expected {expected}, found {self.here()}")

    def skip_space(self) -> None:
        match = self.SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def here(self) -> str:
        rest = self.text[self.at : self.at + 30].split("\n")[0]
        return _shortened(rest) if rest else "the end"

    def line_of(self, position: int) -> int:
        return bisect_right(self.line_starts, position)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
