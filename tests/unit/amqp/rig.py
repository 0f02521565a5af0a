"""A router's core, driver and forwarder on sockets of this process, moved by a test and not by an event loop."""

from __future__ import annotations

import asyncio
import math
import select
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from proton import Collector, Connection, Delivery, Endpoint, Event, Link, Transport

from isthmus_router.amqp.connection import AmqpConnection
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.settings import Settings
from isthmus_router.amqp.sockets import plain
from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.roles import Role, StripAnnotations
from isthmus_router.core.router import RouterCore
from isthmus_router.core.treatment import Treatment
from isthmus_router.flows.summary import Reading

SETTINGS = Settings(
    role=Role.NORMAL,
    name="rig",
    cost=1,
    max_frame_size=16384,
    max_sessions=100,
    max_session_frames=None,
    idle_timeout_seconds=0,
    handshake_timeout_seconds=0,
    link_capacity=40,
    max_message_size=0,
    strip_annotations=StripAnnotations.BOTH,
    open_properties={},
    mechanisms=("ANONYMOUS",),
)
COUNTERS = (
    "deliveries",
    "presettled",
    "dropped_presettled",
    "accepted",
    "rejected",
    "released",
    "modified",
    "delayed_1_second",
    "delayed_10_seconds",
)


class Owner:
    """A listener that does nothing."""

    def excess(self, client: str | None) -> None:
        """Any number."""

    def opened(self, connection: AmqpConnection) -> None:
        """Nothing to do."""

    def closed(self, connection: AmqpConnection, reason: str) -> None:
        """Nothing to do."""


class ObservedDriver(Driver):
    """Counts the long pieces of work that are under way."""

    under_way = 0

    def work(self, job: Iterator[None]) -> None:
        self.under_way += 1
        super().work(self._observed(job))

    def _observed(self, job: Iterator[None]) -> Iterator[None]:
        try:
            yield from job
        finally:
            self.under_way -= 1


