"""What one source has told so far, within bounds: records that are there, and which ones were told of and are over."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from isthmus_flowlog.collector.columns import COUNTERS, Row
from isthmus_flowlog.collector.gaps import Gaps
from isthmus_flowlog.collector.wire import Attributes
from isthmus_router.flows.records import Attr, RecordType

MOST_LIVE = 20_000
"""Records of a source that are there; a router has at most 15,000 or so."""
MOST_OVER = 8000
"""Records of a source that are over, so that one that is told again is known; a router keeps 5,000 of them."""
MOST_SEQUENCES = 20_000
MOST_HOLES = 200
"""Of these, that may be missing summaries at a time; when more are, what is missing is missed at once."""
MOST_SUMMARIES_AWAITED = 100
MOST_OF_SOURCE = 64 * 1024 * 1024
"""Bytes, as estimated, that are known of one source; a router with all of its 15,000 records has about 30 MiB."""
MOST_OF_ALL = 1024 * 1024 * 1024
"""Bytes, as estimated, of all sources. Beyond that a source may have an equal share only."""
RECORDS_A_SECOND, RECORDS_AT_ONCE = 2500, 50_000
"""Of one source, on average and after a pause. A router sends 2,000, and has 20,000 to tell again."""
MOST_REPEATED = 2000
"""Bytes of text that was told before, in a row. Each thousand beyond it counts as another record of the source, as a
change of a few bytes makes a row with all that is known."""
_OF_RECORD, _OF_ATTRIBUTE, _OF_CHARACTER, _OF_BUCKET, _OF_MENTION = 700, 60, 4, 120, 200
"""Bytes, as estimated."""
SEQUENCE_SLACK_US = 10_000_000
"""After FLUSH what is new and what is told again come together: that long for 5,000 summaries, and then some."""
# As numbers, for looking up a member of an enumeration takes ten times as long as looking up an attribute by it.
_START_TIME, _END_TIME, _PARENT = int(Attr.START_TIME), int(Attr.END_TIME), int(Attr.PARENT)
_ROUTER_PREFIX = "0/"
_DEEPEST = 8
_OF_CONTEXT = frozenset(
    {
        Attr.PARENT,
        Attr.NAME,
        Attr.MODE,
        Attr.ROLE,
        Attr.CONTAINER,
        Attr.USER,
        Attr.SOURCE_HOST,
        Attr.DEST_HOST,
        Attr.ACTIVE_TLS_ORDINAL,
    }
)
"""What rows about deliveries say of their record's parents."""


def cost(attributes: Attributes) -> int:
    """Bytes that a record takes, as estimated."""
    size = _OF_RECORD + _OF_ATTRIBUTE * len(attributes)
    for value in attributes.values():
        if isinstance(value, str):
            size += _OF_CHARACTER * len(value)
        elif isinstance(value, list):
            size += _OF_BUCKET * len(value)
    return size


def cost_of_mention(*names: str) -> int:
    """Bytes that the names take where nothing else is known of their record, as estimated."""
    return _OF_MENTION + _OF_CHARACTER * sum(map(len, names))


