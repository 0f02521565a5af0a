"""QUERY, READ and the operations that describe the router: columns, types, paging and errors."""

from __future__ import annotations

import json
import logging

import pytest
from tests.unit.management.conftest import Client, SmallRouter, answer_of, connection

from isthmus_router.management.agent import ManagementAgent
from isthmus_router.management.port import ConnectorRow, LinkRow
from isthmus_router.management.query import RESPONSE_BYTES
from isthmus_router.message.control import Message, Properties
from isthmus_router.message.types import Int, ULong

COLUMNS = {
    "router.link": "name identity type linkName linkType linkDir owningAddr capacity undeliveredCount "
    "unsettledCount deliveryCount connectionId operStatus presettledCount droppedPresettledCount "
    "acceptedCount rejectedCount releasedCount modifiedCount deliveriesDelayed1Sec deliveriesDelayed10Sec "
    "deliveriesStuck openMovedStreams ingressHistogram priority settleRate creditAvailable zeroCreditSeconds",
    "router.address": "name identity type key distribution inProcess subscriberCount remoteCount "
    "remoteHostRouters deliveriesIngress deliveriesEgress deliveriesTransit deliveriesToContainer "
    "deliveriesFromContainer deliveriesEgressRouteContainer deliveriesIngressRouteContainer "
    "deliveriesEgressInterNetwork deliveriesIngressInterNetwork transitOutstanding trackedDeliveries "
    "priority deliveriesRedirectedToFallback watch",
    "connection": "name identity host localSocket role protocol dir container sasl isAuthenticated user "
    "isEncrypted sslProto sslCipher properties sslSsf type ssl opened active adminStatus operStatus "
    "uptimeSeconds lastDlvSeconds enableProtocolTrace meshId tlsOrdinal groupCorrelationId groupOrdinal",
    "routerMetrics": "identity type id addrCount linkCount nodeCount autoLinkCount connectionCount "
    "presettledDeliveries droppedPresettledDeliveries acceptedDeliveries rejectedDeliveries "
    "releasedDeliveries modifiedDeliveries deliveriesDelayed1Sec deliveriesDelayed10Sec deliveriesStuck "
    "deliveriesIngress deliveriesEgress deliveriesTransit deliveriesIngressRouteContainer "
    "deliveriesEgressRouteContainer deliveriesIngressInterNetwork deliveriesEgressInterNetwork "
    "deliveriesRedirectedToFallback linksBlocked uptimeSeconds memoryUsage residentMemoryUsage "
    "connectionCounters version",
    "router.node": "id protocolVersion instance linkState nextHop validOrigins address routerLink cost "
    "lastTopoChange index name identity type",
    "router": "id vanId mode area version hostName helloIntervalSeconds helloMaxAgeSeconds "
    "raIntervalSeconds raIntervalFluxSeconds remoteLsMaxAgeSeconds unreachableHoldoffSeconds workerThreads "
    "debugDumpFile saslConfigDir saslConfigName timestampsInUTC timestampFormat defaultDistribution "
    "metadata dataConnectionCount dropTcpConnections name identity type",
}


@pytest.mark.parametrize("short_name", COLUMNS)
@pytest.mark.parametrize("prefix", ["", "io.skupper.router.", "org.apache.qpid.dispatch."])
def test_columns_are_in_the_order_tools_expect(client: Client, prefix: str, short_name: str) -> None:
    response = client.request("QUERY", {"attributeNames": []}, entityType=prefix + short_name)
    expected = COLUMNS[short_name].split()
    assert [name for name in response.body["attributeNames"] if name in expected] == expected
    assert response.body["results"]
    assert all(len(row) == len(response.body["attributeNames"]) for row in response.body["results"])


def test_a_query_may_name_its_type_as_any_other_operation_does(client: Client) -> None:
    names = client.request("QUERY", entityType="router.link").body["attributeNames"]
    assert client.request("QUERY", type="io.skupper.router.router.link").body["attributeNames"] == names
    # The agent's own type stands for no rows of its own, but for those of all.
    assert len(client.request("QUERY", type="org.amqp.management").body["attributeNames"]) > len(names)
    assert (
        client.request("QUERY", type="org.amqp.management", entityType="router.link").body["attributeNames"]
        == names
    )
    assert client.request("QUERY", type="no.such.type").status == 400


