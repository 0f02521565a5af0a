"""One YAML document with the line of each of its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import yaml

# PyYAML reads `on`, `off`, `yes` and `no` as booleans, as Kubernetes does; a date, which has no place in
# a manifest, would become an object that is not JSON.
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Safe loading of JSON values only."""

    yaml_constructors: ClassVar[dict[Any, Any]] = {
        **yaml.SafeLoader.yaml_constructors,
        _TIMESTAMP: yaml.SafeLoader.construct_yaml_str,
    }


class NotYamlError(ValueError):
    """Text that is not YAML, with the line where reading stopped (from 1)."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Document:
    """A document of a file: its value and where it stands."""

    file: str
    number: int
    """Position in the file, from 1."""
    value: Any
    node: yaml.Node

    def line(self, path: Sequence[str | int] = ()) -> int:
        """Line, from 1, of the part at `path`, or of the nearest part above it that is there."""
        node, line = self.node, _line(self.node)
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            node, line = found
        return line

    def inner(self, path: Sequence[str | int]) -> Document:
        """The part at `path`, which must be there, as a document of its own."""
        value, node = self.value, self.node
        for step in path:
            found = _child(node, step)
            assert found is not None, f"no {step!r} in {self.file}"
            value, node = value[step], found[0]
        return Document(self.file, self.number, value, node)

    def repeated_keys(self) -> Iterator[tuple[int, str]]:
        """Line and name of each mapping key that is there twice; YAML forbids it, PyYAML takes the last."""
        pending = [self.node]
        while pending:
            node = pending.pop()
            if isinstance(node, yaml.SequenceNode):
                pending += node.value
            elif isinstance(node, yaml.MappingNode):
                seen = set()
                for key, child in node.value:
                    if key.value in seen:
                        yield _line(key), str(key.value)
                    seen.add(key.value)
                    pending.append(child)


def documents(file: str, text: str) -> list[Document]:
    """The documents in `text` that are not empty. Raises NotYamlError."""
    found = []
    try:
        loader = _Loader(text)
        number = 0
        while loader.check_node():
            number += 1
            node = loader.get_node()
            assert node is not None
            value = loader.construct_document(node)
            if value is not None:
                found.append(Document(file, number, value, node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.context, error.problem) if part]
        message = ", ".join(parts) or "not YAML"
        if "\\t" in message:
            message = "a tab is used for indentation; YAML wants spaces"
        raise NotYamlError(mark.line + 1 if mark else 1, message) from None
    except yaml.YAMLError as error:
        raise NotYamlError(1, re.sub(r"\s+", " ", str(error))) from None
    return found


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if key.value == step:
                return child, _line(key)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], _line(node.value[step])
    return None
