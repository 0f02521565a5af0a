"""AMQP clients on python-qpid-proton's engine, stepped by the test instead of by callbacks.

All clients of a test run on the test's own thread: `Clients.until` moves bytes for every one of them until a
condition holds. So a test decides exactly when credit is granted, a chunk is sent or a delivery is settled.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from cproton import (
    PN_DELIVERY,
    isnull,
    pn_collector_peek,
    pn_collector_pop,
    pn_delivery_link,
    pn_delivery_settled,
    pn_event_delivery,
    pn_event_type,
    pn_link_is_receiver,
    pn_link_name,
)
from proton import (
    Collector,
    Condition,
    Connection,
    Delivery,
    Endpoint,
    Event,
    Link,
    SSLDomain,
    Terminus,
    Transport,
    symbol,
)
from tests.integration.support.links import STATES, TIMEOUT_SECONDS, Pour, Received, Receiver, Sender, Sent

__all__ = ["Client", "Clients", "Pour", "Received", "Receiver", "Sender", "Sent"]

READ_BYTES = 256 * 1024
WITHOUT_FIELDS = {Delivery.ACCEPTED, Delivery.RELEASED}
"""States of which there is nothing more to know."""


class Client:
    """One connection."""

    def __init__(self, clients: Clients, port: int, **options: Any) -> None:
        self.clients = clients
        host = options.pop("host", "localhost")
        self.options = options
        self.reading = True
        self.muted = False
        """What the engine wants to send is thrown away."""
        self.finished = False
        self.failure: str | None = None
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}
        self._names = 0
        self.connection = Connection()
        self.connection.container = options.get("container", f"client-{len(clients.all)}")
        self.connection.hostname = options.get("hostname", host)
        self.connection.properties = options.get("properties")
        self.collector = Collector()
        self.connection.collect(self.collector)
        self.transport = Transport()
        if options.get("idle_timeout"):
            self.transport.idle_timeout = options["idle_timeout"]
        if options.get("max_frame_size"):
            self.transport.max_frame_size = options["max_frame_size"]
        if options.get("user"):
            self.connection.user = options["user"]
            self.connection.password = options.get("password")
        sasl = self.transport.sasl()
        sasl.allowed_mechs(options.get("mechanisms", "ANONYMOUS"))
        sasl.allow_insecure_mechs = True
        tls: SSLDomain | None = options.get("tls")
        if tls is not None:
            from proton import SSL  # noqa: PLC0415

            ssl = SSL(self.transport, tls)
            ssl.peer_hostname = options.get("hostname", host)
        if options.get("offered"):
            self.connection.offered_capabilities = [symbol(name) for name in options["offered"]]
        self.connection.open()
        self.transport.bind(self.connection)
        self.session = self.connection.session()
        if options.get("incoming_capacity"):
            self.session.incoming_capacity = options["incoming_capacity"]
        self.session.open()
        self.socket = socket.create_connection((host, port), TIMEOUT_SECONDS)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # Links

    def _name(self) -> str:
        self._names += 1
        return f"{self.connection.container}-{self._names}"

    def new_session(self) -> Any:
        """Another session on this connection."""
        session = self.connection.session()
        session.open()
        return session

    def sender(
        self,
        target: str | None,
        *,
        dynamic: bool = False,
        coordinator: bool = False,
        name: str | None = None,
        settle_mode: int = Link.SND_MIXED,
        second: bool = False,
        capability: str | None = None,
        session: Any = None,
        wait: bool = True,
    ) -> Sender:
        """Attach a link that sends to `target` (None: anonymous)."""
        link = (session or self.session).sender(name or self._name())
        link.target.address = target
        link.target.dynamic = dynamic
        if coordinator:
            link.target.type = Terminus.COORDINATOR
        if capability is not None:
            link.target.capabilities.put_symbol(symbol(capability))
        link.snd_settle_mode = settle_mode
        link.rcv_settle_mode = Link.RCV_SECOND if second else Link.RCV_FIRST
        sender = Sender(self, link)
        self.senders[link.name] = sender
        link.open()
        if wait:
            self.attached(link)
        return sender

    def receiver(
        self,
        source: str | None,
        *,
        credit: int = 0,
        dynamic: bool = False,
        name: str | None = None,
        settle_mode: int = Link.SND_MIXED,
        second: bool = False,
        max_message_size: int = 0,
        accept: bool = False,
        capability: str | None = None,
        session: Any = None,
        wait: bool = True,
    ) -> Receiver:
        """Attach a link that receives from `source`; `accept` accepts each delivery and renews its credit."""
        link = (session or self.session).receiver(name or self._name())
        link.source.address = source
        link.source.dynamic = dynamic
        if capability is not None:
            link.source.capabilities.put_symbol(symbol(capability))
        link.snd_settle_mode = settle_mode
        link.rcv_settle_mode = Link.RCV_SECOND if second else Link.RCV_FIRST
        link.max_message_size = max_message_size
        receiver = Receiver(self, link)
        receiver.auto_accept = receiver.replenish = accept
        self.receivers[link.name] = receiver
        link.open()
        if credit:
            link.flow(credit)
        if wait:
            self.attached(link)
        return receiver

    def attached(self, link: Any) -> None:
        """Wait until the router has answered the attach."""
        self.clients.until(
            lambda: link.state & (Endpoint.REMOTE_ACTIVE | Endpoint.REMOTE_CLOSED),
            f"an answer to {link.name}",
        )

    def refusal(self, link: Any) -> Condition:
        """Wait until the router closes the link and return the error."""
        self.clients.until(
            lambda: link.state & Endpoint.REMOTE_CLOSED, f"{link.name} is closed by the router"
        )
        return link.remote_condition

    def detach(self, link: Any) -> None:
        """Close a link and wait for the answer."""
        link.close()
        self.clients.until(lambda: link.state & Endpoint.REMOTE_CLOSED, f"{link.name} is closed")

    # Connection

    @property
    def opened(self) -> bool:
        """Whether the router has opened the connection."""
        return bool(self.connection.state & Endpoint.REMOTE_ACTIVE)

    def await_open(self) -> Client:
        """Wait until the router has opened the connection."""
        self.clients.until(lambda: self.opened or self.finished, "the connection is open")
        assert self.opened, f"refused: {self.failure}"
        return self

    def await_end(self, timeout: float = TIMEOUT_SECONDS) -> Condition | None:
        """Wait until the router has closed the connection; the error it gave, if any."""
        self.clients.until(
            lambda: self.finished or self.connection.state & Endpoint.REMOTE_CLOSED,
            "the router closes the connection",
            timeout,
        )
        return self.connection.remote_condition

    def close(self) -> None:
        """Close the connection and wait for the answer."""
        self.connection.close()
        self.clients.until(
            lambda: self.finished or self.connection.state & Endpoint.REMOTE_CLOSED, "the close is answered"
        )
        self.drop()

    def drop(self) -> None:
        """Drop the socket, as a crash would."""
        if not self.finished:
            self._end("dropped by the test")

    # Input and output

    def read(self) -> None:
        """Bytes from the router."""
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error))
            return
        if data:
            while data and (room := self.transport.capacity()) > 0:
                self.transport.push(data[:room])
                data = data[room:]
        else:
            self.transport.close_tail()
        self.events()

    def write(self) -> None:
        """Bytes to the router, as far as the socket takes them."""
        while not self.finished and (pending := self.transport.pending()) > 0:
            if self.muted:
                self.transport.pop(pending)
                continue
            try:
                count = self.socket.send(self.transport.peek(min(pending, READ_BYTES)))
            except BlockingIOError:
                break
            except OSError as error:
                self._end(str(error))
                return
            self.transport.pop(count)
        self.events()
        if self.transport.closed:
            self._end("closed")

    def wants_write(self) -> bool:
        """Whether the engine has bytes for the router."""
        return not self.finished and self.transport.pending() > 0

    def tick(self) -> None:
        """Heartbeats."""
        self.transport.tick(time.monotonic())

    def events(self) -> None:
        """Take over what the engine reports."""
        collector = self.collector._impl
        while not isnull(event := pn_collector_peek(collector)):
            # What Python has of an event costs more than all the rest, and most events are of deliveries.
            if pn_event_type(event) == PN_DELIVERY:
                self._deal_with_delivery(pn_event_delivery(event))
            else:
                self.deal_with(Event.wrap(event))
            pn_collector_pop(collector)

    def deal_with(self, event: Event) -> None:
        """Take over one thing that the engine reports, other than of a delivery."""
        if event.type == Event.LINK_FLOW and event.link.is_sender:
            self.senders[event.link.name].answer_drain()
        elif event.type == Event.TRANSPORT_ERROR:
            self.failure = str(self.transport.condition)
        elif event.type == Event.LINK_REMOTE_DETACH:
            event.link.detach()

    def _deal_with_delivery(self, delivery: Any) -> None:
        """Take over what the engine reports of a delivery, which is one of the engine's."""
        link = pn_delivery_link(delivery)
        if not pn_link_is_receiver(link):
            self._updated(delivery)
        elif (receiver := self.receivers.get(pn_link_name(link))) is not None:
            receiver.read()

    def _updated(self, engines: Any) -> None:
        """Take over the outcome of a delivery of the engine's if it is settled."""
        if not pn_delivery_settled(engines):
            return
        sender = self.senders.get(pn_link_name(pn_delivery_link(engines)))
        delivery = Delivery.wrap(engines)
        sent = None if sender is None else sender.sent.get(delivery.tag)
        if sent is None:  # the router has closed the link
            return
        state = delivery.remote_state
        sent.outcome = STATES.get(state, "none")
        if state not in WITHOUT_FIELDS:
            remote = delivery.remote
            sent.condition = remote.condition
            sent.failed = remote.failed
            sent.undeliverable = remote.undeliverable
            sent.annotations = remote.annotations
            sent.data = remote.data
        sent.settled = True
        delivery.settle()
        sent.delivery = None

    def _end(self, reason: str) -> None:
        if not self.finished:
            self.finished = True
            self.failure = self.failure or reason
            self.clients.forget(self)
            self.socket.close()


