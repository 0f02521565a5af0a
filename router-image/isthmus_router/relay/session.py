"""One session with a member of another site, and the dialling of one site."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf

from isthmus_router.groups.identity import NOBODY, MemberId
from isthmus_router.groups.views import ViewId
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite

MOST_REDIRECTIONS = 3
"""In a row, before the dialler waits."""
BACKOFF_FACTOR = 1.6


class Phase(Enum):
    """Of a session."""

    DIALLING = auto()
    GREETING = auto()
    """HELLO is to come, or its answer."""
    OPEN = auto()


@dataclass(slots=True)
class Session:
    """Of this relay."""

    id: int
    site: str
    """Empty until who dialled has said it."""
    phase: Phase
    since: float
    """When the phase began."""
    heard: float
    endpoint: Endpoint | None = None
    """What was dialled."""
    certificate_names: tuple[str, ...] = ()
    peer: MemberId = NOBODY
    domain: str = ""
    acknowledged: float = -inf
    """When HELLO was answered last."""
    endpoints: tuple[Endpoint, ...] = ()
    """Of the peer."""
    told_view: ViewId | None = None
    """The last one of this site that the peer was told."""
    told_at: float = -inf
    pinged: float | None = None
    ping_at: float = inf
    round_trip: float | None = None
    """Seconds."""
    origins: set[MemberId] = field(default_factory=set)
    """Of the peer's site, whose batches come by this session."""
    through: bool = False
    """Whoever is reached is asked to pass it on to a relay."""
    acks: dict[MemberId, int] = field(default_factory=dict)
    """To be sent."""

    @property
    def dialled(self) -> bool:
        """By this side."""
        return self.id > 0


@dataclass(slots=True)
class Dialler:
    """Of one site: one session at a time, for ever."""

    site: str
    remote: RemoteSite
    settings: RelaySettings
    at: float = inf
    """When the next attempt is due."""
    session: int | None = None
    problem: str = ""
    """Why the last attempt failed; empty once one has succeeded."""
    _learned: deque[Endpoint] = field(default_factory=deque)
    """Where its relays are said to be."""
    _turn: int = 0
    _failures: int = 0
    _redirections: int = 0
    _told: bool = False
    """The present attempt is where a relay is said to be."""
    _through: bool = False

    def next(self) -> tuple[Endpoint, bool]:
        """Where to dial, and whether to ask whoever is there to pass the session through."""
        self._told = bool(self._learned)
        if self._learned:
            return self._learned.popleft(), False
        endpoint = self.remote.endpoints[self._turn % len(self.remote.endpoints)]
        self._turn += 1
        return endpoint, self._through

    def failed(self, now: float, problem: str, jitter: float) -> None:
        """The attempt has led to nothing; `jitter` is from 0 to 1."""
        self.session = None
        self.problem = problem
        if self._told and self._redirections and not self._learned:
            self._through = True
        if self._learned:
            self.at = now
            return
        self._redirections = 0
        least, most = self.settings.backoff_least, self.settings.backoff_most
        wait = min(most, least * BACKOFF_FACTOR ** min(self._failures, 20))
        self._failures += 1
        self.at = now + wait * (0.5 + jitter / 2)

    def redirected(self, now: float, endpoints: tuple[Endpoint, ...], jitter: float) -> None:
        """Who was reached is no relay, and says where those are."""
        self._redirections += 1
        self._told = False  # somebody has answered there
        if endpoints and self._redirections <= MOST_REDIRECTIONS:
            self._learned = self._usable(endpoints)
        else:
            self._learned.clear()
        self.failed(now, "no relay", jitter)

    def hint(self, now: float, endpoints: tuple[Endpoint, ...]) -> None:
        """A relay of the site is there, and may have said where: dial it now."""
        self.session = None
        self._failures = 0
        self._learned = self._usable(endpoints)
        self.at = now

    def _usable(self, endpoints: Iterable[Endpoint]) -> deque[Endpoint]:
        """Connections only to who has them configured. At an address it is always the relay that listens."""
        none = self.remote.over_network
        return deque(endpoint for endpoint in endpoints if not (none or endpoint.is_address))

    def succeeded(self) -> None:
        """There is a session with a relay."""
        self.problem = ""
        self._learned.clear()
        self._failures = self._redirections = 0
        self._through = False
        self.at = inf

    def lost(self, now: float, problem: str, jitter: float) -> None:
        """A session that was open has ended."""
        self._failures = 0
        self.failed(now, problem, jitter)
