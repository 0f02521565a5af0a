"""Link routes that a container makes for its own connection, by management."""

from __future__ import annotations

import pytest
from proton import Endpoint
from tests.integration.support.client import Client, Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import Shore
from tests.integration.support.management import Manager
from tests.integration.support.passwords import PASSWORD
from tests.integration.support.policies import BOB, ENABLED, Governed, group, vhost
from tests.integration.support.routers import eventually

MADE = "router.connection.linkRoute"


def test_a_container_makes_its_own_link_route(clients: Clients, shore: Shore) -> None:
    container = Container(clients, shore["C"].port, "stall")
    manager = Manager(container)
    for direction in ("in", "out"):
        body = {"pattern": "c3.#", "direction": direction}
        assert manager.request("CREATE", body, type=MADE, name=direction).properties["statusCode"] == 201
    client = clients.connect(shore["A"].port, container="buyer")
    eventually(lambda: _attaches(clients, client, "c3.x", container), "A knows it")
    assert manager.request("DELETE", type=MADE, name="in").properties["statusCode"] == 204
    assert manager.request("DELETE", type=MADE, name="out").properties["statusCode"] == 204
    eventually(lambda: not _attaches(clients, client, "c3.x", container), "A knows that it is gone")


def test_a_second_link_route_for_the_same_links_is_refused(clients: Clients, shore: Shore) -> None:
    """On one connection, whatever its name and the spelling of the pattern."""
    manager = Manager(Container(clients, shore["C"].port, "twice"))
    statuses = [
        manager.request("CREATE", {"pattern": pattern, "direction": direction}, type=MADE, name=name)
        for name, pattern, direction in (
            ("first", "c4.#", "in"),
            ("second", "c4.#", "in"),
            ("third", "/c4/#", "in"),
            ("fourth", "c4.#", "out"),
        )
    ]
    assert [answer.properties["statusCode"] for answer in statuses] == [201, 409, 409, 201]
    other = Manager(Container(clients, shore["C"].port, "other"))
    answer = other.request("CREATE", {"pattern": "c4.#", "direction": "in"}, type=MADE)
    assert answer.properties["statusCode"] == 201


@pytest.mark.parametrize(
    ("pattern", "direction", "status"),
    [
        ("bob.#", "in", 201),  # may receive from "bob*", send to "bob" and "bob.stock"
        ("bob.stock", "in", 201),
        ("bob", "out", 201),
        ("bob.stock", "out", 403),  # which is about "bob/stock" as well
        ("bob.#", "out", 403),
        ("bob.*", "out", 403),
        ("#", "in", 403),
        ("alice.#", "in", 403),
        ("*.stock", "in", 403),
        ("$management", "in", 403),
    ],
)
def test_it_is_about_addresses_that_its_maker_may_use(
    clients: Clients, governed: Governed, pattern: str, direction: str, status: int
) -> None:
    """Whoever has the links of others gets their messages."""
    rights = group(BOB, sources=["bob*"], targets=["bob", "bob.stock", "$management"])
    rights |= {"allowDynamicSource": True, "allowAnonymousSender": True}
    router = governed(ENABLED, vhost(groups={"shops": rights}))
    maker = clients.connect(router.port, user=BOB, password=PASSWORD, mechanisms="PLAIN")
    answer = Manager(maker).request("CREATE", {"pattern": pattern, "direction": direction}, type=MADE)
    assert answer.properties["statusCode"] == status, answer.properties["statusDescription"]


def test_no_link_route_takes_what_the_router_itself_offers(clients: Clients, shore: Shore) -> None:
    container = Container(clients, shore["A"].port, "greedy")
    manager = Manager(container)
    for direction in ("in", "out"):
        body = {"pattern": "#", "direction": direction}
        assert manager.request("CREATE", body, type=MADE).properties["statusCode"] == 201
    for router_id in "AC":
        other = Manager(clients.connect(shore[router_id].port))
        assert other.query("org.apache.qpid.dispatch.router", "id") == [{"id": router_id}]


def _attaches(clients: Clients, client: Client, address: str, container: Container) -> bool:
    before = container.attempts
    link = client.receiver(address).link
    clients.round_trip()
    if link.state & Endpoint.REMOTE_ACTIVE:
        client.detach(link)
    return container.attempts > before
