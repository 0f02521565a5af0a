"""The collector's connection to its router: a thread that runs proton, decodes and assembles, and puts rows in a queue.

Credit is given by hand: none while there is no room for rows, so that records wait in the router, or are given up
there, and not in the memory of the collector. Heartbeats and records come on the same links; the time without credit
is no silence of the sources. A message that no source sends is rejected. A link that the collector has ended is freed
when the router has ended it as well: until then its deliveries still arrive.

When certificates change, the collector makes another connection with the new ones beside the present one, which ends a
little later: what the router sends meanwhile comes on both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any

from proton import Condition, Endpoint, Handler, SSLException
from proton import Delivery as ProtonDelivery
from proton.reactor import AtMostOnce, Container

from isthmus_flowlog.collector import conditions, wire
from isthmus_flowlog.collector import session as does
from isthmus_flowlog.collector.assembly import Assembly
from isthmus_flowlog.collector.conditions import LONGEST_REASON
from isthmus_flowlog.collector.credentials import Credentials, is_local, login, ssl_domain
from isthmus_flowlog.collector.dialling import Dialling
from isthmus_flowlog.collector.gate import Gate
from isthmus_flowlog.collector.lines import Lines
from isthmus_flowlog.collector.metrics import Metrics
from isthmus_flowlog.collector.session import Session
from isthmus_flowlog.collector.settings import Settings
from isthmus_flowlog.collector.store import Rows
from isthmus_flowlog.collector.turns import Turns
from isthmus_router.flows.messages import BEACONS, FLUSH
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.openssl import OpenSslError

logger = logging.getLogger("AMQP")

LEAST_CREDIT, MOST_CREDIT = 20, 200
"""Messages on each link; a source sends 20 a second at most."""
MOST_UNDER_WAY = 4000
"""Messages on all links, unless that is less than the least for each: what may still come when there is no room."""
LONGEST_MESSAGE = 1024 * 1024
LONGEST_BEACON = 4096
"""Bytes of a message on the link that all sources share."""
PART_SECONDS = 10.0
"""From the first part of a message to the last; then its link is ended, and attached again later."""
MOST_OF_PARTS = 16 * 1024 * 1024
"""Bytes of messages of which parts are missing. Beyond that the link with most of them is ended."""
MOST_ENDING = 10_000
"""Links that the router has not ended after the collector has; beyond that the connection is made again."""
MOST_UNPUT = 8 * 1024 * 1024
"""Bytes of messages whose rows are handed over at once, not at the next tick."""
TICK_SECONDS = 0.1
HEARTBEAT_SECONDS = 8
OPEN_SECONDS = 10.0
"""For a connection to come about."""
WATCH_SECONDS = 1.0
"""Between looks at the files of certificates, of which two in a row must find the same."""
OVERLAP_SECONDS = 2.0
"""From a connection with new certificates to the end of the one before."""
CLOSE_SECONDS = 2.0
"""For a router to answer a close. Nothing that it sends meanwhile is taken in."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between attempts; all hosts are tried before it grows."""
STEADY_SECONDS, SHORT_PAUSE = 10.0, 2.0
"""The pause grows up to the second one if the connection has ended sooner than that after it was opened."""
COMPLAIN_US = 10_000_000
"""Between log lines about messages that cannot be read."""
PATIENT_SECONDS, MOST_PATIENT_SECONDS = 1.0, 30.0
"""While the router does not take what there is for it, it has credit for so long, and the connection goes on for so
long: each message that it sends unsettled makes an answer."""
STEP_BACK_US = 10_000_000
"""A clock that is set back by more than that is followed; else time stands still until it has caught up."""


class Clock:
    """Microseconds since the epoch; never the same twice."""

    def __init__(self, read: Callable[[], int] = time.time_ns) -> None:
        self._read = read
        self._last = 0

    def __call__(self) -> int:
        """Now."""
        now = self._read() // 1000
        if self._last - STEP_BACK_US < now <= self._last:
            now = self._last + 1
        self._last = now
        return now


class _Receiving(AtMostOnce):
    """Pre-settled, and of bounded size."""

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def apply(self, link: Any) -> None:
        """Option interface."""
        super().apply(link)
        link.max_message_size = self._longest


