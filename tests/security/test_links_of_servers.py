"""A server to which a router has connected gets no links of its own making: it is no client of the network."""

from __future__ import annotations

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, Section, connector, listener
from tests.security.support.canary import Canary

CLIENTS = {"users": "*", "remoteHosts": "*", "sources": "canary/*, payments", "targets": "canary/*, payments"}
GOVERNED: list[Section] = [
    ("policy", {"enableVhostPolicy": True, "defaultVhost": "v"}),
    (
        "vhost",
        {
            "hostname": "v",
            "allowUnknownUser": True,
            "groups": {"$default": CLIENTS, "$connector": {"sources": "payments"}},
        },
    ),
]
ASKED = [("payments", "in"), ("orders", "out"), ("$management", "out")]
"""Addresses, and the direction of the auto-link by which the server asks for them: `in` receives."""


@pytest.mark.parametrize("role", ["normal", "route-container"])
@pytest.mark.parametrize(
    ("policy", "attributes", "attached"),
    [
        ([], {}, set()),
        (GOVERNED, {}, set()),
        ([], {"allowPeerLinks": True}, set(ASKED)),
        (GOVERNED, {"policyVhost": "v"}, {("payments", "in")}),
    ],
    ids=["default", "default with a policy", "allowed", "by a policy"],
)
def test_a_server_attaches_only_what_its_connector_allows(
    routers: Routers,
    role: str,
    policy: list[Section],
    attributes: dict[str, object],
    attached: set[tuple[str, str]],
) -> None:
    """The server is a router with auto-links, which it attaches to those that connect to it."""
    port = free_port()
    auto_links: list[Section] = [
        ("autoLink", {"address": f"x{number}", "externalAddress": name, "direction": way, "containerId": "A"})
        for number, (name, way) in enumerate(ASKED)
    ]
    server = routers.start("S", listener(port, "route-container"), *auto_links)
    router = routers.start("A", connector(port, role, name="to-server", **attributes), *policy)
    server.await_status(
        lambda status: {row["state"] for row in status["autoLinks"]} <= {"active", "failed"},
        "all have been attached or refused",
    )
    states = {(row["externalAddress"], row["direction"]): row for row in server.status()["autoLinks"]}
    assert {place for place, row in states.items() if row["state"] == "active"} == attached
    if not attached:
        for row in states.values():
            assert "its connector does not allow links of the peer" in row["message"], row
    with Canary(router, address="canary/x") as canary:
        server.kill()
        router.await_status(lambda status: status["connectors"][0]["state"] != "connected", "it has gone")
    canary.report.check(at_least=1)
