"""AMQP clients that run in pods: numbered messages, every outcome accounted for.

    client.py send URL ADDRESS [--count N] [--rate N] [--resend] [--base N]
    client.py receive URL ADDRESS [--mixed] [--delay SECONDS] [--stay]
    client.py request URL ADDRESS [--rate N]
    client.py serve URL ADDRESS

The sender ends after `--count` numbers, or once the file STOP exists, when every number has its outcome;
then it sends END until that is accepted. Its numbers begin at 0, in messages `--base` is added. The receiver
ends at END, or with `--stay` once STOP exists. The requester asks with a reply address of its own until STOP
exists, asks again what came back unanswered, and ends when all is answered; the server replies, and accepts
a request only once its reply is accepted. All print one JSON object per line: progress several times a second
and, as the last line, the report. A sender or receiver that is detached with an error, or refused, attaches
again. Only the standard library and proton.
"""

from __future__ import annotations

import argparse
import json
import socket
import time
from collections import deque
from pathlib import Path
from urllib.parse import urlsplit

from proton import Condition, Connection, Delivery, Event, Link, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, Selector

STOP = Path("/tmp/stop")
END = "end"
TICK_S = 0.02
PROGRESS_S = 0.2
RECONNECT_S = 0.2
PATIENCE_S = 5.0
"""That a reply is sent again: who it is for may be gone for good."""
WINDOW = 500
LIMIT_S = 300.0

OUTCOMES = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}


def mixed_outcome(number: int) -> str:
    """What a receiver with `--mixed` does to a number; the rest is accepted."""
    return {1: "rejected", 2: "released", 3: "modified"}.get(number % 10, "accepted")


class Client(MessagingHandler):
    """Keeps one connection, tells progress, and ends with a report."""

    def __init__(self, url: str, address: str, **options: object) -> None:
        super().__init__(**options)
        self.url, self.address = url, address
        self.connection: Connection | None = None
        self.disconnects: list[str] = []
        self.done = False
        self.began = time.monotonic()
        self._told = 0.0

    def on_start(self, event: Event) -> None:
        self.container = event.container
        self._connect()
        self.container.schedule(TICK_S, self)

    def on_timer_task(self, event: Event) -> None:
        if self.done:
            return
        now = time.monotonic()
        if now - self.began > LIMIT_S:
            self.disconnects.append(f"gave up after {LIMIT_S:.0f} s")
            self.finish()
            return
        self.tick()
        if self.done:
            return
        if now - self._told >= PROGRESS_S:
            self._told = now
            self.tell(self.progress())
        self.container.schedule(TICK_S, self)

    def on_disconnected(self, event: Event) -> None:
        if self.done or event.connection != self.connection:
            return
        condition = event.transport.condition or event.connection.remote_condition
        self.disconnects.append(str(condition))
        self.connection = None
        self.lost()
        self.container.schedule(RECONNECT_S, Reconnect(self))

    def reconnect(self) -> None:
        if not self.done:
            self._connect()

    def _connect(self) -> None:
        url = urlsplit(self.url)
        try:
            (*_, (address, *_)), *_ = socket.getaddrinfo(url.hostname, url.port, type=socket.SOCK_STREAM)
        except (
            socket.gaierror
        ):  # of a pod that is away, and proton would end with it, so it is not to look itself
            self.container.schedule(RECONNECT_S, Reconnect(self))
            return
        self.connection = self.container.connect(
            f"{url.scheme}://{address}:{url.port}", virtual_host=url.hostname, reconnect=False, heartbeat=5
        )
        self.attach()

    def finish(self) -> None:
        self.done = True
        self.tell(self.report())
        if self.connection is not None:
            self.connection.close()

    @staticmethod
    def tell(facts: dict[str, object]) -> None:
        print(json.dumps(facts, separators=(",", ":")), flush=True)

    def tick(self) -> None: ...
    def attach(self) -> None: ...
    def lost(self) -> None: ...
    def progress(self) -> dict[str, object]: ...
    def report(self) -> dict[str, object]: ...