class Budget:
    """What all sources together take."""

    def __init__(self) -> None:
        self.used = 0
        """Bytes, as estimated."""
        self.sources = 0

    def allows(self, size: int) -> bool:
        """Whether a source of that size may have more."""
        return size < MOST_OF_SOURCE and (self.used < MOST_OF_ALL or size < MOST_OF_ALL // self.sources)


class Known:
    """A record that is there for a while, after all changes so far."""

    __slots__ = (
        "attributes",
        "context",
        "context_version",
        "heard_at",
        "identity",
        "size",
        "type",
        "waiting",
        "written_at",
    )

    def __init__(self, record_type: int, identity: str) -> None:
        self.type = record_type
        self.identity = identity
        self.attributes: Attributes = {}
        self.size = 0
        """Bytes, as estimated."""
        self.heard_at = 0
        """Of the last change."""
        self.written_at = 0
        """`heard_at` of the last row."""
        self.waiting = False
        """A row of it waits for its router to be known."""
        self.context: Row | None = None
        """What rows about its deliveries say of it and its parents, as of `context_version`."""
        self.context_version = 0

    @property
    def complete(self) -> bool:
        """Not only changes were heard of it."""
        return _START_TIME in self.attributes

    @property
    def over(self) -> bool:
        """It will not change any more."""
        return _END_TIME in self.attributes

    def take(self, attributes: Attributes) -> tuple[bool, bool]:
        """Take over what has changed; whether anything but counters has, and anything that `context` is about."""
        mine = self.attributes
        if self.type == RecordType.ROUTER and isinstance(name := attributes.get(Attr.NAME), str):
            attributes = {**attributes, Attr.NAME: name.removeprefix(_ROUTER_PREFIX)}
        matters = about = False
        for attribute, value in attributes.items():
            if mine.get(attribute) != value:
                mine[attribute] = value
                if attribute not in COUNTERS:
                    matters = True
                    about = about or attribute in _OF_CONTEXT
        return matters, about


class KnownOfSource:
    """All that is known of one source."""

    def __init__(self, name: str, wanted: bool | None, budget: Budget, now: int) -> None:
        self.name = name
        self._budget = budget
        self.size = 0
        """Bytes, as estimated, of all that follows."""
        budget.sources += 1
        self._records = float(RECORDS_AT_ONCE)
        """That it may send now."""
        self._replenished_at = now
        self.wanted = wanted
        """Whether its rows are to be kept; None: its router has to be known to tell."""
        self.heard_at = 0
        self.live: dict[str, Known] = {}
        self.over: OrderedDict[str, Known | None] = OrderedDict()
        """What is over, the oldest first; None for what is told once."""
        self.version = 1
        """Raised when a context may be another one."""
        self.sequences: OrderedDict[tuple[str, str], Gaps] = OrderedDict()
        """Of summaries, by what they are about."""
        self.holes: dict[tuple[str, str], Gaps] = {}
        """Those that may be missing some."""
        self.missed = 0
        """Messages."""
        self.minute = self.hour = 0
        """In which the ROUTER, and everything, was written last."""
        self.to_write: list[str] = []
        """Identities that the beginning of the hour has yet to write."""

    @property
    def router(self) -> Known | None:
        """Its ROUTER record, once that is known."""
        known = self.live.get(self.name) or self.over.get(self.name)
        return known if known is not None and known.complete else None

    def find(self, identity: str) -> Known | None:
        """The record, if all of it is known."""
        known = self.live.get(identity) or self.over.get(identity)
        return known if known is not None and known.complete else None

    @property
    def has_room(self) -> bool:
        """Whether more may be known of it."""
        return self._budget.allows(self.size)

    def grows(self, size: int) -> None:
        """So much more is known of it; less, where it is negative."""
        self.size += size
        self._budget.used += size

    def forgotten(self) -> None:
        """Nothing is known of it any more."""
        self.grows(-self.size)
        self._budget.sources -= 1

    def may_send(self, records: int, now: int) -> bool:
        """Whether so many records are within what a source may send; counts them then."""
        passed, self._replenished_at = max(0, now - self._replenished_at), now
        self._records = min(self._records + passed * RECORDS_A_SECOND / 1e6, RECORDS_AT_ONCE)
        if records > self._records:
            return False
        self._records -= records
        return True

    def repeats(self, octets: int) -> None:
        """A row of it has so many bytes of text that was told before."""
        self._records -= max(0, octets - MOST_REPEATED) / 1000

    def ended(self, identity: str, known: Known | None) -> Known | None:
        """It is over: remember that. Returns the record that is forgotten for it."""
        self.live.pop(identity, None)
        oldest = None
        if len(self.over) >= MOST_OVER:
            forgotten, oldest = self.over.popitem(last=False)
            self.grows(-(cost_of_mention(forgotten) if oldest is None else oldest.size))
        self.over[identity] = known
        if known is None:
            self.grows(cost_of_mention(identity))
        return oldest

    def counted(self, parent: object, other: object, number: object, now: int) -> None:
        """A summary has come, if it has a number: of `parent`, in one direction or with one other site."""
        if not (isinstance(number, int) and isinstance(parent, str) and isinstance(other, str)):
            return
        subject = (parent, other)
        gaps = self.sequences.get(subject)
        if gaps is None:
            if len(self.sequences) >= MOST_SEQUENCES:
                oldest, _ = self.sequences.popitem(last=False)
                self.holes.pop(oldest, None)
                self.grows(-cost_of_mention(*oldest))
            gaps = self.sequences[subject] = Gaps(SEQUENCE_SLACK_US, MOST_SUMMARIES_AWAITED)
            self.grows(cost_of_mention(*subject))
        gaps.heard(number, now)
        if gaps.open:
            if subject not in self.holes and len(self.holes) >= MOST_HOLES:
                self.holes.pop(next(iter(self.holes))).give_up()
            self.holes[subject] = gaps

    def summaries_missed(self, now: int) -> int:
        """How many summaries have been found to be missing since the last time."""
        found = 0
        for subject, gaps in list(self.holes.items()):
            before = gaps.missed
            found += gaps.overdue(now) - before
            if not gaps.open:
                del self.holes[subject]
        return found

    def parents(self, identity: object) -> Iterator[Known | str]:
        """A record and those above it; where one is not known, its identity, and that is the last."""
        for _ in range(_DEEPEST):
            if not isinstance(identity, str):
                return
            known = self.find(identity)
            if known is None:
                yield identity
                return
            yield known
            identity = known.attributes.get(_PARENT)
