"""Links between the pages, and the files of the repository that they name, exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
_CODE = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)`")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def text_of(page: Path) -> str:
    """The page without its blocks of code."""
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> Iterator[str]:
    """The anchors that GitHub gives to the headings of a page."""
    seen: dict[str, int] = {}
    for heading in _HEADING.findall(text_of(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        yield f"{anchor}-{count}" if count else anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for link in _LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        exists = target.exists()
        if not exists or (anchor and target.suffix == ".md" and anchor not in set(anchors(target))):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tests_that_a_page_names_exist(page: Path) -> None:
    named = _NAMED_TEST.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_security_test_is_on_the_page_about_attacks() -> None:
    page = (ROOT / "docs" / "security-tests.md").read_text(encoding="utf-8")
    files = sorted(path.name for path in (ROOT / "tests" / "security").glob("test_*.py"))
    assert [name for name in files if name not in page] == []
