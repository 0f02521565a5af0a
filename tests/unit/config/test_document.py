"""The reference page is what the schema says."""

from __future__ import annotations

from pathlib import Path

from isthmus_router.config.document import page
from isthmus_router.config.schema import SECTIONS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_current() -> None:
    command = "python -m isthmus_router.config.document > docs/configuration.md"
    assert PAGE.read_text() == page(), f"out of date; run: {command}"


def test_every_attribute_is_on_the_page() -> None:
    text = page()
    for section in SECTIONS.values():
        assert f"### `{section.name}`" in text
        assert all(f"`{attribute.name}`" in text for attribute in section.attributes)