@pytest.mark.parametrize("entity_type", ["listener", "connector", "sslProfile", "network", "site", "log"])
def test_configured_types_have_a_row(client: Client, entity_type: str) -> None:
    rows = client.query(entity_type)
    assert rows
    for row in rows:
        assert row["type"] == f"io.skupper.router.{entity_type}"
        assert isinstance(row["identity"], str)
        assert isinstance(row["name"], str)


def test_counters_are_unsigned_longs_and_identities_strings(client: Client) -> None:
    link = client.query("io.skupper.router.router.link")[3]
    assert type(link["deliveryCount"]) is ULong
    assert (link["deliveryCount"], link["identity"], link["connectionId"]) == (3, "3", "1")
    assert type(link["zeroCreditSeconds"]) is ULong
    address = client.query("router.address")[0]
    assert type(address["priority"]) is Int
    assert (address["priority"], address["distribution"], address["subscriberCount"]) == (-1, "closest", 2)


def test_only_asked_columns_in_the_asked_order(client: Client) -> None:
    response = client.request(
        "QUERY", {"attributeNames": ["linkDir", "adminStatus", "name"]}, entityType="router.link"
    )
    assert response.body["attributeNames"] == ["linkDir", "adminStatus", "name"]
    assert response.body["results"][0] == ["in", "enabled", "link-0"]


def test_unknown_columns(client: Client) -> None:
    assert client.query("router.link", "name", "bogus")[0] == {"name": "link-0", "bogus": None}
    response = client.request("QUERY", {"attributeNames": ["bogus"]}, entityType="listener")
    assert (response.status, response.description) == (
        404,
        "Unknown attributes ['bogus'] for type 'io.skupper.router.listener'",
    )


@pytest.mark.parametrize(
    ("paging", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"offset": 0, "count": 2}, [0, 1]),
        ({"offset": 2, "count": 2}, [2, 3]),
        ({"offset": 4, "count": 500}, [4]),
        ({"offset": 5, "count": 500}, []),
        ({"count": 0}, []),
    ],
)
def test_paging(client: Client, paging: dict[str, object], expected: list[int]) -> None:
    assert [int(row["identity"]) for row in client.query("router.link", "identity", **paging)] == expected


def test_a_response_is_bounded(client: Client, router: SmallRouter) -> None:
    many = 3000
    router.links_ = [LinkRow(n, "l" * 2000, "endpoint", True, 1) for n in range(many)]
    assert len(client.query("router.link", "identity")) == many
    first = client.query("router.link", "name")
    assert RESPONSE_BYTES <= 2014 * len(first) < RESPONSE_BYTES + 2014
    assert len(client.query("router.link", "name", count=many)) == len(first)
    assert len(client.query("router.link", "name", offset=len(first))) == many - len(first)


@pytest.mark.parametrize("paging", [{"offset": -1}, {"count": "many"}, {"offset": True}])
def test_bad_paging(client: Client, paging: dict[str, object]) -> None:
    assert client.request("QUERY", entityType="router.link", **paging).status == 400


def test_query_of_all_types(client: Client) -> None:
    rows = client.query(None, "type", "identity")
    types = {row["type"].removeprefix("io.skupper.router.") for row in rows}
    assert {"router", "listener", "connector", "sslProfile", "network", "log", "management"} <= types
    assert client.query(None, "type", "identity", offset=2, count=3) == rows[2:5]


def test_secrets_are_not_shown(client: Client) -> None:
    text = str([client.query(t) for t in ("connector", "sslProfile")])
    assert "saslPassword" in text
    assert "hunter2" not in text


def test_listener_values(client: Client) -> None:
    clients, routers = client.query("listener")
    assert clients["name"] == "clients"
    assert clients["identity"] == "listener/:5672:clients"
    assert (clients["port"], clients["role"], clients["saslMechanisms"]) == (
        "5672",
        "normal",
        "PLAIN ANONYMOUS",
    )
    assert routers["name"] == routers["identity"] == "listener/:55672"
    assert (routers["role"], routers["sslProfile"]) == ("inter-router", "tls")


