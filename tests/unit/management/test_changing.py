"""CREATE, UPDATE and DELETE go through the configuration's rules and are applied as its changes."""

from __future__ import annotations

import pytest
from tests.unit.management.conftest import CONF, Client, SmallRouter, connection

from isthmus_router.config import parse
from isthmus_router.core.roles import Role
from isthmus_router.management.agent import ManagementAgent


def test_create_connector(client: Client, router: SmallRouter) -> None:
    response = client.request(
        "CREATE", {"host": "c.example", "port": "55672", "role": "inter-router"}, type="connector", name="c"
    )
    assert response.status == 201
    assert response.body["identity"] == "connector/c.example:55672:c"
    assert router.configuration.connectors[-1].role is Role.INTER_ROUTER


def test_create_listener_with_typed_values(client: Client, router: SmallRouter) -> None:
    body = {"port": 5700, "http": True, "type": "io.skupper.router.listener"}
    assert client.request("CREATE", body, type="io.skupper.router.listener").status == 201
    assert router.configuration.listeners[-1].name == "listener/:5700"


def test_create_and_delete_address(client: Client, router: SmallRouter) -> None:
    created = client.request(
        "CREATE", {"pattern": "a.#", "distribution": "multicast"}, type="router.config.address"
    )
    assert created.status == 201
    deleted = client.request("DELETE", type="router.config.address", identity=created.body["identity"])
    assert deleted.status == 204
    assert deleted.body == {}
    assert [a.prefix for a in router.configuration.addresses] == ["jobs"]


def test_delete_listener_after_another_change(client: Client, router: SmallRouter) -> None:
    assert client.request("CREATE", {"prefix": "b"}, type="router.config.address").status == 201
    assert client.request("DELETE", type="listener", name="clients").status == 204
    assert [listener.name for listener in router.configuration.listeners] == ["listener/:55672"]


@pytest.mark.parametrize("properties", [{"name": "probes"}, {"identity": "listener/:9090:probes"}])
def test_the_listener_of_the_probes_is_kept(
    client: Client, router: SmallRouter, properties: dict[str, object]
) -> None:
    created = client.request("CREATE", {"port": 9090, "http": True}, type="listener", name="probes")
    assert created.status == 201
    before = router.configuration
    for extra in ({}, {"type": "listener"}, {"type": "org.apache.qpid.dispatch.listener"}):
        response = client.request("DELETE", **properties, **extra)
        assert response.status == 403
        assert "not allowed to delete listener 'probes': probes, metrics" in response.description
    assert router.configuration is before


@pytest.mark.parametrize(
    ("operation", "properties", "body"),
    [
        ("CREATE", {"type": "listener"}, {"port": 5700}),
        ("UPDATE", {"type": "sslProfile", "name": "tls"}, {"ordinal": 4}),
        ("UPDATE", {"type": "log", "identity": "log/SERVER"}, {"enable": "trace+"}),
        ("UPDATE", {"type": "connection", "identity": "1"}, {"adminStatus": "deleted"}),
        ("DELETE", {"type": "listener", "name": "clients"}, None),
    ],
)
def test_a_router_whose_file_alone_decides(
    operation: str, properties: dict[str, object], body: object
) -> None:
    text = CONF.replace("id: A", "id: A\n managementReadOnly: yes")
    router = SmallRouter(parse(text, "A.conf"), connections_=[connection(1)])
    client, before = Client(ManagementAgent(router, router)), router.configuration
    response = client.request(operation, body, **properties)
    told = (
        "You are not allowed to change this router: managementReadOnly is set. "
        "Change its configuration file, or the Router and Connectors it was made from"
    )
    assert (response.status, response.description) == (403, told)
    assert router.configuration is before
    assert not router.closed
    assert client.query("listener", "name")


