"""Connections of a container that has many auto-links open and end again and again: others have their turns, and the
router attaches nothing on connections that have ended."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from tests.integration.support.by_hand import open_frame
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER
from tests.integration.support.routers import Router, Routers, Section, eventually, listener
from tests.security.support.canary import Canary

pytestmark = pytest.mark.timeout(300)

MOST_CPU_SECONDS = 0.025
"""A third of what 500 auto-links took when the router attached them in one piece."""
SECONDS = 4.0
ENDED = 150


def auto_links(number: int) -> list[Section]:
    return [
        ("autoLink", {"address": f"q{count}", "direction": ("in", "out")[count % 2], "containerId": "broker"})
        for count in range(number)
    ]


def link_routes(number: int) -> list[Section]:
    return [
        ("linkRoute", {"prefix": f"q{count}", "direction": "both", "containerId": "broker"})
        for count in range(number)
    ]


def connections(port: int, number: int, opened: contextlib.ExitStack) -> None:
    """Open connections of the container, which answers nothing."""
    for _ in range(number):
        connection = opened.enter_context(socket.create_connection(("localhost", port)))
        connection.sendall(AMQP_HEADER + open_frame("broker"))


def start(routers: Routers, sections: list[Section]) -> tuple[Router, int]:
    port = free_port()
    return routers.start("A", listener(port, "route-container", name="containers"), *sections), port


@pytest.mark.parametrize(
    ("sections", "number", "pause"),
    [(auto_links(500), 1, 0.1), (auto_links(100), 60, 0.1), (link_routes(500), 60, 0.1)],
    ids=["many auto-links", "many connections", "many link routes"],
)
def test_connections_that_open_again_and_again(
    routers: Routers, sections: list[Section], number: int, pause: float
) -> None:
    router, port = start(routers, sections)
    with Canary(router) as canary:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            with contextlib.ExitStack() as opened:
                connections(port, number, opened)
                time.sleep(pause)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_connections_that_end_together(routers: Routers) -> None:
    router, port = start(routers, auto_links(500))
    with Canary(router) as canary:
        with contextlib.ExitStack() as opened:
            connections(port, ENDED, opened)
            eventually(lambda: router.metric("connections") >= ENDED + 2, "the connections are open")
            time.sleep(2)  # seconds, in which auto-links are attached
        eventually(lambda: router.metric("connections") == 2, "the connections are those of the canary", 5)
        assert router.metric("auto_links", 'state="inactive"') == 500
        eventually(
            lambda: router.metric("links", 'type="endpoint"') == 2, "the links are those of the canary", 20
        )
        time.sleep(2)  # longer than it takes until a link that is detached is attached again
        assert router.metric("links", 'type="endpoint"') == 2
    canary.report.check()
    assert canary.report.most_cpu_seconds < 2 * MOST_CPU_SECONDS, canary.report  # 150 connections end as well
    assert "auto-link not attached" not in router.log
