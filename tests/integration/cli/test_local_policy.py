"""The policy of a Router, by `isthmus local`: the example as it stands."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from proton import Message
from tests.integration.support.client import Client, Clients
from tests.integration.support.isthmus import Isthmus
from tests.integration.support.management import Manager
from tests.integration.support.passwords import PASSWORD, sasldb

EXAMPLE = Path(__file__).parents[3] / "examples" / "policy.yaml"


def users(folder: Path) -> str:
    """The Secret that the example names."""
    data = sasldb(folder, "north", "office", "guest", realm="shops").read_bytes()
    secret = {"sasldb": base64.b64encode(data).decode()}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "users"}, "data": secret}
    return "\n" + yaml.safe_dump(manifest)


def refused(client: Client, link: object) -> bool:
    return client.refusal(link).name == "amqp:unauthorized-access"


def test_the_example(isthmus: Isthmus, clients: Clients, tmp_path: Path) -> None:
    example, secret = EXAMPLE.read_text(), users(tmp_path)
    isthmus.up(example, secret)
    port = urlsplit(isthmus.router("shops-0")["endpoints"][0]).port
    assert port is not None

    def login(user: str) -> Client:
        return clients.connect(port, user=f"{user}@shops", password=PASSWORD, mechanisms="SCRAM-SHA-256")

    north, office, guest = login("north"), login("office"), login("guest")
    orders = office.receiver("orders", credit=10, accept=True)
    assert north.sender("orders").await_credit().deliver("three") == "accepted"
    assert orders.bodies() == ["three"]
    assert refused(north, north.receiver("returns/south@shops", wait=False).link)
    returns = north.receiver("returns/north@shops", credit=1, accept=True)
    assert office.sender("returns/north@shops").await_credit().deliver("one") == "accepted"
    assert returns.bodies() == ["one"]
    guest.receiver("offers/today")
    assert refused(guest, guest.sender("orders", wait=False).link)
    assert isthmus.router("shops-0")["denied"] == 2
    pid = isthmus.pid("shops-0")
    changed = example.replace("targets: [orders]", "targets: [complaints]")
    isthmus.up(changed, secret)
    assert refused(north, next(iter(north.senders.values())).link)
    assert isthmus.pid("shops-0") == pid


PHASES = """
apiVersion: isthmus.dev/v1alpha1
kind: Router
metadata: {name: queues}
spec:
  mode: interior
  addresses:
    - {prefix: orders, distribution: balanced, waypoint: true}
  policy:
    defaultGroup: {sources: ["#"], targets: ["#"], allowAnonymousSender: true, allowDynamicSource: true%s}
"""


def test_clients_are_waypoints_only_if_their_group_allows_it(isthmus: Isthmus, clients: Clients) -> None:
    isthmus.up(PHASES % "")
    port = urlsplit(isthmus.router("queues-0")["endpoints"][0]).port
    assert port is not None
    client = clients.connect(port)
    for attach in (client.sender, client.receiver):
        for capability in ("qd.waypoint", "qd.waypoint.2", "qd.fallback"):
            assert refused(client, attach("orders", capability=capability, wait=False).link)
        for address in ("_$phase.1/orders", "/_$phase.1/orders", "amqp:/_$phase.1/orders"):
            assert refused(client, attach(address, wait=False).link)
    anonymous = client.sender(None).await_credit()
    assert anonymous.deliver(Message(address="_$phase.1/orders")) == "rejected"
    assert client.sender("orders"), "a sender of orders needs no more than its target"
    link_route = {"pattern": "orders", "direction": "in"}
    answer = Manager(client).request("CREATE", link_route, type="router.connection.linkRoute", name="mine")
    assert answer.properties["statusCode"] == 403

    pid = isthmus.pid("queues-0")
    isthmus.up(PHASES % ", allowWaypointLinks: true, allowFallbackLinks: true")
    queue = client.receiver("orders", capability="qd.waypoint", credit=1, accept=True)
    client.receiver("offers", capability="qd.fallback")
    assert client.sender("orders").deliver("to the queue") == "accepted"
    assert queue.bodies() == ["to the queue"]
    consumer = client.receiver("orders", credit=1, accept=True)
    assert client.sender("_$phase.1/orders").deliver("from the queue") == "accepted"
    assert consumer.bodies() == ["from the queue"]
    assert isthmus.pid("queues-0") == pid