def test_a_change_builds_on_the_one_before_it_is_in_force(client: Client, router: SmallRouter) -> None:
    router.lags = True
    for prefix in ("b", "c"):
        assert client.request("CREATE", {"prefix": prefix}, type="router.config.address").status == 201
    assert client.request("DELETE", type="connector", name="b").status == 204
    assert [address.prefix for address in router.wanted_configuration.addresses] == ["jobs", "b", "c"]
    assert router.wanted_configuration.connectors == ()


def test_updates_that_follow_each_other_add_up(client: Client, router: SmallRouter) -> None:
    """The second is one of what the first asked for, not of what is in force."""
    router.lags = True
    for body in ({"ordinal": 4}, {"ordinal": 5}, {"oldestValidOrdinal": 4}):
        assert client.request("UPDATE", body, type="sslProfile", name="tls").status == 200
    lowered = client.request("UPDATE", {"ordinal": 4}, type="sslProfile", name="tls")
    assert lowered.status == 400
    profile = router.wanted_configuration.ssl_profiles["tls"]
    assert (profile.ordinal, profile.oldest_valid_ordinal) == (5, 4)


@pytest.mark.parametrize(
    ("entity_type", "body", "text"),
    [
        ("listener", {"port": 5672}, "two listeners on :5672"),
        ("listener", {"name": "clients", "port": 1}, "attribute name: 'clients' is used twice"),
        ("listener", {"bogus": 1}, "attribute bogus: unknown"),
        ("listener", {"port": 1, "sslProfile": "x"}, "no sslProfile is named 'x'; they are tls"),
        ("connector", {"role": "edge", "port": 1}, "an edge connector needs router mode edge"),
        ("router.config.address", {"prefix": "b", "distribution": "fair"}, "'fair' is not one of multicast"),
        ("router.config.linkRoute", {"prefix": "b", "containerId": "c"}, "direction: required and missing"),
    ],
)
def test_invalid_entities_are_refused(
    client: Client, router: SmallRouter, entity_type: str, body: dict[str, object], text: str
) -> None:
    before = router.configuration
    response = client.request("CREATE", body, type=entity_type)
    assert response.status == (409 if "two" in text or "twice" in text else 400)
    assert text in response.description
    assert router.configuration is before


@pytest.mark.parametrize(
    ("entity_type", "body"),
    [
        ("router.config.address", {"prefix": "x" * 4097}),
        ("router.config.address", {"pattern": "a." * 501}),
        ("router.config.address", {"prefix": "b", "name": "n" * 1001}),
        ("router.config.linkRoute", {"pattern": "é" * 2049, "direction": "in", "containerId": "c"}),
        ("router.config.linkRoute", {"prefix": "b", "direction": "in", "containerId": "c" * 1001}),
        (
            "router.config.linkRoute",
            {"prefix": "b", "direction": "in", "containerId": "c", "addExternalPrefix": "x" * 4097},
        ),
        ("router.config.autoLink", {"address": "x" * 4097, "direction": "in", "containerId": "c"}),
        (
            "router.config.autoLink",
            {"address": "b", "direction": "in", "containerId": "c", "externalAddress": "x" * 4097},
        ),
        ("listener", {"port": 1, "name": "n" * 1001}),
    ],
)
def test_long_addresses_patterns_and_names_are_refused(
    client: Client, router: SmallRouter, entity_type: str, body: dict[str, object]
) -> None:
    before = router.configuration
    response = client.request("CREATE", body, type=entity_type)
    assert response.status == 400
    assert "it has more than" in response.description
    assert router.configuration is before


def test_the_longest_address_and_name_are_accepted(client: Client, router: SmallRouter) -> None:
    body = {"prefix": "x" * 4096, "name": "n" * 1000, "distribution": "closest"}
    assert client.request("CREATE", body, type="router.config.address").status == 201


