"""Strings that peers have chosen, as they may be shown: on a terminal, in a log, in a message.

Addresses, container ids, link names and error texts come from peers. A control character in one of them could move the
cursor of a terminal, change its title or forge a line of a log; a bidirectional one could disguise a name.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar

_T = TypeVar("_T")
_FORMAT = (
    "\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_NO_CHARACTERS = "\ud800-\uf8ff\U000f0000-\U0010ffff"
"""Surrogates and private use."""
_UNSAFE = re.compile(f"[\x00-\x1f\x7f-\x9f{_FORMAT}{_NO_CHARACTERS}]")
_UNSAFE_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_FORMAT}{_NO_CHARACTERS}]")


def printable(text: str, *, lines: bool = False) -> str:
    r"""The text with an escape such as `\u001b` for each control or invisible character; `lines` may remain lines.

    What was JSON is JSON with the same strings after that.
    """
    return (_UNSAFE_IN_LINES if lines else _UNSAFE).sub(_escape, text)


def replaced(text: str) -> str:
    """The text with U+FFFD for each such character: for places that bound the length."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def printable_all(value: _T) -> _T:
    """The same for every string in dataclasses, tuples, lists and dicts."""
    return _all(value)  # type: ignore[no-any-return]


def _all(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {item.name: _all(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    if isinstance(value, tuple | list):
        return type(value)(_all(item) for item in value)
    if isinstance(value, dict):
        return {_all(key): _all(item) for key, item in value.items()}
    return value
