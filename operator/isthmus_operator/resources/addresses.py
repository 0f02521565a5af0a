"""Prefixes and patterns of addresses: the rules that the kinds share. A router refuses what breaks them, or never
matches it."""

from __future__ import annotations

import re

from .base import Rule

_WILDCARD_TOKEN = r"(^|[./])[*#]([./]|$)"
PARTIAL_WILDCARD = r"[^./][*#]|[*#][^./]"
"""A token that has a wildcard and something else."""
TOKEN = r"[^./]"

PREFIX_OR_PATTERN = (
    Rule(
        "has(self.prefix) != has(self.pattern)",
        "exactly one of prefix and pattern must be set",
        ".prefix",
        lambda self: (self.prefix is None) != (self.pattern is None),
    ),
    Rule(
        f"!has(self.prefix) || !self.prefix.matches('{_WILDCARD_TOKEN}')",
        "prefix has a wildcard; use pattern",
        ".prefix",
        lambda self: self.prefix is None or not re.search(_WILDCARD_TOKEN, self.prefix),
    ),
    Rule(
        f"!has(self.prefix) || self.prefix.matches('{TOKEN}')",
        "prefix has nothing but separators; use pattern # for all addresses",
        ".prefix",
        lambda self: self.prefix is None or re.search(TOKEN, self.prefix) is not None,
    ),
    Rule(
        f"!has(self.pattern) || self.pattern.matches('{TOKEN}')",
        "pattern has nothing but separators; use # for all addresses",
        ".pattern",
        lambda self: self.pattern is None or re.search(TOKEN, self.pattern) is not None,
    ),
    Rule(
        f"!has(self.pattern) || !self.pattern.matches('{PARTIAL_WILDCARD}')",
        "a wildcard in pattern must be a whole token, as in b2/* or b2/#",
        ".pattern",
        lambda self: self.pattern is None or not re.search(PARTIAL_WILDCARD, self.pattern),
    ),
)
"""For a model with the fields `prefix` and `pattern`."""