class Reconnect(MessagingHandler):
    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client

    def on_timer_task(self, event: Event) -> None:
        self.client.reconnect()


class LinkClient(Client):
    """Has one link, and attaches it again when it is refused or detached with an error."""

    def __init__(self, url: str, address: str, **options: object) -> None:
        super().__init__(url, address, **options)
        self.detaches: dict[str, int] = {}

    def on_link_error(self, event: Event) -> None:
        condition = event.link.remote_condition
        text = f"{condition.name}: {condition.description}"
        self.detaches[text] = self.detaches.get(text, 0) + 1
        self.lost()
        self.container.schedule(RECONNECT_S, Attach(self, event.connection))


class Attach(MessagingHandler):
    def __init__(self, client: LinkClient, connection: Connection) -> None:
        super().__init__()
        self.client, self.connection = client, connection

    def on_timer_task(self, event: Event) -> None:
        if not self.client.done and self.client.connection == self.connection:
            self.client.attach()


class Sender(LinkClient):
    """Sends 0, 1, 2, ... With `resend`, a number is sent again until it is accepted or rejected."""

    def __init__(
        self, url: str, address: str, count: int | None, rate: int | None, resend: bool, base: int = 0
    ) -> None:
        super().__init__(url, address)
        self.count, self.rate, self.resend, self.base = count, rate, resend, base
        self.link: Link | None = None
        self.next = 0
        self.again: deque[int] = deque()
        self.flying: dict[str, int] = {}
        self.attempts = 0
        self.outcomes: dict[str, list[int]] = {name: [] for name in (*OUTCOMES.values(), "lost")}
        self.conditions: dict[str, int] = {}
        # Seconds from one accepted message to the next, at most.
        self.stalled = 0.0
        self.accepted_at: float | None = None
        self.ending = False

    def attach(self) -> None:
        self.link = self.container.create_sender(self.connection, self.address)

    def lost(self) -> None:
        for number in self.flying.values():
            self._settled(number, "lost")
        self.flying.clear()
        # Nothing is to be sent by it while another one is not attached yet.
        self.link = None
        self.ending = False

    def tick(self) -> None:
        self._send()
        if self.link is None or self.connection is None or self.ending or self.flying or self.again:
            return
        if self._exhausted() and self._complete() and self.link.credit > 0:
            self.ending = True
            self.link.send(Message(body=END))

    def on_sendable(self, event: Event) -> None:
        self._send()

    def _exhausted(self) -> bool:
        return self.next == self.count or (self.count is None and STOP.exists())

    def _complete(self) -> bool:
        """Whether what was sent needs nothing but its outcomes."""
        return True

    def _send(self) -> None:
        link = self.link
        if self.connection is None or link is None:
            return
        while link.credit > 0 and len(self.flying) < WINDOW:
            if self.again:
                number = self.again.popleft()
            elif self._exhausted() or self._too_fast():
                return
            else:
                number = self.next
                self.next += 1
            self.attempts += 1
            tag = f"{number}-{self.attempts}"
            self.flying[tag] = number
            link.send(self.message(number), tag=tag)

    def message(self, number: int) -> Message:
        return Message(body=self.base + number, durable=True, properties={"digit": number % 10})

    def _too_fast(self) -> bool:
        return self.rate is not None and self.next >= self.rate * (time.monotonic() - self.began)

    def on_settled(self, event: Event) -> None:
        delivery = event.delivery
        if delivery.link != self.link:
            return
        outcome = OUTCOMES.get(delivery.remote_state, "lost")
        if delivery.tag not in self.flying:
            if outcome == "accepted":
                self.finish()
            else:
                self.ending = False
            return
        if delivery.remote.condition is not None:
            text = f"{delivery.remote.condition.name}: {delivery.remote.condition.description}"
            self.conditions[text] = self.conditions.get(text, 0) + 1
        self._settled(self.flying.pop(delivery.tag), outcome)

    def _settled(self, number: int, outcome: str) -> None:
        self.outcomes[outcome].append(number)
        if outcome == "accepted":
            now = time.monotonic()
            self.stalled = max(self.stalled, now - (self.accepted_at or now))
            self.accepted_at = now
        if self.resend and outcome not in {"accepted", "rejected"}:
            self.again.append(number)

    def progress(self) -> dict[str, object]:
        counts = {name: len(numbers) for name, numbers in self.outcomes.items()}
        return {"sent": self.next, **counts, "stalled": round(self.stalled, 2)}

    def report(self) -> dict[str, object]:
        return {
            "report": "sender",
            "sent": self.next,
            "attempts": self.attempts,
            "outcomes": self.outcomes,
            "conditions": self.conditions,
            "detaches": self.detaches,
            "disconnects": self.disconnects,
            "stalled": round(self.stalled, 2),
            "seconds": round(time.monotonic() - self.began, 1),
        }


