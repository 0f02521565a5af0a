"""Link routes that come, change and go while routers run, and what a router and its users allow."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from proton import Endpoint, Message, Terminus, symbol
from tests.integration.support.client import Client, Clients, Sender
from tests.integration.support.container import Container
from tests.integration.support.link_routes import CONTAINER, LOST, NO_ROUTE, await_containers, link_route
from tests.integration.support.management import Manager
from tests.integration.support.policies import (
    ALICE,
    BOB,
    ENABLED,
    UNAUTHORIZED,
    Governed,
    group,
    login,
    vhost,
)
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, listener

ROUTER = "io.skupper.router.router"
TYPE = f"{ROUTER}.config.linkRoute"
TOO_LARGE = "amqp:link:message-size-exceeded"


class Shelf:
    """A router A, and a container with it."""

    def __init__(
        self, clients: Clients, routers: Routers, *sections: Section, **router_attributes: Any
    ) -> None:
        self.clients = clients
        port = free_port()
        self.router = routers.add(
            "A", listener(port, "route-container", name="containers"), *sections, mode="interior"
        )
        self.router.sections[0][1].update(router_attributes)
        self.router.start()
        self.container = Container(clients, port, CONTAINER)
        self.client = clients.connect(self.router.port)
        if sections:
            await_containers(self.router, 1, 0)

    def routed(self, address: str, *, outside: str | None = None) -> bool:
        """Whether a new link goes to the container."""
        attempts = self.container.attempts
        link = self.client.sender(address).link
        self.client.detach(link)
        if self.container.attempts == attempts:
            return False
        assert self.container.attached_links[-1].remote_target.address == (outside or address)
        return True

    def configure(self, *sections: Section) -> None:
        """Other link routes in the file."""
        self.router.sections = [
            section for section in self.router.sections if section[0] != "linkRoute"
        ] + list(sections)
        self.router.configure()


def test_link_routes_in_the_file(clients: Clients, routers: Routers) -> None:
    """What is routed already stays."""
    shelf = Shelf(clients, routers)
    assert not shelf.routed("b2.x")
    shelf.configure(link_route("b2", name="first"))
    clients.until(lambda: shelf.routed("b2.x"), "it is there")
    stays = shelf.client.sender("b2.stays").await_credit()
    shelf.configure(link_route("b3", name="first"))
    clients.until(lambda: shelf.routed("b3.x"), "it is another one")
    assert not shelf.routed("b2.x")
    shelf.configure(link_route("b3", name="first", addExternalPrefix="outer/"))
    clients.until(lambda: _is_outer(shelf), "with another name outside")
    shelf.configure(link_route("b3", name="first", connection="containers", containerId="someone else"))
    clients.until(lambda: shelf.router.status()["linkRoutes"][0]["state"] == "inactive", "for someone else")
    assert shelf.client.refusal(shelf.client.sender("b3.x", wait=False).link).name == NO_ROUTE
    shelf.configure(link_route("b3", "out", name="first"))
    clients.until(lambda: shelf.router.status()["linkRoutes"][0]["state"] == "active", "for receivers only")
    assert not shelf.routed("b3.x")
    shelf.client.receiver("b3.x")
    shelf.container.gives("b3.x")
    shelf.configure()
    clients.until(lambda: not shelf.router.status()["linkRoutes"], "it is gone")
    assert not shelf.routed("b3.x")
    assert stays.deliver(Message(body="still")) == "accepted"


def _is_outer(shelf: Shelf) -> bool:
    shelf.client.detach(shelf.client.sender("b3.x").link)
    return bool(shelf.container.attached_links[-1].remote_target.address == "outer/b3.x")


def test_a_bad_file_changes_nothing(clients: Clients, routers: Routers) -> None:
    shelf = Shelf(clients, routers, link_route("b2", name="first"))
    both = link_route("b4", name="second", pattern="b4.#")
    shelf.configure(link_route("b3", name="first"), both)
    line = shelf.router.await_log("prefix", "pattern", "second")
    assert '"level":"error"' in line
    assert shelf.routed("b2.x")


def test_link_routes_by_management(clients: Clients, routers: Routers) -> None:
    shelf = Shelf(clients, routers)
    manager = Manager(clients.connect(shelf.router.port))

    def create(name: str, **attributes: Any) -> Message:
        return manager.request("CREATE", attributes, type=TYPE, name=name)

    wrong: list[dict[str, Any]] = [
        {"direction": "in", "containerId": CONTAINER},
        {"prefix": "b2", "pattern": "b2.#", "direction": "in", "containerId": CONTAINER},
        {"prefix": "b2", "containerId": CONTAINER},
        {"prefix": "b2", "direction": "sideways", "containerId": CONTAINER},
        {"prefix": "b2", "direction": "in", "connection": "clients"},
    ]
    for attributes, numbered in zip(wrong, itertools.count()):
        response = create(f"wrong {numbered}", **attributes)
        assert response.properties["statusCode"] == 400, attributes
        assert response.properties["statusDescription"]
    assert not manager.query(TYPE)
    assert not shelf.routed("b2.x")
    created = create("b2", prefix="b2", direction="in", containerId=CONTAINER)
    assert created.properties["statusCode"] == 201
    assert shelf.routed("b2.x")
    (row,) = manager.query(TYPE)
    assert (row["name"], row["prefix"], row["operStatus"]) == ("b2", "b2", "active")
    stays = shelf.client.sender("b2.stays").await_credit()
    deleted = manager.request("DELETE", type=TYPE, name="b2")
    assert deleted.properties["statusCode"] == 204
    assert not shelf.routed("b2.x")
    assert stays.deliver(Message(body="still")) == "accepted"


@pytest.mark.parametrize("allowed", [True, False])
def test_termini_that_outlive_their_links(clients: Clients, routers: Routers, allowed: bool) -> None:
    shelf = Shelf(clients, routers, link_route(), allowResumableLinkRoute=allowed)

    def attached(name: str, *, timeout: int = 0, expiry: int = Terminus.EXPIRE_WITH_LINK) -> str | None:
        link = shelf.client.session.receiver(name)
        link.source.address = "b2.x"
        link.source.timeout, link.source.expiry_policy = timeout, expiry
        link.open()
        shelf.client.attached(link)
        clients.round_trip()
        return str(link.remote_condition.name) if link.remote_condition else None

    expected = None if allowed else "qd:link-expiration"
    assert attached("never", expiry=Terminus.EXPIRE_NEVER) == expected
    assert attached("later", timeout=60) == expected
    assert attached("plain") is None


def test_the_largest_message(clients: Clients, routers: Routers) -> None:
    """That of the client's listener, the container's, or the receiver's: each holds."""
    port = free_port()
    router = routers.add(
        "A",
        listener(port, "route-container", name="containers"),
        link_route(),
        mode="interior",
        maxMessageSize=50_000,
    )
    router.start()
    container = Container(clients, port, CONTAINER, max_message_size=80_000)
    await_containers(router, 1, 0)
    client = clients.connect(router.port)
    sender = client.sender("b2.x").await_credit()
    assert sender.link.remote_max_message_size == 50_000
    assert sender.deliver(bytes(50_000)) == "accepted"
    sender.send(bytes(60_000))
    assert client.refusal(sender.link).name == TOO_LARGE
    (far,) = container.attached_links
    clients.until(lambda: far.state & Endpoint.REMOTE_CLOSED, "the container is told")
    assert far.remote_condition.name == LOST
    container.max_message_size = 20_000
    sender = client.sender("b2.y")
    assert sender.link.remote_max_message_size == 20_000


