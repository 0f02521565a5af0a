"""The links of a test client, and the deliveries on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proton import Condition, Delivery, Link, Message

if TYPE_CHECKING:
    from tests.integration.support.client import Client

TIMEOUT_SECONDS = 90.0

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
    data: Any = None
    """Fields of a state that is none of the usual ones."""


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

    def begin(self, data: bytes = b"", *, tag: str | None = None) -> Sent:
        """Start a delivery whose end is still to come. Its tag is its number, unless one is given."""
        self._tags += 1
        delivery = self.link.delivery(tag or f"{self._tags}")
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

    def deliver_second(self, message: Message | bytes | str, receiver: Receiver) -> int:
        """Send, accept at `receiver` and settle as soon as the outcome is here; its number."""
        sent = self.await_credit().send(message)
        receiver.grant(1)
        receiver.next().settle()
        delivery = sent.delivery
        assert delivery is not None
        self.client.clients.until(lambda: delivery.remote_state, "an outcome")
        state: int = delivery.remote_state
        delivery.settle()
        return state


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
            if client.finished or self.sender.link.session.outgoing_bytes > self.AHEAD_BYTES:
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
