"""A client makes the router compare long patterns and long addresses with a policy that has many patterns.

`most_cpu_seconds` of the canary is the CPU time that the router spent on anything while one message was on its way.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from proton import Message
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.policies import ENABLED, vhost
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening

MADE = "router.connection.linkRoute"
MOST_CPU_SECONDS = 0.12
OF_OTHERS = [f"#/x/#/audit{number}/#" for number in range(100)] + [
    f"*/orders{number}/#" for number in range(20)
]
ROUTES = 60
LONG = ["x." * 2047 + "z", "x" + "." * 4000 + "z"]
"""Addresses that none of the patterns match, and begin to match in each place."""


@pytest.fixture
def router(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a policy, to which everybody connects without a login."""
    patterns = ["mine/#", "canary/#", "$management", *OF_OTHERS]
    rights = {"sourcePattern": patterns, "targetPattern": patterns}
    everybody = {"remoteHosts": "*", "allowDynamicSource": True, "allowAnonymousSender": True, **rights}
    return either_kernel().start(
        "A", ENABLED, vhost(groups={"$default": everybody}, allowUnknownUser=True), management="basic"
    )


def test_link_routes_of_patterns_with_many_wildcards(router: Router, clients: Clients) -> None:
    manager = Manager(clients.connect(router.port))
    with Canary(router) as canary:
        for number in range(ROUTES):
            pattern = f"mine.{number}" + ".#.a" * 6
            answer = manager.request("CREATE", {"pattern": pattern, "direction": "in"}, type=MADE)
            assert answer.properties["statusCode"] == 201, answer.properties["statusDescription"]
            answer = manager.request("CREATE", {"pattern": pattern[5:], "direction": "in"}, type=MADE)
            assert answer.properties["statusCode"] == 403
    canary.report.check()
    assert canary.report.cpu_p99 < MOST_CPU_SECONDS / 2, canary.report
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_link_route_that_takes_too_long_to_compare(router: Router, clients: Clients) -> None:
    manager = Manager(clients.connect(router.port))
    pattern = ".".join(["#.x"] * 240) + "." + "z" * 2500
    answer = manager.request("CREATE", {"pattern": pattern, "direction": "in"}, type=MADE)
    assert answer.properties["statusCode"] == 403
    assert "use fewer '#'" in answer.properties["statusDescription"]


def test_receivers_of_long_addresses(router: Router) -> None:
    with Flood(router.port) as client, Canary(router) as canary:
        client.send(opening(), begin())
        client.send(*(attach(n, f"l{n}", LONG[n % 2], receiver=True) for n in range(50)))
        router.await_log('"link":"l49"', "amqp:unauthorized-access")
    canary.report.check()
    assert canary.report.cpu_p99 < MOST_CPU_SECONDS / 2, canary.report
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_messages_to_long_addresses(router: Router, clients: Clients) -> None:
    sender = clients.connect(router.port).sender(None).await_credit()
    with Canary(router) as canary:
        for number in range(50):
            assert sender.deliver(Message(address=LONG[number % 2], body=number)) == "rejected"
    canary.report.check()
    assert canary.report.cpu_p99 < MOST_CPU_SECONDS / 2, canary.report
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
