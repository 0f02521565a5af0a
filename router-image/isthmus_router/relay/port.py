"""What the relay asks of what is around it: the driver of bridge sessions, the streams, and who hears of events.

Every call returns at once; none calls back before it does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol

from isthmus_router.groups.batch import Batch
from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId
from isthmus_router.relay.settings import Endpoint
from isthmus_router.relay.sites import GlobalView, SiteState


class BridgePort(Protocol):
    """The driver: sessions with members of other sites.

    A session is a number: positive where this member dialled (the relay counts them), negative where it was dialled
    (the driver does). The driver tells `opened`, `frame` and `closed` of `Relay`; a dial that failed is `closed`,
    without an `opened` before. Whole frames arrive, in order; over a lossy transport some may not.
    """

    def dial(self, session: int, site: str, endpoint: Endpoint) -> None:
        """Make a connection; a DNS name is resolved for each attempt, its addresses tried in turn."""

    def send(self, session: int, frame: bytes) -> None:
        """Send; dropped if the session has ended."""

    def close(self, session: int, reason: str) -> None:
        """End it, after what was sent is written (or 1 s). `closed` is not told."""

    def backlog(self, session: int) -> int:
        """Bytes sent that the transport has not taken yet."""

    def splice(self, session: int, endpoint: Endpoint, first: bytes) -> None:
        """Connect to the endpoint, send `first`, and pass frames between the two until one ends. The relay hears
        nothing of the session any more."""


class StreamLog(Protocol):
    """What is kept of one origin's stream."""

    @property
    def site(self) -> str:
        """Of the origin."""

    @property
    def low(self) -> int:
        """The lowest number kept; `next` if nothing is."""

    @property
    def next(self) -> int:
        """The lowest number that has not been delivered here."""

    @property
    def messages(self) -> int:
        """The origin's messages in batches before `next`."""

    def get(self, number: int) -> Batch | None:
        """The batch, if it is kept."""

    def batches(self, start: int) -> Iterator[Batch]:
        """Those kept from `start` on and below `next`, ascending."""


class SiteStreams(Protocol):
    """The streams of this member, as far as the relay uses them."""

    def origins(self) -> Iterable[MemberId]:
        """Every origin that has a stream here."""

    def log(self, origin: MemberId) -> StreamLog | None:
        """Of one origin; None: no stream of it."""

    def has_stream(self, origin: MemberId) -> bool:
        """Whether there is a stream of the origin, also if it has not begun."""

    def accept(self, now: float, batch: Batch, source: MemberId | None, *, disseminate: bool = False) -> bool:
        """A batch from another site, to be sent on to every member; False: it was here before, or there is no place for
        its stream."""

    def start(self, now: float, origin: MemberId, site: str, number: int, messages: int) -> None:
        """The stream of another site's origin starts at that number, `messages` after its first. Told to every
        member; nothing if there is such a stream."""

    def skip(
        self, now: float, origin: MemberId, site: str, from_number: int, to_number: int, messages_lost: int
    ) -> None:
        """What has these numbers will not come (0 messages lost: it was not for this site). Told to every member;
        what is here anyway is delivered."""

    def backfill(self, now: float, origin: MemberId, number: int) -> None:
        """Ask others for what is missing below `low`, from `number` on."""

    @property
    def ready(self) -> bool:
        """Nothing that was asked for by `backfill` is still awaited."""

    def held(self, origin: MemberId) -> int:
        """The highest number up to which this member and another one (or this one alone) hold the stream."""

    def site_view(self, now: float, site: str, ids: Collection[MemberId]) -> None:
        """Who is alive in another site: streams of others may be forgotten after a while."""


class RelayUser(Protocol):
    """Who hears of what the relay does."""

    def site_changed(self, now: float, site: str, state: SiteState) -> None:
        """At every member: another site is in a new state."""

    def global_view(self, now: float, view: GlobalView) -> None:
        """At every member: the members of all sites have changed."""

    def forwarded(self, now: float, kind: Kind, source: MemberId, body: bytes) -> None:
        """A frame from a member of another site to this one. UNICAST_LOST without a body: there is no such member
        as `source`."""

    def backlog(self, member: MemberId) -> int:
        """Bytes that wait to be sent to another member of the own site."""

    def behind(self, now: float) -> bool:
        """Whether receivers of this member take what comes, but more slowly than it does."""

    def room_changed(self, now: float) -> None:
        """There may be room to publish again."""

    def relay_left(self, now: float) -> None:
        """What `leave` has begun is done: bridge sessions are closed."""

    def stranger(self, site: str, reason: str) -> None:
        """Somebody was refused who is of no configured site; `site` as it has said, or empty."""

    def log(self, event: str, *, trouble: bool = False, **fields: object) -> None:
        """Something worth a line in the log; `trouble`: somebody may have to do something about it."""
