"""Attack: peers without a certificate of the network's own authority go to the ports for routers and edges, and to the
gossip routers, of a network whose resources say nothing about transport security."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.gossip.support import Peer
from tests.integration.support.certificates import Authority, Identity
from tests.integration.support.client import Clients
from tests.integration.support.isthmus import EAST, LINK, WEST, Isthmus
from tests.integration.support.routers import eventually

from isthmus_router.gossip.messages import VERSION, Hello
from isthmus_router.groups.frames import FrameError

STRANGER = WEST.replace("west", "stranger")


@pytest.fixture
def isthmus(tmp_path: Path) -> Iterator[Isthmus]:
    command = Isthmus(tmp_path)
    yield command
    command("local", "down", "--all")


def port(isthmus: Isthmus, listener: str) -> int:
    ports: dict[str, int] = json.loads((isthmus.folder / "network.json").read_text())["ports"]
    return ports[listener]


def assert_refused(clients: Clients, to: int, **how: Any) -> str:
    """The router does not open the connection, or closes it; returns the condition."""
    client = clients.connect(to, wait=False, **how)
    clients.until(
        lambda: client.finished or client.connection.remote_condition, "the connection is refused or closed"
    )
    condition = client.connection.remote_condition
    client.connection.close()
    return condition.name if condition is not None else ""


def assert_alive(clients: Clients, to: int) -> None:
    """Another client still sends and receives."""
    client = clients.connect(to)
    receiver = client.receiver("canary", credit=5, accept=True)
    assert client.sender("canary").deliver("alive") == "accepted"
    clients.until(lambda: receiver.bodies() == ["alive"], "the message arrives")
    client.connection.close()
    clients.until(lambda: client.finished, "the connection is closed")


def identity_of(isthmus: Isthmus, router_id: str, name: str) -> Identity:
    """The certificate that the network's own authority gave a Router."""
    files = isthmus.folder / "routers" / router_id / "files"
    certificate, key, trusted = (
        files / f"{name}_router_1-{item}" for item in ("tls.crt", "tls.key", "ca.crt")
    )
    return Identity(certificate, key, trusted)


def test_only_routers_that_the_resources_name_reach_the_ports_for_routers(
    isthmus: Isthmus, clients: Clients, tmp_path: Path
) -> None:
    isthmus.up(EAST, WEST, LINK, STRANGER)
    amqp = port(isthmus, "west-0/amqp")
    assert_alive(clients, amqp)
    members = identity_of(isthmus, "east-0", "east"), identity_of(isthmus, "stranger-0", "stranger")
    forged = Authority(tmp_path, "other").issue("east", "localhost", trusted=members[0].trusted)
    for listener in ("inter-router", "edge"):
        to = port(isthmus, f"west-0/{listener}")
        for _ in range(5):
            assert_refused(clients, to)
            assert_refused(clients, to, tls=members[0].client_domain(present=False))
            assert_refused(clients, to, tls=forged.client_domain(), mechanisms="EXTERNAL")
            condition = assert_refused(
                clients, to, tls=members[1].client_domain(), mechanisms="EXTERNAL", host="localhost"
            )
            assert condition == "amqp:unauthorized-access", "a Router without a Connector to this one"
    assert_alive(clients, amqp)
    status = isthmus.status()
    assert {item["id"]: item["state"] for item in status["routers"]} == dict.fromkeys(
        ("east-0", "west-0", "stranger-0"), "ready"
    )
    assert [item["state"] for item in status["links"]] == ["open"]
    west = isthmus.document("west-0")
    assert [node["id"] for node in west["nodes"]] == ["east-0"]


def test_certificates_of_the_network_are_replaced_without_a_lost_link(isthmus: Isthmus) -> None:
    """A new authority, as after the loss of its key: every certificate is replaced while the link goes on."""
    isthmus.up(EAST, WEST, LINK)
    (isthmus.folder / "authority.json").unlink()
    isthmus.up(EAST, WEST, LINK)
    eventually(lambda: link(isthmus)["tlsOrdinal"] == 2, "the link uses the new certificate")
    assert link(isthmus)["state"] == "open"


GOSSIP = """
apiVersion: isthmus.dev/v1alpha1
kind: GossipRouter
metadata: {name: g}
spec: {replicas: 1}
---
apiVersion: isthmus.dev/v1alpha1
kind: RelaySite
metadata: {name: nyc}
spec:
  routerRef: {name: east}
  group: trades
  site: nyc
  copies: 1
  discovery: {type: tunnel, gossipRouterRef: {name: g}}
"""


def client(identity: Identity, *, present: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(identity.trusted))
    if present:
        context.load_cert_chain(identity.certificate, identity.key)
    return context


async def is_greeted(to: int, tls: ssl.SSLContext | None) -> bool:
    """Whether the gossip router answers HELLO."""
    name = None if tls is None else "localhost"
    try:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", to, ssl=tls, server_hostname=name))
        peer.say(Hello(VERSION))
        return isinstance(await peer.hear(), Hello)
    except (ssl.SSLError, ConnectionError, FrameError):
        return False


def test_only_routers_of_the_network_reach_its_gossip_routers(isthmus: Isthmus, tmp_path: Path) -> None:
    isthmus.up(EAST, GOSSIP)
    to = port(isthmus, "g-gossip-0/gossip")
    member = identity_of(isthmus, "east-0", "east")
    forged = Authority(tmp_path, "other").issue("east", "localhost", trusted=member.trusted)
    for _ in range(5):
        assert not asyncio.run(is_greeted(to, None))
        assert not asyncio.run(is_greeted(to, client(member, present=False)))
        assert not asyncio.run(is_greeted(to, client(forged)))
    assert asyncio.run(is_greeted(to, client(member)))
    status = isthmus.status()
    assert [(row["state"], row["formed"]) for row in status["sites"]] == [("ready", "1/1")]
    assert isthmus.document("east-0")["relay"]["plainText"] == []


def link(isthmus: Isthmus) -> dict[str, Any]:
    (found,) = isthmus.status()["links"]
    return dict(found)
