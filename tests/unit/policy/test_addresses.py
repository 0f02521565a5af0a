"""Which addresses a user may use: lists, patterns and the substitution of the user, against a slow oracle."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from isthmus_router.core.patterns import PatternTree
from isthmus_router.policy.addresses import AddressRules


def allows(entries: str, address: str, user: str = "bob", *, patterns: bool = False) -> bool:
    return AddressRules(entries.split(","), user, patterns=patterns).allows(address)


@pytest.mark.parametrize(
    ("entries", "address", "expected"),
    [
        ("news", "news", True),
        ("news", "news/sports", False),
        ("news*", "news/sports", True),
        ("news*", "newspaper", True),
        ("news", "newspaper", False),
        ("a,b c", "c", True),
        ("*", "anything/at.all", True),
        ("", "a", False),
        ("*", "", False),
        ("amqp:/_topo/*", "amqp:/_topo/0/A/temp.x", True),
        ("_topo/*", "amqp://host/_topo/0/A/temp.x", True),
        ("news", "amqp:/news", True),
        ("news", "/news", True),
        ("news", "//news", True),
        ("news", "amqp:/amqp:/news", True),
        ("tmp-${user}", "tmp-bob", True),
        ("tmp-${user}", "tmp-alice", False),
        ("${user}/*", "bob/in", True),
        ("${user}/*", "bobby/in", False),
        ("a/${user}/b", "a/bob/b", True),
        ("a*b", "axb", False),
        ("a*b", "a*b", True),
    ],
)
def test_lists(entries: str, address: str, expected: bool) -> None:
    assert allows(entries, address) is expected


@pytest.mark.parametrize(
    ("entries", "address", "expected"),
    [
        ("a/*", "a/b", True),
        ("a/*", "a.b", True),
        ("a/*", "a", False),
        ("a/*", "a/b/c", False),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab/c", False),
        ("#", "any/thing", True),
        ("a/#/z", "a/b/c/z", True),
        ("a/#/z", "a/z", True),
        ("a/#/z", "a/z/b", False),
        ("*/b", "/b", False),
        ("${user}/#", "bob/x", True),
        ("${user}/#", "bob", True),
        ("${user}/#", "bob.x", False),
        ("#/${user}", "x/y/bob", True),
        ("in/${user}/*", "in/bob/x", True),
        ("in/tmp-${user}", "in/tmp-bob", True),
        ("_topo/0/*/temp/*", "amqp:/_topo/0/A/temp.x1", True),
        ("_topo/0/*/temp/*", "amqp:/_topo/0/A/$management", False),
    ],
)
def test_patterns(entries: str, address: str, expected: bool) -> None:
    assert allows(entries, address, patterns=True) is expected


@pytest.mark.parametrize("patterns", [False, True])
def test_wildcards_in_the_name_of_a_user_are_none(patterns: bool) -> None:
    assert not allows("${user}", "secret", "*", patterns=patterns)
    assert not allows("${user}", "secret", "#", patterns=patterns)
    assert not allows("in/${user}", "in/x/secret", "x*", patterns=patterns)
    assert allows("${user}", "*", "*", patterns=patterns)


def test_what_is_below_a_user_is_not_below_one_with_a_longer_name() -> None:
    assert allows("${user}/#", "bob@x.com/in", "bob@x.com", patterns=True)
    assert not allows("${user}/#", "bob@x.com/in", "bob@x", patterns=True)
    assert not allows("${user}/#", "bob@x/com/in", "bob@x.com", patterns=True)


def test_nobody_has_nothing_of_their_own() -> None:
    assert not allows("${user}*", "secret", "")
    assert not allows("${user}#", "secret", "", patterns=True)


def test_everything_is_known_to_be_everything() -> None:
    assert AddressRules(["*"], "bob", patterns=False).everything
    assert AddressRules(["a", "#"], "bob", patterns=True).everything
    assert not AddressRules(["a*"], "bob", patterns=False).everything
    assert not AddressRules(["*"], "bob", patterns=True).everything


def test_answers_are_remembered_within_bounds() -> None:
    rules = AddressRules(["a/*"], "bob", patterns=True)
    for number in range(5000):
        assert rules.allows(f"a/{number}")
        assert not rules.allows(f"b/{number}")
    assert len(rules._known) <= 1000


# Against an oracle: a pattern is a regular expression over the text of the address

TOKEN = st.text("ab", min_size=1, max_size=2)
PATTERN_TOKEN = TOKEN | st.sampled_from(["*", "#", "${user}", "a${user}"])
USER = st.text("ab./", max_size=3)


def joined(tokens: st.SearchStrategy[str], least: int) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(st.sampled_from("./"), tokens), min_size=least, max_size=5).map(
        lambda pairs: "".join(s + t for s, t in pairs)[1:]
    )


def matches(pattern: str, address: str, user: str) -> bool:
    """One token after the other, tried in every way."""
    words = re.findall(r"([./]?)([^./]*)", pattern)
    words = [(s, t) for s, t in words if s or t]
    found = [(s, t) for s, t in re.findall(r"([./]?)([^./]*)", address) if s or t]

    def rest(at: int, place: int) -> bool:
        if at == len(words):
            return place == len(found)
        separator, token = words[at]
        exact = "${user}" in token or (at > 0 and "${user}" in words[at - 1][1])
        if token == "#":
            return rest(at + 1, place) or (
                place < len(found)
                and (not exact or place == 0 or found[place][0] == separator)
                and any(rest(at + 1, end) for end in range(place + 1, len(found) + 1))
            )
        if place == len(found) or (exact and place > 0 and found[place][0] != separator):
            return False
        if "${user}" not in token:
            return token in ("*", found[place][1]) and rest(at + 1, place + 1)
        text = token.replace("${user}", user)
        for end in range(place + 1, len(found) + 1):
            taken = "".join(s + t for s, t in found[place:end])
            taken = taken[len(found[place][0]) :]
            if taken == text and rest(at + 1, end):
                return True
        return False

    return rest(0, 0)


@given(joined(PATTERN_TOKEN, 1), joined(TOKEN, 1), st.text("ab", min_size=1, max_size=2) | st.just("a.b"))
@example("#/a/#/a/#", "a/a", "a")
@example("${user}/#", "a.b/a", "a.b")
@example("#.${user}", "a/a.b", "a.b")
def test_patterns_against_the_oracle(pattern: str, address: str, user: str) -> None:
    rules = AddressRules([pattern], user, patterns=True)
    assert rules.allows(address) is matches(pattern, address, user)


@given(joined(TOKEN | st.just("${user}"), 1), st.booleans(), joined(TOKEN, 1), USER.filter(bool))
def test_lists_against_the_oracle(entry: str, wild: bool, address: str, user: str) -> None:
    rules = AddressRules([entry + "*" * wild], user, patterns=False)
    wanted = entry.replace("${user}", user)
    assert rules.allows(address) is (address.startswith(wanted) if wild else address == wanted)


@given(st.lists(st.text(max_size=8), max_size=3), st.text(max_size=8), st.text(max_size=8), st.booleans())
def test_any_text_is_taken(entries: list[str], address: str, user: str, patterns: bool) -> None:
    assert AddressRules(entries, user, patterns=patterns).allows(address) in (True, False)


@pytest.mark.parametrize(
    ("entries", "patterns", "address", "expected"),
    [
        ("*/*/orders", True, "_$phase.0/orders", False),
        ("*/*/#", True, "_$phase.0/a", False),
        ("*/*/orders", True, "_$phase.1/orders", False),
        ("orders", True, "_$phase.0/orders", True),
        ("orders", False, "_$phase.0/orders", True),
        ("_$phase.1/orders", False, "_$phase.1/orders", True),
        ("_$phase.1/orders", False, "orders", False),
        ("#", True, "_$phase.1/orders", True),
        ("*", False, "_$phase.1/orders", True),
    ],
)
def test_wildcards_do_not_stand_for_a_phase(
    entries: str, patterns: bool, address: str, expected: bool
) -> None:
    assert AddressRules([entries], "u", patterns=patterns).allows(address) is expected


def covers(entries: str, pattern: str, user: str = "bob", *, patterns: bool = False) -> bool:
    return AddressRules(entries.split(","), user, patterns=patterns).covers(pattern)


@pytest.mark.parametrize(
    ("entries", "pattern", "patterns", "expected"),
    [
        ("*", "#", False, True),
        ("#", "#", True, True),
        ("a*", "#", False, False),
        ("an*", "*", False, False),
        ("any*", "any.#", False, True),
        ("*, */*", "#", True, False),
        ("*, */*", "*.*", True, True),
        ("*, */*", "*", True, True),
        ("a/#", "a.#", True, True),
        ("a/#", "a.*.b.#", True, True),
        ("a/*", "a.#", True, False),
        ("*/#", "#", True, True),
        ("*/*/#", "#", True, False),
        ("a.b,a/b", "a.b", False, True),
        ("a.b", "a.b", False, False),
        ("news/*", "news.#", False, False),
        ("news,news/*,news.*", "news.#", False, True),
        ("${user}/#", "bob.#", True, False),
        ("${user}/#,${user}.#", "bob.#", True, True),
        ("a*", "...", False, False),
        ("*", "#.x.#.y.#", False, True),
        ("a.#", "a.#.#.*.#.x.#.y.#.z.#", True, True),
        ("a.#,x.y.z.x.y.z.x.y.z.x.y.z", "a.#.x.#.y.#.z.#.z.#", True, False),
    ],
)
def test_a_pattern_is_covered_if_all_that_it_matches_is_allowed(
    entries: str, pattern: str, patterns: bool, expected: bool
) -> None:
    """In the last case that would take too long to find out."""
    assert covers(entries, pattern, patterns=patterns) is expected


@pytest.mark.parametrize("user", ["a", "an", "any-67d0c1a4", "\ue000"])
def test_no_name_of_a_user_covers_what_others_use(user: str) -> None:
    assert not covers("${user}*", "#", user)
    assert not covers("${user}*", "*", user)


_WORDS = ("a", "ab", "b", "c")


@given(
    st.lists(
        st.lists(st.sampled_from((*_WORDS, "*", "#", "${user}")), min_size=1, max_size=3),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.sampled_from("./"), min_size=6, max_size=6),
    st.lists(st.sampled_from((*_WORDS, "*", "#")), min_size=1, max_size=3),
    st.lists(st.sampled_from((*_WORDS, "bob", "zz")), min_size=1, max_size=7),
    st.lists(st.sampled_from("./"), min_size=6, max_size=6),
    st.booleans(),
)
@example([["a*"]], list("......"), ["#"], ["zz"], list("......"), False)
def test_what_a_covered_pattern_matches_is_allowed(
    entries: list[list[str]],
    between: list[str],
    pattern: list[str],
    words: list[str],
    separators: list[str],
    patterns: bool,
) -> None:
    def joined(tokens: list[str], by: list[str]) -> str:
        return "".join(map(str.__add__, tokens, by))[: -len(by[0])]

    rules = AddressRules([joined(each, between) for each in entries], "bob", patterns=patterns)
    tree: PatternTree[bool] = PatternTree()
    tree.add_pattern(".".join(pattern), value=True)
    address = joined(words, [*separators, "."])
    if tree.find(address) and rules.covers(".".join(pattern)):
        assert rules.allows(address)