@dataclass(slots=True)
class _Part:
    """The beginning of a message."""

    link: Any
    address: str
    began: float
    octets: int = 0


def _isolate(handle: Callable[[Collector, Any], None]) -> Callable[[Collector, Any], None]:
    """End the connection of an event that cannot be handled, and not the collector.

    proton decodes a field of a frame when the field is read, and raises exceptions of many types.
    """

    @wraps(handle)
    def guarded(self: Collector, event: Any) -> None:
        try:
            handle(self, event)
        except Exception as error:
            self.cannot_go_on(event, error)

    return guarded


class Collector(Handler):
    """Drives session and assembly; all of it on the thread that calls `run`."""

    def __init__(
        self,
        settings: Settings,
        session: Session,
        assembly: Assembly,
        metrics: Metrics,
        *,
        put: Callable[[Rows, float, int], None],
        has_room: Callable[[], bool],
        is_full: Callable[[], bool],
    ) -> None:
        super().__init__()
        self._settings = settings
        self._session = session
        self._assembly = assembly
        self._metrics = metrics
        self._put = put
        self._has_room = has_room
        self._is_full = is_full
        self._room = True
        self._clock = Clock()
        self._container: Any = None
        self._connection: Any = None
        self._open = False
        self._opened_at = self._opened_by = 0.0
        self._attempt_at = 0.0
        self._attempts = 0
        self._pause = FIRST_PAUSE
        self._used = self._seen = Credentials()
        """Files that the connection was made with, and as they were found last."""
        self.certificates = ""
        """The digest of those that were loaded for the connection, or else for the last attempt to make one."""
        self.certificates_problem = ""
        """Why no connection is made with the files as they are now."""
        self._watch_at = 0.0
        self._next: Any = None
        """A connection with new certificates that is to take the place of the present one."""
        self._gate = Gate()
        """Of the connection, or of the one before."""
        self._gates: dict[Any, Gate] = {}
        """Of all connections that have not ended."""
        self._next_used = Credentials()
        self._next_by = self._next_at = 0.0
        self._earlier: list[tuple[Any, float]] = []
        """Connections whose place another one has taken, and when they are to end."""
        self._closing: dict[Any, float] = {}
        """Connections that the collector has closed, and when they are cut off if the router does not answer."""
        self._receivers: dict[str, Any] = {}
        self._senders: dict[str, Any] = {}
        self._commanded: dict[str, str] = {}
        """Sources by the address of their commands."""
        self._to_flush: set[str] = set()
        """Addresses of commands where there is no credit to send a FLUSH."""
        self._links = 0
        self._turns = Turns(time.monotonic())
        self._held_back: set[str] = set()
        """Addresses whose receivers get no credit before it is the turn of their source again."""
        self._parts: dict[str, _Part] = {}
        """Messages of which parts are missing, by the name of their link."""
        self._ending: dict[str, Any] = {}
        """Links that the router has yet to end, by name."""
        self._ended: list[Any] = []
        """Links that both have ended: freed with the next tick, when nothing that has happened on them is left."""
        self._unput = 0
        """Bytes of messages whose rows have not been handed over."""
        self._reported: dict[str, int] = {}
        self._lines = Lines()
        self._complain_at = 0
        self.stopping = False
        self.ticked = time.monotonic()
        """When it was alive last."""
        self.trouble: str | None = "not connected yet"
        """Why there is no connection."""

    def run(self) -> None:
        """Blocks until `stopping` is set, and what was heard has been put in the queue."""
        self._container = Container(
            self,
            container_id=f"isthmus-flow-collector-{self._settings.name}",
            global_handler=Dialling(self._end_connection),
        )
        self._container.run()
        self._assembly.close()
        self._hand_over()

    # Time

    def on_reactor_init(self, event: Any) -> None:
        """Begin."""
        event.reactor.schedule(0, self)

    def on_timer_task(self, event: Any) -> None:
        """A tick."""
        self.ticked = time.monotonic()
        if self.stopping:
            for connection in (self._connection, self._next, *(item for item, _ in self._earlier)):
                if connection is not None:
                    connection.close()
            event.reactor.stop()
            return
        event.reactor.schedule(TICK_SECONDS, self)
        if self._connection is None:
            if self.ticked >= self._attempt_at:
                self._connect()
        elif not self._open and self.ticked >= self._opened_by:
            connection = self._connection
            self._lost_connection(f"no answer within {OPEN_SECONDS:g} s")
            _cut_off(connection)
        self._look_at_credentials()
        self._look_at_gates()
        self._look_at_closing()
        self._free()
        self._look_at_parts()
        self._look_for_room()
        self._turns.tick(self.ticked)
        held_back, self._held_back = self._held_back, set()
        for address in held_back:
            self._give_credit(address)
        now = self._clock()
        self._do(self._session.tick(now))
        self._assembly.tick(now)
        for source in self._assembly.to_ask:
            self._session.ask_again(source)
        self._assembly.to_ask.clear()
        self._hand_over()
        self._report()

    def _look_for_room(self) -> None:
        room = self._has_room()
        if room != self._room:
            self._room = room
            self._session.listening(room)
            self._metrics.paused.set(not room)
            logger.warning(
                "credit again" if room else "no credit: rows cannot be written as fast as they come"
            )
            if room:
                for address in self._receivers:
                    self._give_credit(address)

    def _hand_over(self) -> None:
        octets, self._unput = self._unput + self._assembly.octets, 0
        self._put(self._assembly.take(), time.time(), octets)

    def _report(self) -> None:
        """Counts of the state machines as metrics."""
        counts, metrics = self._assembly.counts, self._metrics
        metrics.sources.set(sum(source.lost_at is None for source in self._session.sources.values()))
        for counter, value in (
            (metrics.missed_messages, self._session.missed),
            (metrics.sources_ignored, self._session.beacons_ignored),
            (metrics.records, counts.records),
            (metrics.records_again, counts.again),
            (metrics.records_skipped, counts.skipped),
            (metrics.unaccompanied, counts.unaccompanied),
            (metrics.malformed, counts.malformed),
            (metrics.records_refused, counts.too_many),
        ):
            name = counter._name
            counter.inc(value - self._reported.get(name, 0))
            self._reported[name] = value

    # The connection

    def _connect(self) -> None:
        self._opened_by = self.ticked + OPEN_SECONDS
        self._used = Credentials.of(self._settings.tls)
        try:
            self._connection = self._dial()
        except (OSError, SSLException, OpenSslError, ValueError) as error:
            self.certificates_problem = str(error)[:LONGEST_REASON]
            self._lost_connection(str(error))
        else:
            self._gate = self._gates[self._connection]
            self._loaded()

    def _dial(self) -> Any:
        """A connection to the next endpoint, with the files as they are now.

        Raises OSError, SSLException, OpenSslError, ValueError.
        """
        endpoints = self._settings.endpoints()
        host, port = endpoints[self._attempts % len(endpoints)]
        self._attempts += 1
        self._metrics.connection_attempts.inc()
        tls = self._settings.tls
        options: dict[str, Any] = dict(login(self._settings.sasl, tls))
        if tls is not None:
            options["ssl_domain"] = ssl_domain(tls)
        name = f"[{host}]" if ":" in host else host
        connection = self._container.connect(
            f"{'amqp' if tls is None else 'amqps'}://{name}:{port}",
            reconnect=False,
            heartbeat=HEARTBEAT_SECONDS,
            allow_insecure_mechs=self._settings.sasl.allowPlainWithoutTls or is_local(host),
            **options,
        )
        self._gates[connection] = Gate()
        return connection

    @_isolate
    def on_connection_bound(self, event: Any) -> None:
        """Nothing has arrived yet."""
        self._gates[event.connection].close_in(event.transport)

    @_isolate
    def on_transport_tail_closed(self, event: Any) -> None:
        """Nothing more will arrive, or be read."""
        self._look_at_gates()

    def _look_at_gates(self) -> None:
        for connection, gate in list(self._gates.items()):
            gate.look(self.ticked)
            reason = gate.refused
            if reason is None and gate.unread_seconds > MOST_PATIENT_SECONDS:
                reason = f"the router reads nothing for {MOST_PATIENT_SECONDS:g} s"
            if reason is not None:
                self._end_connection(connection, reason)

    def cannot_go_on(self, event: Any, error: Exception) -> None:
        """End the connection of an event, or all of them if it has none: the engine has freed what it is about."""
        if self._lines.allow("event", self._clock()):
            logger.warning("event cannot be handled", extra={"reason": repr(error)[:LONGEST_REASON]})
        with suppress(Exception):
            if event.connection is not None:
                self._end_connection(event.connection, "an event of this connection cannot be handled")
                return
        for connection in list(self._gates):
            self._end_connection(connection, "an event of a connection cannot be handled")

    def _end_connection(self, connection: Any, reason: str) -> None:
        _cut_off(connection)
        self._gone(connection, reason)

    def _close(self, connection: Any) -> None:
        """End a connection that is in use no more; a router that does not answer cannot keep it."""
        connection.close()
        self._closing[connection] = self.ticked + CLOSE_SECONDS

    def _look_at_closing(self) -> None:
        for connection in [item for item, end in self._closing.items() if self.ticked >= end]:
            del self._closing[connection]
            _cut_off(connection)

    def _is_in_use(self, connection: Any) -> bool:
        return connection == self._connection or any(connection == item for item, _ in self._earlier)

    def _look_at_credentials(self) -> None:
        """Find changed files, and go on with a connection that is made with them."""
        while self._earlier and self.ticked >= self._earlier[0][1]:
            self._close(self._earlier.pop(0)[0])
        if self._next is not None and self.ticked >= self._next_by:
            connection = self._next
            self._not_taken_over(f"no answer within {OPEN_SECONDS:g} s")
            _cut_off(connection)
        if self._settings.tls is None or not self._open or self.ticked < self._watch_at:
            return
        self._watch_at = self.ticked + WATCH_SECONDS
        found, before = Credentials.of(self._settings.tls), self._seen
        self._seen = found
        if found == self._used or found != before or self._next is not None:
            return
        if found.revocations != self._used.revocations:
            # The router of the present connection may be one whose certificate is revoked.
            self._end_connection(self._connection, "certificate revocation lists have changed")
        elif self.ticked >= self._next_at:
            self._next_used, self._next_by = found, self.ticked + OPEN_SECONDS
            try:
                self._next = self._dial()
            except (OSError, SSLException, OpenSslError, ValueError) as error:
                self._not_taken_over(str(error))

    def _not_taken_over(self, reason: str) -> None:
        """The connection with new certificates did not come about; the present one goes on."""
        self._next = None
        self._next_at = self.ticked + LONGEST_PAUSE
        self.certificates_problem = reason[:LONGEST_REASON]
        logger.warning("no connection with changed certificates", extra={"reason": reason})

    def _take_over(self) -> None:
        """The connection with new certificates takes the place of the present one."""
        self._earlier.append((self._connection, self.ticked + OVERLAP_SECONDS))
        self._connection, self._next, self._used = self._next, None, self._next_used
        self._opened_at = time.monotonic()
        self._gate = self._gates[self._connection]
        self._loaded()
        self._forget_links()
        self._session.disconnected()
        logger.info(
            "connected with changed certificates", extra={"router": self._connection.remote_container}
        )
        self._do(self._session.connected(self._clock()))

    def _loaded(self) -> None:
        self.certificates, self.certificates_problem = self._used.digest, ""

    def _lost_connection(self, reason: str) -> None:
        """There is none any more, or there was none; the next attempt is after a pause."""
        self._connection = None
        if self._next is not None:
            self._close(self._next)
            self._next = None
        self._forget_links()
        if self._open:
            self._open = False
            self._session.disconnected()
            lasted = time.monotonic() - self._opened_at
            self._pause = FIRST_PAUSE if lasted >= STEADY_SECONDS else min(2 * self._pause, SHORT_PAUSE)
        elif self._attempts % len(self._settings.hosts) == 0:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._attempt_at = time.monotonic() + self._pause
        self._metrics.connected.set(0)
        if reason != self.trouble:
            logger.warning("no connection", extra={"reason": reason})
        self.trouble = reason

    def _forget_links(self) -> None:
        self._parts.clear()
        self._ending.clear()
        self._ended.clear()
        self._receivers.clear()
        self._senders.clear()
        self._commanded.clear()
        self._to_flush.clear()
        self._held_back.clear()

    def _gone(self, connection: Any, reason: str) -> None:
        """A connection has ended, or did not come about."""
        if connection is None:
            return
        if connection == self._connection:
            self._lost_connection(reason)
        elif connection == self._next:
            self._not_taken_over(reason)

    @_isolate
    def on_connection_remote_open(self, event: Any) -> None:
        """The router is there."""
        if self._next is not None and event.connection == self._next:
            self._take_over()
        if self._open or event.connection != self._connection:
            return
        self._open, self.trouble = True, None
        self._opened_at = time.monotonic()
        self._metrics.connected.set(1)
        router = event.connection.remote_container
        logger.info("connected", extra={"router": router and router[:LONGEST_REASON]})
        self._do(self._session.connected(self._clock()))

    @_isolate
    def on_connection_remote_close(self, event: Any) -> None:
        """The router ends the connection."""
        event.connection.close()
        self._gone(
            event.connection,
            conditions.of_connection(event.connection) or "closed by the router",
        )

    @_isolate
    def on_transport_error(self, event: Any) -> None:
        """Said before `on_transport_closed`."""
        self._gone(event.connection, conditions.of_transport(event.transport) or "connection lost")

    def on_transport_closed(self, event: Any) -> None:
        """The socket is gone."""
        self._closing.pop(event.connection, None)
        gate = self._gates.pop(event.connection, None)
        if gate is not None:
            gate.open_up()
        self._gone(event.connection, "connection lost")

    # Links

    def _do(self, actions: Iterable[does.Action]) -> None:
        for action in actions:
            match action:
                case does.Receive(address):
                    self._receive(address)
                case does.Release(addresses, direct):
                    for links, address in ((self._receivers, item) for item in addresses):
                        self._end(links.pop(address, None))
                    self._end(self._senders.pop(direct, None))
                    self._commanded.pop(direct, None)
                    self._to_flush.discard(direct)
                case does.Flush(source, direct):
                    self._flush(source, direct)
                case does.Lost(source):
                    now = self._clock()
                    if self._assembly.lost(source, now):
                        if self._lines.allow("source", now):
                            logger.warning("source lost", extra={"source": source})
                        self._metrics.sources_lost.inc()
                case does.Forgotten(source):
                    self._assembly.forgotten(source)

    def _name(self, address: str) -> str:
        self._links += 1
        return f"{address}-{self._links}"

    def _receive(self, address: str) -> None:
        self._end(self._receivers.pop(address, None))
        link = self._container.create_receiver(
            self._connection,
            address,
            name=self._name(address),
            options=_Receiving(LONGEST_BEACON if address == BEACONS else LONGEST_MESSAGE),
        )
        self._receivers[address] = link
        self._gate.frames.attached(link.name, receives=True)
        self._give_credit(address)

    def _give_credit(self, address: str) -> None:
        link = self._receivers.get(address)
        if link is None:
            return
        source = self._session.source_of(address)
        has_turn = source is None or self._turns.may_have_credit(source.name)
        if not has_turn or self._gate.unread_seconds > PATIENT_SECONDS:
            self._held_back.add(address)
            return
        credit = max(LEAST_CREDIT, min(MOST_CREDIT, MOST_UNDER_WAY // len(self._receivers)))
        if (self._room or address == BEACONS) and link.credit <= credit // 2:
            more = credit - link.credit
            link.flow(more)
            self._gate.frames.granted(link.name, more)

    def _flush(self, source: str, direct: str) -> None:
        sender = self._senders.get(direct)
        self._commanded[direct] = source
        self._to_flush.add(direct)
        if sender is None:
            sender = self._container.create_sender(self._connection, direct, name=self._name(direct))
            self._senders[direct] = sender
            self._gate.frames.attached(sender.name, receives=False)
        elif sender.credit > 0:
            self._send_flush(sender)

    def _send_flush(self, sender: Any) -> None:
        direct = sender.target.address
        if direct not in self._to_flush:
            return
        self._to_flush.remove(direct)
        message = Message(properties=Properties(to=direct, subject=FLUSH))
        sender.delivery(sender.delivery_tag())
        sender.stream(encode_message(message))
        sender.advance()
        self._gate.frames.sent()
        self._metrics.flushes.inc()

    @_isolate
    def on_link_flow(self, event: Any) -> None:
        """A sender may have credit."""
        if event.link.is_sender and event.link.credit > 0 and event.connection == self._connection:
            self._send_flush(event.link)

    @_isolate
    def on_session_remote_close(self, event: Any) -> None:
        """The router ends the session: no link is left."""
        reason = conditions.of_session(event.session)
        words = "the router has ended the session" + (f": {reason}" if reason else "")
        self._end_connection(event.connection, words)

    @_isolate
    def on_link_remote_close(self, event: Any) -> None:
        """The router ends or refuses a link."""
        self._detached(event.link)

    @_isolate
    def on_link_remote_detach(self, event: Any) -> None:
        """The router takes a link away that may come back."""
        self._detached(event.link)

    def _detached(self, link: Any) -> None:
        if link.connection != self._connection:
            return
        if link.state & Endpoint.LOCAL_CLOSED:
            if self._ending.pop(link.name, None) is not None:
                self._ended.append(link)
            return
        links, terminus = (self._senders, link.target) if link.is_sender else (self._receivers, link.source)
        address = terminus.address
        reason = conditions.of_link(link)
        self._end(link)
        if links.get(address) != link:
            return
        if self._lines.allow("link", self._clock()):
            logger.warning("link ended by the router", extra={"address": address, "reason": reason})
        self._without(link, address)

    def _without(self, link: Any, address: str) -> None:
        """A link that is wanted has ended."""
        if link.is_sender:
            del self._senders[address]
            self._to_flush.discard(address)
            self._session.flushed(self._commanded.get(address, ""), False)
        else:
            del self._receivers[address]
            self._session.detached(address, self._clock())

    def _end(self, link: Any, condition: Condition | None = None) -> None:
        """End a link. It is freed when the router has ended it, too."""
        if link is None:
            return
        self._parts.pop(link.name, None)
        if condition is not None:
            link.condition = condition
        link.close()
        if link.state & Endpoint.REMOTE_CLOSED:
            self._ended.append(link)
        else:
            self._ending[link.name] = link

    def _free(self) -> None:
        for link in self._ended:
            link.free()
        self._ended.clear()
        if len(self._ending) > MOST_ENDING and self._connection is not None:
            self._end_connection(self._connection, "the router does not end links")

    # Messages

    @_isolate
    def on_delivery(self, event: Any) -> None:
        """A message has come, or the outcome of one that was sent."""
        delivery, link = event.delivery, event.link
        if not self._is_in_use(link.connection):
            return
        if link.is_sender:
            if delivery.updated:
                source = self._commanded.get(link.target.address, "")
                self._session.flushed(source, delivery.remote_state == ProtonDelivery.ACCEPTED)
                delivery.settle()
            return
        address = link.source.address
        if link.state & Endpoint.LOCAL_CLOSED:
            # The rest of what the link had credit for. The engine raises when an aborted message is read.
            if delivery.readable and not delivery.aborted:
                link.recv(delivery.pending)
            if delivery.aborted or not delivery.partial:
                delivery.settle()
            return
        if delivery.aborted:
            self._parts.pop(link.name, None)
            self._metrics.rejected.labels("aborted").inc()
            delivery.settle()
        elif delivery.partial:
            self._part(link, address, delivery.pending)
            return
        elif delivery.readable:
            self._parts.pop(link.name, None)
            payload = bytes(link.recv(delivery.pending) or b"")
            reason = self._message(address, payload)
            if not delivery.settled:
                delivery.update(ProtonDelivery.ACCEPTED if reason is None else ProtonDelivery.REJECTED)
            delivery.settle()
        self._give_credit(address)

    def _part(self, link: Any, address: str, octets: int) -> None:
        """The beginning of a message has come; it is read when all of it is here."""
        part = self._parts.get(link.name)
        if part is None:
            part = self._parts[link.name] = _Part(link, address, time.monotonic())
        part.octets = octets
        if octets > (LONGEST_BEACON if address == BEACONS else LONGEST_MESSAGE):
            self._cut(part, "too-long")
        elif sum(other.octets for other in self._parts.values()) > MOST_OF_PARTS:
            self._cut(max(self._parts.values(), key=lambda other: other.octets), "unfinished")

    def _look_at_parts(self) -> None:
        """End links on which a message does not come to its end."""
        before = time.monotonic() - PART_SECONDS
        for part in [part for part in self._parts.values() if part.began < before]:
            self._cut(part, "unfinished")

    def _cut(self, part: _Part, reason: str) -> None:
        self._rejected(part.address, reason, f"{part.octets} bytes of a message")
        self._end(part.link, Condition("amqp:link:message-size-exceeded", f"{reason}: {part.octets} bytes"))
        if self._receivers.get(part.address) == part.link:
            self._without(part.link, part.address)

    def _rejected(self, address: str, reason: str, details: str) -> str:
        self._metrics.rejected.labels(reason).inc()
        now = self._clock()
        if now >= self._complain_at:
            self._complain_at = now + COMPLAIN_US
            logger.warning(
                "message rejected",
                extra={"address": address, "reason": reason, "details": details[:LONGEST_REASON]},
            )
        return reason

    def _message(self, address: str, payload: bytes) -> str | None:
        """Take in a message when it is the turn of its source; why it is rejected, or None."""
        self._metrics.messages.inc()
        now = self._clock()
        source = self._session.source_of(address)
        if source is None:
            return self._read(address, payload, now)
        if not self._turns.may_be_read(source.name):
            self._session.unread(source, now)
            return self._rejected(address, "too-much", f"{len(payload)} bytes")
        begun = time.thread_time()
        reason = self._read(address, payload, now)
        self._turns.took(source.name, time.thread_time() - begun, time.monotonic())
        return reason

    def _read(self, address: str, payload: bytes, now: int) -> str | None:
        if len(payload) > (LONGEST_BEACON if address == BEACONS else LONGEST_MESSAGE):
            return self._rejected(address, "too-long", f"{len(payload)} bytes")
        try:
            message = wire.read(payload)
        except wire.ForgedError as error:
            return self._rejected(address, "forged", str(error))
        except wire.MalformedError as error:
            return self._rejected(address, "malformed", str(error))
        if isinstance(message, wire.Beacon) != (address == BEACONS) or message is None:
            return self._rejected(address, "misplaced", type(message).__name__)
        try:
            self._take(address, message, now)
        except Exception:  # what one source sends does not end the collection of others
            if self._lines.allow("message", now):
                logger.exception("a message has failed", extra={"address": address})
            return self._rejected(address, "failed", type(message).__name__)
        self._unput += len(payload)
        if self._unput + self._assembly.octets > MOST_UNPUT:
            self._hand_over()
            self._look_for_room()
        return None

    def _take(self, address: str, message: wire.Beacon | wire.Heartbeat | wire.Records, now: int) -> None:
        """What a message says."""
        if isinstance(message, wire.Beacon):
            self._do(self._session.beacon(message, now))
            return
        source = self._session.source_of(address)
        if source is None:
            return
        self._session.heard(source, message.number, now)
        records = message.records if isinstance(message, wire.Records) else None
        if records and self._is_full():
            # The message came by earlier credit. The source is asked to send the records again.
            self._assembly.counts.too_many += len(records)
            self._session.ask_again(source.name)
            records = None
        self._assembly.heard(source.name, now, records, source.missed)
        while self._assembly.unwanted:
            self._do(self._session.unwanted(self._assembly.unwanted.pop()))
        while self._assembly.proven:
            self._session.proven(self._assembly.proven.pop())


def _cut_off(connection: Any) -> None:
    """Not by a close, which would wait for an answer."""
    transport = connection.transport
    if transport is not None:
        transport.close_tail()
        transport.close_head()
