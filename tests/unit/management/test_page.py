"""The page about management lists every type with the operations that it has."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.management.conftest import CONF, SmallRouter

from isthmus_router.config import parse
from isthmus_router.management.entity_types import entity_types

PAGE = Path(__file__).parents[3] / "docs" / "management.md"


def test_types_and_operations_are_on_the_page() -> None:
    table = PAGE.read_text().partition("## Entity types")[2].partition("All can be queried")[0]
    told: dict[str, str] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if line.startswith("| `"):
            told.update(dict.fromkeys(re.findall(r"`([^`]+)`", cells[1]), cells[2]))
    types = entity_types(SmallRouter(parse(CONF, "A.conf")))
    assert told.pop("management") == "QUERY and GET-…"
    operations = {name: " ".join(t.operations) for name, t in types.items() if name != "management"}
    assert told == operations
