"""What is told of rotations as Events: each step once, and a rotation that does not come to its end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from ..events import Note
from ..status import ProfileFacts, stuck


class RotationAnnouncer:
    """Decides what is news about SslProfiles."""

    def __init__(self) -> None:
        self._stuck: dict[str, int] = {}
        """Uid of a profile to the last ordinal that was told to be stuck."""

    def retain(self, uids: Iterable[str]) -> None:
        """Forgets profiles other than these."""
        alive = set(uids)
        self._stuck = {uid: ordinal for uid, ordinal in self._stuck.items() if uid in alive}

    def news(self, facts: ProfileFacts, now: datetime) -> list[Note]:
        """What is to be told after a look."""
        notes = [Note("Normal", item.reason, item.message) for item in facts.changes]
        ledger, uid = facts.ledger, facts.profile.metadata.uid
        if ledger is not None and stuck(ledger, facts.usage, now) and self._stuck.get(uid) != ledger.ordinal:
            self._stuck[uid] = ledger.ordinal
            text = f"ordinal {ledger.ordinal} is not in use everywhere: {'; '.join(facts.usage.behind)}"
            notes.append(Note("Warning", "RotationStuck", text))
        return notes
