"""The status view: from what routers say to rows, problems, tables and JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from isthmus_cli.view import (
    NetworkView,
    OrdinalCount,
    ProfileRow,
    RouterReport,
    as_json,
    condition_problems,
    link_route_row,
    natural_width,
    network_view,
    profile_row,
    render,
)
from isthmus_cli.view.problems import problem_lines
from isthmus_operator.resources.manifests import InvalidResourceError, parse


def status(router_id: str, *, ready: bool = True, mode: str = "interior", **sections: Any) -> dict[str, Any]:
    """A document as docs/status.md describes it."""
    about = {"id": router_id, "mode": mode, "version": "0.1.0", "instance": 1, "uptimeSeconds": 3725}
    empty = {
        "neighbors": [],
        "nodes": [],
        "connectors": [],
        "listeners": [],
        "connections": [],
        "addresses": [],
    }
    total = {"addressesTotal": len(sections.get("addresses", []))}
    return {
        "router": {**about, "ready": ready, "configHash": ""},
        **empty,
        **total,
        "lastConfigError": None,
        **sections,
    }


def report(document: dict[str, Any] | None, router_id: str = "", **more: Any) -> RouterReport:
    about = document["router"] if document else {"id": router_id, "mode": "interior"}
    fields = {"router": "r", "site": None, "where": "pid 1", **more}
    return RouterReport(id=about["id"], mode=about["mode"], status=document, **fields)


def connector(state: str = "open", **more: Any) -> dict[str, Any]:
    base = {
        "name": "up",
        "host": "127.0.0.1",
        "port": 20001,
        "role": "edge",
        "message": "",
        "container": None,
    }
    return {**base, "state": state, "tlsOrdinal": None, "active": None, **more}


def connection(container: str, role: str, direction: str, *, active: bool = True) -> dict[str, Any]:
    return {"id": 1, "container": container, "role": role, "dir": direction, "active": active}


def address(name: str, local: int, kind: str = "M") -> dict[str, Any]:
    counts = {"local": local, "remote": 0, "inProcess": 0, "deliveriesIn": 5, "deliveriesOut": 4}
    return {"name": name, "class": kind, "distribution": "closest", **counts}


def two_routers(state: str = "open", *, active: bool = True) -> NetworkView:
    east = status(
        "east-0",
        neighbors=[{"id": "west-0", "cost": 3, "connectionId": 1}],
        nodes=[{"id": "west-0", "nextHop": "west-0", "cost": 3}],
        addresses=[address("orders", 2), address("$management", 1), address("east-0", 1, "T")],
        connections=[connection("client", "normal", "in"), connection("edge-0", "edge", "in")],
    )
    edge = status(
        "edge-0",
        mode="edge",
        connectors=[
            connector(
                state, container="east-0", message="" if state == "open" else "refused", active=active or None
            ),
            *([] if active else [connector(container="east-0", name="spare", active=False)]),
        ],
        edge={"active": None, "standbys": [], "proxiedAddresses": 7, "boundAddresses": 3},
        addresses=[address("orders", 1)],
        connections=[connection("east-0", "edge", "out", active=active)],
    )
    return network_view("n", "this machine", [report(edge), report(east)])


def drawn(view: NetworkView) -> str:
    text = io.StringIO()
    Console(width=200, file=text).print(render(view))
    return text.getvalue()


def test_interior_routers_come_first() -> None:
    assert [row.id for row in two_routers().routers] == ["east-0", "edge-0"]


def test_neighbours_reach_and_clients() -> None:
    east, edge = two_routers().routers
    assert (east.neighbors, east.reaches, east.clients) == (("west-0 (cost 3)",), 1, 1)
    assert (edge.neighbors, edge.reaches, edge.clients) == (("east-0",), None, 0)


def test_an_edge_routers_consumers_are_not_counted_at_its_interior_too() -> None:
    (row,) = two_routers().addresses
    assert row.name == "orders"
    assert row.consumers == 2
    assert {item.router: item.consumers for item in row.at} == {"east-0": 1, "edge-0": 1}


def test_a_relayed_address_is_shown_as_such_whichever_router_comes_first() -> None:
    relayed = {**address("relay/trades", 1), "distribution": "relayed"}
    reports = [
        report(status("east-0", addresses=[address("relay/trades", 0)])),
        report(status("west-0", addresses=[relayed])),
        report(status("west-1", addresses=[address("relay/trades", 0)])),
    ]
    (row,) = network_view("n", "p", reports).addresses
    assert row.distribution == "relayed"


def test_an_address_with_a_waypoint_is_shown_once_for_each_phase() -> None:
    interior = status("east-0", addresses=[address("orders", 2), {**address("orders", 1), "phase": 1}])
    edge = status(
        "edge-0",
        mode="edge",
        addresses=[{**address("orders", 1), "phase": 1}],
        connections=[connection("east-0", "edge", "out")],
    )
    rows = network_view("n", "p", [report(interior), report(edge)]).addresses
    assert {row.name: row.consumers for row in rows} == {"orders": 2, "orders (phase 1)": 1}


def test_an_auto_link_that_is_refused_is_a_problem() -> None:
    links = [
        {
            "address": name,
            "direction": "out",
            "state": state,
            "message": "no such queue" if state == "failed" else "",
        }
        for name, state in (("orders", "failed"), ("invoices", "active"), ("letters", "inactive"))
    ]
    view = network_view("n", "p", [report(status("a-0", autoLinks=links))])
    assert view.problems == ("router a-0: auto-link out of orders is failed: no such queue",)
    assert not view.ready


def test_auto_links_are_shown_when_all_is_well_too() -> None:
    link = {"name": None, "address": "orders", "direction": "out", "phase": 0, "externalAddress": "queue"}
    link |= {"connection": "broker", "containerId": None, "state": "active", "message": ""}
    view = network_view("n", "p", [report(status("a-0", autoLinks=[link]))])
    assert view.ready
    assert "a-0 broker out orders queue 0 active" in " ".join(drawn(view).split())
    assert as_json(view)["autoLinks"][0]["externalAddress"] == "queue"
    assert "Auto-links" not in drawn(two_routers())


def link_route(ready: str, reason: str, message: str, **found: Any) -> dict[str, Any]:
    conditions = [
        {
            "type": "Matched",
            "status": "True",
            "reason": "ContainerAttached",
            "message": "1 container attached",
        },
        {"type": "Ready", "status": ready, "reason": reason, "message": message},
    ]
    return {
        "metadata": {"name": "b2-queues"},
        "spec": {"prefix": "b2.queues", "direction": "both", "connector": "broker"},
        "status": {
            "conditions": conditions,
            "activeDestinations": 1,
            "attachedLinks": 12,
            "refusals": 3,
            **found,
        },
    }


def test_link_routes_and_what_they_have_refused() -> None:
    refusal = {"router": "a-0", "address": "b2.queues.x", "description": "no such queue"}
    refusal["time"] = "2026-01-01T00:00:00Z"
    row = link_route_row(link_route("True", "Ready", "", lastRefusal=refusal))
    assert (row.state, row.message) == ("ready", "1 container attached")
    view = network_view("n", "p", [report(status("a-0"))], link_routes=[row])
    told = "b2.queues.x at a-0, 2026-01-01T00:00:00Z: no such queue"
    assert f"b2-queues b2.queues both broker ready 1 12 3 {told}" in " ".join(drawn(view).split())
    assert "0 addresses, 1 of 1 link route ready" in drawn(view)
    assert as_json(view)["linkRoutes"][0]["lastRefusal"] == told


def test_of_many_link_routes_those_that_are_not_well_come_first() -> None:
    rows = [link_route_row(link_route("True", "Ready", "")) for _ in range(30)]
    rows.append(link_route_row(link_route("False", "NoContainer", "away")))
    shown = drawn(network_view("n", "p", [report(status("a-0"))], link_routes=rows))
    assert shown.count("b2-queues") == 20
    assert "NoContainer" in shown
    assert "and 11 more" in shown


def test_a_link_route_without_a_container_is_a_problem() -> None:
    manifest = link_route("False", "NoContainer", 'Connector "broker": a-0: failed: refused')
    row = link_route_row(manifest)
    assert (row.state, row.last_refusal, row.message) == (
        "NoContainer",
        None,
        'Connector "broker": a-0: failed: refused',
    )
    assert list(condition_problems("LinkRoute", manifest)) == [
        'LinkRoute b2-queues: NoContainer: Connector "broker": a-0: failed: refused'
    ]


def test_a_resource_that_no_operator_has_reconciled_says_where_to_look() -> None:
    (told,) = condition_problems("Router", {"metadata": {"name": "hello"}})
    assert told.startswith("Router hello: the operator has not reconciled it yet")
    assert "watchNamespaces" in told


def test_refusals_by_policies_are_shown_where_there_are_any() -> None:
    denials = {"connection": 2, "sender": 1}
    view = network_view("n", "p", [report(status("east-0", policyDenials=denials)), report(status("west-0"))])
    assert [row.denied for row in view.routers] == [3, None]
    assert "denied" in drawn(view)
    none = network_view("n", "p", [report(status("east-0", policyDenials=dict.fromkeys(denials, 0)))])
    assert none.routers[0].denied == 0
    assert "denied" not in drawn(none)


def test_uplinks_in_reserve_and_proxied_addresses_are_shown() -> None:
    view = two_routers(active=False)
    assert [(link.connector, link.standby) for link in view.links] == [("up", False), ("spare", True)]
    assert [row.proxied for row in view.routers] == [None, 7]
    assert "open, standby" in drawn(view)
    assert "standby" not in drawn(two_routers())


def test_an_uplink_in_reserve_subscribes_to_nothing() -> None:
    (row,) = two_routers(active=False).addresses
    assert row.consumers == 3


def test_all_well() -> None:
    view = two_routers()
    assert view.ready
    assert view.problems == ()
    assert "n on this machine: 2 of 2 routers ready, 1 of 1 link open, 1 address" in drawn(view)


def test_a_connector_that_is_not_open_is_a_problem() -> None:
    view = two_routers("connecting")
    assert not view.ready
    assert view.problems == (
        "router edge-0: connector up to east-0 at 127.0.0.1:20001 is connecting: refused",
    )
    assert "Problems" in drawn(view)
    assert view.routers[1].neighbors == ()


def test_a_listener_that_failed_is_a_problem() -> None:
    failed = {
        "name": "amqp",
        "host": "",
        "port": 5672,
        "role": "normal",
        "state": "failed",
        "message": "in use",
    }
    view = network_view("n", "p", [report(status("a-0", listeners=[failed]))])
    assert view.problems == ("router a-0: listener amqp on :5672 is failed: in use",)


def test_a_router_that_does_not_answer() -> None:
    view = network_view("n", "p", [report(None, "a-0", trouble="exited with status 1", restarts=3)])
    (row,) = view.routers
    assert (row.state, row.restarts, row.uptime_seconds, row.clients) == ("down", 3, None, None)
    assert view.problems == ("router a-0 is down: exited with status 1",)


def test_a_router_that_is_not_ready_yet() -> None:
    view = network_view("n", "p", [report(status("a-0", ready=False))])
    assert view.routers[0].state == "starting"
    assert not view.ready


def test_a_refused_configuration_is_a_problem() -> None:
    view = network_view("n", "p", [report(status("a-0", lastConfigError="line 3: no such attribute"))])
    assert view.problems == ("router a-0: configuration refused: line 3: no such attribute",)


def test_findings_about_resources_are_problems() -> None:
    view = network_view("n", "p", [report(status("a-0"))], ["Connector c: Pending: Router b does not exist"])
    assert view.problems == ("Connector c: Pending: Router b does not exist",)


def test_addresses_left_out_are_counted() -> None:
    view = network_view("n", "p", [report(status("a-0", addresses=[address("x", 1)], addressesTotal=7))])
    assert view.addresses_not_shown == 6
    assert "and 6 more" in drawn(view)


def test_json_has_the_same_facts() -> None:
    document = json.loads(json.dumps(as_json(two_routers("connecting"))))
    assert document["ready"] is False
    assert document["routers"][0]["uptimeSeconds"] == 3725
    assert document["links"][0]["tlsOrdinal"] is None
    assert document["addresses"][0]["at"][0] == {
        "router": "east-0",
        "consumers": 1,
        "deliveriesIn": 5,
        "deliveriesOut": 4,
    }
    assert document["problems"]


def test_the_table_names_times_for_people() -> None:
    assert "1h 2m" in drawn(two_routers())


def lines(view: NetworkView, width: int | None) -> list[str]:
    text = io.StringIO()
    Console(width=width or natural_width(view), file=text).print(render(view, width))
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_words(width: int) -> None:
    documents = [
        status(
            f"east-{index}",
            neighbors=[{"id": f"west-{other}", "cost": 10, "connectionId": 1} for other in range(index)],
            connectors=[connector(container="a-router-elsewhere-0", name="a-long-name")],
        )
        for index in range(6)
    ]
    url = "amqp://127.0.0.1:20000"
    reports = [report(document, where="pid 4711", site="here", endpoints=(url,)) for document in documents]
    shown = lines(network_view("n", "p", reports), width)
    assert max(len(line) for line in shown) <= width
    assert sum(url in line for line in shown) == len(reports)
    assert sum("a-router-elsewhere-0" in line for line in shown) == len(reports)
    header = shown[shown.index("Routers") + 1].split()
    assert {"id", "state", "address"} <= set(header) <= set(WIDE_HEADER)


WIDE_HEADER = [
    "id",
    "mode",
    "site",
    "state",
    "where",
    "up",
    "restarts",
    "neighbors",
    "reaches",
    "clients",
    "proxied",
    "address",
]


def test_wide_has_every_column_in_one_line_per_row() -> None:
    view = two_routers("connecting")
    shown = lines(view, None)
    begin = shown.index("Routers")
    assert shown[begin + 1].split() == WIDE_HEADER
    assert shown.index("Links") - begin == 3 + len(view.routers) + 1


def test_the_same_trouble_of_several_routers_is_one_line() -> None:
    reports = [report(None, f"a-{index}", trouble="image not found") for index in range(6)]
    assert network_view("n", "p", reports).problems == (
        "routers a-0, a-1, a-2, a-3 and 2 more are down: image not found",
    )


def test_what_a_resource_already_tells_is_not_repeated() -> None:
    reports = [report(status("a-0", mode="edge", connectors=[connector("failed", message="refused")]))]
    findings = [
        "Connector up: ConnectorFailed: a-0: refused",
        "Connector down: Pending: no",
        "Connector x: Pending: no",
    ]
    assert network_view("n", "p", reports, findings).problems == (
        "Connector up: ConnectorFailed: a-0: refused",
        "Connector down, x: Pending: no",
    )


def test_links_of_routers_that_were_not_asked_are_unknown() -> None:
    view = network_view("n", "p", [report(status("a-0"), asked=False)])
    assert "1 of 1 router ready, links and addresses unknown" in drawn(view)
    assert as_json(view)["asked"] is False


def test_a_secret_that_many_use_is_one_problem() -> None:
    trouble = 'Secret "hub-tls": the key does not belong to the certificate'
    lines = problem_lines(
        [
            f'Router hub: SecretInvalid: listener "amqps": {trouble}',
            f'Router hub: SecretInvalid: listener "edge": {trouble}',
            f'Router hub: SecretInvalid: links between replicas through listener "mesh": {trouble}',
            'Router hub: SecretNotFound: listener "other": Secret "other" does not exist',
            f"Connector east: SecretInvalid: {trouble}",
        ],
        [],
    )
    assert lines == (
        'Router hub: SecretInvalid: listener "amqps", listener "edge", links between replicas through '
        f'listener "mesh": {trouble}',
        'Router hub: SecretNotFound: listener "other": Secret "other" does not exist',
        f"Connector east: SecretInvalid: {trouble}",
    )


def test_a_rule_names_its_field_once() -> None:
    with pytest.raises(InvalidResourceError) as caught:
        parse(
            {
                "apiVersion": "isthmus.dev/v1alpha1",
                "kind": "Router",
                "metadata": {"name": "hub"},
                "spec": {
                    "listeners": [{"name": "a", "port": 5672}, {"name": "b", "port": 5672}],
                },
            }
        )
    assert str(caught.value) == "spec.listeners: listeners must not share a port"


def test_certificates_and_who_uses_which() -> None:
    manifest = {
        "metadata": {"name": "net"},
        "status": {
            "ordinal": 4,
            "oldestValidOrdinal": 3,
            "notAfter": "2031-01-01T00:00:00Z",
            "ordinals": [{"ordinal": 3, "connections": 4}, {"ordinal": 4, "connections": 12}],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "Ready"},
                {"type": "Rotating", "status": "True", "reason": "Rotating", "message": "b is behind"},
            ],
        },
    }
    counts = (OrdinalCount(3, 4), OrdinalCount(4, 12))
    row = profile_row(manifest)
    assert row == ProfileRow("net", "rotating", 4, 3, "2031-01-01T00:00:00Z", counts, "b is behind")
    view = network_view("net", "here", [], profiles=[row])
    text = " ".join(drawn(view).split())
    assert "net rotating 4 3 2031-01-01T00:00:00Z 4 on 3, 12 on 4 b is behind" in text
    assert as_json(view)["profiles"][0]["oldestValid"] == 3
