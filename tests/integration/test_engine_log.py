"""What the engine reports is in the log of the router, and nowhere else."""

from __future__ import annotations

import json
import socket

import pytest
from tests.integration.support.raw import AMQP_HEADER, CLOSE, OPEN, frame
from tests.integration.support.routers import Routers

from isthmus_router.message.types import UInt


@pytest.mark.parametrize("shown", [False, True], ids=["by default", "debug"])
def test_remarks_that_a_peer_causes(routers: Routers, shown: bool) -> None:
    sections = (("log", {"module": "PROTOCOL", "enable": "debug+"}),) if shown else ()
    router = routers.start("A", *sections)
    with socket.create_connection(("localhost", router.port), timeout=90) as sock:
        sock.sendall(AMQP_HEADER + frame(OPEN, ["tiny", "localhost", UInt(4)]) + frame(CLOSE, []))
        while sock.recv(65536):
            pass
    router.stop()  # which fails if anything in the log is no JSON
    lines = [json.loads(line) for line in router.log.splitlines()]
    told = [line for line in lines if line.get("event") == "engine.report"]
    assert ["max-frame" in line["reason"] for line in told] == [True] * shown


def test_frames_are_traced_on_request(routers: Routers) -> None:
    router = routers.add("A")
    router.environment["PN_LOG"] = "frame"
    router.start()
    with socket.create_connection(("localhost", router.port), timeout=90) as sock:
        sock.sendall(AMQP_HEADER + frame(OPEN, ["traced", "localhost"]) + frame(CLOSE, []))
        while sock.recv(65536):
            pass
    router.stop()
    assert '@open(16) [container-id="traced"' in router.log
