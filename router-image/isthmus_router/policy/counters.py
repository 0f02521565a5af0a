"""What the policy has refused, in all and by vhost."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Denial(StrEnum):
    """What was refused."""

    CONNECTION = "connection"
    SESSION = "session"
    SENDER = "sender"
    RECEIVER = "receiver"
    MESSAGE = "message"
    """Its address or its `user-id`."""
    MESSAGE_SIZE = "message-size"


class DenialCounters:
    """Since the start of the router; a vhost keeps its numbers when it is changed or configured anew."""

    def __init__(self) -> None:
        self.total: Counter[Denial] = Counter()
        self._by_vhost: dict[str, Counter[Denial]] = {}

    def count(self, kind: Denial, vhost: str | None) -> None:
        """One more; without a vhost if it came to none."""
        self.total[kind] += 1
        if vhost is not None:
            self._by_vhost.setdefault(vhost, Counter())[kind] += 1

    def of(self, vhost: str) -> Counter[Denial]:
        """Those of one vhost."""
        return self._by_vhost.get(vhost, Counter())
