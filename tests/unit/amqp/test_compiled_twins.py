"""Compiled functions name what they do as Python does it (As `Link.load`.): there is such a function."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import isthmus_router

SOURCES = Path(isthmus_router.__file__).parent


def functions() -> set[str]:
    """All of the router in Python, as `Class.method` or `module.function`."""
    found = set()
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef | ast.Module):
                owner = node.name if isinstance(node, ast.ClassDef) else file.stem
                found |= {f"{owner}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return found


def test_every_twin_is_there() -> None:
    compiled = [file for kind in ("*.pyx", "*.pxd", "*.pxi") for file in (SOURCES / "amqp").rglob(kind)]
    pattern = re.compile(r'"""As `(?:\w+\.)*?(\w+\.\w+)`')
    named = {(file.name, name) for file in compiled for name in pattern.findall(file.read_text())}
    assert len(named) > 10
    known = functions()
    assert [twin for twin in sorted(named) if twin[1] not in known] == []
