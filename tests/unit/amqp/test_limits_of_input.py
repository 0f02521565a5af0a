"""What a peer can make the router keep or do by one frame, or by answers that it does not read."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integration.support.raw import ATTACH, CLOSE, DETACH, DISPOSITION, OPEN, TRANSFER, frame
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import performatives

from isthmus_router.amqp import connection
from isthmus_router.amqp.connection import MOST_OWED
from isthmus_router.core.roles import Role
from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort

SOURCE, TARGET, REJECTED, MODIFIED, ERROR = (ULong(code) for code in (0x28, 0x29, 0x25, 0x27, 0x1D))
MESSAGE = b"\x00\x53\x77\xa1\x01x"


def peer(rig: Rig, name: str = "peer") -> RawPeer:
    """A client with a session on channel 0."""
    peer = RawPeer(rig, name, Role.NORMAL)
    rig.peers.append(peer)  # type: ignore[arg-type]
    rig.settle_down()
    return peer


def attach(name: str, handle: int, *, receiver: bool, address: str, properties: Any = None) -> bytes:
    source = Described(SOURCE, [address if receiver else None])
    target = Described(TARGET, [None if receiver else address])
    fields = [name, UInt(handle), receiver, None, None, source, target, None, None, UInt(0)]
    return frame(ATTACH, [*fields, None, None, None, properties])


def errors(peer: RawPeer, code: int) -> list[Any]:
    """Names of the conditions in frames of a kind, whose only field, or third one, is an error."""
    found = [fields[-1] for fields in performatives(bytes(peer.heard), code) if fields]
    return [one.value[0] if isinstance(one, Described) else None for one in found]


@pytest.mark.parametrize(("count", "closed"), [(49, False), (50, True)])
def test_the_properties_of_a_link_have_at_most_a_hundred_values(rig: Rig, count: int, closed: bool) -> None:
    """The engine keeps them decoded as long as the link is attached. A map counts, and its keys and values."""
    client = peer(rig)
    properties = {Symbol(f"k{number}"): number for number in range(count)}
    client.say(attach("link", 0, receiver=True, address="here", properties=properties))
    rig.settle_down()
    assert errors(client, CLOSE) == ([Symbol("amqp:decode-error")] if closed else [])


@pytest.mark.parametrize(("size", "whole"), [(1000, True), (1100, False), (16_000, False)])
@pytest.mark.parametrize("kind", ["description", "info", "annotations"])
def test_an_outcome_passes_with_little_detail(rig: Rig, kind: str, size: int, whole: bool) -> None:
    """One disposition can name thousands of deliveries, and each of them gets a copy."""
    detail = "d" * (size - 64)
    sender, receiver = peer(rig, "sender"), peer(rig, "receiver")
    receiver.say(attach("in", 0, receiver=True, address="here"))
    receiver.flow(0, 0, 10, False, 0)
    sender.say(attach("out", 0, receiver=False, address="here"))
    rig.settle_down()
    sender.say(frame(TRANSFER, [UInt(0), UInt(0), b"t", UInt(0), False], MESSAGE))
    rig.settle_down()
    outcome = {
        "description": Described(REJECTED, [Described(ERROR, [Symbol("amqp:some"), detail])]),
        "info": Described(
            REJECTED, [Described(ERROR, [Symbol("amqp:some"), "short", {Symbol("key"): detail}])]
        ),
        "annotations": Described(MODIFIED, [True, None, {Symbol("key"): detail}]),
    }[kind]
    del sender.heard[:]
    receiver.say(frame(DISPOSITION, [True, UInt(0), UInt(0), True, outcome]))
    rig.settle_down()
    assert b"amqp:some" in sender.heard or kind == "annotations"
    ((*_, state),) = [fields[:5] for fields in performatives(bytes(sender.heard), DISPOSITION)]
    assert state.descriptor == outcome.descriptor
    assert (detail.encode() in sender.heard) is whole
    assert len(sender.heard) < 1024 + 100


def test_two_open_frames_in_one_piece_count_as_one(rig: Rig) -> None:
    """The router sees the fields of the second; a third one that comes later ends the connection."""

    class Hasty(RawPeer):
        def begin(self, channel: int) -> None:
            self.say(frame(OPEN, ["second", None, UInt(65536), UShort(10)]) if not channel else b"")

    hasty = Hasty(rig, "first", Role.NORMAL)
    rig.peers.append(hasty)  # type: ignore[arg-type]
    rig.settle_down()
    assert not list(performatives(bytes(hasty.heard), CLOSE))
    assert [each.container for each in rig.core.connections.values()] == ["second"]
    hasty.say(frame(OPEN, ["third", None, UInt(65536), UShort(10)]))
    rig.settle_down()
    assert errors(hasty, CLOSE) == [Symbol("amqp:not-allowed")]


class Deaf(RawPeer):
    """One that reads nothing of what the router writes."""

    def turn(self) -> bool:
        moved = self._say()
        if not self.router_side.closed and self.router_side.unfinished:
            moved = True
        self.rig.driver.turn()
        return moved


@pytest.mark.parametrize("reads", [False, True])
def test_a_router_that_leaves_many_answers_unread_is_closed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """Long names count more. One that reads, however late, is not closed."""
    monkeypatch.setattr(connection, "ROUTER_MOST_OWED", 5000)
    edge = Deaf(rig, "deaf", Role.EDGE)
    edge.router_side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    rig.peers.append(edge)  # type: ignore[arg-type]
    rig.settle_down()
    for number in range(4000):
        edge.say(attach(f"link {number}" + 1024 * "x", 0, receiver=True, address="here"))
        edge.say(frame(DETACH, [UInt(0), True]))
    for _ in range(2000):
        edge.turn()
        if reads:
            RawPeer.turn(edge)
    assert bool(edge.router_side.close_reason) is not reads
    if not reads:
        assert "not read" in edge.router_side.close_reason
        assert edge.router_side.owed < 5100


def test_a_client_that_leaves_a_thousand_answers_unread_is_read_no_further(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it reads them, or the idle time-out ends the connection."""
    client = Deaf(rig, "deaf", Role.NORMAL, idle_timeout_seconds=8)
    client.router_side.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    rig.peers.append(client)  # type: ignore[arg-type]
    rig.settle_down()
    side = client.router_side
    for number in range(6000):
        client.say(attach(f"link {number}", 0, receiver=True, address="here"))
        client.say(frame(DETACH, [UInt(0), True]))
    for _ in range(200):
        client.turn()
    assert side.write_blocked
    assert MOST_OWED <= side.owed < 2 * MOST_OWED
    now = time.monotonic()
    monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=lambda: now))
    side.tick()
    assert not side.closed
    now += 8.1
    side.tick()
    assert side.closed
    assert "idle" in side.close_reason or "timeout" in side.close_reason


@pytest.mark.parametrize("aborted", [False, True])
def test_nothing_is_written_after_a_transfer_backwards_and_a_part_of_a_frame(rig: Rig, aborted: bool) -> None:
    """The engine would wait for the rest of the frame, and go on with deliveries that are mixed up."""
    client = peer(rig)
    client.say(attach("in", 0, receiver=True, address="here"))
    client.flow(0, 0, 10, False, 0)
    rig.settle_down()
    before = len(client.heard)
    fields = [UInt(0), UInt(0), b"t", UInt(0), False, None, None, None, None, aborted]
    client.say(frame(TRANSFER, fields, MESSAGE) + frame(CLOSE, [])[:-1])
    rig.settle_down()
    assert client.router_side.closed
    assert client.router_side.close_reason.startswith("amqp:not-allowed")
    assert len(client.heard) == before
