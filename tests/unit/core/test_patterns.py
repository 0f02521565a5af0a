"""Which configured pattern applies to an address."""

from __future__ import annotations

import itertools
import time

import pytest

from isthmus_router.core.patterns import PatternTree, TooManyPatternsError
from isthmus_router.policy.addresses import AddressEntries


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


@pytest.mark.parametrize("find", ["treatment", "policy"])
def test_many_wildcards_and_a_long_address_take_no_long_time(find: str) -> None:
    """What begins to match in many places and nowhere does would be tried in all combinations of them."""
    pattern, address = "a.#.b.#.c.#.d", ".".join("a" + "b" * 4000 + "c" * 4000)
    started = time.process_time()
    if find == "treatment":
        tree: PatternTree[int] = PatternTree()
        tree.add_pattern(pattern, 1)
        assert tree.find(address) is None
        assert tree.find(f"{address}.d") == 1
    else:
        rules = AddressEntries([pattern], patterns=True).of("user")
        assert not rules.allows(address)
        assert rules.allows(f"{address}.d")
    assert time.process_time() - started < 0.5


def test_any_number_of_tokens_at_the_end_matches_without_a_look_at_them() -> None:
    """What an address costs must not grow with its tokens beyond the one pass that splits it."""
    patterns: PatternTree[str] = PatternTree()
    patterns.add_prefix("multicast", "prefix")
    address = "multicast" + "/a" * 30_000
    start = time.process_time()
    for _ in range(10):
        assert patterns.find(address) == "prefix"
    assert time.process_time() - start < 0.2, "seconds for ten"


def test_a_bounded_search_of_patterns_that_all_begin_like_the_address_ends_early() -> None:
    patterns: PatternTree[int] = PatternTree()
    for tokens in itertools.product("q*#", repeat=7):
        patterns.add_pattern(".".join([*tokens, "z"]), 1)
    started = time.process_time()
    with pytest.raises(TooManyPatternsError):
        patterns.find("q." * 2000, 20_000)
    assert time.process_time() - started < 0.5, "seconds; without a bound it takes tens of them"
    assert patterns.find("q.q.q.q.z", 20_000) == 1
    assert patterns.find("other", 20_000) is None


def test_a_bounded_search_follows_no_pattern_of_a_thousand_tokens() -> None:
    patterns: PatternTree[int] = PatternTree()
    patterns.add_pattern("*." * 1500 + "z", 1)
    with pytest.raises(TooManyPatternsError):
        patterns.find("q." * 1600, 20_000)


def test_a_bounded_search_of_many_patterns_of_which_one_matches() -> None:
    patterns: PatternTree[int] = PatternTree()
    for number in range(20_000):
        patterns.add_pattern(f"site.{number}.*.#", number)
    assert patterns.find("site.777.a.b.c", 20) == 777
