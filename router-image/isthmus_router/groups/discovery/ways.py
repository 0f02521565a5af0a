"""Asking by every kind of discovery at once, each physical address once.

What is asked is kept for a short while, as names and gossip routers are slow to answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from isthmus_router.groups.discovery.kinds import DiscoveryKind
from isthmus_router.groups.identity import MemberInfo, PhysicalAddress
from isthmus_router.groups.port import NetworkPort

MOST_QUESTIONS = 16
"""That are kept; the newest."""
MOST_ASKED = 2_000
"""Addresses for one question."""


@dataclass(slots=True)
class _Question:
    frame: bytes
    until: float
    asked: set[PhysicalAddress] = field(default_factory=set)


class Ways:
    """All kinds of one member."""

    def __init__(self, kinds: Sequence[DiscoveryKind], port: NetworkPort) -> None:
        self._kinds = tuple(kinds)
        self._port = port
        self._own: frozenset[PhysicalAddress] = frozenset()
        self._questions: deque[_Question] = deque(maxlen=MOST_QUESTIONS)

    def ask(self, now: float, frame: bytes, *, worth: float) -> None:
        """Send to whoever may be there, and to whom lookups find within so many seconds. The own addresses are not
        asked. The same question takes the place of an earlier one."""
        question = _Question(frame, now + worth)
        same = next((each for each in self._questions if each.frame == frame), None)
        if same is not None:
            self._questions.remove(same)
        self._questions.append(question)
        for kind in self._kinds:
            self._put(question, kind.ask(frame))

    def on_resolved(self, now: float, host: str, addresses: Sequence[str]) -> None:
        """A DNS name was looked up."""
        self._follow(now, [each for kind in self._kinds for each in kind.on_resolved(host, addresses)])

    def on_gossip_members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        """A gossip router has said whom it knows."""
        found = (islice(kind.on_gossip_members(infos), MOST_ASKED) for kind in self._kinds)
        self._follow(now, [address for each in found for address in each])

    def learned(self, addresses: Iterable[PhysicalAddress]) -> None:
        """Somebody of the group is there."""
        for address in addresses:
            for kind in self._kinds:
                kind.learned(address)

    def readdressed(self, addresses: Iterable[PhysicalAddress]) -> None:
        """The own addresses."""
        self._own = frozenset(addresses)

    def _follow(self, now: float, addresses: Sequence[PhysicalAddress]) -> None:
        for question in tuple(self._questions):
            if question.until <= now:
                self._questions.remove(question)
            else:
                self._put(question, addresses)

    def _put(self, question: _Question, addresses: Iterable[PhysicalAddress]) -> None:
        for address in islice(addresses, MOST_ASKED):
            if (
                address not in self._own
                and address not in question.asked
                and len(question.asked) < MOST_ASKED
            ):
                question.asked.add(address)
                self._port.send(address, question.frame)