def test_connection_values(client: Client) -> None:
    _, router_connection, edge = client.query("connection")
    assert (router_connection["role"], router_connection["tlsOrdinal"]) == ("inter-router", 3)
    assert (router_connection["groupOrdinal"], router_connection["groupCorrelationId"]) == (3, "g")
    assert (edge["active"], edge["tlsOrdinal"], edge["dir"]) == (False, None, "in")


def test_read_by_name_and_identity(client: Client) -> None:
    by_name = client.request("READ", type="listener", name="clients")
    by_identity = client.request("READ", identity="listener/:5672:clients")
    assert by_name.status == by_identity.status == 200
    assert by_name.body == by_identity.body
    assert by_name.body["port"] == "5672"
    assert (
        client.request(
            "READ", type="router.config.autoLink", identity="router.config.autoLink/in/broker/events"
        ).body["operStatus"]
        == "active"
    )


@pytest.mark.parametrize(
    ("operation", "properties", "status", "description"),
    [
        (
            "READ",
            {"type": "listener", "name": "x"},
            404,
            "No entity of type 'io.skupper.router.listener' with name='x'",
        ),
        ("READ", {"type": "listener"}, 400, "No name or identity provided"),
        ("READ", {"type": "x", "name": "x"}, 400, "No such entity type 'x'"),
        (
            "QUERY",
            {"entityType": "io.skupper.router.link"},
            400,
            "No such entity type 'io.skupper.router.link'",
        ),
        (
            "CREATE",
            {"type": "router.link"},
            501,
            "Operation 'CREATE' not implemented for 'io.skupper.router.router.link' [READ, UPDATE]",
        ),
        (
            "DELETE",
            {"type": "router", "name": "A"},
            501,
            "Operation 'DELETE' not implemented for 'io.skupper.router.router' [READ, UPDATE]",
        ),
        ("DANCE", {}, 501, "Operation 'DANCE' not implemented"),
        (None, {}, 400, "No operation: the application property 'operation' is missing"),
        ("CREATE", {}, 400, "No type provided for CREATE"),
        ("GET-LOG", {"limit": -1}, 400, "limit -1 is not a number of records"),
        ("GET-LOG", {"limit": ULong(2**63)}, 400, f"limit {2**63} is more than {2**63 - 1} records"),
        (
            "QUERY",
            {"entityType": "router", "offset": ULong(2**64 - 1)},
            400,
            f"offset {2**64 - 1} is more than {2**63 - 1} rows",
        ),
    ],
)
def test_errors(
    client: Client, operation: str | None, properties: dict[str, object], status: int, description: str
) -> None:
    response = client.request(operation, **properties)
    assert (response.status, response.description) == (status, description)


def test_attributes_and_operations(client: Client) -> None:
    attributes = client.request("GET-ATTRIBUTES", entityType="listener").body
    assert list(attributes) == ["io.skupper.router.listener"]
    assert "idleTimeoutSeconds" in attributes["io.skupper.router.listener"]
    operations = client.request("GET-OPERATIONS").body
    assert operations["io.skupper.router.sslProfile"] == ["CREATE", "UPDATE", "DELETE", "READ"]


def test_schema(client: Client) -> None:
    schema = client.request("GET-SCHEMA").body
    port = schema["entityTypes"]["listener"]["attributes"]["port"]
    assert (port["default"], port["required"]) == (5672, False)
    assert schema["entityTypes"]["router.config.address"]["operations"] == [
        "CREATE",
        "UPDATE",
        "DELETE",
        "READ",
    ]
    assert json.loads(client.request("GET-JSON-SCHEMA").body) == schema


@pytest.mark.parametrize("entity_type", ["vhost", "vhostStats", "allocator", "tcpListener", "proxyProfile"])
def test_types_that_tools_ask_for_and_that_have_no_entities(client: Client, entity_type: str) -> None:
    assert client.query(f"io.skupper.router.{entity_type}") == []


