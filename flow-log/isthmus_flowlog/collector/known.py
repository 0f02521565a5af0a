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


class Known:
    """A record that is there for a while, after all changes so far."""

    __slots__ = (
        "attributes",
        "context",
        "context_version",
        "heard_at",
        "identity",
        "type",
        "waiting",
        "written_at",
    )

    def __init__(self, record_type: int, identity: str) -> None:
        self.type = record_type
        self.identity = identity
        self.attributes: Attributes = {}
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

    def __init__(self, name: str, wanted: bool | None) -> None:
        self.name = name
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

    def ended(self, identity: str, known: Known | None) -> None:
        """It is over: remember that."""
        self.live.pop(identity, None)
        if len(self.over) >= MOST_OVER:
            self.over.popitem(last=False)
        self.over[identity] = known

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
            gaps = self.sequences[subject] = Gaps(SEQUENCE_SLACK_US)
        gaps.heard(number, now)
        if gaps.open:
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
