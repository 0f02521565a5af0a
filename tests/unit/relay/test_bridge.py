"""Sessions with other sites, as far as one site could take the places of others."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from isthmus_router.groups.frames import PROTOCOL_VERSION
from isthmus_router.groups.identity import MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.views import View, ViewId
from isthmus_router.places import LEAST
from isthmus_router.relay.bridge import MOST_ACCEPTED, Bridge
from isthmus_router.relay.messages import BridgeKind, Hello, kind_of, pack_hello
from isthmus_router.relay.settings import RelaySettings, RemoteSite


class Port:
    """Writes down what is sent and closed."""

    def __init__(self) -> None:
        self.answers: Counter[BridgeKind] = Counter()
        self.closed: list[str] = []

    def send(self, session: int, frame: bytes) -> None:
        self.answers[kind_of(frame)] += 1

    def close(self, session: int, reason: str) -> None:
        self.closed.append(reason)


class User:
    """Accepts everything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **fields: ""

    def hello(self, site: str) -> Hello:
        """Of this member."""
        return a_hello("own", site)


def a_hello(site: str, to_site: str) -> Hello:
    """Of another member of that site each time."""
    relay = MemberInfo(member_id(os.urandom(16)), site, (PhysicalAddress("127.0.0.1", 7800),))
    view = View(ViewId(1, relay.id), (relay,))
    return Hello(PROTOCOL_VERSION, "group", site, site, to_site, relay.id, (), view, ())


def a_bridge(port: Port, *sites: str) -> Bridge:
    """Of a relay of the site `own`."""
    settings = RelaySettings("group", "own", "own", {name: RemoteSite() for name in sites})
    bridge = Bridge(settings, port, User(), Random(1))  # type: ignore[arg-type]
    bridge.activate(0.0)
    return bridge


@pytest.mark.parametrize(("site", "to_site"), [("unknown", "own"), ("own", "own"), ("other", "third")])
def test_who_is_refused_by_name_has_nothing_else_decoded(site: str, to_site: str) -> None:
    """A HELLO of a stranger may be long."""
    port = Port()
    bridge = a_bridge(port, "other")
    bridge.opened(0.0, -1, ())
    bridge.frame(0.0, -1, pack_hello(BridgeKind.HELLO, a_hello(site, to_site))[:-20] + b"\xff" * 20)
    assert port.answers == {BridgeKind.REFUSED: 1}
    assert bridge.malformed == 0


def test_a_repeated_greeting_is_answered_at_its_rate_and_not_decoded() -> None:
    port = Port()
    bridge = a_bridge(port, "other")
    hello = pack_hello(BridgeKind.HELLO, a_hello("other", "own"))
    bridge.opened(0.0, -1, ())
    bridge.frame(0.0, -1, hello)
    for tenth in range(1, 100):
        bridge.frame(tenth / 10, -1, hello[:-20] + b"\xff" * 20)
    assert port.answers == {BridgeKind.HELLO_ACK: 1 + 33}
    assert bridge.malformed == 0
    bridge.frame(10.0, -1, pack_hello(BridgeKind.HELLO, a_hello("other", "own")))
    assert bridge.malformed == 1, "another relay"


def test_no_site_has_all_sessions() -> None:
    port = Port()
    bridge = a_bridge(port, "greedy", "other")

    def dialled(number: int, site: str) -> None:
        bridge.opened(0.0, number, ())
        bridge.frame(0.0, number, pack_hello(BridgeKind.HELLO, a_hello(site, "own")))

    for number in range(1, MOST_ACCEPTED + 100):
        dialled(-number, "greedy")
    assert port.answers == {
        BridgeKind.HELLO_ACK: MOST_ACCEPTED // 2,
        BridgeKind.REFUSED: MOST_ACCEPTED // 2 + 99,
    }
    for number in range(LEAST):
        dialled(-1000 - number, "other")
    assert port.answers[BridgeKind.HELLO_ACK] == MOST_ACCEPTED // 2 + LEAST
    for session in list(bridge.sessions.values()):
        bridge.end(1.0, session, "over")
    dialled(-2000, "greedy")
    assert len(bridge.sessions) == 1
