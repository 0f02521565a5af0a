"""The source of a router's flow records: keeps them, and says what has changed to whoever collects.

Sans-IO. `on_tick` is to be called five times a second with the time, in microseconds since the epoch, and returns
what is to be sent. A record that changes often is told of once a second. What has ended is kept for a while, so that
a collector that comes back, or comes late, still hears of it when it asks (FLUSH).
Source: the vanflow records of the skupper-router family.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from isthmus_router.flows import messages
from isthmus_router.flows.records import Attr, Record, RecordType, Value

TICK_SECONDS = 0.2
SLOTS = 5
"""Ticks between two messages about the same record."""
RECORDS_PER_MESSAGE = 50
MESSAGES_PER_TICK = 4
"""On each address: more than that waits, so that neither the router nor what is on the way is flooded."""
AGAIN_PER_TICK = RECORDS_PER_MESSAGE * MESSAGES_PER_TICK
"""Records that are told again in one tick after FLUSH. As many are sent in it."""
BEACON_TICKS = 50
HEARTBEAT_TICKS = 10
ENDED_RECORDS = 5000
"""As many that have ended are kept to be told again, while somebody collects or has done so of late."""
ENDED_UNCOLLECTED = 500
"""As many where nobody collects."""
ENDED_US = 600_000_000
"""So long."""
EVENTS_PER_SECOND = 20
"""Records of events that begin; more than that at a time, and the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent, pre-settled."""

    to: str
    payload: bytes


class Channel:
    """An address of records, and those that wait to be sent there."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.slots: list[dict[Record, None]] = [{} for _ in range(SLOTS + 1)]
        """By the tick in which they are to be sent; the last one has those for which there was no room in theirs."""

    def put(self, record: Record, tick: int) -> None:
        """The record has changed: it waits for its turn, unless it does already."""
        if record.slot is None:
            sent = record.sent_tick
            recently = sent is not None and tick - sent < SLOTS
            record.slot = (sent if recently and sent is not None else tick + 1) % SLOTS
            self.slots[record.slot][record] = None

    def withdraw(self, record: Record) -> None:
        """The record is not to be sent."""
        if record.slot is not None:
            del self.slots[record.slot][record]
            record.slot = None

    def take(self, tick: int) -> list[list[Record]]:
        """What may be sent now, message by message; the rest goes first in the next ticks. Each record moves once."""
        late, due = self.slots[SLOTS], self.slots[tick % SLOTS]
        batch = list(islice(chain(late, due), RECORDS_PER_MESSAGE * MESSAGES_PER_TICK))
        for record in batch:
            self.withdraw(record)
            record.sent_tick = tick
        for record in due:
            record.slot = SLOTS
        late.update(due)
        due.clear()
        return _messages(batch)

    def take_all(self) -> list[list[Record]]:
        """All that waits, message by message."""
        waiting = [record for slot in (self.slots[SLOTS], *self.slots[:SLOTS]) for record in slot]
        for record in waiting:
            self.withdraw(record)
        return _messages(waiting)


def _messages(records: list[Record]) -> list[list[Record]]:
    return [records[at : at + RECORDS_PER_MESSAGE] for at in range(0, len(records), RECORDS_PER_MESSAGE)]


