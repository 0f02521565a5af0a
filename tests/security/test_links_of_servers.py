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


def test_a_server_has_no_links_after_its_policy_was_put_out_of_force(routers: Routers) -> None:
    port = free_port()
    auto_link: Section = ("autoLink", {"address": "payments", "direction": "in", "containerId": "A"})
    server = routers.start("S", listener(port, "route-container"), auto_link)
    (_, vhost) = GOVERNED
    policy: Section = ("policy", {"enableVhostPolicy": True, "defaultVhost": "v"})
    router = routers.start(
        "A", connector(port, "route-container", name="to-server", policyVhost="v"), policy, vhost
    )
    server.await_status(lambda status: status["autoLinks"][0]["state"] == "active", "the policy allows it")
    policy[1]["enableVhostPolicy"] = False
    router.configure()
    server.await_status(lambda status: status["autoLinks"][0]["state"] == "failed", "the link is detached")
    assert "its connector does not allow links of the peer" in server.status()["autoLinks"][0]["message"]


@pytest.mark.parametrize("role", ["normal", "route-container"])
@pytest.mark.parametrize(
    ("policy", "attributes", "attached"),
    [
        ([], {}, set()),
        (GOVERNED, {}, set()),
        ([], {"allowPeerLinks": True}, set(ASKED)),
        (GOVERNED, {"policyVhost": "v"}, {("payments", "in")}),
        (GOVERNED[1:], {"policyVhost": "v"}, set()),
    ],
    ids=["default", "default with a policy", "allowed", "by a policy", "by a policy that is not in force"],
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
