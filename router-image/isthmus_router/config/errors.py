"""What is wrong with a configuration, said so that it can be put right without looking anything up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a configuration."""

    line: int | None
    """1-based; None for problems that belong to no line."""
    where: str
    """Section with its name, and the attribute: `listener 'inter', attribute role`. May be empty."""
    message: str
    """What is wrong, with the offending value, and what would be right."""
    duplicate: bool = False
    """Two entities claim what only one can have."""

    def text(self, origin: str) -> str:
        """One line: `<origin>:<line>: <where>: <message>`."""
        place = origin if self.line is None else f"{origin}:{self.line}"
        return ": ".join(part for part in (place, self.where, self.message) if part)


class ConfigError(ValueError):
    """A configuration that cannot be used; `problems` has everything found, in the order of the file."""

    def __init__(self, origin: str, problems: Sequence[Problem]) -> None:
        self.origin = origin
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line or 0))
        super().__init__("\n".join(problem.text(origin) for problem in self.problems))
