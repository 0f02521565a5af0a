"""A change of one namespace does not wait for each request and each call of many other namespaces."""

from __future__ import annotations

import asyncio

from prometheus_client import REGISTRY
from tests.unit.operator.many_namespaces import Server, attack, change, settle

NAMESPACES = 60


async def test_a_change_does_not_wait_for_the_requests_of_many_namespaces() -> None:
    """With one queue, 950 requests of 60 namespaces ended before the change was reconciled, and 1,500 of 120."""
    server = Server(0.05)
    server.resource("Router", "canary", "r", replicas=0)
    async with asyncio.timeout(120):
        await settle(server)
        attack(server, NAMESPACES)
        while server.requests.total() < 10 * NAMESPACES:  # noqa: ASYNC110 -- requests end in many tasks
            await asyncio.sleep(0.05)
        found = await change(server, 5001)
    await server.reconciler.close()
    assert found.own <= 8
    assert found.others <= 5 * NAMESPACES


async def test_the_metrics_are_those_of_the_namespaces_that_there_are() -> None:
    server = Server(0.0)
    attack(server, 3)
    async with asyncio.timeout(60):
        await settle(server)
    series = "isthmus_operator_ssl_profile_certificate_expiry_timestamp_seconds"
    found = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    profiles = {item.labels["namespace"] for item in found if item.name == series}
    assert {"w0", "w1", "w2"} <= profiles
    routers = [item.value for item in found if item.labels.get("kind") == "Router" if "objects" in item.name]
    assert sum(routers) == 6
    server.remove("w1")
    async with asyncio.timeout(60):
        await settle(server)
    found = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    assert "w1" not in {item.labels.get("namespace") for item in found}
    routers = [item.value for item in found if item.labels.get("kind") == "Router" if "objects" in item.name]
    assert sum(routers) == 4
    await server.reconciler.close()
