"""Sessions with other sites, as far as one site could take the places of others."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

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


def test_no_site_has_all_sessions() -> None:
    port = Port()
    sites = {name: RemoteSite() for name in ("greedy", "other")}
    bridge = Bridge(RelaySettings("group", "own", "own", sites), port, User(), Random(1))  # type: ignore[arg-type]
    bridge.activate(0.0)

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