class Clients:
    """Every client of one test, driven together."""

    def __init__(self) -> None:
        self.all: list[Client] = []
        self.background: list[Callable[[], bool]] = []
        """Work that goes on whenever bytes are moved, until it returns True."""
        self._selector = selectors.DefaultSelector()

    def connect(self, port: int, *, wait: bool = True, **options: Any) -> Client:
        """Connect to a router."""
        client = Client(self, port, **options)
        self.adopt(client)
        if wait:
            client.await_open()
        return client

    def admitted(self, port: int, domain: SSLDomain) -> bool:
        """Whether a router opens a connection with the client certificate of `domain`; the connection is closed."""
        client = self.connect(port, wait=False, tls=domain, mechanisms="EXTERNAL")
        self.until(lambda: client.finished or client.opened, "the connection is opened or refused")
        opened = client.opened
        if opened:
            client.connection.close()
        return opened

    def adopt(self, client: Client) -> None:
        """Drive this one too."""
        self.all.append(client)
        self._selector.register(client.socket, selectors.EVENT_READ, client)

    def until(
        self, condition: Callable[[], Any], what: str | Callable[[], str], timeout: float = TIMEOUT_SECONDS
    ) -> None:
        """Move bytes for every client until `condition` is true. After `timeout` seconds, fail with the text `what`, or
        with the text that it returns."""
        deadline = time.monotonic() + timeout
        while True:
            self._write()
            if condition():
                return
            if time.monotonic() >= deadline:
                raise AssertionError(f"not within {timeout:g} s: {what if isinstance(what, str) else what()}")
            self._step(0.05)

    def step(self, timeout: float = 0) -> None:
        """Move what bytes there are, once; wait for them no longer than `timeout` seconds."""
        self._write()
        self._step(timeout)

    def round_trip(self) -> None:
        """Wait until all that was sent has been dealt with, and what that led to has arrived.

        For what must not happen: afterwards it would have. A session begins on every connection, then ends. A
        connection's frames stay in order; so with the first answers every router has taken in what its clients
        sent, and with the second the clients have what it wrote because of that.
        """
        self._write()  # a begin would overtake what the engine has not turned into frames yet
        asked = [
            (client, client.new_session())
            for client in self.all
            if client.opened and client.reading and not client.muted and not client.finished
        ]

        def answered(state: int) -> bool:
            return all(client.finished or session.state & state for client, session in asked)

        self.until(lambda: answered(Endpoint.REMOTE_ACTIVE), "every router has answered")
        for _, session in asked:
            session.close()
        self.until(lambda: answered(Endpoint.REMOTE_CLOSED), "every router has answered again")
        for _, session in asked:
            session.free()

    def standstill(self, progress: Callable[[], int], round_trip: Callable[[], object]) -> int:
        """Wait until `progress` has stayed the same over ten round trips; its value then.

        For what is held back: the routers had ten occasions to take more, and did not.
        """
        deadline = time.monotonic() + TIMEOUT_SECONDS
        last, unchanged = progress(), 0
        while unchanged < 10:
            assert time.monotonic() < deadline, f"no end within {TIMEOUT_SECONDS:g} s: {last}"
            round_trip()
            now = progress()
            last, unchanged = now, unchanged + 1 if now == last else 0
        return last

    def let_time_pass(self, seconds: float) -> None:
        """Move bytes for a fixed time.

        Only for a measurement over time, such as the CPU time of a router at rest. Everything else waits for
        what happens (`until`) or for what comes after it (`round_trip`).
        """
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._write()
            self._step(min(left, 0.05))

    def _write(self) -> None:
        self.background = [work for work in self.background if not work()]
        for client in list(self.all):
            if not client.finished:
                client.tick()
                client.write()

    def _step(self, timeout: float) -> None:
        for client in self.all:
            if client.finished:
                continue
            mask = (selectors.EVENT_READ if client.reading else 0) | (
                selectors.EVENT_WRITE if client.wants_write() else 0
            )
            known = client.socket in self._selector.get_map()
            if mask and known:
                self._selector.modify(client.socket, mask, client)
            elif mask:
                self._selector.register(client.socket, mask, client)
            elif known:
                self._selector.unregister(client.socket)
        for key, mask in self._selector.select(timeout):
            client = key.data
            if mask & selectors.EVENT_READ and not client.finished:
                client.read()
            if mask & selectors.EVENT_WRITE and not client.finished:
                client.write()

    def forget(self, client: Client) -> None:
        """The client's socket is about to be closed."""
        if client.socket in self._selector.get_map():
            self._selector.unregister(client.socket)

    def close(self) -> None:
        """Drop every connection."""
        for client in self.all:
            client.drop()
        self._selector.close()
