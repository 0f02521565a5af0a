"""Address patterns: what belongs to an address, such as its treatment or its link route.

Tokens are separated by `.` or `/`; `*` stands for one token, `#` for any number, a prefix `a.b` for `a.b` and
everything below it. The most specific match wins: token by token from the left, a literal before `*` before
`#`. Source: address configuration of the qdrouterd/skrouterd family.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from isthmus_router.message.sections import LONGEST_ADDRESS_BYTES

T = TypeVar("T")

ONE, MANY = "*", "#"
MOST_DEPTH = 500
"""Tokens of a pattern that a bounded search follows; each one is a call within the last one."""


class TooManyPatternsError(Exception):
    """A bounded search has ended without an answer: it would take too many steps."""


def _tokens(text: str) -> list[str]:
    return [token for token in text.replace("/", ".").split(".") if token]


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern that a peer chooses is not accepted; None if it is."""
    if len(pattern) > LONGEST_ADDRESS_BYTES or len(pattern.encode()) > LONGEST_ADDRESS_BYTES:
        return f"it has more than {LONGEST_ADDRESS_BYTES} bytes; use a shorter one"
    if len(_tokens(pattern)) > MOST_DEPTH:
        return f"it has more than {MOST_DEPTH} tokens; use a shorter one"
    return None


def normal_pattern(pattern: str) -> tuple[str, ...]:
    """One form for all patterns that match the same: wildcards in a row, `#` among them, are their `*` and one `#`."""
    tokens: list[str] = []
    for token in _tokens(pattern):
        if token == ONE and tokens[-1:] == [MANY]:
            tokens.insert(-1, token)
        elif token != MANY or tokens[-1:] != [MANY]:
            tokens.append(token)
    return tuple(tokens)


class PatternTree(Generic[T]):
    """Values by pattern, found by the most specific match."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add_prefix(self, prefix: str, value: T) -> None:
        """Match `prefix` itself and every address that continues it with a whole token."""
        self._add([*_tokens(prefix), MANY], value)

    def add_pattern(self, pattern: str, value: T) -> None:
        """Match addresses against `pattern` with its wildcards."""
        self._add(_tokens(pattern), value)

    def remove_pattern(self, pattern: str) -> None:
        """Forget what `add_pattern` has added, if it has."""
        path = [self._root]
        tokens = _tokens(pattern)
        for token in tokens:
            child = path[-1].children.get(token)
            if child is None:
                return
            path.append(child)
        path[-1].value = None
        for parent, token in zip(reversed(path[:-1]), reversed(tokens), strict=True):
            child = parent.children[token]
            if child.value is not None or child.children:
                return
            del parent.children[token]

    def find(self, address: str, most_steps: int | None = None) -> T | None:
        """The value of the most specific matching pattern, or None.

        The work is bounded by the tokens of all patterns, times those of the address. Where peers choose the patterns,
        `most_steps` bounds it: beyond that `TooManyPatternsError` is raised.
        """
        root = self._root
        if not root.children and not root.value:
            return None
        found = root.find(_tokens(address), 0, _Search(most_steps))
        return found[0] if found else None

    def _add(self, tokens: Iterable[str], value: T) -> None:
        node = self._root
        for token in tokens:
            node = node.children.setdefault(token, _Node())
        node.value = (value,)


class _Search:
    """One search of a tree."""

    __slots__ = ("failed", "left")

    def __init__(self, most_steps: int | None) -> None:
        self.failed: dict[_Node[Any], int] = {}
        """Nodes behind a `#`: nothing matches there from this token on."""
        self.left = most_steps
        """Steps that it may still take; None: any number."""

    def step(self, depth: int) -> None:
        """One more step, at a node of this depth."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0 or depth > MOST_DEPTH:
                raise TooManyPatternsError


class _Node(Generic[T]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.value: tuple[T] | None = None

    def find(self, tokens: list[str], at: int, search: _Search, depth: int = 0) -> tuple[T] | None:
        """What matches the tokens from `at` on."""
        search.step(depth)
        depth += 1
        if at == len(tokens):
            if self.value:
                return self.value
            many = self.children.get(MANY)
            return many.find(tokens, at, search, depth) if many else None
        for child in (self.children.get(tokens[at]), self.children.get(ONE)):
            if child and (found := child.find(tokens, at + 1, search, depth)):
                return found
        many = self.children.get(MANY)
        if many:
            if not many.children:
                return many.value
            end = search.failed.get(many, len(tokens) + 1)
            for rest in range(at, end):
                if found := many.find(tokens, rest, search, depth):
                    return found
            search.failed[many] = min(at, end)
        return None
