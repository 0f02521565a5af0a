"""Makes rows of the flow log from what sources tell, in whatever order and however often they tell it.

Sans-IO: told of messages and of time, in microseconds since the epoch; `take` has the rows so far. A row whose parents
are not known yet waits for them, but not for long. What is known is bounded per source.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isthmus_flowlog.collector.columns import LAYOUTS, ONCE, RECORD_TYPES, Row
from isthmus_flowlog.collector.known import MOST_LIVE, Budget, Known, KnownOfSource, cost, cost_of_mention
from isthmus_flowlog.collector.wire import Attributes
from isthmus_flowlog.schema import DELIVERIES, EVENTS, RECORDS, TABLES
from isthmus_router.flows.records import Attr, RecordType

SECOND = 1_000_000
MINUTE_US = 60 * SECOND
HOUR_US = 60 * MINUTE_US
ASK_US = 5 * SECOND
"""A parent that is not told of in this time is asked for."""
WAIT_US = 75 * SECOND
"""For a parent to be told of: it may take a minute until the source may be asked again."""
MOST_WAITING = 10_000
"""Rows of a source that wait at a time."""
MOST_GIVEN_UP = 200
WRITTEN_AT_ONCE = 500
"""Rows of a source with each message, of those that are due at the beginning of an hour."""
FURTHEST_US = 24 * HOUR_US
"""From the time at which a summary or an event comes to its own. Each hour has files of its own, so times that are
anywhere would make as many files as there are rows. A day leaves room for clocks that are in another time zone."""
COLLECTOR_EVENT = "COLLECTOR_EVENT"
SOURCE_LOST = "source-lost"
_NOWHERE: Row = (None, None, None)
# As numbers: see `known`.
_TYPE, _IDENTITY, _PARENT = int(Attr.TYPE), int(Attr.IDENTITY), int(Attr.PARENT)
_START_TIME, _END_TIME = int(Attr.START_TIME), int(Attr.END_TIME)
_DIRECTION, _SEQUENCE, _SUBJECT = int(Attr.DIRECTION), int(Attr.SEQUENCE), int(Attr.SUBJECT)
_DELIVERY_SUMMARY, _RELAY_SUMMARY = int(RecordType.DELIVERY_SUMMARY), int(RecordType.RELAY_SUMMARY)


@dataclass(frozen=True, slots=True)
class Once:
    """Something that is told once: a summary or an event."""

    attributes: Attributes
    heard_at: int


@dataclass(slots=True)
class Counts:
    """What has become of records."""

    records: int = 0
    again: int = 0
    """Known already."""
    skipped: int = 0
    """Of types that the flow log has no table for, or beyond the bounds."""
    malformed: int = 0
    too_many: int = 0
    """Beyond what a source may send in the time, or what may be known of it."""
    unaccompanied: int = 0
    """Rows whose parents have not come in time."""


class _Source(KnownOfSource):
    """What is known of a source, and what waits to be."""

    def __init__(self, name: str, wanted: bool | None, budget: Budget, now: int) -> None:
        super().__init__(name, wanted, budget, now)
        self.waiting: dict[str, list[Known | Once]] = {}
        """By the identity of what has to be known first."""
        self.waits = 0
        self.given_up: set[str] = set()
        """Identities that were waited for in vain."""
        self.asking: deque[tuple[int, str]] = deque()
        """Until when nobody is asked: (time, identity)."""
        self.deadlines: deque[tuple[int, str]] = deque()
        """Until when is waited, likewise."""

    def overdue(self, deadlines: deque[tuple[int, str]], now: int) -> Iterator[str]:
        """What is waited for, and has not come by then."""
        while deadlines and deadlines[0][0] <= now:
            _, identity = deadlines.popleft()
            if deadlines is self.deadlines:
                self.grows(-cost_of_mention(identity))
            if identity in self.waiting:
                yield identity


class Assembly:
    """All sources of one collector. `wanted` says whether the rows of a router, by its id, are to be kept."""

    def __init__(self, wanted: Callable[[str], bool] | None = None) -> None:
        self.counts = Counts()
        self.to_ask: set[str] = set()
        """Sources that should tell everything again."""
        self.unwanted: set[str] = set()
        """Sources whose rows are not kept, as was found since the last look."""
        self.proven: set[str] = set()
        """Sources that have sent the record of their router since the last look."""
        self._wanted = wanted
        self._budget = Budget()
        self._sources: dict[str, _Source] = {}
        self._sites: dict[str, Known] = {}
        """SITE records, of any source."""
        self._rows: dict[str, list[Row]] = {table.name: [] for table in TABLES}
        self.octets = 0
        """Bytes of text in these rows that was told before, by other messages than those that they are from."""

    def take(self) -> dict[str, list[Row]]:
        """The rows since the last time, by table, as `columns.LAYOUTS` has them."""
        rows, self._rows = self._rows, {table.name: [] for table in TABLES}
        self.octets = 0
        return rows

    # What is heard

    def heard(
        self, source_name: str, now: int, records: list[Attributes] | None = None, missed: int = 0
    ) -> None:
        """A message of the source has come, with these records; `missed` have not, so far."""
        source = self._sources.get(source_name)
        if source is None:
            source = self._sources[source_name] = _Source(
                source_name, None if self._wanted else True, self._budget, now
            )
            source.hour, source.minute = now // HOUR_US, now // MINUTE_US
        source.heard_at, source.missed = now, missed
        if records and not source.may_send(len(records), now):
            self.counts.too_many += len(records)
            records = None
        for attributes in records or ():
            self._record(source, attributes, now)
        self._regularly(source, now)

    def _record(self, source: _Source, attributes: Attributes, now: int) -> None:
        self.counts.records += 1
        record_type, identity = attributes.get(_TYPE), attributes.get(_IDENTITY)
        if not isinstance(record_type, int) or not isinstance(identity, str):
            self.counts.malformed += 1
        elif record_type in ONCE:
            if identity in source.over:
                self.counts.again += 1
                return
            if not source.has_room:
                self.counts.too_many += 1
                return
            self._ended(source, identity, None)
            other = _SUBJECT if record_type == _RELAY_SUMMARY else _DIRECTION
            source.counted(attributes.get(_PARENT), attributes.get(other), attributes.get(_SEQUENCE), now)
            self._finish(source, Once(attributes, now))
        elif record_type in RECORD_TYPES:
            self._known(source, record_type, identity, attributes, now)
        else:
            self.counts.skipped += 1

    def _known(
        self, source: _Source, record_type: int, identity: str, attributes: Attributes, now: int
    ) -> None:
        known = source.live.get(identity)
        if known is None:
            if identity in source.over:
                self.counts.again += 1
                return
            if len(source.live) >= MOST_LIVE or not source.has_room:
                self.counts.too_many += 1
                return
            known = source.live[identity] = Known(record_type, identity)
        elif not source.has_room and _END_TIME not in attributes:
            self.counts.too_many += 1
            return
        was_complete = known.complete
        matters, about = known.take(attributes)
        if matters or not known.size:
            size = cost(known.attributes)
            source.grows(size - known.size)
            known.size = size
        if not known.complete:
            if not was_complete and not known.heard_at:
                known.heard_at = now
                self._wait(source, identity, None, now)
            return
        if not matters and was_complete:
            self.counts.again += 1
            return
        known.heard_at = now
        if about and was_complete:
            source.version += 1
        if record_type == RecordType.SITE:
            # The first source that has it; another one does not replace what is said of sites.
            self._sites.setdefault(identity, known)
        if known.over:
            self._ended(source, identity, known)
        if record_type == RecordType.ROUTER and identity == source.name:
            self.proven.add(source.name)
            if source.wanted is None:
                self._decide(source, known)
        self._finish(source, known)
        if not was_complete:
            self._release(source, identity)

    def _ended(self, source: _Source, identity: str, known: Known | None) -> None:
        self._no_site(source.ended(identity, known))

    def _no_site(self, known: Known | None) -> None:
        """The record is not known any more."""
        if known is not None and self._sites.get(known.identity) is known:
            del self._sites[known.identity]

    def _decide(self, source: _Source, router: Known) -> None:
        assert self._wanted is not None
        source.wanted = self._wanted(str(router.attributes.get(Attr.NAME)))
        if not source.wanted:
            self.unwanted.add(source.name)

    # Rows, and waiting for what they need

    def _finish(self, source: _Source, item: Known | Once, *, wait: bool = True) -> None:
        """Make a row of it, unless something has to be known first."""
        parent: object = source.name
        if isinstance(item, Once):
            if item.attributes[_TYPE] == _DELIVERY_SUMMARY:
                parent = item.attributes.get(_PARENT)
        elif item.waiting and wait:
            return
        missing = self._missing(source, parent)
        if missing is not None:
            if wait and missing not in source.given_up and source.waits < MOST_WAITING:
                if isinstance(item, Known):
                    item.waiting = True
                self._wait(source, missing, item, item.heard_at)
                return
            self.counts.unaccompanied += 1
        if isinstance(item, Known):
            item.waiting = False
            self._write_record(source, item, item.heard_at)
        else:
            self._write_once(source, item)

    def _missing(self, source: _Source, identity: object) -> str | None:
        """The first of a record and its parents that is not known."""
        known = source.find(identity) if isinstance(identity, str) else None
        if known is not None and known.context_version == source.version:
            return None
        for known_or_missing in source.parents(identity):
            if isinstance(known_or_missing, str):
                return None if known_or_missing in self._sites else known_or_missing
        return None

    def _wait(self, source: _Source, missing: str, item: Known | Once | None, now: int) -> None:
        waiting = source.waiting.get(missing)
        if waiting is None:
            waiting = source.waiting[missing] = []
            source.asking.append((now + ASK_US, missing))
            source.deadlines.append((now + WAIT_US, missing))
            source.grows(cost_of_mention(missing))
        if item is not None:
            waiting.append(item)
            source.waits += 1
            if isinstance(item, Once):
                source.grows(cost(item.attributes))

    def _release(self, source: _Source, identity: str, *, wait: bool = True) -> None:
        """It is known now, or will not be."""
        source.given_up.discard(identity)
        waiting = source.waiting.pop(identity, ())
        source.waits -= len(waiting)
        for item in waiting:
            if isinstance(item, Known):
                item.waiting = False
            else:
                source.grows(-cost(item.attributes))
            self._finish(source, item, wait=wait)

    def _give_up(self, source: _Source, identity: str) -> None:
        known = source.live.get(identity)
        if known is not None and not known.complete:
            del source.live[identity]
            source.grows(-known.size)
        self._release(source, identity, wait=False)
        if len(source.given_up) >= MOST_GIVEN_UP:
            source.given_up.clear()
        source.given_up.add(identity)

    # Time

    def tick(self, now: int) -> None:
        """Time has passed; to be called about once a second."""
        for source in self._sources.values():
            for _ in source.overdue(source.asking, now):
                self.to_ask.add(source.name)
            for identity in source.overdue(source.deadlines, now):
                self._give_up(source, identity)
            if source.holes and source.summaries_missed(now):
                self.to_ask.add(source.name)

    def _regularly(self, source: _Source, now: int) -> None:
        """The ROUTER every minute, everything every hour."""
        minute, hour = now // MINUTE_US, now // HOUR_US
        if hour != source.hour:
            source.hour, source.minute = hour, minute
            source.to_write = list(reversed(source.live))
        elif minute != source.minute:
            source.minute = minute
            if source.router is not None and not source.router.over:
                self._write_again(source, source.router, now)
        if source.to_write:
            for _ in range(min(WRITTEN_AT_ONCE, len(source.to_write))):
                known = source.live.get(source.to_write.pop())
                if known is not None and known.complete and not known.waiting:
                    self._write_again(source, known, now)

    def _write_again(self, source: _Source, known: Known, now: int) -> None:
        if known.written_at < now:
            self._write_record(source, known, now)

    def lost(self, source_name: str, now: int) -> bool:
        """The source is not heard any more. False: it has said that it ends, and is not lost."""
        source = self._sources.get(source_name)
        if source is None:
            return True
        router = source.router
        if router is not None and router.over:
            return False
        where = self._where(source)
        if router is not None:
            heard_at = max(source.heard_at, router.written_at + 1)
            self._write_record(source, router, heard_at, lost=True)
        silent = (now - source.heard_at) // SECOND
        event: dict[int, object] = {
            Attr.START_TIME: now,
            Attr.EVENT: SOURCE_LOST,
            Attr.SUBJECT: where[1],
            Attr.REASON: f"not heard for {silent} s",
        }
        made = (f"{source.name}/{SOURCE_LOST}/{source.heard_at}", source.name, now, COLLECTOR_EVENT)
        self._keep(source, EVENTS.name, LAYOUTS[EVENTS.name].row(event, where, made), where)
        return True

    def forgotten(self, source_name: str) -> None:
        """The source will not be heard again: rows of it wait no more."""
        source = self._sources.pop(source_name, None)
        if source is None:
            return
        for identity in list(source.waiting):
            self._release(source, identity, wait=False)
        for known in (*source.live.values(), *source.over.values()):
            self._no_site(known)
        source.forgotten()

    def close(self) -> None:
        """There is no time left to wait."""
        for name in list(self._sources):
            self.forgotten(name)

    # Rows

    def _keep(self, source: _Source, table: str, row: Row, repeated: Row) -> None:
        """`repeated`: its values that were told before."""
        if source.wanted:
            self._rows[table].append(row)
            texts = [value for value in repeated if type(value) is str]
            octets = sum([len(text) if text.isascii() else 4 * len(text) for text in texts])
            source.repeats(octets)
            self.octets += octets

    def _write_record(self, source: _Source, known: Known, heard_at: int, *, lost: bool = False) -> None:
        known.written_at = heard_at
        missed = source.missed if known.type == RecordType.ROUTER else None
        made = (known.identity, source.name, heard_at, RecordType(known.type).name, lost, missed)
        row = LAYOUTS[RECORDS.name].row(known.attributes, self._where(source), made)
        self._keep(source, RECORDS.name, row, row)

    def _write_once(self, source: _Source, item: Once) -> None:
        attributes = item.attributes
        record_type = attributes[_TYPE]
        table = ONCE[record_type]
        time = attributes.get(_START_TIME if table is EVENTS else _END_TIME)
        if not isinstance(time, int) or abs(time - item.heard_at) > FURTHEST_US:
            self.counts.malformed += 1
            return
        if not attributes.keys() >= LAYOUTS[table.name].needed:
            self.counts.malformed += 1
            return
        made: Row = (attributes[_IDENTITY], source.name, item.heard_at)
        if table is DELIVERIES:
            around = self._context(source, attributes.get(_PARENT))
        else:
            around = self._where(source)
            if table is EVENTS:
                made += (RecordType(record_type).name,)
        self._keep(source, table.name, LAYOUTS[table.name].row(attributes, around, made), around)

    def _where(self, source: _Source) -> Row:
        router = source.router
        if router is None:
            return _NOWHERE
        if router.context is None or router.context_version != source.version:
            return self._context(source, source.name)[:3]
        return router.context[:3]

    def _context(self, source: _Source, identity: object) -> Row:
        """What a row says of the record it is about, and of its parents; see `columns.CONTEXT`."""
        subject = source.find(identity) if isinstance(identity, str) else None
        if subject is not None and subject.context is not None and subject.context_version == source.version:
            return subject.context
        by_type: dict[int, Known] = {}
        endpoint: Known | None = None
        complete = True
        for known in source.parents(identity):
            if isinstance(known, str):
                site = self._sites.get(known)
                if site is None:
                    complete = False
                    break
                known = site
            if known.type in _ENDPOINTS:
                endpoint = known
            else:
                by_type[known.type] = known
        router = by_type.get(RecordType.ROUTER) or source.router

        def of(known: Known | None, *attributes: Attr) -> object:
            found = (known.attributes.get(attribute) for attribute in attributes) if known is not None else ()
            return next((value for value in found if value is not None), None)

        site = by_type.get(RecordType.SITE)
        connection, link = by_type.get(RecordType.CONNECTION), by_type.get(RecordType.AMQP_LINK)
        context = (
            of(site, Attr.NAME),
            of(router, Attr.NAME),
            of(router, Attr.MODE),
            of(connection, Attr.ROLE),
            of(endpoint, Attr.NAME),
            connection.identity if connection is not None else None,
            link.identity if link is not None else None,
            of(link, Attr.NAME),
            of(connection, Attr.CONTAINER),
            of(connection, Attr.USER),
            of(connection, Attr.SOURCE_HOST, Attr.DEST_HOST),
            of(connection, Attr.ACTIVE_TLS_ORDINAL),
        )
        if subject is not None and complete:
            subject.context, subject.context_version = context, source.version
        return context


_ENDPOINTS = frozenset({RecordType.LINK, RecordType.LISTENER, RecordType.CONNECTOR, RecordType.ROUTER_ACCESS})
