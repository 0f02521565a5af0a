"""The driver of a router process: carries out what the core asks for, on proton's engine and one event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from cproton_ffi import lib

from isthmus_router.amqp.activity import ActivityMonitor
from isthmus_router.amqp.connection import AmqpConnection, Owner
from isthmus_router.amqp.costly import CostlySteps
from isthmus_router.amqp.engine import Pointer, cstring, set_condition
from isthmus_router.amqp.events import MANY_LINKS
from isthmus_router.amqp.heartbeats import Heartbeats
from isthmus_router.amqp.kernel.delivery import Hold
from isthmus_router.amqp.kernel.forward import Forwarder
from isthmus_router.amqp.kernel.parking import is_full
from isthmus_router.amqp.logins import Logins
from isthmus_router.amqp.routed_attaches import RoutedAttaches
from isthmus_router.amqp.sasl import install_guard
from isthmus_router.amqp.settings import Settings
from isthmus_router.amqp.sockets.charges import Charges, client_of
from isthmus_router.amqp.sockets.poller import Poller
from isthmus_router.amqp.terminus import answer_terminus, null_terminus, write_terminus
from isthmus_router.amqp.waiting import WaitingConnections
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import SessionClass
from isthmus_router.core.router import RouterCore, random_name
from isthmus_router.core.routes import Route
from isthmus_router.core.terms import Condition, Direction, LinkType, Terminus
from isthmus_router.credentials import REVOKED
from isthmus_router.engine_log import redirect_engine_log, transports_with_errors
from isthmus_router.host_names import HostNames
from isthmus_router.openssl import Revocations
from isthmus_router.policy.enforcer import PolicyEnforcer

log = logging.getLogger("SERVER")

ROUNDS = 4
"""Of reading and writing, before other things get their turn."""
HAND_OVER_SECONDS = 20.0
"""A peer that has not taken by then what was sent to it is no longer waited for, at the price of the order."""
TURN_SECONDS = 0.004
"""For the events of all connections together, and for the steps of long work, before other things get their turn. An
event is never left half done."""
LEAST_SLICE_SECONDS = 0.0002
"""For the events of one connection, before the turn of the next one. Connections that have just been read have it until
the turn has lasted twice as long as planned. The others wait for the next turn."""
AT_ONCE = 32
"""Connections that the router looks at in one step."""
LEAST_LEFT = 0.25
"""Part of a turn for the connections with events that are left of earlier turns."""


class Driver:
    """All connections of one router, and the `Port` of its core."""

    def __init__(self, core: RouterCore, loop: asyncio.AbstractEventLoop, *, threads: int = 1) -> None:
        """`threads` share reading and writing; everything else is done by the one that runs the loop."""
        install_guard()
        redirect_engine_log()
        self.core = core
        self.loop = loop
        self.forwarder = Forwarder(core, self.slice_end)
        self.turn_seconds = TURN_SECONDS
        self._turn_ends = 0.0
        """When connections have had their part of the present turn; 0 if none has begun yet."""
        self._slice_seconds = LEAST_SLICE_SECONDS
        self.connections: dict[int, AmqpConnection] = {}
        self.poller = Poller(self.forwarder, threads)
        self._charges = Charges()
        self._usual = WaitingConnections(client_of)
        """Connections with events that are left of earlier turns."""
        self._costly = WaitingConnections(client_of)
        """Likewise, those whose last turns have taken long."""
        self._jobs: deque[Iterator[None]] = deque()
        """Long pieces of work, in the order of their turns."""
        self._work_is_due = self._turn_is_due = self._work_has_ended = False
        """Whether the loop will call for them, and for the events of connections that wait: once in a round of it, as
        each call takes a slice, however many jobs and connections ask for one."""
        self._looks = self._room_is_made = False
        """Whether one of the jobs looks at all connections, and another one gives sessions room back."""
        self._links_to_forget = MANY_LINKS
        """How many links connections that end may still forget in this turn."""
        self._connection_ids = count(1)
        self._link_ids = count(1)
        self.heartbeats = Heartbeats(self)
        self.activity = ActivityMonitor()
        self.freed = 0
        """Connections whose memory the engine has given back so far. One counts more if its attaches were large."""
        self._routed = RoutedAttaches(self)
        self.route_link = self._routed.route
        self.answer_routed = self._routed.answer
        self.detach_routed = self._routed.detach
        self.end_routed = self._routed.end
        self.abandon_routed = self._routed.abandon
        self.settle = self.forwarder.inside.settle
        self.deliver = self.forwarder.inside.deliver
        self.read_on = self.forwarder.inside.read_on
        self.at_end_of_turn = self.forwarder.turn_ends.append
        self.refused_peers = 0
        """Connections that were closed because their certificates had none of the `peerNames`."""
        self.excess_connections = 0
        """Connections that were closed because their listeners had as many as they may, or as many of one client."""
        self.logins = Logins(time.monotonic)
        self.costly_steps = CostlySteps(self.work, loop)
        self.host_names = HostNames()
        self.revocations: dict[str, Revocations] = {}
        """Lists that have changed since the start, by sslProfile."""
        self.clock = time.monotonic_ns
        self.policy: PolicyEnforcer | None = None
        self._is_dealing = False
        """The router deals with events, or writes. A handler of an event that calls `flush` then writes nothing."""
        core.attach_port(self)
        loop.add_reader(self.poller.fileno(), self.turn)
        loop.call_later(1.0, self._second_passed)

    def _second_passed(self) -> None:
        self.loop.call_later(1.0, self._second_passed)
        self._read_clock()
        if transports_with_errors:
            for one in list(self.connections.values()):
                one.end_if_engine_has_stopped()
            transports_with_errors.clear()
        if not self._looks:
            self._looks = True
            self.work(self._look_at_connections())
        self.work(self.activity.look(self.core.connections.values()))
        self.work(self.forwarder.stalled.examine())
        self.work(self.forwarder.slow.examine())
        self.flush()

    def _look_at_connections(self) -> Iterator[None]:
        """What each connection needs once a second."""
        cramped: list[AmqpConnection] = []
        for number, connection in enumerate(list(self.core.connections.values()), 1):
            one = connection.io
            try:
                if not one.closed:
                    self.forwarder.streams.trim(connection)
                    one.sessions.second_passed()
                    one.answers.second_passed()
                    if is_full(connection):
                        self.touch(one)  # after the write it is counted anew
                    if one.detached.has_cramped_sessions:
                        cramped.append(one)
            except Exception as error:
                one.broken(error)
            if number % AT_ONCE == 0:
                yield
        self._looks = False
        if cramped and not self._room_is_made:
            self._room_is_made = True
            self.work(self._rooms(cramped))

    def _rooms(self, connections: list[AmqpConnection]) -> Iterator[None]:
        for connection in connections:
            try:
                if not connection.closed:
                    yield from connection.detached.make_room()
            except Exception as error:
                connection.broken(error)
        self._room_is_made = False

    # Connections

    def adopt(
        self, sock: socket.socket, settings: Settings, owner: Owner, *, incoming: bool, peer: str
    ) -> AmqpConnection:
        """Run AMQP on a connected, non-blocking socket."""
        connection = AmqpConnection(
            self, sock, settings, owner, next(self._connection_ids), incoming=incoming, peer=peer
        )
        self.connections[connection.id] = connection
        connection.start()
        return connection

    def connection_finished(self, connection: AmqpConnection) -> None:
        """The connection's socket is closed."""
        self.connections.pop(connection.id, None)

    def release(self, connection: AmqpConnection) -> None:
        """The connection no longer counts as one."""
        if self.policy is not None:
            self.policy.ended(connection.id)

    def free_engine(self, transport: Pointer, collector: Pointer) -> None:
        """Give the engine's objects of a finished connection back."""
        lib.pn_decref(transport)
        lib.pn_collector_free(collector)

    def touch(self, connection: AmqpConnection) -> None:
        """The connection has something to write."""
        if not connection.dirty:
            connection.dirty = True
            self.forwarder.dirty.append(connection)

    def turn(self) -> None:
        """Read what has arrived, deal with it, and write what comes of it, for all connections.

        Connections with little to do come first: those that have just been read, before those with events that are
        left of earlier turns.
        """
        self._links_to_forget = MANY_LINKS
        longest = 2 * self.turn_seconds
        begun = time.monotonic()
        for _ in range(ROUNDS):
            self._read_clock()
            self._turn_ends = 0.0
            left = self._left()
            if self._while_dealing(partial(self.poller.read, self.turn_seconds)):
                self.flush()
            elif not left:
                return
            if left:
                self._while_dealing(partial(self._go_on, left))
                self.flush()
            if self._left() or time.monotonic() - begun >= longest:
                return

    def _go_on(self, count: int) -> None:
        """Deal with events of at most `count` connections that have some left, until the turn ends. Clients take turns.

        Connections whose events are costly come last, but one of them has its turn in any case.
        """
        now = time.monotonic()
        end = max(self._turn_ends or now + self.turn_seconds, now + self.turn_seconds * LEAST_LEFT)
        self._turn_ends = now
        self._slice_seconds = max((end - now) / count, LEAST_SLICE_SECONDS)
        usual, costly = self._usual, self._costly
        least = 2 if usual.connections and costly.connections else 1
        self._charges.begin_round()
        for number in range(1, count + 1):
            waiting = usual if usual.connections and (number == 1 or number != least) else costly
            connection = waiting.take()
            connection.go_on()
            before, now = now, time.monotonic()
            self._charges.charge(connection, now - before)
            waiting.had_turn(now - before)
            if now >= end and number >= least:
                break
        self._turn_ends, self._slice_seconds = end, LEAST_SLICE_SECONDS
        if self._left():  # those that had their turn may all have finished, and asked for no other one
            self._ask_for_turn()

    def _left(self) -> int:
        return len(self._usual.connections) + len(self._costly.connections)

    def postpone(self, connection: AmqpConnection) -> None:
        """Events of the connection wait for the next turn; others have theirs first."""
        if connection not in self._usual.connections and connection not in self._costly.connections:
            (self._costly if connection.costly else self._usual).add(connection)
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_is_due = False
        self.turn()

    def may_forget_at_once(self, links: int) -> bool:
        """Whether a connection that ends may forget so many links in this turn; if so they count."""
        if self._links_to_forget < links:
            return False
        self._links_to_forget -= links + 1
        return True

    def work(self, job: Iterator[None]) -> None:
        """Carry out a long piece of work, step by step between other things."""
        if self._work_has_ended:
            return
        self._jobs.append(job)
        if not self._work_is_due:
            self._work_is_due = True
            self.loop.call_soon(self._work)

    def end_work(self) -> None:
        """Leave undone what is carried out in steps: the process ends, and its memory goes with it."""
        self._work_has_ended = True
        self._jobs.clear()

    def _work(self) -> None:
        self._read_clock()
        self._links_to_forget = MANY_LINKS
        end = time.monotonic() + TURN_SECONDS
        while self._jobs and time.monotonic() < end:
            job = self._jobs.popleft()
            try:
                next(job)
            except StopIteration:
                continue
            except Exception as error:
                log.error("internal error", exc_info=error)
                continue
            self._jobs.append(job)
        self._work_is_due = bool(self._jobs)
        if self._jobs:
            self.loop.call_soon(self._work)
        self.flush()

    def slice_end(self, now: float) -> float:
        """Until when a connection whose events are dealt with from `now` on may go on, before it is another one's
        turn."""
        if not self._turn_ends:
            self._turn_ends = now + self.turn_seconds
        return max(self._turn_ends, now + self._slice_seconds)

    def _read_clock(self) -> None:
        self.forwarder.settlement.now = self.clock() // 1000
        self.forwarder.spent = 0

    def flush(self) -> None:
        """Write out everything that the events so far have caused.

        Within an event it is put off until the events are dealt with: after a write, the engine may free the link of
        the event.
        """
        if not self._is_dealing:
            self._while_dealing(self._write_all)

    def _write_all(self) -> None:
        forwarder = self.forwarder
        dirty = forwarder.dirty
        forwarder.resume()
        while dirty:
            connections = dirty.copy()
            dirty.clear()
            self.poller.write(connections)
            forwarder.resume()

    def _while_dealing(self, deal: Callable[[], object]) -> object:
        """Call `deal`, which deals with events of connections, and return its result."""
        self._is_dealing = True
        try:
            return deal()
        finally:
            self._is_dealing = False

    def quiesce(self) -> None:
        """Let what is under way come to an end: clients are asked to give their credit back."""
        self.forwarder.settlement.quiescing = True
        for connection in self.core.connections.values():
            if not connection.role.is_between_routers:
                for link in connection.links:
                    if link.incoming and not link.routed:
                        self.drain(link)
        self.flush()

    # Links

    def new_link(
        self, connection: Connection, direction: Direction, name: str, *, source: Terminus, target: Terminus
    ) -> Link:
        """The core's view of a link, not yet attached to anything."""
        return Link(
            next(self._link_ids),
            connection,
            direction,
            name,
            source=source,
            target=target,
            attached_at=time.monotonic(),
        )

    def forget_link(self, link: Link) -> None:
        """A link is gone on the wire."""
        connection: AmqpConnection = link.connection.io
        connection.sessions.link_gone(link)
        connection.freeing.retain(link)
        self.activity.forget(link)
        connection.stalled.discard(link)
        connection.held.forget(link)
        self.forwarder.link_lost(link)
        self.core.link_closed(link)
        self.forwarder.settlement.histograms.pop(link, None)

    # Port

    def open_link(
        self,
        connection: Connection,
        direction: Direction,
        *,
        link_type: LinkType,
        source: Terminus,
        target: Terminus,
        session: SessionClass,
        priority: int = 4,
        capacity: int | None = None,
        origin: Link | None = None,
    ) -> Link:
        driver: AmqpConnection = connection.io
        name = f"qdlink.{random_name()}"
        link = self.new_link(connection, direction, name, source=source, target=target)
        link.type = link_type
        link.priority = priority
        if capacity is not None:
            link.set_capacity(capacity)
        number = priority if session is SessionClass.PRIORITY else 0
        pn_session = driver.sessions.of_links(session, number, origin)
        create = lib.pn_sender if direction is Direction.OUT else lib.pn_receiver
        pn: Any = create(pn_session, cstring(name))
        write_terminus(lib.pn_link_source(pn), source, lib.PN_SOURCE)
        write_terminus(lib.pn_link_target(pn), target, lib.PN_TARGET)
        link.io = pn
        link.session = pn_session
        driver.links[pn] = link
        driver.sessions.link_here(link)
        connection.links.add(link)
        if link_type is not LinkType.ENDPOINT:
            link.note_standing()
        if direction is Direction.IN:
            link.paused = connection.crowded
            link.limit_size(connection.max_message_size)
            lib.pn_link_set_max_message_size(pn, link.max_message_size)
        lib.pn_link_open(pn)
        if direction is Direction.IN:
            self.top_up(link)
        self.touch(driver)
        return link

    def accept_link(self, link: Link, source: Terminus, target: Terminus) -> None:
        pn = link.io
        answer_terminus(lib.pn_link_source(pn), lib.pn_link_remote_source(pn), source)
        answer_terminus(lib.pn_link_target(pn), lib.pn_link_remote_target(pn), target)
        lib.pn_link_set_snd_settle_mode(pn, lib.pn_link_remote_snd_settle_mode(pn))
        lib.pn_link_set_rcv_settle_mode(pn, lib.pn_link_remote_rcv_settle_mode(pn))
        if link.incoming:
            lib.pn_link_set_max_message_size(pn, link.max_message_size)
        lib.pn_link_open(pn)
        self.touch(link.connection.io)

    def refuse_link(self, link: Link, condition: Condition) -> None:
        pn = link.io
        driver: AmqpConnection = link.connection.io
        null_terminus(lib.pn_link_target(pn) if link.incoming else lib.pn_link_source(pn))
        lib.pn_link_open(pn)
        set_condition(lib.pn_link_condition(pn), condition.name, condition.description, condition.info)
        lib.pn_link_close(pn)
        if driver.links.pop(pn, None) is not None:
            driver.sessions.link_gone(link)
        self.touch(driver)

    def detach_link(self, link: Link, condition: Condition | None = None) -> None:
        pn = link.io
        driver: AmqpConnection = link.connection.io
        if driver.links.pop(pn, None) is None:
            return
        if condition is not None:
            set_condition(lib.pn_link_condition(pn), condition.name, condition.description, condition.info)
        if link.incoming and not link.routed:  # else the outcome is that of the other end
            self.forwarder.settlement.sender_cut_off(link)
        unsettled = () if link.incoming else tuple(link.unsettled)
        lib.pn_link_close(pn)
        driver.detached.closed(link)
        self.touch(driver)
        self.forget_link(link)
        driver.freeing.settle(link, unsettled)
        if link.peer_detached:
            driver.detached.answered(pn)

    def top_up(self, link: Link) -> None:
        pn = link.io
        driver: AmqpConnection = link.connection.io
        if driver.sessions.flow_waits(link):
            return
        if lib.pn_link_get_drain(pn):
            lib.pn_link_set_drain(pn, False)
        self.forwarder.settlement.top_up(link)
        self.activity.credit_changed(link)

    def drain(self, link: Link) -> None:
        driver: AmqpConnection = link.connection.io
        if lib.pn_link_credit(link.io) > 0 and not driver.sessions.flow_waits(link):
            lib.pn_link_set_drain(link.io, True)
            self.touch(driver)

    def hand_over(self, pairs: Sequence[tuple[Link, Link]]) -> None:
        self.forwarder.copies.hand_over(pairs)
        parking = self.forwarder.parking
        successors: dict[AmqpConnection, dict[Link, list[Link]]] = {}
        for old, new in pairs:
            if not parking.hand_over(old, new):
                successors.setdefault(old.connection.io, {}).setdefault(new, []).append(old)
        for connection, found in successors.items():
            lift = partial(self._lift, [parking.hold(new) for new in found])
            connection.markers.add([old for olds in found.values() for old in olds], lift)
            self.loop.call_later(HAND_OVER_SECONDS, self._lift_late, lift)

    def _lift(self, holds: list[Hold]) -> None:
        for hold in holds:
            self.forwarder.parking.lift(hold)

    def _lift_late(self, lift: Callable[[], None]) -> None:
        lift()
        self.flush()

    def close_generations(self, profile: str, oldest: int) -> None:
        """Close what was made or accepted with credentials of `profile` whose ordinal is less than `oldest`."""
        for connection in list(self.connections.values()):
            tls = connection.settings.tls
            if tls is not None and tls.profile == profile and tls.ordinal < oldest:
                reason = (
                    f"credentials of ordinal {tls.ordinal} are no longer valid: "
                    f"the oldest valid ordinal of sslProfile {profile} is {oldest}"
                )
                connection.close(Condition("amqp:connection:forced", reason))

    def revoke(self, profile: str, lists: Revocations | None) -> None:
        """These are the revocation lists of `profile` now. Connections of peers that they have are closed, or refused
        if their handshakes have begun before."""
        if lists is None:
            self.revocations.pop(profile, None)
        else:
            self.revocations[profile] = lists
            self.work(self._close_revoked())

    def _close_revoked(self) -> Iterator[None]:
        for connection in list(self.connections.values()):
            if connection.is_revoked:
                connection.close(Condition("amqp:unauthorized-access", REVOKED))
            yield

    def has_credit(self, link: Link) -> bool:
        return bool(lib.pn_link_credit(link.io) > 0)

    def release_parked(self, link: Link) -> None:
        waiting = len(link.parked)
        self.forwarder.in_steps(self.forwarder.parking.release(link), waiting)

    def send(self, link: Link, payload: bytes, *, settled: bool) -> None:
        self.forwarder.send(link, payload, settled=settled)

    def forward(self, route: Route, payload: bytes, *, priority: int) -> None:
        self.forwarder.forward(route, payload, priority=priority)

    def close_connection(self, connection: Connection, condition: Condition | None) -> None:
        connection.io.close(condition)