class Receiver(LinkClient):
    """Takes what comes and remembers it in the order of arrival; with a selector, what that lets through."""

    def __init__(
        self, url: str, address: str, mixed: bool, delay: float, stay: bool, selector: str | None
    ) -> None:
        super().__init__(url, address, prefetch=500, auto_accept=False)
        self.filter = None if selector is None else Selector(selector)
        self.mixed, self.delay, self.stay = mixed, delay, stay
        self.held: deque[tuple[float, Delivery, int]] = deque()
        self.attached = False
        self.numbers: list[int] = []
        self.greatest = -1

    def attach(self) -> None:
        self.container.create_receiver(self.connection, self.address, options=self.filter)

    def lost(self) -> None:
        self.attached = False
        self.held.clear()

    def tick(self) -> None:
        while self.held and self.held[0][0] <= time.monotonic():
            _, delivery, number = self.held.popleft()
            self._decide(delivery, number)
        if self.stay and STOP.exists():
            self.finish()

    def on_link_opened(self, event: Event) -> None:
        # A link that is refused is opened without a source, and then closed.
        self.attached = event.link.remote_source.address is not None

    def on_message(self, event: Event) -> None:
        delivery, body = event.delivery, event.message.body
        if body == END:
            self.accept(delivery)
            if not self.stay:
                # The acceptance must get out before the connection is closed.
                self.container.schedule(RECONNECT_S, Ending(self))
            return
        self.numbers.append(body)
        self.greatest = max(self.greatest, body)
        if self.delay:
            self.held.append((time.monotonic() + self.delay, delivery, body))
        else:
            self._decide(delivery, body)

    def _decide(self, delivery: Delivery, number: int) -> None:
        outcome = mixed_outcome(number) if self.mixed else "accepted"
        if outcome == "accepted":
            self.accept(delivery)
        elif outcome == "rejected":
            delivery.local.condition = Condition("test:refused", f"number {number % 10}")
            self.reject(delivery)
        else:
            self.release(delivery, delivered=outcome == "modified")

    def progress(self) -> dict[str, object]:
        return {"attached": self.attached, "received": len(self.numbers), "greatest": self.greatest}

    def report(self) -> dict[str, object]:
        return {
            "report": "receiver",
            "numbers": self.numbers,
            "detaches": self.detaches,
            "disconnects": self.disconnects,
        }


class Requester(Sender):
    """Sends numbered requests until each is accepted; `answers` counts the replies to each."""

    def __init__(self, url: str, address: str, rate: int) -> None:
        super().__init__(url, address, count=None, rate=rate, resend=True)
        self.answers: dict[int, int] = {}
        self.replies: Link | None = None

    def attach(self) -> None:
        self.replies = self.container.create_receiver(self.connection, None, dynamic=True)

    def on_link_opened(self, event: Event) -> None:
        if event.link == self.replies:
            super().attach()

    def message(self, number: int) -> Message:
        assert self.replies is not None
        return Message(body=number, reply_to=self.replies.remote_source.address, correlation_id=number)

    def _complete(self) -> bool:
        return len(self.answers) == self.next

    def on_message(self, event: Event) -> None:
        number = event.message.correlation_id
        self.answers[number] = self.answers.get(number, 0) + 1

    def progress(self) -> dict[str, object]:
        return {**super().progress(), "answered": len(self.answers)}

    def report(self) -> dict[str, object]:
        return {
            **super().report(),
            "answered": sorted(self.answers),
            "under_way": sorted(self.flying.values()),
        }