# Policy


@pytest.fixture
def shop(governed: Governed, clients: Clients) -> tuple[Router, Container]:
    """A router with users and a container."""
    groups = {
        "operators": group(ALICE, allowUserIdProxy=True),
        "shops": group(
            BOB,
            sources="b2.public.*, b2.${user}",
            targets="b2.public.*, $coordinator",
            maxMessageSize=1000,
            allowDynamicSource=True,
            allowAnonymousSender=True,
        ),
        "brokers": group("anonymous"),
    }
    port = free_port()
    router = governed(
        ENABLED,
        vhost("$default", groups),
        listener(port, "route-container", name="containers"),
        link_route(),
        link_route("$coordinator", "in"),
    )
    container = Container(clients, port, CONTAINER)
    await_containers(router, 1, 0)
    return router, container


def refusal_of(client: Client, address: str, *, sends: bool) -> str | None:
    """The condition with which a link is refused."""
    link = client.sender(address).link if sends else client.receiver(address).link
    client.clients.round_trip()
    return str(link.remote_condition.name) if link.remote_condition else None


def test_sources_and_targets(clients: Clients, shop: tuple[Router, Container]) -> None:
    router, container = shop
    bob = login(clients, router, BOB)
    assert refusal_of(bob, "b2.public.x", sends=True) is None
    assert refusal_of(bob, "b2.public.x", sends=False) is None
    assert refusal_of(bob, f"b2.{BOB}", sends=False) is None
    attempts = container.attempts
    assert refusal_of(bob, f"b2.{BOB}", sends=True) == UNAUTHORIZED
    assert refusal_of(bob, "b2.private", sends=False) == UNAUTHORIZED
    assert refusal_of(bob, "b2", sends=True) == UNAUTHORIZED
    assert container.attempts == attempts, "the container is not asked"
    bob.sender(None, coordinator=True)
    assert container.attempts == attempts + 1
    assert refusal_of(login(clients, router, ALICE), "b2.private", sends=False) is None