def test_policy_says_that_nothing_is_limited(client: Client) -> None:
    (policy,) = client.query("policy")
    assert (policy["enableVhostPolicy"], policy["totalDenials"]) == (False, 0)
    assert client.request("GET-SCHEMA").body["entityTypes"]["vhostUserGroupSettings"]["attributes"]


def test_management_nodes_start_with_this_router(client: Client) -> None:
    assert client.request("GET-MGMT-NODES", type="org.amqp.management", name="self").body == [
        "amqp:/_topo/0/A/$management",
        "amqp:/_topo/0/B/$management",
    ]


def test_log_records(router: SmallRouter) -> None:
    class Records:
        def recent(self, limit: int | None) -> list[tuple[object, ...]]:
            records: list[tuple[object, ...]] = [
                ("ROUTER", "info", f"text {n}", "f.py", n, 1.5) for n in range(3)
            ]
            return records if limit is None else records[-limit:]

    client = Client(ManagementAgent(router, log=Records()))
    assert client.request("GET-LOG", limit=1).body == [["ROUTER", "info", "text 2", "f.py", 2, 1.5]]
    assert len(client.request("GET-LOG").body) == len(client.request("GET-LOG", limit=0).body) == 3


def test_no_reply_to_is_ignored(router: SmallRouter) -> None:
    assert answer_of(ManagementAgent(router), Message(application_properties={"operation": "QUERY"})) is None


@pytest.mark.parametrize(("length", "answered"), [(4096, True), (4097, False)])
def test_long_reply_to_is_ignored(router: SmallRouter, length: int, *, answered: bool) -> None:
    properties = Properties(reply_to="x" * length)
    request = Message(properties=properties, application_properties={"operation": "GET-TYPES"})
    assert (answer_of(ManagementAgent(router), request) is not None) == answered


@pytest.mark.parametrize("correlation_id", [7, "seven", b"7", ULong(7)])
def test_correlation_id_comes_back_with_its_type(client: Client, correlation_id: object) -> None:
    properties = Properties(reply_to="temp.1", correlation_id=correlation_id, message_id="m")
    response = client.send(Message(properties=properties, application_properties={"operation": "GET-TYPES"}))
    assert response.message.properties.correlation_id == correlation_id
    assert type(response.message.properties.correlation_id) is type(correlation_id)
    assert response.message.properties.to == "temp.1"


def test_without_correlation_id_the_message_id_comes_back(client: Client) -> None:
    properties = Properties(reply_to="temp.1", message_id="m")
    response = client.send(Message(properties=properties, application_properties={"operation": "GET-TYPES"}))
    assert response.message.properties.correlation_id == "m"


def test_types_name_the_types_they_extend(client: Client) -> None:
    configured = ["io.skupper.router.configurationEntity", "io.skupper.router.entity"]
    found = client.request("GET-TYPES").body
    assert found["io.skupper.router.listener"] == configured
    assert found["io.skupper.router.router.link"] == [
        "io.skupper.router.operationalEntity",
        "io.skupper.router.entity",
    ]
    assert found["io.skupper.router.management"][0] == "org.amqp.management"
    theirs = client.request("GET-TYPES", entityType="org.apache.qpid.dispatch.listener").body
    assert theirs == {
        "org.apache.qpid.dispatch.listener": [
            name.replace("io.skupper.router", "org.apache.qpid.dispatch") for name in configured
        ]
    }


def test_there_are_no_annotations(client: Client) -> None:
    assert client.request("GET-ANNOTATIONS").body == {}


def test_what_has_no_name_is_named_by_its_identity(client: Client) -> None:
    for entity_type in ("router.config.address", "router.config.autoLink", "router.config.linkRoute"):
        (row,) = client.query(entity_type)
        assert row["name"] == row["identity"]
        assert list(row)[:3] == ["name", "identity", "type"]  # where tools of the family look for them
        assert client.request("READ", type=entity_type, name=row["name"]).status == 200


