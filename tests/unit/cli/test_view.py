"""The status view: from what routers say to rows, problems, tables and JSON."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from isthmus_cli.view import NetworkView, RouterReport, as_json, network_view, render


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
    return {**base, "state": state, "tlsOrdinal": None, **more}


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
        connectors=[connector(state, container="east-0", message="" if state == "open" else "refused")],
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
