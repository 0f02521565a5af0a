"""A client has thousands of links when the configuration changes: what changes for them delays no other client."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, Section, address, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, opening

LINKS = 10_000
BATCH = 500
MOST_CPU_SECONDS = 0.08
"""Of a turn. In one piece, 10,000 links that are detached take 0.6 s, and as many addresses 0.15 s."""


def attached(router: Router, flood: Flood) -> None:
    """Receivers, each from an address of its own."""
    flood.send(opening(), begin())
    for first in range(0, LINKS, BATCH):
        numbers = range(first, first + BATCH)
        flood.send(*(attach(number, f"l{number}", f"many/{number}", receiver=True) for number in numbers))
    eventually(lambda: router.metric("links", 'type="endpoint"') >= LINKS, "the links", 120)


def policy(names: str) -> list[Section]:
    rights: dict[str, Any] = {"remoteHosts": "*", "sources": names, "targets": names}
    groups = {"$default": rights}
    return [
        ("policy", {"enableVhostPolicy": True}),
        ("vhost", {"hostname": "$default", "allowUnknownUser": True, "groups": groups}),
    ]


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        pytest.param([*policy("canary*, none")], 0, id="policy"),
        pytest.param([*policy("canary*, many*"), address("many", "multicast")], LINKS, id="addresses"),
    ],
)
def test_a_changed_configuration(routers: Routers, changed: list[Section], left: int) -> None:
    port = free_port()
    router = routers.add("A", *policy("canary*, many*"), listener(port, name="more"))
    router.start()
    with Flood(port) as flood:
        attached(router, flood)
        before = len(router.log)
        with Canary(router) as canary:
            router.sections[3:5] = changed
            router.configure()
            eventually(lambda: "configuration applied" in router.log[before:], "the change is in force", 120)
        canary.report.check()
        assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
        assert router.metric("links", 'type="endpoint"') == left
