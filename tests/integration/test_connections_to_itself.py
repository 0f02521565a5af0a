"""Connectors that lead to their own router, as one to a loopback address in a pod does."""

from __future__ import annotations

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, connector, eventually, listener

REASON = "the router has connected to itself"


@pytest.mark.parametrize("role", ["normal", "route-container", "inter-router"])
def test_a_connector_to_its_own_router_does_not_open(routers: Routers, role: str) -> None:
    port = free_port()
    router = routers.start(
        "A", listener(port, role, name="own"), connector(port, role, name="back"), mode="interior"
    )

    def refused() -> bool:
        [back] = router.status()["connectors"]
        return REASON in back["message"] and back["state"] == "failed"

    eventually(refused, "the reason is stated")
    assert router.status()["connections"] == []


def test_another_router_with_the_same_id_is_another_router(routers: Routers) -> None:
    port = free_port()
    routers.start("A", listener(port, "route-container"))
    other = routers.add("B", connector(port, "route-container", name="there"))
    other.sections[0] = ("router", {**other.sections[0][1], "id": "A"})
    other.start()
    eventually(lambda: other.status()["connectors"][0]["state"] == "open", "they are connected")
