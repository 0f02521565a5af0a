"""The reference page is what the schema says."""

from __future__ import annotations

from pathlib import Path

from isthmus_flowlog.document import page
from isthmus_flowlog.schema import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "flow-schema.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "out of date; run: make flow-schema-page"


def test_every_column_is_on_the_page() -> None:
    text = page()
    for table in TABLES:
        assert f"## `{table.name}`" in text
        assert all(f"| `{column.name}` |" in text for column in table.columns)
