"""A router made by hand, to which a flow collector connects: it sends what the test wants, and nothing else."""

from __future__ import annotations

import itertools
import queue
import select
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from proton import Delivery, Endpoint
from proton._io import IO
from proton.handlers import Handshaker
from proton.reactor import Container
from tests.integration.support.ports import free_port
from tests.integration.support.routers import eventually

from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import UInt, ULong

TURN_SECONDS = 0.005
WAIT_SECONDS = 60.0
NOW_US = time.time_ns() // 1000
"""The collector takes no times that are far from its own clock."""


def record(record_type: int, identity: object, values: dict[int, object] | None = None) -> dict[UInt, object]:
    """A record as it is in a message."""
    return {
        UInt(Attr.TYPE): UInt(record_type),
        UInt(Attr.IDENTITY): identity,
        **{UInt(key): value for key, value in (values or {}).items()},
    }


def router_record(source: str, name: str) -> dict[UInt, object]:
    """The record of the router whose run the source is."""
    values = {
        Attr.START_TIME: ULong(NOW_US),
        Attr.NAME: f"0/{name}",
        Attr.MODE: "interior",
        Attr.HOSTNAME: "pod-0",
    }
    return record(RecordType.ROUTER, source, {int(key): value for key, value in values.items()})


def summary(source: str, number: int, **values: object) -> dict[UInt, object]:
    """A delivery summary of the router itself."""
    attributes: dict[Attr, object] = {
        Attr.PARENT: source,
        Attr.START_TIME: ULong(NOW_US),
        Attr.END_TIME: ULong(NOW_US + 1_000_000),
        Attr.DIRECTION: "in",
        Attr.VAN_ADDRESS: "orders",
        Attr.SEQUENCE: ULong(number),
        Attr.DELIVERIES: ULong(1),
        Attr.OCTETS: ULong(100),
        **{Attr[name.upper()]: value for name, value in values.items()},
    }
    identity = f"{source.partition(':')[0]}:{number + 1000}"
    return record(
        RecordType.DELIVERY_SUMMARY, identity, {int(key): value for key, value in attributes.items()}
    )


def poll_instead(
    reading: Sequence[Any], writing: Sequence[Any], _: object, timeout: float | None = None
) -> Any:
    """What `select.select` does, also with descriptors from 1,024 on, as a process of many tests has them."""
    poll = select.poll()
    masks: dict[int, int] = {}
    for files, flag in ((reading, select.POLLIN), (writing, select.POLLOUT)):
        for file in files:
            masks[file.fileno()] = masks.get(file.fileno(), 0) | flag
    for number, mask in masks.items():
        poll.register(number, mask)
    ready = dict(poll.poll(None if timeout is None else timeout * 1000))
    failed = select.POLLERR | select.POLLHUP
    return (
        [file for file in reading if ready.get(file.fileno(), 0) & (select.POLLIN | failed)],
        [file for file in writing if ready.get(file.fileno(), 0) & (select.POLLOUT | failed)],
        [],
    )


