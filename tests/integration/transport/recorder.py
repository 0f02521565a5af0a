"""Drivers with a stack that writes down what it is told."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.integration.support.certificates import Identity

from isthmus_router.config.model import SslProfileConfig
from isthmus_router.groups.frames import HEADER_BYTES, Kind, encode_frame
from isthmus_router.groups.identity import (
    NOBODY,
    GroupName,
    MemberId,
    MemberInfo,
    PhysicalAddress,
    member_id,
)
from isthmus_router.relay.settings import Endpoint
from isthmus_router.transport.driver import MemberDriver
from isthmus_router.transport.hello import Hello
from isthmus_router.transport.settings import TransportSettings

GROUP = GroupName("orders", "nyc", "shop/nyc")
SECONDS = 10.0


async def until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Wait for something that events bring about; TimeoutError if they do not."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens in sockets and other processes
            await asyncio.sleep(0.002)


def profile(identity: Identity, **changes: Any) -> SslProfileConfig:
    """An sslProfile of these files."""
    return SslProfileConfig(
        **{
            **dict.fromkeys(
                ("ciphers", "protocols", "password", "uid_format", "uid_name_mapping_file", "crl_file")
            ),
            "name": "tls",
            "ca_cert_file": str(identity.trusted),
            "cert_file": str(identity.certificate),
            "private_key_file": str(identity.key),
            "ordinal": 1,
            "oldest_valid_ordinal": 1,
            **changes,
        }
    )


class Recorder:
    """A stack."""

    def __init__(self) -> None:
        self.deadline = math.inf
        self.frames: list[tuple[PhysicalAddress | None, bytes]] = []
        self.lost: list[tuple[PhysicalAddress, bool]] = []
        self.lost_at: list[float] = []
        """When each of these was lost."""
        self.resolved: dict[str, tuple[str, ...]] = {}
        self.gossiped: list[MemberInfo] = []
        self.suspects: list[MemberId] = []
        self.strangers: set[MemberId] = set()
        self.parts: list[MemberId | int] = []
        """Of whose frames, or those of which session, a part has come."""
        self.opened: dict[int, tuple[str, ...]] = {}
        self.bridged: list[tuple[int, bytes]] = []
        self.closed: list[tuple[int, str]] = []
        self.renewed: list[int] = []
        self.times: list[float] = []
        self.flushes = 0
        self.reaction: Callable[[bytes], None] = lambda frame: None

    def on_time(self, now: float) -> None:
        self.times.append(now)
        self.deadline = math.inf

    def flush(self, now: float) -> None:
        self.flushes += 1

    def on_frame(self, now: float, source: PhysicalAddress | None, frame: bytes) -> None:
        self.frames.append((source, frame))
        self.reaction(frame)

    def heard(self, now: float, member: MemberId) -> None:
        self.parts.append(member)

    def connection_lost(self, now: float, address: PhysicalAddress, refused: bool) -> None:
        self.lost.append((address, refused))
        self.lost_at.append(now)

    def on_resolved(self, now: float, host: str, addresses: Sequence[str]) -> None:
        self.resolved[host] = tuple(addresses)

    def on_gossip_members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        self.gossiped += infos

    def knows(self, member: MemberId) -> bool:
        return member not in self.strangers

    def on_gossip_suspect(self, now: float, member: MemberId) -> None:
        self.suspects.append(member)

    def bridge_opened(self, now: float, session: int, names: tuple[str, ...]) -> None:
        self.opened[session] = names

    def bridge_frame(self, now: float, session: int, frame: bytes) -> None:
        self.bridged.append((session, frame))

    def bridge_heard(self, now: float, session: int) -> None:
        self.parts.append(session)

    def bridge_closed(self, now: float, session: int, reason: str) -> None:
        self.closed.append((session, reason))

    def bridge_renewed(self, now: float, sessions: Sequence[int]) -> None:
        self.renewed += sessions


class Member(Recorder):
    """A driver, and the stack it drives."""

    def __init__(
        self, number: int, group: GroupName = GROUP, at: str = "127.0.0.1", name: str = "", **settings: Any
    ) -> None:
        """`at`: the IP address that it announces, and listens on if `settings` do not say where."""
        super().__init__()
        self.gone = False
        self.driver = MemberDriver(TransportSettings(**{"host": at, **settings}), Random(number))
        self.id = member_id(bytes((number,)) * 16)
        self.address = PhysicalAddress(at, self.driver.port)
        self.info = MemberInfo(self.id, name or f"member-{number}", (self.address,))
        self.driver.start(self, Hello(group, self.info))

    def announce(self, *addresses: PhysicalAddress) -> None:
        """Say from now on that it is reached there."""
        self.driver.readdress(self.info._replace(addresses=addresses))

    @property
    def endpoint(self) -> Endpoint:
        """Where its bridge listens."""
        assert self.driver.bridge_port is not None
        return Endpoint("127.0.0.1", self.driver.bridge_port)

    @property
    def bodies(self) -> list[bytes]:
        """Of the frames that have come."""
        return [frame[HEADER_BYTES:] for _, frame in self.frames]

    def read(self, paused: bool) -> None:
        """Read no more of what members send, or do so again."""
        for connection in self.driver._members._all:
            connection.pause_reading(paused)

    def frame(self, body: bytes, kind: Kind = Kind.HEARTBEAT) -> bytes:
        """One of this member, for anybody."""
        return encode_frame(kind, self.id, NOBODY, body)

    def send(self, to: Member | PhysicalAddress, body: bytes, kind: Kind = Kind.HEARTBEAT) -> None:
        """As the stack would."""
        self.driver.send(to.address if isinstance(to, Member) else to, self.frame(body, kind))

    @property
    def connections(self) -> int:
        """With other members."""
        return self.driver.connections


class Members:
    """Of one test; numbered by age, which is also the order of their ids."""

    def __init__(self) -> None:
        self._members: list[Member] = []

    def add(self, **settings: Any) -> Member:
        """Another one."""
        member = Member(len(self._members) + 1, **settings)
        self._members.append(member)
        return member

    async def close(self) -> None:
        """All of them."""
        await asyncio.gather(*(member.driver.close() for member in self._members))
