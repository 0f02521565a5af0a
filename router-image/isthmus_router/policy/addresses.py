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
from collections.abc import Iterable, Sequence
from functools import cached_property

from isthmus_router.core.address import PHASE_PREFIX, normalise, split_phase
from isthmus_router.core.patterns import MANY, ONE, normal_pattern
from isthmus_router.policy.automaton import EITHER, Automata, Automaton, Element

USER = "${user}"
KNOWN_ADDRESSES = 200
"""Answers that are remembered, because a sender without a target needs one for each message.

Connections share them, except where an entry of their group names the user.
"""
LONGEST_KNOWN = 128
"""Characters of an address whose answer is remembered."""

_SEPARATOR = re.compile("([./])")
_NOT_ROUTED = ("amqp:", PHASE_PREFIX.rstrip("."))
"""The first token of no address whose links are routed begins with one of these."""


class AddressEntries:
    """What a user group may use. Entries without `${user}` are compiled once for all its users."""

    def __init__(self, entries: Iterable[str], *, patterns: bool) -> None:
        """`entries` may hold several addresses each, separated by white space; `patterns` tells what they are."""
        words = [word for entry in entries for word in entry.split()]
        self._patterns = patterns
        self._of_users = [word for word in words if USER in word]
        self._common = _Compiled((word for word in words if USER not in word), "", patterns=patterns)
        self._of_all = AddressRules((self._common,))

    def of(self, user: str) -> AddressRules:
        """What `user` may use. Without a name, entries with `${user}` do not apply."""
        if not user or not self._of_users:
            return self._of_all
        return AddressRules((self._common, _Compiled(self._of_users, user, patterns=self._patterns)))


class AddressRules:
    """The addresses that one user may use."""

    def __init__(self, parts: Sequence[_Compiled]) -> None:
        """`parts`: entries of all users, and of this one."""
        self._parts = parts
        self._patterns = Automata([part.patterns for part in parts])
        self.everything = self._patterns.match_everything or any("" in part.prefixes for part in parts)
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

        The tokens of both are separated by `.` or `/`. Addresses with empty tokens count as those without. Raises
        TooManyPatternsError where that would take too long to find out.
        """
        if self.everything:
            return True
        tokens = normal_pattern(pattern)
        if not tokens or tokens[0].startswith(_NOT_ROUTED):
            return False
        return Automata([part.all_as_patterns for part in self._parts]).match_all_of(tokens)

    def _permits(self, name: str) -> bool:
        """Wildcards stand for what is behind the phase, and not for the phase."""
        plain, phase = split_phase(name)
        if not phase:
            return self._matches(plain)
        listed = any(name in part.exact for part in self._parts)
        return listed or (self._matches(name) and self._matches(plain))

    def _matches(self, name: str) -> bool:
        if not name:
            return False
        return (
            self.everything
            or any(name in part.exact or name.startswith(part.prefixes) for part in self._parts)
            or self._patterns.match(_split(name))
        )


class _Compiled:
    """Entries, compiled for one user."""

    def __init__(self, words: Iterable[str], user: str, *, patterns: bool) -> None:
        self.exact: set[str] = set()
        prefixes: list[str] = []
        self.patterns = Automaton()
        for word in words:
            if patterns:
                self.patterns.add(_pattern(_leading(word), user))
            elif word.endswith("*"):
                prefixes.append(_leading(word[:-1]).replace(USER, user))
            else:
                self.exact.add(normalise(word).replace(USER, user))
        self.prefixes = tuple(prefixes)

    @cached_property
    def all_as_patterns(self) -> Automaton:
        """The same addresses, except those with empty tokens."""
        if not self.exact and not self.prefixes:
            return self.patterns
        automaton = Automaton()
        for name in self.exact:
            literals = _literals(name)
            if all(literal.text for literal in literals):
                automaton.add(literals)
        for prefix in self.prefixes:
            *first, last = _literals(prefix) or [Element("", "", EITHER)]
            if all(literal.text for literal in first):
                automaton.add_beginning([*first, last])
        return automaton


def _leading(word: str) -> str:
    """`word` without what a normalised address does not start with; its end stays."""
    return normalise(word + "x")[:-1]


def _split(text: str) -> Iterable[tuple[str, str]]:
    """Tokens, each with the separator before it."""
    if not text:
        return ()
    parts = _SEPARATOR.split(text)
    return zip(("", *parts[1::2]), parts[::2], strict=True)


def _literals(text: str) -> list[Element]:
    return [Element("", token, separator) for separator, token in _split(text)]


def _pattern(word: str, user: str) -> list[Element]:
    elements: list[Element] = []
    exact = False
    for separator, token in _split(word):
        of_user = USER in token
        before = separator if exact or of_user else EITHER
        if of_user:
            parts = _split(token.replace(USER, user))
            elements += [Element("", text, own or before) for own, text in parts]
        else:
            elements.append(Element(token if token in (ONE, MANY) else "", token, before))
        exact = of_user
    return elements
