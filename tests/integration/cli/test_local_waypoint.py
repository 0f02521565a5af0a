"""The example of a waypoint, run by `isthmus local` with a broker beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from proton import Message
from tests.integration.support.broker import SET_UP_SECONDS, Broker
from tests.integration.support.client import Clients
from tests.integration.support.foreign import REPOSITORY
from tests.integration.support.isthmus import Isthmus

pytestmark = pytest.mark.timeout(SET_UP_SECONDS + 120)  # the first time, the broker has to be fetched


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that lacks the queue of the example at first."""
    started = Broker(tmp_path, "broker").start()
    yield started
    started.stop()


def test_the_example(isthmus: Isthmus, broker: Broker) -> None:
    example = (REPOSITORY / "examples" / "waypoint.yaml").read_text()
    assert "port: 5672" in example
    text = example.replace("port: 5672", f"port: {broker.port}").replace("host: 127.0.0.1", "host: localhost")
    isthmus.write(text)
    isthmus("local", "up", "--timeout", "0", str(isthmus.file))

    def refused() -> bool:
        told = isthmus.status()["problems"]
        return len(told) == 2 and all(
            problem.startswith(f"router west-0: auto-link {direction} of orders is failed: amqp:not-found")
            for problem, direction in zip(told, ("out", "in"), strict=True)
        )

    isthmus.eventually("both auto-links report the refusal of the broker", refused)
    broker.stop()
    broker.queues.append("orders")
    broker.start()
    isthmus.eventually("all is well", lambda: isthmus.status()["ready"])
    assert [(link["direction"], link["state"]) for link in isthmus.status()["autoLinks"]] == [
        ("out", "active"),
        ("in", "active"),
    ]
    ports = {router["id"]: urlsplit(router["endpoints"][0]).port for router in isthmus.status()["routers"]}
    clients = Clients()
    try:
        sender = clients.connect(ports["east-0"]).sender("orders")
        assert sender.deliver(Message(body="kept", durable=True)) == "accepted"
        receiver = clients.connect(ports["east-0"]).receiver("orders", credit=1, accept=True)
        assert receiver.next().body == "kept"
        clients.round_trip()
    finally:
        clients.close()
    # The links of the router itself are not those of a client.
    isthmus.up(
        text.replace(
            "  mode: interior\n", "  mode: interior\n  policy: {defaultGroup: {sources: [orders]}}\n"
        )
    )
    broker.stop()
    isthmus.eventually("the broker is missed", lambda: not isthmus.status()["ready"])
    broker.start()
    isthmus.eventually("the auto-links are attached under a policy", lambda: isthmus.status()["ready"])
    names = {row["name"] for row in isthmus.status()["addresses"]}
    assert {"orders", "orders (phase 1)"} <= names
