"""The images of operator and collector have only a part of the router's modules: all that their own import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.test_image_dependencies import ROOT, logical_lines

SOURCES = ROOT / "router-image"


def copied(containerfile: Path) -> Iterator[Path]:
    """Files and folders of the tree that are in the image."""
    for line in logical_lines(containerfile):
        words = line.split()
        if words[0] == "COPY" and not words[1].startswith("--"):
            yield from (ROOT / word for word in words[1:-1])


def imported(file: Path) -> Iterator[Path]:
    """Files of the router's modules that `file` imports by their full names or relatively."""
    package = file.parent.relative_to(SOURCES).parts if file.is_relative_to(SOURCES) else ()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = [*above, *(node.module.split(".") if node.module else ())]
            names = [base, *([*base, item.name] for item in node.names)]
        elif isinstance(node, ast.Import):
            names = [item.name.split(".") for item in node.names]
        else:
            continue
        for parts in names:
            if parts[:1] == ["isthmus_router"]:
                path = SOURCES.joinpath(*parts)
                yield from (
                    item for item in (path.with_suffix(".py"), path / "__init__.py") if item.is_file()
                )


@pytest.mark.parametrize("image", ["operator", "flow-log"])
def test_an_image_has_the_modules_that_its_own_import(image: str) -> None:
    there = list(copied(ROOT / image / "Containerfile"))
    waiting = [
        file
        for place in there
        if place.is_dir() and place.is_relative_to(ROOT / image)
        for file in place.rglob("*.py")
    ]
    seen = set(waiting)
    assert seen
    missing = set()
    while waiting:
        for file in imported(waiting.pop()):
            if file not in seen:
                seen.add(file)
                waiting.append(file)
                if not any(file.is_relative_to(place) for place in there):
                    missing.add(str(file.relative_to(ROOT)))
    assert sorted(missing) == []