class Rig:
    """One router. Without `compiled`, it forwards in Python."""

    def __init__(self, *, compiled: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.core = RouterCore("R", edge=False)
        self.core.instance = "I"  # the same for both kernels, as everything that the router sends is to be
        for prefix, treatment in (("closest", Treatment.CLOSEST), ("multicast", Treatment.MULTICAST)):
            self.core.configured.patterns.add_prefix(prefix, ConfiguredAddress(treatment))
        self.driver = ObservedDriver(self.core, self.loop)
        self.now = 5_000_000_000_000
        """By the router's clock, in nanoseconds."""
        self.driver.clock = self._clock
        self.driver.turn_seconds = math.inf  # what a router does must not depend on the machine
        if not compiled:
            self.driver.forwarder.compiled = None
            self.driver.poller.close()
            self.driver.poller = plain.Poller(self.driver.forwarder, 1)
        self.peers: list[End] = []

    def _clock(self) -> int:
        """Goes on by itself, from turn to turn."""
        self.now += 1_500_000
        return self.now

    def connect(self, role: Role) -> Peer:
        """A client, or an edge router."""
        peer = Peer(self, f"peer-{len(self.peers)}", role)
        self.peers.append(peer)
        return peer

    def settle_down(self) -> None:
        """Move bytes until nobody has any more to say."""
        while sum(peer.turn() for peer in self.peers):
            if self.driver.under_way and any(peer.router_side.unfinished for peer in self.peers):
                # An event may wait for work that is done in steps.
                self.loop.run_until_complete(asyncio.sleep(0))

    def work_off(self) -> None:
        """Carry out what is done in steps between turns."""
        while self.driver.under_way:
            self.loop.run_until_complete(asyncio.sleep(0))
        self.settle_down()

    def loop_goes_round(self) -> None:
        """Do what the loop does next, such as freeing the engines of lost connections."""
        self.loop.run_until_complete(asyncio.sleep(0))
        self.settle_down()

    def seconds_pass(self, seconds: int) -> None:
        """By the router's clock, as far as it counts what is late."""
        self.now += seconds * 1_000_000_000
        self.driver.forwarder.settlement.now = self.now // 1000

    def counters(self) -> dict[str, list[int]]:
        """Of every link that is attached."""
        return {
            f"{connection.name}/{link.name}": [getattr(link, name) for name in COUNTERS] + [link.load()]
            for connection in self.core.connections.values()
            for link in connection.links
        }

    def readings(self) -> dict[str, Reading | None]:
        """What is counted in places, of every link that is attached."""
        return {
            f"{link.connection.name}/{link.name}": histograms.take()
            for link, histograms in self.driver.forwarder.settlement.histograms.items()
        }

    def close(self) -> None:
        """Give everything back."""
        for peer in self.peers:
            peer.drop()
        while self.driver._jobs:  # the engines of the connections are freed in steps
            self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class End:
    """One end of a connection to the router; `heard` is every byte that the router has sent."""

    def __init__(self, rig: Rig, name: str, role: Role, **settings: Any) -> None:
        """`settings` of the router's listener, as far as they are others than `SETTINGS`."""
        near, far = socket.socketpair()
        for sock in (near, far):
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        self.rig = rig
        self.socket = near
        self.heard = bytearray()
        self.dropped = False
        self.router_side = rig.driver.adopt(
            far, replace(SETTINGS, role=role, **settings), Owner(), incoming=True, peer=name
        )

    def turn(self) -> bool:
        """Say what there is to say and hear what there is to hear; whether there was anything."""
        if self.dropped:
            return False
        moved = self._say()
        router_side = self.router_side
        if not router_side.closed and (router_side.unfinished or _readable(router_side.socket)):
            self.rig.driver.turn()  # what the loop would call
            moved = True
        while _readable(self.socket):
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionResetError:  # the router has left bytes unread
                data = b""
            if not data:
                self._hear(b"")
                self.dropped = True
                break
            moved = True
            self.heard += data
            self._hear(data)
        return moved

    def _say(self) -> bool:
        raise NotImplementedError

    def _hear(self, data: bytes) -> None:
        """Take what the router has sent; nothing at the end."""

    def drop(self) -> None:
        """The connection breaks."""
        if not self.dropped:
            self.dropped = True
            self.socket.close()
        while not self.router_side.closed:
            self.rig.driver.turn()
            if not self.router_side.unfinished:
                break


class Peer(End):
    """One that speaks proton."""

    def __init__(self, rig: Rig, name: str, role: Role, **settings: Any) -> None:
        super().__init__(rig, name, role, **settings)
        self.deliveries: dict[str, list[Delivery]] = {}
        self.told: dict[str, list[Delivery]] = {}
        """Those with an outcome that this end will settle when the router has."""
        self.connection, self.transport, self.collector = Connection(), Transport(), Collector()
        self.connection.collect(self.collector)
        self.connection.container = name
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.connection.open()
        self.transport.bind(self.connection)
        self.session = self.connection.session()
        self.session.open()

    def _say(self) -> bool:
        moved = False
        while (pending := self.transport.pending()) > 0:
            try:
                self.transport.pop(self.socket.send(self.transport.peek(pending)))
            except BlockingIOError:
                break
            moved = True
        return moved

    def _hear(self, data: bytes) -> None:
        if not data:
            self.transport.close_tail()
            return
        while data and (room := self.transport.capacity()) > 0:
            self.transport.push(data[:room])
            data = data[room:]
        self._events()

    def _events(self) -> None:
        while (event := self.collector.peek()) is not None:
            if event.type == Event.DELIVERY and event.link.is_receiver:
                waiting = self.told.get(event.link.name, [])
                if event.delivery in waiting and event.delivery.settled:
                    waiting.remove(event.delivery)
                    event.delivery.settle()
                else:
                    self._read(event.link)
            elif event.type == Event.DELIVERY and (
                event.delivery.settled
                or (event.delivery.remote_state and event.link.rcv_settle_mode == Link.RCV_SECOND)
            ):
                event.delivery.settle()
            elif event.type == Event.LINK_REMOTE_CLOSE:
                event.link.close()
            elif event.type == Event.LINK_FLOW and event.link.is_sender and event.link.drain_mode:
                event.link.drained()
            self.collector.pop()

    def _read(self, link: Any) -> None:
        while (delivery := link.current) is not None:
            if delivery.pending and not delivery.aborted:
                link.recv(delivery.pending)
            if delivery.partial and not delivery.aborted:
                return
            link.advance()
            if delivery.settled or delivery.aborted:
                delivery.settle()
            else:
                self.deliveries.setdefault(link.name, []).append(delivery)


def usable(link: Any) -> bool:
    """Whether both ends have it attached."""
    return bool(link.state & Endpoint.LOCAL_ACTIVE and link.state & Endpoint.REMOTE_ACTIVE)


def _readable(sock: socket.socket) -> bool:
    """Whether something has come; for any number of open files, which `select` is not."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
