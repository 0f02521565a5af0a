"""Which addresses one user may use: the lists and patterns of a user group, compiled for that user.

A list (`sources`, `targets`) has names, where `*` at the end stands for any rest. A pattern (`sourcePattern`,
`targetPattern`) has tokens separated by `.` or `/`, where `*` is one token and `#` any number of them. `${user}`
is the user, taken literally: wildcards and separators in a user's name are none. Beside `${user}` a separator is
the one that is written, so that what is below the user `a@b` is not below `a@b.c`.
Addresses are compared as the router understands them: `amqp:/x`, `/x` and `x` are the same.

Source: user groups of vhost policies in the qdrouterd/skrouterd family; stricter where noted in docs/policy.md.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import count, product

from isthmus_router.core.address import normalise, split_phase
from isthmus_router.core.patterns import normal_pattern

USER = "${user}"
KNOWN_ADDRESSES = 1000
"""Answers remembered, as a sender without target may ask for every message."""
LONGEST_KNOWN = 1000
"""Characters of an address whose answer is remembered."""

MOST_EXAMPLE_TOKENS = 20_000
"""Of all addresses that stand for the pattern of a link route."""
TOKENS_AT_ONCE = 200
"""Of these, in one step: about 2 ms with 50 rules."""

_TOKEN = re.compile(r"([./]?)([^./]*)")
_ANY, _ONE, _MANY = "", "*", "#"


def at_once(steps: Generator[None, None, bool]) -> bool:
    """Take all steps, and return what they come to."""
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return bool(finished.value)


class AddressRules:
    """The addresses that one user may use."""

    def __init__(self, entries: Iterable[str], user: str, *, patterns: bool) -> None:
        """`entries` may hold several addresses each, separated by white space; `patterns` tells what they are."""
        words = [word for entry in entries for word in entry.split() if user or USER not in word]
        self._exact: set[str] = set()
        self._prefixes: list[str] = []
        self._patterns: list[list[_Element]] = []
        for word in words:
            if patterns:
                self._patterns.append(_pattern(_leading(word), user))
            elif word.endswith("*"):
                self._prefixes.append(_leading(word[:-1]).replace(USER, user))
            else:
                self._exact.add(normalise(word).replace(USER, user))
        self.everything = "" in self._prefixes or any(
            [element.kind for element in pattern] == [_MANY] for pattern in self._patterns
        )
        """There is nothing to check."""
        self._known: dict[str, bool] = {}

    def allows(self, address: str) -> bool:
        """Whether the user may use `address`."""
        known = self._known.get(address)
        if known is None:
            known = self._permits(normalise(address))
            if len(address) <= LONGEST_KNOWN:
                if len(self._known) >= KNOWN_ADDRESSES:
                    self._known.clear()
                self._known[address] = known
        return known

    def covers(self, pattern: str) -> bool:
        """Whether the user may use every address that the pattern of a link route matches.

        The tokens of both are separated by `.` or `/`. Addresses with empty tokens count as those without. False also
        where more than `MOST_EXAMPLE_TOKENS` would have to be examined.
        """
        return at_once(self.examine(pattern))

    def examine(self, pattern: str) -> Generator[None, None, bool]:
        """What `covers` returns; in steps."""
        if self.everything:
            return True
        rules = copy(self)
        rules._patterns = [each for each in self._patterns if not _sees_later_separators(each)]
        found, pause = 0, TOKENS_AT_ONCE
        for example, size in rules._examples(normal_pattern(pattern)):
            found += size
            if found > pause:
                pause = found + TOKENS_AT_ONCE
                yield
            if found > MOST_EXAMPLE_TOKENS or not rules._permits(normalise(example)):
                return False
        return found > 0

    def _examples(self, tokens: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """Addresses, and their numbers of tokens: the user may use all that `tokens` match if they may use these.

        A token for a wildcard has a character that is in no rule, so that only wildcards match it. Where a rule matches
        more of them in a row than it has tokens, its `#` matches any number. Separators vary as far from the beginning
        as rules depend on them (`_sees_later_separators`).
        """
        longest = max(map(len, self._patterns), default=0)
        seen = max(
            (
                *(sum(map(name.count, "./")) for name in (*self._exact, *self._prefixes)),
                *(len(each) for each in self._patterns if any(element.separator for element in each)),
            ),
            default=0,
        )
        unknown = self._unknown_token()
        numbers = product(range(longest + 2), repeat=tokens.count(_MANY))
        for repeats in numbers:
            left = iter(repeats)
            words: list[str] = []
            for token in tokens:
                words += [unknown] * next(left) if token == _MANY else [unknown if token == _ONE else token]
            if not words:
                continue
            free = min(len(words) - 1, seen)
            for separators in product("./", repeat=free):
                begin = "".join(map(str.__add__, words, separators))
                yield begin + ".".join(words[free:]), len(words)

    def _unknown_token(self) -> str:
        known = set("".join((*self._exact, *self._prefixes)))
        known.update(*(element.text for pattern in self._patterns for element in pattern))
        return next(character for character in map(chr, count(0xE000)) if character not in known)

    def _permits(self, name: str) -> bool:
        """Wildcards stand for what is behind the phase, and not for the phase."""
        plain, phase = split_phase(name)
        if not phase:
            return self._matches(plain)
        return name in self._exact or (self._matches(name) and self._matches(plain))

    def _matches(self, name: str) -> bool:
        if not name:
            return False
        if self.everything or name in self._exact or any(map(name.startswith, self._prefixes)):
            return True
        if not self._patterns:
            return False
        tokens = _split(name)
        return any(_fits(pattern, tokens) for pattern in self._patterns)


@dataclass(frozen=True, slots=True)
class _Element:
    """One token of a pattern."""

    kind: str
    """`*`, `#`, or empty for a literal."""
    text: str
    separator: str
    """What must stand before it, when something does; empty: either separator."""


def _sees_later_separators(pattern: list[_Element]) -> bool:
    """Whether separators behind the first wildcard are of importance."""
    first = next((at for at, element in enumerate(pattern) if element.kind), len(pattern))
    return any(element.separator for element in pattern[first + 1 :])


def _leading(word: str) -> str:
    """`word` without what a normalised address does not start with; its end stays."""
    return normalise(word + "x")[:-1]


def _split(text: str) -> list[tuple[str, str]]:
    """Tokens, each with the separator before it."""
    first = [("", "")] if text[:1] in (".", "/") else []
    return first + [(match[1], match[2]) for match in _TOKEN.finditer(text) if match[0]]


def _pattern(word: str, user: str) -> list[_Element]:
    elements: list[_Element] = []
    exact = False
    for separator, token in _split(word):
        of_user = USER in token
        before = separator if exact or of_user else _ANY
        if of_user:
            parts = _split(token.replace(USER, user))
            elements += [_Element("", text, own or before) for own, text in parts]
        else:
            elements.append(_Element(token if token in (_ONE, _MANY) else "", token, before))
        exact = of_user
    return elements


def _fits(pattern: list[_Element], tokens: list[tuple[str, str]]) -> bool:
    """Whether all of `pattern` matches all `tokens`; the work is bounded by the product of both lengths."""
    end = len(tokens)

    def follows(element: _Element, at: int) -> bool:
        return at == 0 or element.separator in (_ANY, tokens[at][0])

    reached = {0}
    for element in pattern:
        if element.kind == _MANY:
            start = min((at for at in reached if at < end and follows(element, at)), default=end)
            reached |= set(range(start + 1, end + 1))
        else:
            reached = {
                at + 1
                for at in reached
                if at < end
                and follows(element, at)
                and (tokens[at][1] == element.text if not element.kind else bool(tokens[at][1]))
            }
        if not reached:
            return False
    return end in reached
