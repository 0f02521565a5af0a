"""What happens between relay sites, as records: the membership of this router, intervals of other sites, events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from isthmus_router.flows.records import Attr, Record, RecordType
from isthmus_router.flows.source import FlowSource

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class RemoteFigures:
    """Of another site, as this member knows it. Counts begin with the member."""

    site: str
    state: str
    sent: int
    replayed: int
    received: int
    duplicates: int
    dropped: int
    gaps: int
    held_back_seconds: float
    lag_messages: int
    lag_bytes: int
    lag_seconds: float
    round_trip_seconds: float | None

    @property
    def counts(self) -> dict[Attr, int]:
        """What grows."""
        return {
            Attr.SENT: self.sent,
            Attr.REPLAYED: self.replayed,
            Attr.RECEIVED: self.received,
            Attr.DUPLICATES: self.duplicates,
            Attr.DROPPED: self.dropped,
            Attr.GAPS: self.gaps,
            Attr.HELD_BACK: round(self.held_back_seconds * _SECOND_US),
        }


@dataclass(frozen=True, slots=True)
class MemberFigures:
    """Of this router as a member of a site."""

    group: str
    site: str
    name: str
    members: int
    """In the view; 0: there is none yet."""
    coordinator: bool
    relays: bool
    remotes: Sequence[RemoteFigures]


@dataclass(slots=True)
class _Remote:
    since: int
    state: str
    counts: dict[Attr, int] = field(default_factory=dict)
    sequence: int = 0


@dataclass(slots=True)
class _Member:
    record: Record
    group: str
    site: str
    since: int
    relays: bool = False
    remotes: dict[str, _Remote] = field(default_factory=dict)


class RelayRecorder:
    """Of one router. `now` is the time in microseconds since the epoch."""

    def __init__(self, source: FlowSource, now: Callable[[], int]) -> None:
        self._source = source
        self._now = now
        self._member: _Member | None = None

    def joins(self, group: str, site: str, name: str) -> None:
        """The router becomes a member; anew, if it is one."""
        self.leaves()
        now = self._now()
        values = {Attr.NAME: name, Attr.RELAY_GROUP: group, Attr.RELAY_SITE: site}
        record = self._source.begin(RecordType.RELAY_MEMBER, self._source.router, now, values)
        self._member = _Member(record, group, site, now)

    def leaves(self) -> None:
        """It is a member no more."""
        if self._member is not None:
            self._source.end(self._member.record, self._now())
            self._member = None

    def event(
        self, event: str, subject: str | None = None, count: int | None = None, reason: str | None = None
    ) -> None:
        """Something has happened at the member. `subject` is another site or a member; `count` messages or members."""
        if self._member is None:
            return
        values = {
            Attr.EVENT: event,
            Attr.SUBJECT: subject,
            Attr.LINK_COUNT: count,
            Attr.REASON: reason,
            Attr.RELAY_GROUP: self._member.group,
            Attr.RELAY_SITE: self._member.site,
        }
        self._source.event(RecordType.RELAY_EVENT, self._now(), values)

    def look(self, figures: MemberFigures) -> None:
        """How the member is now. Tells of what changes who carries messages."""
        member = self._member
        if member is None:
            return
        values = {
            Attr.LINK_COUNT: figures.members,
            Attr.COORDINATOR: int(figures.coordinator),
            Attr.RELAYS: int(figures.relays),
        }
        self._source.update(member.record, values)
        if figures.relays != member.relays:
            member.relays = figures.relays
            self.event("relaying-begins" if figures.relays else "relaying-ends")

    def interval_ends(self, figures: MemberFigures) -> None:
        """Tell of each other site that something has happened with, or that is not as it should be."""
        self.look(figures)
        member = self._member
        if member is None:
            return
        for site in set(member.remotes) - {remote.site for remote in figures.remotes}:
            del member.remotes[site]
        for remote in figures.remotes:
            known = member.remotes.setdefault(remote.site, _Remote(member.since, ""))
            self._cut(member, known, remote, figures.relays)

    def _cut(self, member: _Member, known: _Remote, remote: RemoteFigures, relays: bool) -> None:
        now, start, state = self._now(), known.since, known.state
        counts = remote.counts
        grown = {attribute: count - known.counts.get(attribute, 0) for attribute, count in counts.items()}
        known.since, known.state, known.counts = now, remote.state, counts
        if not (relays or any(grown.values()) or remote.state != state):
            return
        known.sequence += 1
        self._source.past(
            RecordType.RELAY_SUMMARY,
            member.record,
            start,
            now,
            {
                Attr.RELAY_GROUP: member.group,
                Attr.RELAY_SITE: member.site,
                Attr.SUBJECT: remote.site,
                Attr.SEQUENCE: known.sequence,
                Attr.OPER_STATUS: remote.state,
                Attr.RELAYS: int(relays),
                **grown,
                Attr.LAG_MESSAGES: remote.lag_messages,
                Attr.LAG_BYTES: remote.lag_bytes,
                Attr.LAG: round(remote.lag_seconds * _SECOND_US),
                Attr.ROUND_TRIP: None
                if remote.round_trip_seconds is None
                else round(remote.round_trip_seconds * _SECOND_US),
            },
        )
