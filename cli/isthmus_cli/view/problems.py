"""What is wrong, each thing said once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PARTS = 4
_USER = re.compile(r'(links between replicas through )?listener "')
_NAMED = 4
"""Routers that a line names before it only counts them."""


@dataclass(frozen=True)
class Problem:
    """Something wrong with one router: `{kind} {name}{what}: {reason}`."""

    kind: str
    name: str
    what: str
    reason: str | None


def problem_lines(findings: Iterable[str], problems: Iterable[Problem]) -> tuple[str, ...]:
    """Sentences about resources (`Connector east-west: Pending: ...`), then those about routers.

    Subjects with the same trouble share a line. A router's trouble is left out when a finding already
    tells its reason in the same words, since the operator reports what routers say.
    """
    told = list(dict.fromkeys(findings))
    grouped: dict[tuple[str, str, str | None], list[str]] = {}
    for problem in problems:
        if problem.reason and any(problem.reason in text for text in told):
            continue
        grouped.setdefault((problem.kind, problem.what, problem.reason), []).append(problem.name)
    return (
        *_shared(told),
        *(
            _subject(kind, names) + _verb(what, len(names)) + (f": {reason}" if reason else "")
            for (kind, what, reason), names in grouped.items()
        ),
    )


def _shared(findings: Iterable[str]) -> list[str]:
    """Findings of the same kind and wording as one line: `Connector a, b: Pending: ...`."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for text in findings:
        subject, colon, rest = text.partition(": ")
        kind, space, name = subject.partition(" ")
        if colon and space and " " not in name:
            grouped.setdefault((kind, rest), []).append(name)
        else:
            grouped.setdefault((text, ""), [])
    return _users(
        f"{_subject(kind, names, plural='')}: {rest}" if names else kind
        for (kind, rest), names in grouped.items()
    )


def _users(lines: Iterable[str]) -> list[str]:
    """Lines `SUBJECT: REASON: USER: TROUBLE` that differ in the user only as one, with all users."""
    grouped: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        parts = line.split(": ", 3)
        if len(parts) == _PARTS and _USER.match(parts[2]):
            grouped.setdefault((parts[0], parts[1], parts[3]), []).append(parts[2])
        else:
            grouped.setdefault((line,), [])
    return [
        ": ".join((key[0], key[1], ", ".join(users), key[2])) if users else key[0]
        for key, users in grouped.items()
    ]


def _subject(kind: str, names: list[str], plural: str = "s") -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _NAMED
    listed = ", ".join(distinct[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{kind}{plural if len(distinct) > 1 else ''} {listed}"


def _verb(what: str, count: int) -> str:
    return what.replace(" is ", " are ", 1) if count > 1 and what.startswith(" is ") else what
