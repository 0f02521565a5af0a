"""The page about the analysis has its tables as they are declared, and all findings there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from isthmus_flows import findings
from isthmus_flows.document import BEGIN, END, document
from isthmus_flows.tables import TABLES

PAGE = Path(__file__).parents[3] / "docs" / "flow-analysis.md"


def test_the_page_is_current() -> None:
    text = PAGE.read_text()
    assert document(text) == text, "out of date; run: make flow-analysis-page"


def test_what_is_around_the_tables_stays() -> None:
    made = document(f"before\n{BEGIN}old\n{END}after\n")
    assert made.startswith(f"before\n{BEGIN}")
    assert made.endswith(f"{END}after\n")
    assert "\nold\n" not in made
    for table in TABLES:
        assert f"### `{table.name}`" in made
        assert all(f"| `{column.name}` | {column.kind.value} |" in made for column in table.columns)


def test_a_page_without_a_place_for_them_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        document(f"only {END}")


def test_every_kind_of_finding_is_on_the_page() -> None:
    said = set(re.findall(r'^\s+"([a-z-]+)",$', Path(findings.__file__).read_text(), re.MULTILINE))
    assert {"stuck", "relay-dropped", "failed"} <= said
    table = PAGE.read_text().partition("| finding | when |")[2].partition("## Tables")[0]
    assert {kind for kind in said if f"`{kind}`" not in table} == set()
