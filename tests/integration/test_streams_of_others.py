"""Messages that clients begin for receivers that do not take them: those of other clients pass between the routers."""

from __future__ import annotations

import time

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    FLOW,
    OPEN,
    TRANSFER,
    RawConnection,
    frame,
    value_section,
)
from tests.integration.support.routers import Router, Routers
from tests.integration.support.topology import Network

from isthmus_router.message.types import Described, UInt, ULong, UShort

SESSIONS = 40
"""That a router allows another one."""
WINDOW = 8
"""Frames, of each session."""
STREAMS = 120
PIECE = bytes(15_000)
PIECES = 26
"""More than the other router stores and than fits into the window of a session."""
BEGINNING = value_section(b"\xb0\x00\xff\xff\xff")
LARGE = UInt(2**31 - 1)


class Greedy(RawConnection):
    """Begins messages in sessions of their own, as far as their windows allow it, and does not end them."""

    def __init__(self, router: Router) -> None:
        super().__init__(router.port, address="127.0.0.2")
        self.limits = dict.fromkeys(range(STREAMS), 0)
        self.begun = dict.fromkeys(range(STREAMS), 0)
        self.send(AMQP_HEADER, frame(OPEN, ["greedy", None, UInt(65536), UShort(STREAMS)]))
        for channel in self.begun:
            termini = Described(ULong(0x28), []), Described(ULong(0x29), ["credit/slow"])
            attach = [f"{channel}", UInt(0), False, None, None, *termini, None, None, UInt(0)]
            self.send(
                frame(BEGIN, [None, UInt(0), LARGE, LARGE], channel=channel),
                frame(ATTACH, attach, channel=channel),
            )
        self.expect(ATTACH, STREAMS)

    def go_on(self) -> bool:
        """Send what may be sent; whether there was anything."""
        for one in self.rest():
            if one.code == FLOW:
                self.limits[one.channel] = int(one.field(0) or 0) + int(one.field(1))
        before = dict(self.begun)
        for channel, count in before.items():
            for number in range(count, min(PIECES, self.limits[channel])):
                payload = BEGINNING + PIECE if number == 0 else PIECE
                transfer = [UInt(0), UInt(0), b"0", UInt(0), False, True]
                self.send(frame(TRANSFER, transfer, payload, channel=channel))
                self.begun[channel] += 1
        return self.begun != before


@pytest.mark.parametrize("line", ["AB", "AMB"])
def test_messages_without_an_end_leave_sessions_for_others(
    clients: Clients, routers: Routers, line: str
) -> None:
    network = Network(routers)
    network.line(*line)
    for router in routers.all.values():
        for kind, section in router.sections:
            if kind in {"listener", "connector"} and section.get("role") == "inter-router":
                section.update(maxSessions=SESSIONS, maxSessionFrames=WINDOW)
    network.start()
    far, near = network["A"], network["B"]
    clients.connect(far.port).receiver("credit/slow")
    receiver = clients.connect(far.port).receiver("credit/other", credit=100, accept=True)
    other = clients.connect(near.port).sender("credit/other").await_credit()
    clients.connect(near.port).sender("credit/slow").await_credit()
    with Greedy(near) as greedy:
        quiet = 0
        while quiet < 10:
            quiet = 0 if greedy.go_on() else quiet + 1
            time.sleep(0.05)
        assert sum(count >= 4 for count in greedy.begun.values()) > SESSIONS // 4
        for _ in range(6):
            assert other.deliver("x" * 300_000) == "accepted"
    assert len(receiver.received) == 6
