"""The example of link routes, run by `isthmus local` with a broker that wants a user beside it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from proton import Message
from tests.integration.support.broker import SET_UP_SECONDS, Broker
from tests.integration.support.client import Clients
from tests.integration.support.foreign import REPOSITORY
from tests.integration.support.isthmus import Isthmus

pytestmark = pytest.mark.timeout(SET_UP_SECONDS + 120)  # the first time, the broker has to be fetched

PASSWORD = "change-me"
ENCODED = b64encode(PASSWORD.encode()).decode()
OTHER = "another one"
EXAMPLE = REPOSITORY / "examples" / "link-routes.yaml"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with the queue and the user of the example."""
    found = Broker(tmp_path_factory.mktemp("broker"), "broker", "orders")
    found.users["app"] = PASSWORD
    yield found.start()
    found.stop()


@pytest.fixture
def clients() -> Iterator[Clients]:
    found = Clients()
    yield found
    found.close()


def example(broker: Broker, password: str = PASSWORD) -> str:
    text = EXAMPLE.read_text()
    assert "port: 5672" in text
    assert ENCODED in text
    text = text.replace(ENCODED, b64encode(password.encode()).decode())
    return text.replace("port: 5672", f"port: {broker.port}").replace("host: 127.0.0.1", "host: localhost")


def client_ports(isthmus: Isthmus) -> dict[str, int]:
    ports = {row["id"]: urlsplit(row["endpoints"][0]).port for row in isthmus.status()["routers"]}
    return {name: port for name, port in ports.items() if port is not None}


def link_route(isthmus: Isthmus) -> dict[str, Any]:
    (row,) = isthmus.status()["linkRoutes"]
    found: dict[str, Any] = row
    return found


def test_the_example(isthmus: Isthmus, broker: Broker, clients: Clients) -> None:
    text = example(broker)
    out = isthmus.up(text)
    assert "1 of 1 link route ready" in " ".join(out.split())
    row = link_route(isthmus)
    assert (row["state"], row["destinations"], row["links"], row["refusals"]) == ("ready", 1, 0, 0)
    far = clients.connect(client_ports(isthmus)["east-0"])
    sender = far.sender("b2.orders")
    assert sender.deliver(Message(body="kept", durable=True)) == "accepted"
    far.detach(sender.link)
    receiver = far.receiver("b2.orders", credit=1, accept=True)
    assert receiver.next().body == "kept"
    isthmus.eventually("the link is counted", lambda: link_route(isthmus)["links"] == 1)

    broker.stop()
    isthmus.eventually("the broker is missed", lambda: not isthmus.status()["ready"])
    refused = far.refusal(far.sender("b2.orders", wait=False).link)
    assert refused.name == "qd:no-route-to-dest"
    row = link_route(isthmus)
    assert (row["state"], row["destinations"], row["links"], row["refusals"]) == ("NoContainer", 0, 0, 1)
    assert row["lastRefusal"].startswith("b2.orders at east-0, ")
    (problem,) = (item for item in isthmus.status()["problems"] if item.startswith("LinkRoute"))
    assert problem.startswith('LinkRoute b2: NoContainer: Connector "broker": west-0: failed: ')

    broker.start()
    isthmus.eventually("all is well again", lambda: bool(isthmus.status()["ready"]))
    assert link_route(isthmus)["state"] == "ready"


def test_a_changed_password_counts_from_the_next_connection_on(isthmus: Isthmus, broker: Broker) -> None:
    isthmus.up(example(broker))
    pids = {name: isthmus.pid(name) for name in ("west-0", "east-0")}
    connections = isthmus.connections("west-0")
    broker.users["app"] = OTHER
    broker.write_users()
    isthmus.up(example(broker, OTHER))
    assert isthmus.connections("west-0") == connections, "what is open stays"
    broker.stop()
    isthmus.eventually("the broker is missed", lambda: not isthmus.status()["ready"])
    broker.start()
    isthmus.eventually("it is connected with the new password", lambda: bool(isthmus.status()["ready"]))
    broker.users["app"] = PASSWORD
    broker.stop()
    broker.start()
    isthmus.eventually(
        "the old one is refused",
        lambda: any("uthentication" in problem for problem in isthmus.status()["problems"]),
    )
    isthmus.up(example(broker))
    assert isthmus.status()["ready"], "the right one was tried at once"
    assert {name: isthmus.pid(name) for name in pids} == pids, "nothing was started anew"
    files = [*isthmus.folder.rglob("*.log"), *isthmus.folder.rglob("config.json")]
    assert len(files) >= 4
    assert not any(word in file.read_text() for file in files for word in (PASSWORD, OTHER))


CONTAINERS = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: west}
spec:
  listeners:
    - {name: amqp, port: 5672}
    - {name: containers, port: 5673, role: route-container}
---
apiVersion: isthmus.dev/v1alpha1
kind: LinkRoute
metadata: {name: shelf}
spec: {pattern: "books.*", direction: out, containerId: shelf}
"""


def test_a_container_that_connects_by_itself(isthmus: Isthmus, clients: Clients) -> None:
    assert isthmus.try_up(CONTAINERS).returncode == 1
    assert isthmus.status()["problems"] == [
        'LinkRoute shelf: NoContainer: no container "shelf" is connected to a router'
    ]
    port = json.loads((isthmus.folder / "network.json").read_text())["ports"]["west-0/containers"]
    container = clients.connect(port, container="shelf")
    isthmus.eventually("the container takes its links", lambda: bool(isthmus.status()["ready"]))
    assert link_route(isthmus)["destinations"] == 1
    container.close()
    clients.round_trip()
    isthmus.eventually("it is missed", lambda: not isthmus.status()["ready"])


def test_a_connector_that_comes_later(isthmus: Isthmus, broker: Broker) -> None:
    text = example(broker)
    documents = [f"\n{document}" for document in text.split("---\n")]
    without = [item for item in documents if "role: route-container" not in item]
    done = isthmus.try_up(*without)
    assert done.returncode == 1
    row = link_route(isthmus)
    assert (row["state"], row["destinations"]) == ("Pending", 0)
    assert isthmus.status()["problems"] == [
        'LinkRoute b2: Pending: Connector "broker" (spec.connector) does not exist'
    ]
    (known,) = isthmus.document("east-0")["linkRoutes"]
    assert (known["connection"], known["state"]) == ("broker", "inactive")
    pid = isthmus.pid("west-0")
    isthmus.up(*documents)
    assert link_route(isthmus)["state"] == "ready"
    assert isthmus.pid("west-0") == pid