@pytest.mark.parametrize("sends", [True, False])
def test_dynamic_nodes_are_asked_for_where_the_user_may_be(
    clients: Clients, shop: tuple[Router, Container], sends: bool
) -> None:
    router, container = shop
    bob = login(clients, router, BOB)

    def refusal(node: str, address: str | None = None) -> str | None:
        link = bob.session.sender(f"{node} {address}") if sends else bob.session.receiver(f"{node} {address}")
        terminus = link.target if sends else link.source
        terminus.dynamic, terminus.address = True, address
        terminus.properties.put_object({symbol("x-opt-qd.address"): node})
        if sends:
            bob.senders[link.name] = Sender(bob, link)
        link.open()
        bob.attached(link)
        clients.round_trip()
        return str(link.remote_condition.name) if link.remote_condition else None

    assert refusal("b2.private") == UNAUTHORIZED
    assert refusal("b2.public.x", "b2.private") == UNAUTHORIZED, "which the container may look at"
    assert container.attempts == 0
    assert refusal("b2.public.x") is None
    assert refusal("b2.public.x", "b2.public.y") is None
    assert container.attempts == 2


def test_the_user_id_of_messages(clients: Clients, shop: tuple[Router, Container]) -> None:
    router, _ = shop

    def send(user: str, claimed: str | None) -> str:
        sender = login(clients, router, user).sender("b2.public.x").await_credit()
        message = Message(body="x")
        if claimed is not None:
            message.user_id = claimed.encode()
        sent = sender.send(message)
        outcome = sender.outcome(sent)
        return outcome if sent.condition is None else f"{outcome} {sent.condition.name}"

    assert send(BOB, BOB) == send(BOB, None) == "accepted"
    assert send(BOB, ALICE) == f"rejected {UNAUTHORIZED}"
    assert send(ALICE, BOB) == "accepted"


def test_a_rejected_message_is_settled_where_the_ends_would_settle_in_turn(
    clients: Clients, shop: tuple[Router, Container]
) -> None:
    router, _ = shop
    sender = login(clients, router, BOB).sender("b2.public.x", second=True).await_credit()
    credit = sender.credit
    refused = sender.send(Message(user_id=ALICE.encode(), body="x"))
    assert sender.outcome(refused) == "rejected"
    clients.until(lambda: sender.credit == credit, "it uses no credit")
    assert sender.deliver("next") == "accepted"


def test_the_size_that_a_user_may_send(clients: Clients, shop: tuple[Router, Container]) -> None:
    router, _ = shop
    bob = login(clients, router, BOB)
    sender = bob.sender("b2.public.x").await_credit()
    assert sender.link.remote_max_message_size == 1000
    sender.send("x" * 2000)
    assert bob.refusal(sender.link).name == TOO_LARGE
    alice = login(clients, router, ALICE).sender("b2.public.x").await_credit()
    assert alice.deliver("x" * 2000) == "accepted"


def test_management_deletes_a_routed_link(clients: Clients, routers: Routers) -> None:
    """Both ends are told, and nothing is left of it."""
    shelf = Shelf(clients, routers, link_route())
    manager = Manager(clients.connect(shelf.router.port))
    for attach in (shelf.client.sender, shelf.client.receiver):
        link = attach("b2.x").link
        far = shelf.container.attached_links[-1]
        (row,) = [row for row in manager.query(f"{ROUTER}.link") if row["linkName"] == link.name]
        request = {"adminStatus": "deleted"}
        found = manager.request("UPDATE", request, type=f"{ROUTER}.link", identity=row["identity"])
        assert found.properties["statusCode"] == 200
        assert shelf.client.refusal(link).name == "amqp:link:detach-forced"
        clients.until(lambda one=far: one.state & Endpoint.REMOTE_CLOSED, "the container is told")  # type: ignore[misc]
        link.close()
        clients.until(
            lambda: not any(row["links"] for row in shelf.router.status()["linkRoutes"]), "nothing is left"
        )
    assert shelf.routed("b2.y")
