"""A broker that this project did not write, behind three routers: what its clients do works as beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import Delivery, Described, Endpoint, Message, Terminus, symbol, ulong
from tests.integration.support.broker import SET_UP_SECONDS, Broker
from tests.integration.support.client import Client, Clients
from tests.integration.support.foreign import Run
from tests.integration.support.link_routes import NO_ROUTE, link_route
from tests.integration.support.links import Received, Receiver, Sender
from tests.integration.support.routers import Routers, connector
from tests.integration.support.topology import Network

pytestmark = pytest.mark.timeout(SET_UP_SECONDS + 120)  # the first time, the broker has to be fetched

DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = 0x31, 0x32, 0x33, 0x34
SELECTOR = ulong(0x0000468C00000004)
QUEUES = ("b2.orders", "b2.work", "b2.load", "b2.browsed", "b2.many")


class Hinterland(Network):
    """A - B - C, with a broker at C."""

    def __init__(self, routers: Routers, broker: Broker) -> None:
        super().__init__(routers)
        self.broker = broker
        self.line("A", "B", "C")
        for router_id in "AB":
            self[router_id].sections.append(("linkRoute", {"prefix": "b2", "direction": "both"}))
        self["C"].sections += [
            connector(broker.port, "route-container", name=broker.name),
            link_route("b2", connection=broker.name),
            link_route("$coordinator", "in", connection=broker.name),
        ]
        self.start()
        self["C"].await_status(
            lambda status: all(row["destinations"] for row in status["linkRoutes"]), "the broker is there"
        )

    def reached(self, clients: Clients) -> bool:
        """Whether a client's link is routed from A to the broker."""
        client = clients.connect(self["A"].port)
        try:
            return bool(client.sender("b2.orders").link.state & Endpoint.REMOTE_ACTIVE)
        finally:
            client.close()


@pytest.fixture(scope="module")
def hinterland(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hinterland]:
    """The broker and the network."""
    broker = Broker(tmp_path_factory.mktemp("broker"), "shelf", *QUEUES, topics=["b2.news"]).start()
    routers = Routers(tmp_path_factory.mktemp("hinterland"))
    network = Hinterland(routers, broker)
    clients = Clients()
    clients.until(lambda: network.reached(clients), "the broker is known at A")
    clients.close()
    yield network
    routers.stop()
    broker.stop()


@pytest.fixture
def client(clients: Clients, hinterland: Hinterland) -> Iterator[Client]:
    """A client at the far end of the network; its last outcomes reach the broker."""
    client = clients.connect(hinterland["A"].port, container="buyer")
    yield client
    client.close()


def subscribe(client: Client, address: str, dress: Callable[[Any], None], name: str) -> Receiver:
    """A receiver with a source of the test's making."""
    link = client.session.receiver(name)
    link.source.address = address
    dress(link.source)
    receiver = client.receivers[name] = Receiver(client, link)
    link.open()
    client.attached(link)
    assert link.state & Endpoint.REMOTE_ACTIVE
    return receiver


def durable(body: str, **properties: Any) -> Message:
    return Message(body=body, durable=True, properties=properties or None)


def test_a_queue(client: Client, hinterland: Hinterland) -> None:
    sender = client.sender("b2.orders")
    bodies = [str(number) for number in range(50)]
    for body in bodies:
        assert sender.deliver(durable(body)) == "accepted"
    receiver = client.receiver("b2.orders", credit=20)
    assert [item.body for item in receiver.expect(20)] == bodies[:20]
    client.clients.round_trip()
    assert len(receiver.received) == 20
    for item in receiver.received:
        item.settle()
    receiver.auto_accept = True
    receiver.grant(100)
    assert [item.body for item in receiver.expect(50)] == bodies
    receiver.drain(0)
    client.clients.until(lambda: not receiver.link.credit, "the queue is empty")


def test_what_is_released_or_modified_is_in_the_queue_again(client: Client, hinterland: Hinterland) -> None:
    client.sender("b2.orders").deliver(durable("again"))
    receiver = client.receiver("b2.orders", credit=1)
    receiver.next().settle(Delivery.RELEASED)
    receiver.grant(1)
    receiver.next().modify(failed=True, undeliverable=False)
    receiver.grant(1)
    item = receiver.next()
    assert item.message.delivery_count == 1
    item.settle()


def test_a_queue_that_is_not_there(client: Client, hinterland: Hinterland) -> None:
    """The client sees what the broker says."""
    for link in (
        client.receiver("b2.nowhere", wait=False).link,
        client.sender("b2.nowhere", wait=False).link,
    ):
        assert client.refusal(link).name == "amqp:not-found"


def test_large_messages(client: Client, hinterland: Hinterland) -> None:
    body = "x" * 3_000_000
    client.sender("b2.orders").deliver(durable(body))
    assert client.receiver("b2.orders", credit=1, accept=True).next(60).body == body


