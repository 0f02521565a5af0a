"""An edge attaches very many receivers of one address, for which other edges send: others do not wait for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import attach, begin, detach
from tests.security.test_links_of_edges import Edge

pytestmark = pytest.mark.timeout(600)

RECEIVERS, SENDERS, OF_A_SESSION, CHANGES = 20_000, 16, 200, 20
MOST_CPU_SECONDS = 0.04
PATIENCE = 120
KEY = "k" * 43


@pytest.mark.parametrize("key", [KEY, "o" * 43], ids=["of the same edge", "of another edge"])
def test_a_receiver_that_comes_and_goes(compiled_kernel: Callable[[], Routers], key: str) -> None:
    port = free_port()
    router = compiled_kernel().start("A", listener(port, "edge", name="edges"), mode="interior")

    with Edge(port, KEY) as receiving, Edge(port, key) as sending:
        for first in range(0, RECEIVERS, OF_A_SESSION):
            channel = 10 + first // OF_A_SESSION
            receiving.send(begin(channel), *(receiver(first + n, n, channel) for n in range(OF_A_SESSION)))
        sending.send(*(attach(n, f"sender{n}", "shared") for n in range(SENDERS)))
        await_answer(receiving, f"receiver{RECEIVERS - 1}")
        await_answer(sending, f"sender{SENDERS - 1}")
        with Canary(router) as canary:
            for number in range(CHANGES):
                receiving.send(receiver(RECEIVERS + number, number, 0))
                await_answer(receiving, f"receiver{RECEIVERS + number}")
                receiving.send(detach(number))
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def receiver(number: int, handle: int, channel: int) -> bytes:
    return attach(handle, f"receiver{number}", "shared", receiver=True, channel=channel)


def await_answer(edge: Edge, link: str) -> None:
    eventually(lambda: link.encode() in edge.tail, f"{link} is attached", PATIENCE)
