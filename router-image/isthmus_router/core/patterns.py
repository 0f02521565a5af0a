"""Address patterns: what belongs to an address, such as its treatment or its link route.

Tokens are separated by `.` or `/`; `*` stands for one token, `#` for any number, a prefix `a.b` for `a.b` and
everything below it. The most specific match wins: token by token from the left, a literal before `*` before
`#`. Source: address configuration of the qdrouterd/skrouterd family.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

_ONE, _MANY = "*", "#"


def _tokens(text: str) -> list[str]:
    return [token for token in text.replace("/", ".").split(".") if token]


def normal_pattern(pattern: str) -> tuple[str, ...]:
    """One form for all patterns that match the same: wildcards in a row, `#` among them, are their `*` and one `#`."""
    tokens: list[str] = []
    for token in _tokens(pattern):
        if token == _ONE and tokens[-1:] == [_MANY]:
            tokens.insert(-1, token)
        elif token != _MANY or tokens[-1:] != [_MANY]:
            tokens.append(token)
    return tuple(tokens)


class PatternTree(Generic[T]):
    """Values by pattern, found by the most specific match."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add_prefix(self, prefix: str, value: T) -> None:
        """Match `prefix` itself and every address that continues it with a whole token."""
        self._add([*_tokens(prefix), _MANY], value)

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

    def find(self, address: str) -> T | None:
        """The value of the most specific matching pattern, or None.

        The work is bounded by the tokens of all patterns, times those of the address.
        """
        root = self._root
        if not root.children and not root.value:
            return None
        found = root.find(_tokens(address), 0, {})
        return found[0] if found else None

    def _add(self, tokens: Iterable[str], value: T) -> None:
        node = self._root
        for token in tokens:
            node = node.children.setdefault(token, _Node())
        node.value = (value,)


class _Node(Generic[T]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.value: tuple[T] | None = None

    def find(self, tokens: list[str], at: int, failed: dict[_Node[T], int]) -> tuple[T] | None:
        """What matches the tokens from `at` on; by `failed`, nothing behind a `#` matches from some place on."""
        if at == len(tokens):
            if self.value:
                return self.value
            many = self.children.get(_MANY)
            return many.find(tokens, at, failed) if many else None
        for child in (self.children.get(tokens[at]), self.children.get(_ONE)):
            if child and (found := child.find(tokens, at + 1, failed)):
                return found
        many = self.children.get(_MANY)
        if many:
            if not many.children:
                return many.value
            end = failed.get(many, len(tokens) + 1)
            for rest in range(at, end):
                if found := many.find(tokens, rest, failed):
                    return found
            failed[many] = min(at, end)
        return None