class HostileRouter:
    """Listens, accepts what a collector attaches, and sends on the links that the collector receives from."""

    def __init__(self) -> None:
        self.port = free_port()
        self.addresses: list[str] = []
        """What the collector has attached to, in order, again for each time."""
        self.outcomes: list[Any] = []
        """Of unsettled messages, in order."""
        self.flushes: list[str] = []
        """Where the collector has sent a command."""
        self._numbers = itertools.count(1)
        self._links: dict[str, Any] = {}
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._acceptor: Any = None
        self._stopping = False
        self._container: Any = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> HostileRouter:
        """Listen."""
        self._thread.start()
        assert self._started.wait(WAIT_SECONDS)
        return self

    def stop(self) -> None:
        """End, with all connections."""
        self._stopping = True
        self._thread.join(WAIT_SECONDS)

    def _run(self) -> None:
        IO.select = poll_instead
        self._container = Container(_Answers(self), container_id="hostile")
        self._container.run()

    def do(self, what: Callable[[], Any]) -> Any:
        """Have the router's thread do something; its result."""
        future: Future[Any] = Future()
        self._work.put((what, future))
        return future.result(WAIT_SECONDS)

    def turn(self) -> bool:
        """Do what tests have asked for; False at the end."""
        while not self._work.empty():
            what, future = self._work.get()
            try:
                future.set_result(what())
            except Exception as error:
                future.set_exception(error)
        return not self._stopping

    def attached(self, link: Any) -> None:
        """The collector has attached a link."""
        address = (link.remote_source if link.is_sender else link.remote_target).address
        self.addresses.append(address)
        if link.is_sender:
            self._links[address] = link

    def ended(self, link: Any) -> None:
        """The collector has ended a link."""
        if link.is_sender and self._links.get(link.remote_source.address) is link:
            del self._links[link.remote_source.address]

    # What tests ask for

    def await_link(self, address: str) -> None:
        """Wait until the collector receives from the address."""
        eventually(
            lambda: self.do(lambda: address in self._links and self._links[address].credit > 0),
            f"the collector receives from {address}",
            WAIT_SECONDS,
        )

    def receives_from(self, address: str) -> bool:
        """Whether the collector has a receiver there now."""
        return bool(self.do(lambda: address in self._links))

    def send(self, address: str, payload: bytes, *, settled: bool = True, whole: bool = True) -> None:
        """A message, or with `whole=False` the beginning of one."""

        def act() -> None:
            link = self._links[address]
            delivery = link.delivery(link.delivery_tag())
            link.stream(payload)
            if whole:
                link.advance()
                if settled:
                    delivery.settle()

        self.do(act)

    def more(self, address: str, payload: bytes) -> None:
        """More of a message that has begun; nothing if it or the link has ended."""

        def act() -> None:
            link = self._links.get(address)
            if link is not None and link.current is not None:
                link.stream(payload)

        self.do(act)

    def send_part(self, address: str, payload: bytes) -> None:
        """The beginning of a message, or more of it; nothing if the link has ended."""

        def act() -> None:
            link = self._links.get(address)
            if link is not None:
                if link.current is None:
                    link.delivery(link.delivery_tag())
                link.stream(payload)

        self.do(act)

    def abort(self, address: str) -> None:
        """Give up the message that has begun; nothing if the link has ended."""

        def act() -> None:
            link = self._links.get(address)
            if link is not None and link.current is not None:
                link.current.abort()

        self.do(act)

    def detach(self, address: str, *, close: bool = True) -> None:
        """End the link to the collector."""

        def act() -> None:
            link = self._links.pop(address, None)
            if link is not None:
                link.close() if close else link.detach()

        self.do(act)

    def message(
        self, subject: str, properties: dict[str, object] | None = None, body: object = None
    ) -> bytes:
        """A message as sources send them, with the next number."""
        return encode_message(
            Message(
                properties=Properties(message_id=ULong(next(self._numbers)), subject=subject),
                application_properties=properties or {},
                body=body,
            )
        )

    def beacon(self, source: str, address: str | None = None, direct: str | None = None) -> None:
        """Announce a source, with addresses of its own or others."""
        properties: dict[str, object] = {
            "v": UInt(1),
            "sourceType": "ROUTER",
            "id": source,
            "address": f"mc/sfe.{source}" if address is None else address,
            "direct": f"sfe.{source}" if direct is None else direct,
        }
        self.send("mc/sfe.all", self.message("BEACON", properties))

    def heartbeat(self, source: str) -> None:
        """The source is alive."""
        self.send(f"mc/sfe.{source}", self.message("HEARTBEAT", {"v": UInt(1), "id": source}))

    def records(self, address: str, *records: object, settled: bool = True) -> None:
        """Records on an address."""
        self.send(address, self.message("RECORD", body=list(records)), settled=settled)

    def introduce(self, source: str, name: str) -> None:
        """A source with the record of its router, once the collector receives from it."""
        self.beacon(source)
        self.await_link(f"mc/sfe.{source}")
        self.await_link(f"mc/sfe.{source}.flows")
        self.records(f"mc/sfe.{source}", router_record(source, name))


class _Answers(Handshaker):
    """The router's side of the engine."""

    def __init__(self, router: HostileRouter) -> None:
        super().__init__()
        self._router = router

    def on_reactor_init(self, event: Any) -> None:
        self._acceptor = event.container.listen(f"127.0.0.1:{self._router.port}")
        event.reactor.schedule(0, self)
        self._router._started.set()

    def on_timer_task(self, event: Any) -> None:
        if self._router.turn():
            event.reactor.schedule(TURN_SECONDS, self)
        else:
            self._acceptor.close()
            event.reactor.stop()

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        if link.state & Endpoint.LOCAL_UNINIT:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
            link.open()
            if link.is_receiver:
                link.flow(1000)
            self._router.attached(link)

    def on_link_remote_close(self, event: Any) -> None:
        self._router.ended(event.link)
        event.link.close()

    on_link_remote_detach = on_link_remote_close

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_receiver:
            if delivery.readable and not delivery.partial:
                link.recv(delivery.pending)
                link.advance()
                delivery.update(Delivery.ACCEPTED)
                delivery.settle()
                self._router.flushes.append(link.remote_target.address)
        elif delivery.updated:
            self._router.outcomes.append(delivery.remote_state)
            delivery.settle()
