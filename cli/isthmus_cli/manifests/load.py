"""From files to resources and Secrets, or to a list of everything that is wrong with them."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus_cli.errors import CliError
from isthmus_operator.model import SecretView
from isthmus_operator.names import nearest
from isthmus_operator.resources import InvalidResourceError, Resource, parse
from isthmus_operator.resources.base import API_VERSION, GROUP
from isthmus_operator.resources.kinds import KINDS
from isthmus_operator.resources.manifests import Problem
from isthmus_operator.resources.schema import structural_schema

from .document import Document, NotYamlError, documents
from .wording import in_words

_KINDS = {item.kind for item in KINDS}
_METADATA = ("name", "namespace", "labels", "annotations")


class ManifestError(CliError):
    """Files with mistakes. `problems` are complete sentences with file and line."""

    def __init__(self, problems: list[str]) -> None:
        count = f"{len(problems)} mistakes" if len(problems) > 1 else "a mistake"
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{count} in the files given; nothing was changed{lines}")
        self.problems = problems


@dataclass
class Manifests:
    """What the files say."""

    resources: list[Resource] = field(default_factory=list)
    secrets: list[SecretView] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Objects of other kinds, as `Deployment web (file.yaml:3)`."""
    namespace: str | None = None
    """The namespace that documents name, if any does."""


def load(names: Iterable[str]) -> Manifests:
    """Reads files, folders of `*.yaml` and `*.yml` files, and `-`, the standard input.

    Raises ManifestError with every problem found, not only the first.
    """
    reader = _Reader()
    for name in names:
        for file, text in reader.texts(name):
            reader.read(file, text)
    if reader.problems:
        raise ManifestError(reader.problems)
    return reader.result


class _Reader:
    def __init__(self) -> None:
        self.result = Manifests()
        self.problems: list[str] = []
        self._seen: dict[tuple[str, str], str] = {}

    def texts(self, name: str) -> Iterator[tuple[str, str]]:
        if name == "-":
            yield "<standard input>", sys.stdin.read()
            return
        path = Path(name)
        files = [path]
        if path.is_dir():
            files = sorted(item for item in path.iterdir() if item.suffix in {".yaml", ".yml"})
            if not files:
                self.problems.append(f"{name}: the folder has no .yaml file")
        for item in files:
            try:
                yield str(item), item.read_text(encoding="utf-8")
            except FileNotFoundError:
                self.problems.append(f"{item}: no such file")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
                self.problems.append(f"{item}: cannot be read: {reason}")

    def read(self, file: str, text: str) -> None:
        try:
            found = documents(file, text)
        except NotYamlError as error:
            self.problems.append(f"{file}:{error.line}: {error}")
            return
        for document in found:
            for line, key in document.repeated_keys():
                self.problems.append(f"{file}:{line}: document {document.number}: key {key!r} is there twice")
            for item in _items(document):
                self._take(item)

    def _take(self, document: Document) -> None:
        value = document.value
        if not isinstance(value, dict) or not isinstance(value.get("metadata", {}), dict):
            self._problem(document, (), "not an object with apiVersion, kind, metadata and spec")
            return
        metadata = value.get("metadata", {})
        kind, name = str(value.get("kind")), str(metadata.get("name"))
        group = str(value.get("apiVersion") or f"{GROUP}/")
        ours = group.startswith(f"{GROUP}/") and ("apiVersion" in value or kind in _KINDS)
        if not ours and kind != "Secret":
            self._skip(document, kind, name)
            return
        place = f"{document.file}:{document.line()}"
        if (earlier := self._seen.setdefault((kind, name), place)) != place:
            self._problem(document, ("metadata", "name"), f"this {kind} is already in {earlier}")
            return
        self._same_namespace(document, metadata.get("namespace"))
        if kind == "Secret":
            self._take_secret(document, name)
            return
        known = {key: metadata[key] for key in _METADATA if key in metadata}
        try:
            self.result.resources.append(parse({**value, "metadata": known}, strict=True))
        except InvalidResourceError as error:
            for problem in error.problems:
                self._problem(document, problem.path, _message(document, problem))

    def _take_secret(self, document: Document, name: str) -> None:
        data = {}
        for key, text in self._entries(document, "data"):
            try:
                data[key] = base64.b64decode(str(text), validate=True)
            except (binascii.Error, ValueError):
                self._problem(document, ("data", key), "not base64; plain text goes under stringData")
        for key, text in self._entries(document, "stringData"):
            data[key] = str(text).encode()
        self.result.secrets.append(SecretView(name, data))

    def _entries(self, document: Document, field: str) -> list[tuple[str, Any]]:
        entries = document.value.get(field) or {}
        if not isinstance(entries, dict):
            self._problem(document, (field,), "should be a map of names to values")
            return []
        return [(str(key), text) for key, text in entries.items()]

    def _same_namespace(self, document: Document, namespace: Any) -> None:
        if namespace is None:
            return
        if self.result.namespace is None:
            self.result.namespace = str(namespace)
        if self.result.namespace != namespace:
            message = f"{namespace!r} beside {self.result.namespace!r}: one network runs one namespace"
            self._problem(document, ("metadata", "namespace"), message)

    def _skip(self, document: Document, kind: str, name: str) -> None:
        if kind == "None":
            self._problem(
                document, (), f"has no kind; a resource begins with apiVersion: {API_VERSION}, kind:"
            )
        else:
            self.result.skipped.append(f"{kind} {name} ({document.file}:{document.line()})")

    def _problem(self, document: Document, path: tuple[str | int, ...], message: str) -> None:
        value = document.value
        who = f"document {document.number}"
        if isinstance(value, dict) and value.get("kind"):
            metadata = value.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            who += f", {value['kind']}" + (f' "{name}"' if name else "")
        where = str(Problem(path, "")).removesuffix(": ") if path else ""
        text = f"{document.file}:{document.line(path)}: {who}: " + (f"{where}: " if where else "") + message
        if text not in self.problems:
            self.problems.append(text)


def _items(document: Document) -> Iterator[Document]:
    """The document, or the items of a List as `kubectl get -o yaml` writes it."""
    value = document.value
    if isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list):
        for index in range(len(value["items"])):
            yield document.inner(("items", index))
    else:
        yield document


def _message(document: Document, problem: Problem) -> str:
    """What is wrong, and for an unknown field what is known there."""
    if not problem.unknown_field:
        return in_words(problem, document.value)
    known = _known_fields(str(document.value.get("kind")), problem.path[:-1])
    close = nearest(str(problem.path[-1]), known)
    if close is not None:
        return f"{problem.message}; did you mean {close}?"
    return problem.message + (f"; known here: {', '.join(sorted(known))}" if known else "")


def _known_fields(kind: str, path: Iterable[str | int]) -> list[str]:
    model = next((item.model for item in KINDS if item.kind == kind), None)
    schema: Mapping[str, Any] = structural_schema(model) if model else {}
    for step in path:
        inner = schema.get("items") if isinstance(step, int) else schema.get("properties", {}).get(step)
        schema = inner or {}
    return list(schema.get("properties", {}))