def test_a_queue_is_browsed(client: Client, hinterland: Hinterland) -> None:
    sender = client.sender("b2.browsed")
    for body in ("one", "two", "three"):
        sender.deliver(durable(body))

    def copies(source: Terminus) -> None:
        source.distribution_mode = Terminus.DIST_MODE_COPY

    for name in ("first look", "second look"):
        browser = subscribe(client, "b2.browsed", copies, name)
        browser.grant(10)
        assert [item.body for item in browser.expect(3)] == ["one", "two", "three"]
        for item in browser.received:
            item.settle()
        client.detach(browser.link)
    taken = client.receiver("b2.browsed", credit=10, accept=True)
    taken.expect(3)


def green(source: Terminus) -> None:
    source.filter.put_object({symbol("selector"): Described(SELECTOR, "colour = 'green'")})


def test_a_topic_with_a_filter_at_the_server(client: Client, hinterland: Hinterland) -> None:
    everything = client.receiver("b2.news", credit=10, accept=True)
    some = subscribe(client, "b2.news", green, "some")
    some.auto_accept = True
    some.grant(10)
    assert "colour = 'green'" in str(some.link.remote_source.filter.get_object() if _on(some) else "")
    sender = client.sender("b2.news")
    for colour in ("red", "green", "blue", "green"):
        sender.deliver(durable(colour, colour=colour))
    assert [item.body for item in everything.expect(4)] == ["red", "green", "blue", "green"]
    assert [item.body for item in some.expect(2)] == ["green", "green"]
    client.clients.round_trip()
    assert len(some.received) == 2


def _on(receiver: Receiver) -> bool:
    return receiver.link.remote_source.filter.next() is not None


def test_a_durable_subscription_outlives_its_client(clients: Clients, hinterland: Hinterland) -> None:
    """Detached without being closed, and attached again with the same name from another connection."""

    def stays(source: Terminus) -> None:
        green(source)
        source.durability = Terminus.DELIVERIES
        source.expiry_policy = Terminus.EXPIRE_NEVER

    reader = clients.connect(hinterland["A"].port, container="reader")
    first = subscribe(reader, "b2.news", stays, "my news")
    sender = clients.connect(hinterland["A"].port).sender("b2.news")
    first.auto_accept = True
    first.grant(1)
    sender.deliver(durable("one", colour="green"))
    first.expect(1)
    reader.drop()  # as a crash would
    for body, colour in (("two", "green"), ("three", "red"), ("four", "green")):
        sender.deliver(durable(body, colour=colour))
    reader = clients.connect(hinterland["A"].port, container="reader")
    again = subscribe(reader, "b2.news", stays, "my news")
    again.auto_accept = True
    again.grant(10)
    assert [item.body for item in again.expect(2)] == ["two", "four"]
    reader.detach(again.link)  # closed: the subscription ends
    sender.deliver(durable("five", colour="green"))
    last = subscribe(reader, "b2.news", stays, "my news too")
    last.grant(10)
    clients.round_trip()
    assert not last.received
    reader.detach(last.link)


# Transactions


class Transactions:
    """A link to the broker's coordinator, by way of the routers."""

    def __init__(self, client: Client) -> None:
        self.link: Sender = client.sender(None, coordinator=True).await_credit()

    def declare(self) -> bytes:
        """A new transaction."""
        sent = self.link.send(Message(body=Described(ulong(DECLARE), [None])))
        self.link.outcome(sent)
        return bytes(sent.data[0])

    def discharge(self, transaction: bytes, *, fail: bool) -> str:
        """Commit or roll back."""
        body = Described(ulong(DISCHARGE), [transaction, fail])
        return self.link.deliver(Message(body=body))


def send_in(sender: Sender, transaction: bytes, *bodies: str) -> None:
    """Messages that are there when the transaction is committed."""
    for body in bodies:
        sent = sender.await_credit().begin()
        assert sent.delivery is not None
        sent.delivery.local.data = [transaction]
        sent.delivery.update(TRANSACTIONAL)
        sender.more(durable(body).encode())
        sender.finish()
        sender.outcome(sent)
        assert sent.data[0] == transaction


def accept_in(item: Received, transaction: bytes) -> None:
    """Accept, if the transaction is committed."""
    item.delivery.local.data = [transaction, Described(ulong(0x24), [])]
    item.delivery.update(TRANSACTIONAL)
    item.delivery.settle()


@pytest.mark.parametrize("fail", [False, True])
def test_messages_sent_in_a_transaction(client: Client, hinterland: Hinterland, fail: bool) -> None:
    transactions = Transactions(client)
    transaction = transactions.declare()
    receiver = client.receiver("b2.work", credit=10, accept=True)
    send_in(client.sender("b2.work"), transaction, "one", "two")
    client.clients.round_trip()
    assert not receiver.received
    assert transactions.discharge(transaction, fail=fail) == "accepted"
    client.sender("b2.work").deliver(durable("after"))
    expected = ["after"] if fail else ["one", "two", "after"]
    assert [item.body for item in receiver.expect(len(expected))] == expected


