"""UPDATE: what may change, what changes nothing, and what is refused with a reason."""

from __future__ import annotations

import pytest
from tests.unit.management.conftest import Client, SmallRouter

from isthmus_router.config.model import Distribution
from isthmus_router.core.roles import Role
from isthmus_router.management.port import LinkRow

ADDRESS = {"type": "router.config.address", "identity": "router.config.address/jobs"}


def test_the_treatment_of_an_address(client: Client, router: SmallRouter) -> None:
    response = client.request("UPDATE", {"distribution": "multicast", "priority": 7}, **ADDRESS)
    assert (response.status, response.body["distribution"], response.body["priority"]) == (
        200,
        "multicast",
        7,
    )
    (found,) = router.configuration.addresses
    assert (found.prefix, found.distribution, found.priority) == ("jobs", Distribution.MULTICAST, 7)


def test_the_cost_of_a_connector_leaves_its_secret(client: Client, router: SmallRouter) -> None:
    assert client.request("UPDATE", {"cost": 5}, type="connector", name="b").status == 200
    (found,) = router.configuration.connectors
    assert (found.cost, found.sasl_password) == (5, "hunter2")


def test_the_router_itself(client: Client, router: SmallRouter) -> None:
    body = {"metadata": "blue", "defaultDistribution": "closest", "dataConnectionCount": "4"}
    response = client.request("UPDATE", body, type="router", name="router/A")
    assert (response.status, response.body["metadata"]) == (200, "blue")
    changed = router.configuration.router
    assert (changed.metadata, changed.default_distribution, changed.data_connections) == (
        "blue",
        Distribution.CLOSEST,
        4,
    )


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("id", "B"), ("helloIntervalSeconds", 2), ("managementReadOnly", True)],
)
def test_what_needs_a_restart(client: Client, router: SmallRouter, attribute: str, value: object) -> None:
    before = router.configuration
    response = client.request("UPDATE", {attribute: value}, type="router", name="router/A")
    assert response.status == 400
    assert f"router.{attribute}: " in response.description
    assert "needs a restart" in response.description
    assert router.configuration is before


@pytest.mark.parametrize("entity_type", ["listener", "connector", "sslProfile", "log", "router", "network"])
def test_what_was_read_may_be_written_back(client: Client, router: SmallRouter, entity_type: str) -> None:
    before = router.configuration
    for row in client.query(entity_type):
        response = client.request("UPDATE", row, type=entity_type, identity=row["identity"])
        there = {name: value for name, value in row.items() if value is not None}
        assert (response.status, response.body) == (200, there), response.description
    assert router.configuration is before


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            {"name": "other"},
            "'name' of 'io.skupper.router.listener' cannot be updated; delete the entity and",
        ),
        ({"operStatus": "down"}, "'operStatus' of 'io.skupper.router.listener' cannot be updated"),
        ({"prot": 1}, "attribute prot: unknown; did you mean 'port'?"),
        ({"port": "many"}, "attribute port: 'many' is not a port: 0 to 65535"),
        ({"role": "edge", "cost": 0}, "attribute cost: 0 is out of range"),
    ],
)
def test_updates_that_are_refused(
    client: Client, router: SmallRouter, body: dict[str, object], text: str
) -> None:
    before = router.configuration
    response = client.request("UPDATE", body, type="listener", name="clients")
    assert response.status == 400
    assert text in response.description
    assert router.configuration is before


def test_the_place_of_another_listener_is_a_conflict(client: Client) -> None:
    response = client.request("UPDATE", {"port": 55672}, type="listener", name="clients")
    assert response.status == 409
    assert "two listeners on :55672" in response.description


def test_the_listener_of_the_probes_is_not_updated(client: Client) -> None:
    assert (
        client.request("CREATE", {"port": 9090, "http": True}, type="listener", name="probes").status == 201
    )
    response = client.request("UPDATE", {"port": 9091}, type="listener", name="probes")
    assert response.status == 403
    assert "not allowed to update listener 'probes'" in response.description


def test_log_of_a_module_goes_back_to_the_default(client: Client, router: SmallRouter) -> None:
    assert client.request("CREATE", {"module": "SERVER", "enable": "debug+"}, type="log").status == 201
    assert client.request("CREATE", {"module": "SERVER", "enable": "info+"}, type="log").status == 409
    assert client.request("DELETE", type="log", identity="log/SERVER").status == 204
    assert [log.module for log in router.configuration.logs] == ["ROUTER_LS"]
    assert client.request("READ", type="log", identity="log/SERVER").body["enable"] == "default"


def test_a_link_is_detached(client: Client, router: SmallRouter) -> None:
    link = {"type": "router.link", "identity": "3"}
    response = client.request("UPDATE", {"adminStatus": "deleted"}, **link)
    assert (response.status, response.body["adminStatus"]) == (200, "deleted")
    assert router.detached == [(1, 3)]
    assert client.request("UPDATE", {"capacity": 9}, **link).status == 400
    assert client.request("UPDATE", {"adminStatus": "enabled"}, **link).status == 200
    refused = client.request("DELETE", **link)
    assert refused.status == 403
    assert "update its adminStatus to 'deleted'" in refused.description
    assert router.detached == [(1, 3)]


def test_links_between_routers_are_not_detached(client: Client, router: SmallRouter) -> None:
    router.links_ = [LinkRow(1, "data", "inter-router", True, 2, role=Role.INTER_ROUTER)]
    response = client.request("UPDATE", {"adminStatus": "deleted"}, type="router.link", identity="1")
    assert response.status == 403
    for body in ({"linkName": "other"}, {"capacity": 9}):
        response = client.request("UPDATE", body, type="router.link", identity="1")
        assert (response.status, "not allowed" in response.description) == (403, True)
    assert not router.detached


def test_clients_make_only_so_many_entities(
    client: Client, router: SmallRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus_router.management.changes.MOST_ENTITIES", 3)
    for number in range(2):
        assert client.request("CREATE", {"prefix": f"b{number}"}, type="router.config.address").status == 201
    response = client.request("CREATE", {"prefix": "b3"}, type="router.config.address")
    assert response.status == 400
    assert "put more into the configuration file" in response.description
