"""Frames that a seed makes up, at the bridge and member ports of a router: it survives, keeps nothing, goes on."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.sites.support.relay_sites import GROUP, RelaySites
from tests.integration.support.routers import Routers

from isthmus_router.groups.frames import Kind, encode_body, encode_frame
from isthmus_router.groups.identity import NOBODY, GroupName, MemberId, MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.membership.messages import encode_member, encode_view
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.messages import BridgeKind, pack, pack_hello, view_fields
from isthmus_router.relay.messages import Hello as BridgeHello
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.hello import Hello, encode_hello

ATTACKS = 300
"""Connections."""
FRAMES = 40
WARM_UP = 100
GROWTH_BYTES = 24 * 1024 * 1024
STRANGER = MemberInfo(member_id(b"m" * 16), "mallory", (PhysicalAddress("127.0.0.1", 1),))
NUMBERS = (-1, 0, 1, 2, 3, 7, 255, 65_536, 1 << 31, 1 << 40, (1 << 62) + 1, (1 << 63) - 1)
DOMAIN = f"{GROUP}/nyc"


class Inventor:
    """Makes frames up: fields that could be meant, in places where they are not, and bytes."""

    def __init__(self, seed: int, known: list[MemberId]) -> None:
        self._random = random.Random(seed)
        self._known = [*known, STRANGER.id, NOBODY]

    def member_frame(self) -> bytes:
        """Of the stranger, to somebody."""
        kind = self._random.choice(list(Kind))
        to = self._random.choice([NOBODY, NOBODY, *self._known])
        return self._damaged(encode_frame(kind, STRANGER.id, to, self._body()), 33)

    def bridge_frame(self) -> bytes:
        """Of a relay."""
        kind = self._random.choice(list(BridgeKind))
        if self._random.random() < 0.5:
            return self._damaged(pack(kind, *self._fields()), 1)
        return self._damaged(bytes((kind,)) + self._body(), 1)

    def _body(self) -> bytes:
        choice = self._random.randrange(3)
        if choice == 0:
            return self._random.randbytes(self._random.randrange(100))
        if choice == 1:
            return b"".join(
                self._id() + struct.pack(">Q", self._number() & (1 << 64) - 1)
                for _ in range(self._random.randrange(6))
            )
        return encode_body(*self._fields())

    def _fields(self) -> list[object]:
        group = [1, [GROUP, "nyc", DOMAIN]] if self._random.random() < 0.3 else []
        return [*group, *(self._value(0) for _ in range(self._random.randrange(8)))]

    def _value(self, depth: int) -> object:
        choices: list[Any] = [
            self._number,
            self._id,
            lambda: self._random.choice(["", "nyc", "sfo", "lon", "x" * 300, "\u00fc"]),
            lambda: self._random.choice([True, False, None]),
            lambda: self._random.randbytes(self._random.randrange(40)),
            lambda: [self._number(), self._id()],
            lambda: encode_member(self._info()),
            lambda: encode_view(self._view()),
            lambda: view_fields(self._view()),
            lambda: ["127.0.0.1", self._number()],
        ]
        if depth < 3:
            choices += [self._list(depth)] * 4
        return self._random.choice(choices)()

    def _list(self, depth: int) -> Any:
        return lambda: [self._value(depth + 1) for _ in range(self._random.randrange(5))]

    def _info(self) -> MemberInfo:
        port = self._random.choice([0, 1, 7800])
        return MemberInfo(MemberId(self._id()), "made up", (PhysicalAddress("127.0.0.1", port),))

    def _view(self) -> View:
        infos = tuple(self._info() for _ in range(self._random.randrange(4)))
        return View(ViewId(abs(self._number()), MemberId(self._id())), infos)

    def _number(self) -> int:
        return self._random.choice(NUMBERS)

    def _id(self) -> bytes:
        if self._random.random() < 0.1:
            return self._random.randbytes(self._random.choice([0, 15, 16, 17]))
        return self._random.choice(self._known)

    def _damaged(self, frame: bytes, header: int) -> bytes:
        """Now and then."""
        data = bytearray(frame)
        if len(data) > header and self._random.random() < 0.3:
            for _ in range(self._random.randrange(1, 4)):
                data[self._random.randrange(header, len(data))] ^= 1 << self._random.randrange(8)
        return bytes(data)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelaySites]:
    """nyc and sfo; nyc expects lon as well, which is what the stranger says that it is."""
    routers = Routers(tmp_path_factory.mktemp("fuzz"))
    sites = RelaySites()
    sites.site("nyc", routers.add("nyc-0"), routers.add("nyc-1"))
    sites.site("sfo", routers.add("sfo-0"))
    sites.direct("nyc", "sfo")
    for router in sites.members["nyc"]:
        router.sections.append(("relayRemote", {"site": "lon"}))
    routers.start_all()
    sites.formed()
    yield sites
    routers.stop()


def attack(port: int, frames: list[bytes]) -> None:
    """Say all that is wanted, without waiting for answers; the router may end the connection at any moment."""
    with socket.create_connection(("127.0.0.1", port), 10) as sock, contextlib.suppress(OSError):
        sock.sendall(b"".join(PREFIX.pack(len(frame)) + frame for frame in frames))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass


def hello_of(port: str) -> bytes:
    """What lets the stranger in."""
    if port == "memberPort":
        return encode_hello(Hello(GroupName(GROUP, "nyc", DOMAIN), STRANGER))
    view = View(ViewId(3, STRANGER.id), (STRANGER,))
    hello = BridgeHello(1, GROUP, "lon", f"{GROUP}/lon", "nyc", STRANGER.id, (), view, ())
    return pack_hello(BridgeKind.HELLO, hello)


@pytest.mark.parametrize("port", ["memberPort", "bridgePort"])
def test_made_up_frames(sites: RelaySites, port: str) -> None:
    relay = sites.relay("nyc")
    number = next(values[port] for kind, values in relay.sections if kind == "relaySite")
    known = [MemberId(bytes.fromhex(each["id"])) for each in relay.status()["relay"]["members"]]
    hello = hello_of(port)
    memory = 0
    for seed in range(ATTACKS):
        inventor = Inventor(seed, known)
        make = inventor.member_frame if port == "memberPort" else inventor.bridge_frame
        attack(number, [hello, *(make() for _ in range(FRAMES))])
        if seed == WARM_UP:
            memory = relay.memory()
    assert relay.memory() < memory + GROWTH_BYTES
    for router in (*sites.members["nyc"], *sites.members["sfo"]):
        assert "event not handled" not in router.log
    sites.formed()
