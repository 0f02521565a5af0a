"""AMQP clients on python-qpid-proton's engine, stepped by the test instead of by callbacks.

All clients of a test run on the test's own thread: `Clients.until` moves bytes for every one of them until a
condition holds. So a test decides exactly when credit is granted, a chunk is sent or a delivery is settled.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proton import (
    Collector,
    Condition,
    Connection,
    Delivery,
    Endpoint,
    Event,
    Link,
    Message,
    SSLDomain,
    Terminus,
    Transport,
    symbol,
)

READ_BYTES = 256 * 1024
TIMEOUT_SECONDS = 10.0

STATES = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
    Delivery.RECEIVED: "received",
}


@dataclass
class Sent:
    """A delivery as its sender sees it; `outcome` is None until the router has settled it."""

    delivery: Delivery | None
    outcome: str | None = None
    settled: bool = False
    condition: Condition | None = None
    failed: bool = False
    undeliverable: bool = False
    annotations: dict[Any, Any] | None = None


@dataclass
class Received:
    """A delivery as its receiver sees it; `data` grows while it arrives."""

    delivery: Delivery
    link: Link
    data: bytearray = field(default_factory=bytearray)
    complete: bool = False
    aborted: bool = False
    presettled: bool = False

    @property
    def message(self) -> Message:
        """The decoded message."""
        assert self.complete
        message = Message()
        message.decode(bytes(self.data))
        return message

    @property
    def body(self) -> Any:
        """Body of the decoded message; binary data as bytes."""
        message = self.message
        # proton's memoryview is of memory that goes with the message.
        return bytes(message.body) if isinstance(message.body, memoryview) else message.body

    def settle(self, state: Any = Delivery.ACCEPTED) -> None:
        """Give an outcome (None: no state at all) and settle."""
        if state is not None:
            self.delivery.update(state)
        self.delivery.settle()

    def reject(self, name: str, description: str, info: dict[Any, Any] | None = None) -> None:
        """Settle as rejected with an error."""
        self.delivery.local.condition = Condition(name, description, info)
        self.settle(Delivery.REJECTED)

    def modify(self, *, failed: bool, undeliverable: bool, annotations: dict[Any, Any] | None = None) -> None:
        """Settle as modified."""
        self.delivery.local.failed = failed
        self.delivery.local.undeliverable = undeliverable
        if annotations is not None:
            self.delivery.local.annotations = annotations
        self.settle(Delivery.MODIFIED)


class Sender:
    """A link that sends."""

    def __init__(self, client: Client, link: Any) -> None:
        self.client = client
        self.link = link
        self.sent: dict[str, Sent] = {}
        self._tags = 0
        self._unfinished = False

    @property
    def credit(self) -> int:
        """Deliveries that may be sent."""
        return self.link.credit

    def await_credit(self, at_least: int = 1) -> Sender:
        """Wait for credit."""
        self.client.clients.until(lambda: self.credit >= at_least, f"credit of {at_least}")
        return self

    def begin(self, data: bytes = b"") -> Sent:
        """Start a delivery whose end is still to come."""
        self._tags += 1
        delivery = self.link.delivery(f"{self._tags}")
        self._unfinished = True
        sent = Sent(delivery)
        self.sent[delivery.tag] = sent
        if data:
            self.link.send(data)
        return sent

    def more(self, data: bytes) -> None:
        """More of the delivery that was begun."""
        self.link.send(data)

    def finish(self) -> None:
        """The delivery that was begun is complete."""
        self.link.advance()
        self._unfinished = False
        self.answer_drain()

    def abort(self, sent: Sent) -> None:
        """Take back the delivery that was begun."""
        assert sent.delivery is not None
        sent.delivery.abort()
        self._unfinished = False

    def answer_drain(self) -> None:
        """Give credit back if the router asked for it and no delivery is half sent."""
        if self.link.drain_mode and not self._unfinished:
            self.link.drained()

    def send(self, message: Message | bytes | str, *, settled: bool = False) -> Sent:
        """Send a whole message; a str becomes the body of a message."""
        if isinstance(message, str):
            message = Message(body=message)
        data = message if isinstance(message, bytes) else message.encode()
        sent = self.begin(data)
        if settled:
            assert sent.delivery is not None
            sent.delivery.settle()
            sent.settled = True
            sent.delivery = None
            self._unfinished = False
        else:
            self.finish()
        return sent

    def outcome(self, sent: Sent, timeout: float = TIMEOUT_SECONDS) -> str:
        """Wait until the router settles the delivery; the name of the outcome, or `none`."""
        self.client.clients.until(lambda: sent.outcome is not None, "an outcome", timeout)
        assert sent.outcome is not None
        return sent.outcome

    def deliver(self, message: Message | bytes | str) -> str:
        """Send and wait for the outcome."""
        self.await_credit()
        return self.outcome(self.send(message))


class Pour:
    """A large message that is given to the engine bit by bit, as the router takes it."""

    CHUNK_BYTES = 256 * 1024
    AHEAD_BYTES = 1024 * 1024

    def __init__(self, sender: Sender, data: bytes | memoryview, *, finish: bool = True) -> None:
        self.sender = sender
        self.given = 0
        self.sent = sender.begin()
        self._data = memoryview(data)
        self._finish = finish
        sender.client.clients.background.append(self.push)

    def push(self) -> bool:
        """Give some more; True when all is given."""
        client = self.sender.client
        while self.given < len(self._data):
            if client.finished or client.session.outgoing_bytes > self.AHEAD_BYTES:
                return False
            chunk = bytes(self._data[self.given : self.given + self.CHUNK_BYTES])
            self.sender.more(chunk)
            self.given += len(chunk)
        if self._finish:
            self.sender.finish()
        return True


class Receiver:
    """A link that receives."""

    def __init__(self, client: Client, link: Any) -> None:
        self.client = client
        self.link = link
        self.received: list[Received] = []
        self.auto_accept = False
        self.replenish = False
        self._current: Received | None = None

    @property
    def address(self) -> str:
        """Address that the router gave the source."""
        return self.link.remote_source.address

    def grant(self, credit: int) -> Receiver:
        """Allow more deliveries."""
        self.link.flow(credit)
        return self

    def drain(self, credit: int) -> None:
        """Allow deliveries that are available right now, and have the rest of the credit back."""
        self.link.drain(credit)

    def arrived(self) -> list[Received]:
        """Deliveries that are complete and not aborted."""
        return [item for item in self.received if item.complete and not item.aborted]

    def bodies(self) -> list[Any]:
        """Bodies of the deliveries that are complete."""
        return [item.body for item in self.arrived()]

    def next(self, timeout: float = TIMEOUT_SECONDS) -> Received:
        """Wait for one complete delivery and take it from `received`."""
        self.expect(1, timeout)
        return self.received.pop(0)

    def expect(self, count: int, timeout: float = TIMEOUT_SECONDS) -> list[Received]:
        """Wait until that many deliveries are complete."""
        self.client.clients.until(
            lambda: len(self.arrived()) >= count, f"{count} deliveries at {self.link.name}", timeout
        )
        return self.arrived()

    def read(self) -> None:
        """Take what the engine has for this link."""
        link = self.link
        while (delivery := link.current) is not None:
            item = self._current
            if item is None:
                item = self._current = Received(delivery, link)
                self.received.append(item)
            if delivery.aborted:
                item.aborted = item.complete = True
                self._current = None
                delivery.settle()
                continue
            pending = delivery.pending
            if pending:
                item.data += link.recv(pending)
            if delivery.partial:
                return
            item.complete = True
            item.presettled = delivery.settled
            self._current = None
            link.advance()
            if self.auto_accept:
                item.settle()
            if self.replenish:
                link.flow(1)


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
        session: Any = None,
        wait: bool = True,
    ) -> Sender:
        """Attach a link that sends to `target` (None: anonymous)."""
        link = (session or self.session).sender(name or self._name())
        link.target.address = target
        link.target.dynamic = dynamic
        if coordinator:
            link.target.type = Terminus.COORDINATOR
        link.snd_settle_mode = settle_mode
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
        accept: bool = False,
        session: Any = None,
        wait: bool = True,
    ) -> Receiver:
        """Attach a link that receives from `source`; `accept` accepts each delivery and renews its credit."""
        link = (session or self.session).receiver(name or self._name())
        link.source.address = source
        link.source.dynamic = dynamic
        link.snd_settle_mode = settle_mode
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
        while (event := self.collector.peek()) is not None:
            if event.type == Event.DELIVERY:
                link = event.link
                if link.is_receiver:
                    receiver = self.receivers.get(link.name)
                    if receiver is not None:
                        receiver.read()
                else:
                    self._updated(event.delivery)
            elif event.type == Event.LINK_FLOW and event.link.is_sender:
                self.senders[event.link.name].answer_drain()
            elif event.type == Event.TRANSPORT_ERROR:
                self.failure = str(self.transport.condition)
            elif event.type == Event.LINK_REMOTE_DETACH:
                event.link.detach()
            self.collector.pop()

    def _updated(self, delivery: Delivery) -> None:
        sent = self.senders[delivery.link.name].sent.get(delivery.tag)
        if sent is None or not delivery.settled:
            return
        remote = delivery.remote
        sent.outcome = STATES.get(delivery.remote_state, "none")
        sent.condition = remote.condition
        sent.failed = remote.failed
        sent.undeliverable = remote.undeliverable
        sent.annotations = remote.annotations
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
        self.all.append(client)
        self._selector.register(client.socket, selectors.EVENT_READ, client)
        if wait:
            client.await_open()
        return client

    def until(self, condition: Callable[[], Any], what: str, timeout: float = TIMEOUT_SECONDS) -> None:
        """Move bytes for every client until `condition` is true."""
        deadline = time.monotonic() + timeout
        while True:
            self._write()
            if condition():
                return
            assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
            self._step(0.05)

    def run(self, seconds: float) -> None:
        """Move bytes for a fixed time: for what must not happen."""
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