class Server(LinkClient):
    """Replies to requests; what came back of a reply is sent again for a while, then its request is released."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(url, address, prefetch=100, auto_accept=False)
        self.sender: Link | None = None
        self.waiting: deque[tuple[float, float, Delivery, Message]] = deque()
        """Replies to be sent, each not before a moment, not again after another, with the request of each."""
        self.flying: dict[str, tuple[float, Delivery, Message]] = {}
        self.counts = {"sent": 0, "replied": 0, "repeated": 0, "dropped": 0}

    def attach(self) -> None:
        self.sender = self.container.create_sender(self.connection, None)
        self.container.create_receiver(self.connection, self.address)

    def lost(self) -> None:
        self.waiting.clear()
        self.flying.clear()

    def tick(self) -> None:
        if STOP.exists():
            self.finish()
            return
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            if self.sender is None or self.sender.credit <= 0:
                return
            _, until, request, reply = self.waiting.popleft()
            self.counts["sent"] += 1
            tag = str(self.counts["sent"])
            self.flying[tag] = (until, request, reply)
            self.sender.send(reply, tag=tag)

    def on_sendable(self, event: Event) -> None:
        self.tick()

    def on_message(self, event: Event) -> None:
        if event.message.body == END:
            self.accept(event.delivery)
            return
        reply = Message(
            address=event.message.reply_to,
            correlation_id=event.message.correlation_id,
            body=event.message.body,
            durable=True,
        )
        self.waiting.append((0.0, time.monotonic() + PATIENCE_S, event.delivery, reply))
        self.tick()

    def on_settled(self, event: Event) -> None:
        flown = self.flying.pop(event.delivery.tag, None)
        if flown is None:
            return
        until, request, reply = flown
        if event.delivery.remote_state == Delivery.ACCEPTED:
            self.counts["replied"] += 1
            self.accept(request)
        elif time.monotonic() < until:
            self.counts["repeated"] += 1
            self.waiting.append((time.monotonic() + RECONNECT_S, until, request, reply))
        else:
            self.counts["dropped"] += 1
            self.release(request)

    def progress(self) -> dict[str, object]:
        return dict(self.counts)

    def report(self) -> dict[str, object]:
        return {"report": "server", **self.counts, "disconnects": self.disconnects}


class Ending(MessagingHandler):
    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client

    def on_timer_task(self, event: Event) -> None:
        if not self.client.done:
            self.client.finish()


def client(options: argparse.Namespace) -> Client:
    """The client that the command asks for."""
    where = (options.url, options.address)
    if options.command == "send":
        return Sender(*where, options.count, options.rate, options.resend, options.base)
    if options.command == "request":
        return Requester(*where, options.rate)
    if options.command == "serve":
        return Server(*where)
    return Receiver(*where, options.mixed, options.delay, options.stay, options.selector)


def main() -> None:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("send", "receive", "request", "serve"):
        command = commands.add_parser(name)
        command.add_argument("url")
        command.add_argument("address")
    commands.choices["send"].add_argument("--count", type=int)
    commands.choices["send"].add_argument("--rate", type=int)
    commands.choices["send"].add_argument("--resend", action="store_true")
    commands.choices["send"].add_argument("--base", type=int, default=0, help="the first number in messages")
    commands.choices["receive"].add_argument("--mixed", action="store_true")
    commands.choices["receive"].add_argument("--delay", type=float, default=0.0, help="before each outcome")
    commands.choices["receive"].add_argument("--stay", action="store_true")
    commands.choices["receive"].add_argument("--selector", help="that the source filters by")
    commands.choices["request"].add_argument("--rate", type=int, default=100)
    options = parser.parse_args()
    Container(client(options)).run()


if __name__ == "__main__":
    main()
