"""Routers that crash, or cannot be reached: the collector goes on, and the log has everything in the end."""

from __future__ import annotations

from tests.integration.flow_log.conftest import Collectors
from tests.integration.flow_log.traffic import PATIENCE, Flow, a_network, await_counts
from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers, eventually


def test_routers_that_crash_restart_and_cannot_be_reached(
    clients: Clients, routers: Routers, collectors: Collectors
) -> None:
    network = a_network(routers)
    network["A"].stop()
    collector = collectors(network["A"].port, network["B"].port).start()
    eventually(lambda: len(collector.rows("records", type="ROUTER")) == 2, "B and E")
    network["A"].start()
    eventually(lambda: len(collector.rows("records", type="ROUTER")) == 3, "A", PATIENCE)
    (first,) = collector.rows("records", type="ROUTER", name="E")
    network["E"].kill()
    eventually(
        lambda: collector.rows("records", type="ROUTER", name="E", lost=True), "the loss of E", PATIENCE
    )
    (event,) = collector.rows("events", event="source-lost")
    assert (event["subject"], event["source"], event["router"]) == ("E", first["source"], "E")
    assert collector.metric("sources_lost_total") == 1
    network["E"].start()
    flow = Flow(clients, network["E"].port, network["A"].port)
    flow.send(100)
    await_counts(collector, flow, clients, **{"in": "E", "out": "A"})
    eventually(
        lambda: {row["lost"] for row in collector.rows("records", type="ROUTER", name="E")} == {False, True},
        "both runs of E",
    )
    # The router it is connected to goes away: it finds the other one, and hears of everything that was meanwhile.
    network["B"].kill()
    eventually(
        lambda: collector.get("/readyz")[0] == 200 and '"connected", "router": "A"' in collector.log,
        "the other host",
    )
    network["B"].start()
    network.converge()
    again = Flow(clients, network["E"].port, network["A"].port, "again")
    again.send(100)
    await_counts(collector, again, clients, **{"in": "E", "out": "A"})
