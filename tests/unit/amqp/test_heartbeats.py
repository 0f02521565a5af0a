"""Connections that ask for heartbeats take their turns: those that are due together do not hold others back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from tests.integration.support.raw import AMQP_HEADER, OPEN, frame
from tests.unit.amqp.rig import End, Rig

from isthmus_router.amqp import driver
from isthmus_router.core.roles import Role
from isthmus_router.message.types import UInt, UShort

CONNECTIONS = 200
IDLE_TIMEOUT_MS = 500
DUE_SECONDS = 0.3
"""More than half of the time-out."""
MOST_AT_ONCE = 40
HEARTBEAT = bytes.fromhex("0000000802000000")


class Steps:
    """A clock by which each step of long work takes most of a slice."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += driver.TURN_SECONDS * 0.75
        return self.now


class Beating(End):
    """A client that asks for heartbeats, and does nothing else."""

    def __init__(self, rig: Rig, name: str) -> None:
        super().__init__(rig, name, Role.NORMAL)
        fields = [name, None, UInt(65536), UShort(10), UInt(IDLE_TIMEOUT_MS)]
        self._unsaid = AMQP_HEADER + frame(OPEN, fields)

    def _say(self) -> bool:
        said, self._unsaid = self._unsaid, b""
        if said:
            self.socket.sendall(said)
        return bool(said)


def connect(rig: Rig, count: int) -> list[Beating]:
    peers = [Beating(rig, f"beating-{number}") for number in range(count)]
    rig.peers += peers  # type: ignore[arg-type]
    rig.settle_down()
    return peers


def hold_up(rig: Rig) -> None:
    """Have the engines see the time-outs, and keep the loop until heartbeats are due."""
    rig.loop.run_until_complete(asyncio.sleep(0.05))
    end = time.monotonic() + DUE_SECONDS
    while (left := end - time.monotonic()) > 0:
        time.sleep(left)


def beats(rig: Rig, peers: list[Beating]) -> list[int]:
    """Run the loop until each peer has a heartbeat: how many were written in each turn of the loop."""
    counts = [0]
    flush = rig.driver.flush

    def counted() -> None:
        counts[-1] += len(rig.driver.forwarder.dirty)
        flush()

    async def watch(arrived: Callable[[], bool]) -> None:
        while not arrived():
            await asyncio.sleep(0)
            counts.append(0)

    def arrived() -> bool:
        if sum(counts) < len(peers):
            return False
        rig.settle_down()
        return all(HEARTBEAT in peer.heard for peer in peers if not peer.router_side.closed)

    with patch.object(rig.driver, "flush", counted):
        rig.loop.run_until_complete(asyncio.wait_for(watch(arrived), 60))
    return counts


def test_those_that_are_due_together_take_turns(rig: Rig) -> None:
    peers = connect(rig, CONNECTIONS)
    hold_up(rig)
    with patch.object(driver, "time", Steps()):
        counts = beats(rig, peers)
    assert max(counts) <= MOST_AT_ONCE


def test_an_error_of_one_costs_the_others_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    peers = connect(rig, 5)
    hold_up(rig)
    broken = peers[2].router_side

    def fail() -> Any:
        raise RuntimeError("broken")

    with patch.object(broken, "tick", fail):
        beats(rig, peers)
    assert broken.close_reason
    assert [peer for peer in peers if HEARTBEAT in peer.heard and peer.router_side is not broken]
    assert [record for record in caplog.records if record.levelno == logging.ERROR]
    for peer in peers:
        peer.heard.clear()
    hold_up(rig)
    beats(rig, [peer for peer in peers if peer.router_side is not broken])


def test_nothing_is_left_of_connections_that_have_ended(rig: Rig) -> None:
    """However long their time-outs are."""
    staying = connect(rig, 10)
    for _ in range(20):
        for peer in connect(rig, 20):
            peer.drop()
            rig.peers.remove(peer)  # type: ignore[arg-type]
    heartbeats = rig.driver.heartbeats
    assert len(heartbeats._times) == len(staying)
    assert len(heartbeats._due) <= 150
    hold_up(rig)
    beats(rig, staying)