class FlowSource:
    """All records of one router. `name` identifies this run of it among all sources, e.g. `vWehT:0`."""

    def __init__(self, name: str, router: Mapping[Attr, Value | None]) -> None:
        self.name = name
        self.records: dict[str, Record] = {}
        """Of what is there now, by identity."""
        self.ended: deque[Record] = deque()
        """Of what is no more, oldest first."""
        self.lost = 0
        """Records that were given up before anybody was told of their end."""
        self.sent = 0
        """Messages."""
        self.commands = messages.commands_address(name)
        self._prefix = name.partition(":")[0]
        self._numbers = 0
        self._tick = 0
        self._records = Channel(messages.records_address(name))
        self._summaries = Channel(messages.summaries_address(name))
        self._asked = False
        """Somebody wants to be told of all records again."""
        self._again: deque[Record] = deque()
        """Those that still have to be."""
        self._heard = False
        """Somebody was there for beacons at the last tick."""
        self._heard_at = -ENDED_US
        self._most_ended = ENDED_UNCOLLECTED
        self._events_left = EVENTS_PER_SECOND
        self.router = self._add(Record(RecordType.ROUTER, name), router)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where records go."""
        return self._records.address, self._summaries.address

    # Records

    def begin(
        self,
        record_type: RecordType,
        parent: Record | None,
        start: int,
        values: Mapping[Attr, Value | None],
    ) -> Record:
        """Something begins to be."""
        identity = parent.identity if parent is not None else None
        values = {Attr.PARENT: identity, Attr.START_TIME: start, **values}
        return self._add(self._new(record_type), values)

    def _new(self, record_type: RecordType) -> Record:
        self._numbers += 1
        return Record(record_type, f"{self._prefix}:{self._numbers}")

    def _add(self, record: Record, values: Mapping[Attr, Value | None]) -> Record:
        self.records[record.identity] = record
        self.update(record, values)
        return record

    def update(self, record: Record, values: Mapping[Attr, Value | None]) -> None:
        """Something about it is, or may be, different."""
        if record.update(values):
            self._channel(record).put(record, self._tick)

    def end(self, record: Record, now: int, values: Mapping[Attr, Value | None] | None = None) -> None:
        """It is no more."""
        if self.records.pop(record.identity, None) is not None:
            self._ended(record, {**(values or {}), Attr.END_TIME: now})

    def past(
        self,
        record_type: RecordType,
        parent: Record,
        start: int,
        end: int,
        values: Mapping[Attr, Value | None],
    ) -> None:
        """Something that is over already, such as an interval."""
        values = {Attr.PARENT: parent.identity, Attr.START_TIME: start, **values, Attr.END_TIME: end}
        self._ended(self._new(record_type), values)

    def event(self, record_type: RecordType, now: int, values: Mapping[Attr, Value | None]) -> None:
        """Something has happened. A peer may cause many: those beyond a rate are only counted."""
        if self._events_left == 0:
            self._give_up()
            return
        self._events_left -= 1
        self.past(record_type, self.router, now, now, values)

    def _ended(self, record: Record, values: Mapping[Attr, Value | None]) -> None:
        self.update(record, values)
        self.ended.append(record)
        if len(self.ended) > self._most_ended:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        record = self.ended.popleft()
        if record.slot is not None:
            self._channel(record).withdraw(record)
            self._give_up()

    def _give_up(self) -> None:
        self.lost += 1
        self.update(self.router, {Attr.RECORDS_LOST: self.lost})

    def _channel(self, record: Record) -> Channel:
        return self._summaries if record.type is RecordType.DELIVERY_SUMMARY else self._records

    # Collectors

    def on_command(self, payload: bytes) -> None:
        """A message has come to the address of commands."""
        if messages.is_flush(payload):
            self._asked = True

    def _tell_again(self) -> None:
        """Go on telling all records again, as fast as they are sent. Who asks meanwhile gets another round."""
        if self._asked and not self._again:
            self._asked = False
            self._again.extend(self.records.values())
            self._again.extend(self.ended)
        for _ in range(min(AGAIN_PER_TICK, len(self._again))):
            record = self._again.popleft()
            record.changed.update(record.attributes)
            self._channel(record).put(record, self._tick)

    def on_tick(self, now: int, has_consumers: Callable[[str], bool]) -> list[Outgoing]:
        """A fifth of a second has passed."""
        self._tick += 1
        self._tell_again()
        if self._tick % SLOTS == 0:
            self._events_left = EVENTS_PER_SECOND
        heard = has_consumers(messages.BEACONS)
        self._forget_ended(now, heard)
        found: list[Outgoing] = []
        if heard and (not self._heard or self._tick % BEACON_TICKS == 0):
            found.append(Outgoing(messages.BEACONS, messages.beacon(self._number(), self.name)))
        self._heard = heard
        for channel in (self._records, self._summaries):
            if not has_consumers(channel.address):
                continue
            if channel is self._records and self._tick % HEARTBEAT_TICKS == 0:
                payload = messages.heartbeat(self._number(), self.name, now)
                found.append(Outgoing(channel.address, payload))
            found += self._tell(channel, channel.take(self._tick))
        return found

    def on_end(self, now: int, has_consumers: Callable[[str], bool]) -> list[Outgoing]:
        """The router ends, and with it all that it has told of."""
        for record in list(self.records.values()):
            self.end(record, now)
        found: list[Outgoing] = []
        for channel in (self._summaries, self._records):
            if has_consumers(channel.address):
                found += self._tell(channel, channel.take_all())
        return found

    def _tell(self, channel: Channel, batches: list[list[Record]]) -> Iterator[Outgoing]:
        for records in batches:
            payload = messages.records_message(self._number(), channel.address, records)
            for record in records:
                record.changed.clear()
            yield Outgoing(channel.address, payload)

    def _forget_ended(self, now: int, heard: bool) -> None:
        """Keep less where nobody collects, and nothing for ever."""
        if heard:
            self._heard_at = now
        self._most_ended = ENDED_RECORDS if now - self._heard_at < ENDED_US else ENDED_UNCOLLECTED
        while self.ended and (
            len(self.ended) > self._most_ended or _end_time(self.ended[0]) < now - ENDED_US
        ):
            self._forget_oldest()

    def _number(self) -> int:
        self.sent += 1
        return self.sent


def _end_time(record: Record) -> int:
    end = record.attributes[Attr.END_TIME]
    assert isinstance(end, int)
    return end
