"""Which addresses of the group go to which sites."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

MOST_TARGETS = 254


class Rule(NamedTuple):
    """Of a list, the first one that matches counts."""

    pattern: str
    """Of addresses: `*` is any characters, `?` one."""
    sites: tuple[str, ...]
    """It goes to these; none: it stays in the site."""


class Filters:
    """The rules of a site."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        """Raises ValueError: a rule names more sites than a batch can."""
        self._rules = tuple(rules)
        for rule in self._rules:
            if len(rule.sites) > MOST_TARGETS:
                raise ValueError(f"rule for {rule.pattern!r} names more than {MOST_TARGETS} sites")
        self._targets = lru_cache(maxsize=4_096)(self._match)

    def targets(self, address: str) -> tuple[str, ...] | None:
        """The sites that a message to the address goes to; None: all. What a batch is made for."""
        return self._targets(address)

    def _match(self, address: str) -> tuple[str, ...] | None:
        return next((rule.sites for rule in self._rules if fnmatchcase(address, rule.pattern)), None)
