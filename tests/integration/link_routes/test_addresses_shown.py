"""Link routes among the addresses and links that management shows."""

from __future__ import annotations

from tests.integration.support.client import Clients
from tests.integration.support.link_routes import Shore
from tests.integration.support.management import Manager


def test_containers_of_a_link_route_are_counted(clients: Clients, shore: Shore) -> None:
    shore.container(clients, at="C")
    for router_id, containers, routers in (("C", 1, 0), ("A", 0, 1)):
        manager = Manager(clients.connect(shore[router_id].port).await_open())
        rows = manager.query("org.apache.qpid.dispatch.router.address")
        found = {
            row["name"]: (row["distribution"], row["containerCount"], row["remoteCount"])
            for row in rows
            if row["name"][1:] == "b2"
        }
        assert found == dict.fromkeys(("Cb2", "Db2"), ("linkBalanced", containers, routers))


def test_both_halves_of_a_routed_link_have_the_address_that_was_asked_for(
    clients: Clients, shore: Shore
) -> None:
    shore.container(clients, at="C")
    client = clients.connect(shore["A"].port, container="buyer")
    client.sender("b2.orders")
    client.receiver("b2.bills")
    for router_id in "ABC":
        manager = Manager(clients.connect(shore[router_id].port).await_open())
        rows = manager.query("router.link", "linkDir", "owningAddr")
        found = sorted(
            (row["owningAddr"], row["linkDir"])
            for row in rows
            if (row["owningAddr"] or "").startswith("Mb2.")
        )
        assert found == [(key, way) for key in ("Mb2.bills", "Mb2.orders") for way in ("in", "out")]