def test_an_auto_link_has_its_address_under_the_old_name_too(client: Client) -> None:
    (row,) = client.query("router.config.autoLink", "address", "addr", "dir")
    assert row == {"address": "events", "addr": "events", "dir": "in"}
    (row,) = client.query("router.config.linkRoute", "dir")
    assert row == {"dir": "in"}
    link = {"address": "x", "dir": "out", "containerId": "c", "phase": 2}
    created = client.request("CREATE", link, type="router.config.autoLink").body
    assert (created["direction"], created["phase"]) == ("out", 2)


def test_log_records_are_counted_by_module(client: Client) -> None:
    rows = {row["name"]: row for row in client.query("logStats")}
    assert (rows["AGENT"]["infoCount"], rows["AGENT"]["warningCount"]) == (4, 1)
    assert (rows["SERVER"]["infoCount"], rows["SERVER"]["identity"]) == (0, "logStats/SERVER")


def test_requests_are_logged_without_what_they_contain(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "AGENT")
    client.request("UPDATE", {"password": "hunter2"}, type="sslProfile", name="nobody")
    begun, refused = caplog.records
    assert (begun.levelno, vars(begun)["operation"], vars(begun)["entity"]) == (
        logging.DEBUG,
        "UPDATE",
        "nobody",
    )
    assert (refused.levelno, vars(refused)["status"]) == (logging.INFO, 404)
    assert "sslProfile" in vars(refused)["reason"]
    assert "hunter2" not in str([vars(record) for record in caplog.records])


def test_a_name_may_be_the_identity(client: Client) -> None:
    for name in ("log/SERVER", "listener/:5672:clients"):
        assert client.request("READ", name=name).body["identity"] == name


def test_what_an_entity_has_not_is_left_out_of_it_but_for_those_of_the_router(client: Client) -> None:
    assert client.query("listener", "sslProfile")[0] == {"sslProfile": None}
    for operation, body in (("READ", None), ("UPDATE", {"cost": 2})):
        listener = client.request(operation, body, type="listener", name="clients").body
        assert listener["port"] == "5672"
        assert "sslProfile" not in listener
    created = client.request("CREATE", {"prefix": "b"}, type="router.config.address").body
    assert (created["prefix"], created["pattern"]) == ("b", None)


@pytest.mark.parametrize(
    ("state", "message", "container", "shown"),
    [
        ("open", "", "B", ("SUCCESS", "Connection Opened: dir=out host=b.example:55672 container_id=B")),
        ("failed", "no route", None, ("CONNECTING", "Connection to b.example:55672 failed: no route")),
        ("connecting", "", None, ("CONNECTING", "Connecting to b.example:55672")),
        ("failed", "wrong role", "B", ("FAILED", "Connection to b.example:55672 failed: wrong role")),
    ],
)
def test_what_became_of_a_connector(
    router: SmallRouter,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    message: str,
    container: str | None,
    shown: tuple[str, str],
) -> None:
    rows = [ConnectorRow(router.configuration.connectors[0], state, message, container=container)]
    monkeypatch.setattr(router, "connectors", lambda offset: iter(rows[offset:]))
    client = Client(ManagementAgent(router, router))
    (row,) = client.query("connector", "connectionStatus", "connectionMsg")
    assert (row["connectionStatus"], row["connectionMsg"]) == shown


def test_a_column_that_is_asked_for_many_times_comes_once(client: Client) -> None:
    response = client.request("QUERY", {"attributeNames": ["name"] * 20 + ["id"]}, entityType="router")
    assert response.body["attributeNames"] == ["name", "id"]
    assert len(response.body["results"][0]) == 2


def test_few_bytes_of_rows_are_encoded_at_a_time(client: Client, router: SmallRouter) -> None:
    large = {f"key {number}": "x" * 100 for number in range(500)}
    router.connections_ = [connection(number, properties=large) for number in range(20)]
    message = Message(
        properties=Properties(reply_to="temp.1"),
        application_properties={"operation": "QUERY", "entityType": "connection"},
        body={"attributeNames": ["properties"]},
    )
    slices = sum(1 for _ in client.agent.handle(message, client.requester))
    assert slices >= 20
