"""What the attaches of a connection say has a bound in bytes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.support.raw import ATTACH, frame
from tests.unit.amqp.raw_peer import RawPeer
from tests.unit.amqp.rig import Rig

from isthmus_router.amqp import sessions
from isthmus_router.core.roles import Role
from isthmus_router.message.types import Described, Symbol, UInt, ULong

LONG, MOST = 4000, 10
LARGE: dict[str, tuple[str, list[Any], list[Any], dict[Any, Any] | None]] = {
    "name": ("n" * LONG, ["x"], [], None),
    "source": ("", ["x" * LONG], [], None),
    "target": ("", ["x"], ["y" * LONG], None),
    "filter": ("", ["x", *[None] * 6, {Symbol("f"): "z" * LONG}], [], None),
    "capability": ("", ["x"], [None] * 6 + [Symbol("c" * LONG)], None),
    "properties": ("", ["x"], [], {Symbol("p"): "z" * LONG}),
}


@pytest.fixture
def peer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> RawPeer:
    monkeypatch.setattr(sessions, "MOST_BYTES_OF_CLIENT", MOST * (LONG + 100))
    monkeypatch.setattr(sessions, "WEIGHT_OF_LONG_NAME", 1)
    peer = RawPeer(rig, "client", Role.NORMAL)
    rig.peers.append(peer)
    rig.settle_down()
    return peer


def attach(peer: RawPeer, handle: int, large: str, channel: int = 0) -> None:
    """A receiver with something large in its attach."""
    name, source, target, properties = LARGE[large]
    termini = [Described(ULong(0x28), source), Described(ULong(0x29), target)]
    fields = [f"{name}{channel}.{handle}", UInt(handle), True, None, None, *termini, None, None, UInt(0)]
    peer.say(frame(ATTACH, [*fields, None, None, None, properties], channel=channel))


def attached(peer: RawPeer) -> int:
    """Links that the router has."""
    return len(peer.router_side.links)


@pytest.mark.parametrize("large", LARGE)
def test_links_beyond_the_bound_are_refused(rig: Rig, peer: RawPeer, large: str) -> None:
    for handle in range(MOST + 3):
        attach(peer, handle, large)
    rig.settle_down()
    assert attached(peer) == MOST
    assert b"amqp:resource-limit-exceeded" in peer.heard
    assert not peer.router_side.closed
    for handle in range(MOST + 3):  # refused links count until the peer has detached them
        peer.detach(0, handle, closed=True)
    rig.settle_down()
    assert attached(peer) == 0
    for handle in range(MOST):
        attach(peer, handle, large, channel=1)
    rig.settle_down()
    assert attached(peer) == MOST
    peer.end(1)
    rig.settle_down()
    peer.begin(1)
    attach(peer, 0, large, channel=1)
    rig.settle_down()
    assert attached(peer) == 1


def test_long_names_count_more(rig: Rig, peer: RawPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine compares each with that of an attach if they are equally long."""
    monkeypatch.setattr(sessions, "WEIGHT_OF_LONG_NAME", 5)
    for handle in range(3):
        attach(peer, handle, "name")
    rig.settle_down()
    assert attached(peer) == 2
    assert b"amqp:resource-limit-exceeded" in peer.heard


def test_a_connection_whose_refused_links_stay_is_closed(rig: Rig, peer: RawPeer) -> None:
    for handle in range(2 * MOST + 2):
        attach(peer, handle, "name")
    rig.settle_down()
    assert peer.router_side.core is None
    assert attached(peer) == 0
    attach(peer, 2 * MOST + 2, "name")
    rig.settle_down()
    assert peer.router_side.closed


def test_a_router_has_room_for_more(rig: Rig, peer: RawPeer) -> None:
    edge = RawPeer(rig, "edge", Role.EDGE)
    rig.peers.append(edge)
    rig.settle_down()
    for handle in range(MOST + 3):
        attach(edge, handle, "name")
    rig.settle_down()
    assert attached(edge) == MOST + 3
