"""A collector of flow records on python-qpid-proton: hears beacons, subscribes, asks for everything, and keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from proton import Message
from tests.integration.support.client import Client, Clients, Receiver, Sender

from isthmus_router.flows.records import Attr, RecordType
from isthmus_router.flows.sketch import Sketch

COLLECT_SECONDS = 90.0


class Collector:
    """The records of all sources that it has heard of, as they are after all changes so far."""

    def __init__(self, clients: Clients, port: int) -> None:
        self.clients = clients
        self.client: Client = clients.connect(port, container="collector")
        self.beacons = self.client.receiver("mc/sfe.all", credit=100, accept=True)
        self.sources: dict[str, list[Receiver]] = {}
        self.commands: dict[str, Sender] = {}
        self.records: dict[str, dict[int, Any]] = {}
        self.heartbeats: Counter[str] = Counter()
        self.messages: list[Message] = []
        self.flush_new = True

    def collect(self) -> None:
        """Take in what has arrived."""
        for beacon in self._taken(self.beacons):
            assert beacon.subject == "BEACON"
            source = beacon.properties["id"]
            if source not in self.sources:
                self.subscribe(source, beacon.properties["address"], beacon.properties["direct"])
        for receivers in list(self.sources.values()):
            for receiver in receivers:
                for message in self._taken(receiver):
                    self._take(message)

    def _taken(self, receiver: Receiver) -> Iterator[Message]:
        for item in receiver.received:
            assert item.delivery.settled
            self.messages.append(item.message)
            yield item.message
        receiver.received.clear()

    def subscribe(self, source: str, address: str, direct: str) -> None:
        """Receive all records of a source, and have it say all that it knows."""
        self.sources[source] = [
            self.client.receiver(name, credit=100, accept=True, wait=False)
            for name in (address, f"{address}.flows", f"{address}.logs")
        ]
        self.commands[source] = self.client.sender(direct, wait=False)
        if self.flush_new:
            self.flush(source)

    def flush(self, source: str) -> None:
        """Ask a source for every record."""
        sender = self.commands[source]
        sender.await_credit()
        sender.send(Message(subject="FLUSH"))

    def _take(self, message: Message) -> None:
        if message.subject == "HEARTBEAT":
            self.heartbeats[message.properties["id"]] += 1
            return
        assert message.subject == "RECORD"
        assert len(message.body) <= 50
        for changes in message.body:
            record = self.records.setdefault(changes[Attr.IDENTITY], {})
            record.update({int(key): value for key, value in changes.items()})

    def until(self, condition: Any, what: str) -> Any:
        """Collect until something is known."""

        def known() -> Any:
            self.collect()
            return condition()

        self.clients.until(known, what, COLLECT_SECONDS)
        return condition()

    def of(self, record_type: RecordType, router: str | None = None, **wanted: Any) -> list[dict[int, Any]]:
        """Records of a type, of a router if one is given, with these attributes."""
        return [
            record
            for identity, record in self.records.items()
            if record[Attr.TYPE] == record_type
            and (router is None or self.router_of(identity) == router)
            and all(record.get(Attr[name.upper()]) == value for name, value in wanted.items())
        ]

    def router_of(self, identity: str) -> str | None:
        """The id of the router that a record comes from."""
        router = self.records.get(identity.partition(":")[0] + ":0", {})
        name = router.get(Attr.NAME)
        return name.rpartition("/")[2] if isinstance(name, str) else None

    def total(self, attribute: Attr, router: str, **wanted: Any) -> int:
        """The sum of an attribute over a router's delivery summaries."""
        return sum(record[attribute] for record in self.of(RecordType.DELIVERY_SUMMARY, router, **wanted))

    def sketch(self, attribute: Attr, router: str, **wanted: Any) -> Sketch:
        """All sketches of a router's delivery summaries in one."""
        merged = Sketch()
        for record in self.of(RecordType.DELIVERY_SUMMARY, router, **wanted):
            merged.merge(record.get(attribute, {}))
        return merged
