"""Which addresses a user may use: lists, patterns and the substitution of the user, against a slow oracle."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus_router.core.patterns import PatternTree, TooManyPatternsError, normal_pattern
from isthmus_router.policy.addresses import KNOWN_ADDRESSES, AddressEntries, AddressRules


def compiled(entries: list[str], user: str = "bob", *, patterns: bool) -> AddressRules:
    return AddressEntries(entries, patterns=patterns).of(user)


def allows(entries: str, address: str, user: str = "bob", *, patterns: bool = False) -> bool:
    return compiled(entries.split(","), user, patterns=patterns).allows(address)


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
    assert compiled(["*"], "bob", patterns=False).everything
    assert compiled(["a", "#"], "bob", patterns=True).everything
    assert not compiled(["a*"], "bob", patterns=False).everything
    assert not compiled(["*"], "bob", patterns=True).everything


def test_answers_are_remembered_within_bounds() -> None:
    rules = compiled(["a/*"], "bob", patterns=True)
    for number in range(5000):
        assert rules.allows(f"a/{number}")
        assert not rules.allows(f"b/{number}")
        assert rules.allows(f"a/{number}".ljust(1000, "x"))
    assert len(rules._known) <= KNOWN_ADDRESSES
    assert all(len(address) < 200 for address in rules._known)


def test_users_of_a_group_share_answers_unless_entries_name_the_user() -> None:
    """Otherwise each connection of a client would have the router remember as many as are allowed."""
    entries = AddressEntries(["a/*"], patterns=True)
    assert entries.of("bob") is entries.of("alice")
    entries = AddressEntries(["a/*", "${user}/#"], patterns=True)
    assert entries.of("bob") is not entries.of("alice")


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
    rules = compiled([pattern], user, patterns=True)
    assert rules.allows(address) is matches(pattern, address, user)


@given(joined(TOKEN | st.just("${user}"), 1), st.booleans(), joined(TOKEN, 1), USER.filter(bool))
def test_lists_against_the_oracle(entry: str, wild: bool, address: str, user: str) -> None:
    rules = compiled([entry + "*" * wild], user, patterns=False)
    wanted = entry.replace("${user}", user)
    assert rules.allows(address) is (address.startswith(wanted) if wild else address == wanted)


@given(st.lists(st.text(max_size=8), max_size=3), st.text(max_size=8), st.text(max_size=8), st.booleans())
def test_any_text_is_taken(entries: list[str], address: str, user: str, patterns: bool) -> None:
    assert compiled(entries, user, patterns=patterns).allows(address) in (True, False)


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
    assert compiled([entries], "u", patterns=patterns).allows(address) is expected


def covers(entries: str, pattern: str, user: str = "bob", *, patterns: bool = False) -> bool:
    return compiled(entries.split(","), user, patterns=patterns).covers(pattern)


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
        ("a.#,x.y.z.x.y.z.x.y.z.x.y.z", "a.#.x.#.y.#.z.#.z.#", True, True),
        ("#.b,#.a.#,b.#", "#.a.#.b", True, True),
        ("#.a.b.#,#.a.#.c", "#.a.#.b.#", True, False),
        ("#.${user},#/${user}", "a.#.bob", True, True),
        ("#.${user}", "a.#.bob", True, False),
        ("*.a.#,a.#,*.*.#.a.#", "#.a.#", True, True),
        ("*.a.#,a.#,*.*.*.#.a.#", "#.a.#", True, False),
        ("*/#", "_$phase.1.orders", True, False),
    ],
)
def test_a_pattern_is_covered_if_all_that_it_matches_is_allowed(
    entries: str, pattern: str, patterns: bool, expected: bool
) -> None:
    assert covers(entries, pattern, patterns=patterns) is expected


@pytest.mark.parametrize("user", ["a", "an", "any-67d0c1a4", "\ue000"])
def test_no_name_of_a_user_covers_what_others_use(user: str) -> None:
    assert not covers("${user}*", "#", user)
    assert not covers("${user}*", "*", user)


def examples(pattern: str, most: int) -> Iterator[str]:
    """Addresses that stand for all that `pattern` matches, where no entry has as many as `most` tokens."""
    tokens = normal_pattern(pattern)
    for repeats in itertools.product(range(most + 1), repeat=tokens.count("#")):
        left = iter(repeats)
        words: list[str] = []
        for token in tokens:
            words += ["?"] * next(left) if token == "#" else ["?" if token == "*" else token]
        for separators in itertools.product("./", repeat=len(words) - 1) if words else ():
            yield "".join(map(str.__add__, words, (*separators, "")))


_REFERENCE_ENTRY = st.lists(
    st.sampled_from(("a", "ab", "b", "*", "#", "#", "${user}")), min_size=1, max_size=3
)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(_REFERENCE_ENTRY, st.sampled_from("./"), st.booleans()), min_size=1, max_size=5),
    st.lists(st.sampled_from(("a", "ab", "b", "bob", "*", "#")), min_size=1, max_size=4).filter(
        lambda tokens: tokens.count("#") <= 2
    ),
    st.booleans(),
)
@example([(["*"], ".", False), (["*", "*", "#"], ".", False)], ["#"], True)
@example([(["a", "#"], ".", False), (["#", "a"], ".", False)], ["#", "a", "#"], True)
@example([(["#", "${user}"], ".", False), (["#", "${user}"], "/", False)], ["a", "#", "bob"], True)
@example([(["a"], ".", True), (["b", "${user}"], "/", True)], ["a", "#"], False)
def test_decisions_about_patterns_are_those_about_all_their_examples(
    entries: list[tuple[list[str], str, bool]], pattern: list[str], patterns: bool
) -> None:
    words = [between.join(tokens) + "*" * (wild and not patterns) for tokens, between, wild in entries]
    rules = compiled(words, patterns=patterns)
    wanted = all(map(rules.allows, examples(".".join(pattern), 4)))
    assert rules.covers(".".join(pattern)) is wanted


MANY_RULES = {
    "a wildcard first": [f"*/orders{number}/#" for number in range(50)],
    "any number first": [f"#/audit{number}" for number in range(50)],
    "any number twice": [f"#/a/#/audit{number}/#" for number in range(50)],
    "users": [f"${{user}}/k{number}/#" for number in range(50)],
    "names": [f"queue.k{number}.x" for number in range(1000)],
    "beginnings": [f"queue{'x' * (number % 100)}{number}*" for number in range(1000)],
}
LONG_PATTERNS = [
    *(start + ".".join(["#.a"] * number) for start in ("mine.", "") for number in (3, 6, 100, 150)),
    *(start + ".".join(["a"] * 490) + end for start in ("mine.", "") for end in ("", ".#.a.#")),
    *("mine." + "*.#.a." * number + "#" for number in (6, 80)),
]


def least_seconds(work: Callable[[], object]) -> float:
    """CPU time of the fastest of five attempts, as something else may interrupt them."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


