"""An interior router as far as an edge can tell: it answers the edge's links, and says on them what a test likes."""

from __future__ import annotations

import socket
import time
from typing import Any

from proton import Collector, Condition, Connection, Endpoint, Event, Link, Message, Transport
from tests.integration.support.client import Client, Clients
from tests.integration.support.links import Receiver, Sender, Sent

TRACKING = "_$qd.edge_addr_tracking"
DISCOVERY = "_$qd.mesh_discovery"
_CREDIT = 100


class FakeInterior:
    """A port where edges connect to. Driven, like clients, while a test waits with `clients`.

    `refusal` closes every tracking link with that error as soon as it is attached.
    """

    def __init__(self, clients: Clients, name: str = "fake", *, answers_tracking: bool = True) -> None:
        self.name = name
        self.clients = clients
        self.answers_tracking = answers_tracking
        self.refusal: Condition | None = None
        self.uplinks: list[Uplink] = []
        """One for each connection that was ever made, the latest last."""
        self.subscriptions: list[float] = []
        """When edges attached tracking links, on whichever connection."""
        self.socket = socket.create_server(("localhost", 0))
        self.socket.setblocking(False)
        self.port: int = self.socket.getsockname()[1]
        clients.background.append(self._accept)

    def _accept(self) -> bool:
        try:
            sock, _ = self.socket.accept()
        except BlockingIOError:
            return False
        uplink = Uplink(self, sock)
        self.uplinks.append(uplink)
        self.clients.adopt(uplink)
        return False

    @property
    def uplink(self) -> Uplink:
        """The latest connection."""
        return self.uplinks[-1]

    def await_uplink(self) -> Uplink:
        """Wait until an edge has attached all of its standing links, and was answered as a test wants it."""
        self.clients.until(lambda: self.uplinks and self.uplink.is_edge, "an edge attaches its links")
        return self.uplink

    def close(self) -> None:
        """No further connections."""
        self.clients.background.remove(self._accept)
        self.socket.close()


class Uplink(Client):
    """One edge's connection, at the interior's end."""

    def __init__(self, interior: FakeInterior, sock: socket.socket) -> None:
        self.interior = interior
        self.clients = interior.clients
        self.options = {}
        self.reading, self.muted, self.finished = True, False, False
        self.failure = None
        self.senders, self.receivers = {}, {}
        self._names = 0
        self.tracking: Sender | None = None
        self.downlink: Sender | None = None
        self.connection = Connection()
        self.connection.container = interior.name
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport = Transport(Transport.SERVER)
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.transport.bind(self.connection)
        self.socket = sock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def is_edge(self) -> bool:
        """Whether all standing links are there: discovery and anonymous uplink, downlink, tracking."""
        targets = {receiver.link.remote_target.address for receiver in self.receivers.values()}
        return {DISCOVERY, None} <= targets and self.downlink is not None and self._has_subscribed

    @property
    def _has_subscribed(self) -> bool:
        return self.tracking is not None or not self.interior.answers_tracking

    def say(self, body: Any) -> Sent:
        """Send the edge a tracking message; bytes are sent as they are."""
        assert self.tracking is not None
        return self.tracking.send(body if isinstance(body, bytes) else Message(body=body))

    def proxy(self, address: str) -> Receiver:
        """The edge's out-proxy for an address: what its clients send there arrives here, and is accepted."""

        def find() -> Receiver | None:
            found = (item for item in self.receivers.values() if item.link.remote_target.address == address)
            return next(found, None)

        self.clients.until(find, f"an out-proxy for {address}")
        receiver = find()
        assert receiver is not None
        return receiver

    def deal_with(self, event: Event) -> None:
        """The listening end's part of what happens; the rest is as for clients."""
        if event.type == Event.CONNECTION_REMOTE_OPEN:
            self.connection.open()
            self.session = self.new_session()
        elif event.type == Event.SESSION_REMOTE_OPEN:
            event.session.open()
        elif event.type == Event.SESSION_REMOTE_CLOSE:
            event.session.close()
        elif event.type == Event.LINK_REMOTE_OPEN:
            self._answer(event.link)
        elif event.type == Event.LINK_REMOTE_CLOSE:
            self._forget(event.link)
        elif event.type == Event.CONNECTION_REMOTE_CLOSE:
            self.connection.close()
        elif event.type != Event.LINK_FLOW or event.link.name in self.senders:
            super().deal_with(event)

    def _answer(self, link: Link) -> None:
        if not link.state & Endpoint.LOCAL_UNINIT:
            return
        is_tracking = link.is_sender and link.remote_source.address == TRACKING
        if is_tracking:
            self.interior.subscriptions.append(time.monotonic())
            if not self.interior.answers_tracking:
                return
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.open()
        if is_tracking and self.interior.refusal is not None:
            link.condition = self.interior.refusal
            link.close()
        elif link.is_sender:
            sender = self.senders[link.name] = Sender(self, link)
            if is_tracking:
                self.tracking = sender
            elif link.remote_target.address is None and self.downlink is None:
                self.downlink = sender
        else:
            receiver = self.receivers[link.name] = Receiver(self, link)
            receiver.auto_accept = receiver.replenish = True
            link.flow(_CREDIT)

    def _forget(self, link: Link) -> None:
        self.senders.pop(link.name, None)
        self.receivers.pop(link.name, None)
        if self.tracking is not None and self.tracking.link == link:
            self.tracking = None
        link.close()
