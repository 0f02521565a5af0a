"""What gossip routers and collectors say of the certificates that they have loaded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .untrusted import FAILURES, malformed, text


@dataclass(frozen=True)
class Loaded:
    """The certificates that a process has loaded."""

    digest: str = ""
    """As `pem.digest` has it; empty: none, or it does not say."""
    problem: str = ""
    """Why it has not loaded those that it finds."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Loaded:
        """From a status. Raises one of `FAILURES`."""
        return cls(text(answer.get("certificates") or "", 64), text(answer.get("certificatesProblem") or ""))


@dataclass(frozen=True)
class GossipReport:
    """One answer of a gossip router."""

    loaded: Loaded

    @property
    def numbers(self) -> tuple[object, ...]:
        """All of it is news."""
        return ()


def parse_gossip_router(answer: Mapping[str, Any], now: datetime) -> GossipReport:
    """Raises ValueError when it is not one. The gossip router may be hostile."""
    try:
        return GossipReport(Loaded.of(answer))
    except FAILURES as error:
        raise malformed("a gossip router's status", error) from None