def test_raise_ordinal(client: Client, router: SmallRouter) -> None:
    response = client.request("UPDATE", {"ordinal": 4}, type="sslProfile", name="tls")
    assert (response.status, response.body["ordinal"]) == (200, 4)
    profile = router.configuration.ssl_profiles["tls"]
    assert (profile.ordinal, profile.oldest_valid_ordinal, profile.password) == (4, 1, "hunter2")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"ordinal": 2}, "it can only be raised"),
        ({"ordinal": -1}, "out of range"),
        ({"oldestValidOrdinal": 4}, "must be at most ordinal"),
        ({"caCertFile": "/nowhere/ca"}, "file '/nowhere/ca' cannot be read"),
    ],
)
def test_wrong_ordinals_are_refused(client: Client, body: dict[str, object], text: str) -> None:
    response = client.request("UPDATE", body, type="sslProfile", name="tls")
    assert response.status == 400
    assert text in response.description


def test_a_used_profile_cannot_be_deleted(client: Client) -> None:
    response = client.request("DELETE", type="sslProfile", name="tls")
    assert response.status == 400
    assert "no sslProfile is named 'tls'" in response.description


def test_update_log_of_a_module_without_section(client: Client, router: SmallRouter) -> None:
    assert client.request("UPDATE", {"enable": "trace+"}, type="log", identity="log/SERVER").status == 200
    assert client.request("UPDATE", {"enable": "error+"}, type="log", identity="log/SERVER").status == 200
    assert {log.module: log.enable for log in router.configuration.logs} == {
        "ROUTER_LS": "debug+",
        "SERVER": "error+",
    }


def test_update_network(client: Client, router: SmallRouter) -> None:
    assert client.request("UPDATE", {"networkId": "n2"}, type="network", identity="network/0").status == 200
    assert router.configuration.network.network_id == "n2"
    refused = client.request("UPDATE", {"tenantId": "t"}, type="network", identity="network/0")
    assert (refused.status, refused.description) == (400, "network.tenantId: None -> t needs a restart")


def test_close_connection(client: Client, router: SmallRouter) -> None:
    response = client.request("UPDATE", {"adminStatus": "deleted"}, type="connection", identity="1")
    assert (response.status, response.body["adminStatus"]) == (200, "deleted")
    assert router.closed == [1]


@pytest.mark.parametrize("identity", ["2", "3"])
def test_connections_between_routers_are_not_closed(
    client: Client, router: SmallRouter, identity: str
) -> None:
    response = client.request("UPDATE", {"adminStatus": "deleted"}, type="connection", identity=identity)
    assert response.status == 403
    assert not router.closed


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"adminStatus": "off"}, "adminStatus 'off' is not one of enabled, deleted"),
        ({"role": "edge"}, "Attribute 'role' of 'io.skupper.router.connection' cannot be updated"),
        ({"bogus": 1}, "Unknown attribute 'bogus' for 'io.skupper.router.connection'"),
    ],
)
def test_wrong_connection_updates(client: Client, body: dict[str, object], text: str) -> None:
    response = client.request("UPDATE", body, type="connection", identity="1")
    assert (response.status, response.description) == (400, text)


def test_what_the_router_refuses(client: Client, router: SmallRouter) -> None:
    router.refuses = "port 5700 is in use"
    response = client.request("CREATE", {"port": 5700}, type="listener")
    assert (response.status, response.description) == (400, "port 5700 is in use")


def test_without_actions_nothing_changes(router: SmallRouter) -> None:
    client = Client(ManagementAgent(router))
    assert client.request("CREATE", {"port": 5700}, type="listener").status == 501
    assert client.request("UPDATE", {"adminStatus": "deleted"}, type="connection", identity="1").status == 501


@pytest.mark.parametrize("body", [None, "text", ["list"], {1: 2}])
def test_bodies_that_are_no_map(client: Client, body: object) -> None:
    response = client.request("CREATE", body if body is not None else b"", type="listener")
    assert response.status == 400


def test_a_connection_is_not_deleted_but_closed(client: Client) -> None:
    response = client.request("DELETE", type="connection", identity="1")
    assert response.status == 403
    assert "update its adminStatus to 'deleted'" in response.description
