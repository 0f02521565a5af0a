"""Link routes among the addresses that management shows."""

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
