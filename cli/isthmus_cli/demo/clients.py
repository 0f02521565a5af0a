"""The demo's clients: python-qpid-proton's blocking API, one thread and one connection for each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from proton import Message, ProtonException, Timeout
from proton.utils import BlockingConnection

POLL_SECONDS = 0.1


class DemoError(Exception):
    """Something did not arrive; the text says what."""


@dataclass
class Service:
    """Answers requests on an address, each at the address its `reply-to` names."""

    url: str
    address: str
    answered: int = 0

    def run(self, ready: threading.Event, stop: threading.Event) -> None:
        with connection(self.url) as link:
            receiver = link.create_receiver(self.address, credit=10)
            replies = link.create_sender(None)
            ready.set()
            for request in received(receiver, stop):
                # Before the answer: the client waits for this, and only then takes the answer.
                receiver.accept()
                text = f"{request.body!s} from the service"
                replies.send(
                    Message(address=request.reply_to, correlation_id=request.correlation_id, body=text)
                )
                self.answered += 1


@dataclass
class Subscriber:
    """Receives what is sent to an address: probes, then numbers."""

    name: str
    url: str
    address: str
    numbers: list[int] = field(default_factory=list)
    probed: threading.Event = field(default_factory=threading.Event)

    def run(self, ready: threading.Event, stop: threading.Event) -> None:
        with connection(self.url) as link:
            receiver = link.create_receiver(self.address, credit=100)
            ready.set()
            for message in received(receiver, stop):
                if message.subject == "probe":
                    self.probed.set()
                else:
                    self.numbers.append(int(str(message.body)))
                receiver.accept()


class Crew:
    """Clients that run in the background. The first of them that fails fails the demo."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._trouble: list[str] = []

    def start(self, *clients: Service | Subscriber) -> None:
        """Starts clients; returns when all have attached."""
        events = [threading.Event() for _ in clients]
        for client, ready in zip(clients, events, strict=True):
            thread = threading.Thread(target=self._run, args=(client, ready), daemon=True)
            self._threads.append(thread)
            thread.start()
        self.wait("all clients are attached", lambda: all(event.is_set() for event in events))

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Returns when `condition` holds. Raises DemoError when it does not in time."""
        while not condition():
            if self._trouble:
                raise DemoError(self._trouble[0])
            if time.monotonic() > self._deadline:
                raise DemoError(f"waited in vain until {what}")
            time.sleep(POLL_SECONDS / 10)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self, client: Service | Subscriber, ready: threading.Event) -> None:
        try:
            client.run(ready, self._stop)
        except (ProtonException, OSError) as error:
            if not self._stop.is_set():
                self._trouble.append(f"client on {client.address} at {client.url}: {error}")


def ask(url: str, address: str, count: int, seconds: float) -> list[float]:
    """Sends `count` requests one after the other, each answered before the next. Returns their times in
    seconds. Raises DemoError when an answer does not come, or is not the answer to its request."""
    times = []
    try:
        with connection(url, seconds) as link:
            answers = link.create_receiver(None, dynamic=True, credit=1)
            requests = link.create_sender(address)
            for number in range(count):
                question = f"question {number}"
                begun = time.monotonic()
                requests.send(
                    Message(body=question, reply_to=answers.link.remote_source.address, correlation_id=number)
                )
                answer = answers.receive(timeout=seconds)
                answers.accept()
                if answer.correlation_id != number or not str(answer.body).startswith(f"{question} from"):
                    raise DemoError(f"{question} got the answer {answer.body!r}")
                times.append(time.monotonic() - begun)
    except (ProtonException, OSError) as error:
        raise DemoError(f"request {len(times) + 1} to {address}: {error}") from error
    return times


def publish(url: str, address: str, count: int, subscribers: Sequence[Subscriber], crew: Crew) -> None:
    """Sends numbered messages, after probes have shown that every subscriber is within reach."""
    try:
        with connection(url) as link:
            sender = link.create_sender(address)
            last = 0.0

            def probed() -> bool:
                nonlocal last
                if time.monotonic() - last > POLL_SECONDS:
                    sender.send(Message(subject="probe"))
                    last = time.monotonic()
                return all(subscriber.probed.is_set() for subscriber in subscribers)

            crew.wait(f"every subscriber of {address} has a message", probed)
            for number in range(count):
                sender.send(Message(body=number))
    except (ProtonException, OSError) as error:
        raise DemoError(f"sending to {address}: {error}") from error


@contextmanager
def connection(url: str, timeout: float = 10) -> Iterator[BlockingConnection]:
    link = BlockingConnection(url, timeout=timeout)
    try:
        yield link
    finally:
        link.close()


def received(receiver: object, stop: threading.Event) -> Iterator[Message]:
    """Messages until `stop` is set."""
    while not stop.is_set():
        try:
            yield receiver.receive(timeout=POLL_SECONDS)  # type: ignore[attr-defined]
        except Timeout:
            continue
