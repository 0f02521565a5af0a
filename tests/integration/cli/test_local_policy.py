"""The policy of a Router, by `isthmus local`: the example as it stands."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from tests.integration.support.client import Client, Clients
from tests.integration.support.isthmus import Isthmus
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
