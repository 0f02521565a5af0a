"""Which configured pattern applies to an address."""

import pytest

from isthmus_router.core.patterns import PatternTree


def tree() -> PatternTree[str]:
    patterns: PatternTree[str] = PatternTree()
    patterns.add_prefix("a", "prefix a")
    patterns.add_prefix("a.b", "prefix a.b")
    patterns.add_pattern("a/*/c", "one between")
    patterns.add_pattern("#/last", "any before last")
    patterns.add_pattern("x.#.z", "any between x and z")
    return patterns


@pytest.mark.parametrize(
    ("address", "match"),
    [
        ("a", "prefix a"),
        ("a/q", "prefix a"),
        ("a.b", "prefix a.b"),
        ("a/b.c/d", "prefix a.b"),
        ("ab", None),
        ("a/q/c", "one between"),
        ("a/b/c", "prefix a.b"),
        ("deep/down/last", "any before last"),
        ("last", "any before last"),
        ("x/z", "any between x and z"),
        ("x/1/2/z", "any between x and z"),
        ("x/1/2", None),
        ("nothing", None),
    ],
)
def test_the_most_specific_match_wins(address: str, match: str | None) -> None:
    assert tree().find(address) == match


def test_without_patterns_nothing_matches() -> None:
    assert PatternTree[int]().find("a") is None
