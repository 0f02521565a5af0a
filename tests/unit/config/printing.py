"""Writes configurations in both forms of the file, from `[section, {attribute: value}]` pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence

Pairs = Sequence[tuple[str, dict[str, object]]]


def as_json(pairs: Pairs) -> str:
    return json.dumps([[name, attributes] for name, attributes in pairs], indent=2)


def as_conf(pairs: Pairs) -> str:
    lines = []
    for name, attributes in pairs:
        lines.append(f"{name} {{")
        for attribute, value in attributes.items():
            if isinstance(value, dict):
                text = json.dumps(value, indent=4)
            elif isinstance(value, bool):
                text = "yes" if value else "no"
            else:
                text = str(value)
            lines.append(f"    {attribute}: {text}")
        lines.append("}")
    return "\n".join(lines) + "\n"