@pytest.mark.parametrize("kind", MANY_RULES)
def test_decision_about_a_long_pattern_takes_little_time(kind: str) -> None:
    patterns = kind not in ("names", "beginnings")
    rules = compiled([*MANY_RULES[kind], "mine/#" if patterns else "mine*"], patterns=patterns)
    for pattern in LONG_PATTERNS:
        assert rules.covers(pattern) is pattern.startswith("mine"), pattern
        assert least_seconds(lambda pattern=pattern: rules.covers(pattern)) < 0.005, pattern


def test_decision_that_takes_too_many_steps_is_none() -> None:
    """The policy tells apart how many tokens are in each of three places, and altogether allows all of them."""
    numbers = ["*." * number for number in range(15)] + ["*." * 15 + "#."]
    policy = [f"{first}a.{second}a.{third}a" for first, second, third in itertools.product(numbers, repeat=3)]
    rules = compiled(policy, patterns=True)
    assert rules.covers("#.a.*.a.*.a")

    def decide() -> None:
        with pytest.raises(TooManyPatternsError):
            rules.covers("#.a.#.a.#.a")

    assert least_seconds(decide) < 0.02


@pytest.mark.parametrize("kind", ["any number first", "any number twice"])
@pytest.mark.parametrize("address", ["a." * 2047 + "b", "a" + "." * 4000 + "b"])
def test_decision_about_a_long_address_takes_little_time(kind: str, address: str) -> None:
    rules = compiled(MANY_RULES[kind], patterns=True)
    assert not rules.allows(address)
    assert least_seconds(lambda: rules.allows(address)) < 0.01


def test_users_of_a_group_share_what_is_not_of_one_of_them() -> None:
    """Otherwise each new connection would compile the whole policy, and keep it."""
    entries = AddressEntries([*(f"queue{number}/*/x" for number in range(2000)), "${user}/#"], patterns=True)
    assert entries.of("bob").allows("queue7/a/x")
    assert least_seconds(lambda: entries.of("alice")) < 0.001


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

    rules = compiled([joined(each, between) for each in entries], "bob", patterns=patterns)
    tree: PatternTree[bool] = PatternTree()
    tree.add_pattern(".".join(pattern), value=True)
    address = joined(words, [*separators, "."])
    if tree.find(address) and rules.covers(".".join(pattern)):
        assert rules.allows(address)