@pytest.mark.parametrize("fail", [False, True])
def test_messages_accepted_in_a_transaction(client: Client, hinterland: Hinterland, fail: bool) -> None:
    sender = client.sender("b2.work")
    for body in ("one", "two"):
        sender.deliver(durable(body))
    transactions = Transactions(client)
    transaction = transactions.declare()
    receiver = client.receiver("b2.work", credit=2)
    for item in receiver.expect(2):
        accept_in(item, transaction)
    assert transactions.discharge(transaction, fail=fail) == "accepted"
    client.detach(receiver.link)
    sender.deliver(durable("after"))
    expected = ["one", "two", "after"] if fail else ["after"]
    again = client.receiver("b2.work", credit=10, accept=True)
    assert [item.body for item in again.expect(len(expected))] == expected


def test_a_client_dies_in_a_transaction(clients: Clients, hinterland: Hinterland) -> None:
    """What it had sent is for nobody: the broker rolls back."""
    gone = clients.connect(hinterland["A"].port)
    transaction = Transactions(gone).declare()
    send_in(gone.sender("b2.work"), transaction, "never")
    gone.drop()
    client = clients.connect(hinterland["A"].port)
    client.sender("b2.work").deliver(durable("after"))
    receiver = client.receiver("b2.work", credit=10, accept=True)
    assert receiver.next().body == "after"
    clients.round_trip()
    assert not receiver.received


# Clients of other makes


def test_rhea(rhea: Run, hinterland: Hinterland) -> None:
    done = rhea("transfer.js", "localhost", hinterland["A"].port, "b2.many", 500, 2000)
    assert done.result() == {"received": 500, "accepted": 500}


def test_rhea_subscribes_with_a_selector(rhea: Run, client: Client, hinterland: Hinterland) -> None:
    port = hinterland["A"].port
    reader = rhea("selector.js", "localhost", port, "b2.news", "size > 2", 2, "large")
    reader.await_line("ready true")
    sender = client.sender("b2.news")
    for size in range(5):
        sender.deliver(durable(f"size {size}", size=size))
    assert reader.result() == ["size 3", "size 4"]


def test_clients_in_c(c_client: Run, hinterland: Hinterland) -> None:
    where = f"localhost:{hinterland['A'].port}"
    sending = c_client("send", where, "b2.many", 1000, 1000)
    sending.result()
    c_client("recv", where, "b2.many", 1000).result()


# The broker goes and comes back


class Stubborn:
    """A link that is attached again whenever it is detached or refused."""

    def __init__(self, client: Client, attach: Callable[[Client], Any]) -> None:
        self.client = client
        self.attach = attach
        self.end: Any = attach(client)
        self.conditions: list[str] = []

    def look(self) -> None:
        """Attach again if need be."""
        link = self.end.link
        if link.state & Endpoint.REMOTE_CLOSED:
            self.conditions.append(str(link.remote_condition.name))
            link.close()
            self.end = self.attach(self.client)


@pytest.mark.parametrize("crash", [False, True])
def test_the_broker_is_restarted_under_load(clients: Clients, hinterland: Hinterland, crash: bool) -> None:
    """Clients see a detach with an error, attach again, and everything that the broker had accepted arrives."""
    port = hinterland["A"].port
    sending = Stubborn(clients.connect(port), lambda client: client.sender("b2.load", wait=False))
    reading = Stubborn(
        clients.connect(port),
        lambda client: client.receiver("b2.load", credit=20, accept=True, wait=False),
    )
    sent: dict[str, Any] = {}
    seen: set[str] = set()

    def accepted() -> set[str]:
        return {body for body, one in sent.items() if one.outcome == "accepted"}

    def go_on(more: bool = True) -> None:
        sending.look()
        reading.look()
        if more and sending.end.credit and sending.end.link.state & Endpoint.REMOTE_ACTIVE:
            body = str(len(sent))
            sent[body] = sending.end.send(durable(body))
        for item in reading.end.arrived():
            seen.add(item.body)
        reading.end.received.clear()

    def goes_on(count: int) -> Callable[[], bool]:
        start = len(accepted())

        def check() -> bool:
            go_on()
            return len(accepted()) >= start + count

        return check

    clients.until(goes_on(200), "messages are accepted")
    (hinterland.broker.kill if crash else hinterland.broker.stop)()

    def refused() -> bool:
        go_on()
        return NO_ROUTE in sending.conditions and NO_ROUTE in reading.conditions

    clients.until(refused, "attaches find no broker")
    for link in (sending, reading):
        assert link.conditions[0] != "None"
        assert set(link.conditions[1:]) <= {NO_ROUTE}
    hinterland.broker.start()
    clients.until(goes_on(200), "messages are accepted again")

    def all_here() -> bool:
        go_on(more=False)
        return accepted() <= seen

    clients.until(all_here, "all that was accepted has arrived")
    assert len(accepted()) >= 400
