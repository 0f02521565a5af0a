"""Members that flood their group through a gossip router, each with a certificate, or an address, of its own.

What counts is how much of the flood a receiver has to read before a message of another member.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.gossip.support import GROUP, GossipRouter, Peer, eventually, info
from tests.integration.support.certificates import Authority
from tests.security.test_gossip_router import Reader, context

from isthmus_router.gossip.messages import Register, encode_message, is_message, route_of
from isthmus_router.groups.identity import MemberInfo

MESSAGES = 10
BACKLOG_BYTES = 4_000_000
"""Of memory, in messages of the attacker that wait."""
READ_BYTES = 1 << 12
PAUSE_SECONDS = 0.002
MOST_BETWEEN_BYTES = 3_000_000
"""That the receiver reads before a message. Its system, that of the router and the event loop have a million."""


class Flood:
    """A connection that sends the same frames to a receiver, as fast as the router reads them."""

    def __init__(self, peer: Peer, member: MemberInfo, to: MemberInfo, frame: bytes) -> None:
        frames = encode_message(GROUP, to.id, member.id, frame)
        self._data = frames * max(1, (1 << 18) // len(frames))
        self._peer = peer
        self._reader = Reader(peer)
        self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                self._peer.writer.write(self._data)
                await self._peer.writer.drain()

    def stop(self) -> None:
        self._task.cancel()
        self._reader.stop()


class Slow:
    """A receiver that reads less than is sent to it, and counts the messages of each sender."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.messages: Counter[bytes] = Counter()
        self.bytes = 0
        self.news = asyncio.Event()
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while data := await self._peer.reader.read(READ_BYTES):
            self._peer._frames.feed(data)
            for frame in self._peer._frames.cut(len(data), len(data)):
                if is_message(frame):
                    self.messages[route_of(frame)[2]] += 1
            self.bytes += len(data)
            self.news.set()
            await asyncio.sleep(PAUSE_SECONDS)

    async def count(self, sender: bytes, number: int) -> None:
        """Return when so many messages of that sender have been read."""
        async with asyncio.timeout(60):
            while self.messages[sender] < number:
                self.news.clear()
                await self.news.wait()


@pytest.fixture(params=["address", "certificate"])
async def router(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[tuple[GossipRouter, Authority | None]]:
    authority = Authority(tmp_path, "own") if request.param == "certificate" else None
    identity = None if authority is None else authority.issue("gossip", "localhost")
    found = GossipRouter(tmp_path, identity=identity)
    try:
        yield await found.start(), authority
    finally:
        found.kill()


@pytest.mark.parametrize("connections", [1, 4])
@pytest.mark.parametrize("size", [70, 60_000])
async def test_a_flood_delays_no_message_of_another_identity(
    router: tuple[GossipRouter, Authority | None], connections: int, size: int
) -> None:
    gossip, authority = router
    floods: list[Flood] = []

    async def join(name: str, source: str) -> tuple[Peer, MemberInfo]:
        tls = None if authority is None else context(authority.issue(name))
        member = info(name)
        peer = await Peer.greeted(gossip, tls, source)
        peer.say(Register(GROUP, member))
        return peer, member

    receiving, receiver = await join("receiver", "127.0.0.2")
    receiving.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    sending, sender = await join("sender", "127.0.0.3")
    slow, other = Slow(receiving), Reader(sending)
    try:
        for _ in range(connections):
            floods.append(Flood(*await join("evil", "127.0.0.4"), receiver, bytes(size)))
        await eventually(lambda: gossip.metric("held_bytes") > BACKLOG_BYTES, "a backlog")
        for number in range(1, MESSAGES + 1):
            before = slow.bytes
            sending.pass_on(sender, receiver.id, b"%d" % number)
            await slow.count(sender.id, number)
            assert slow.bytes - before < MOST_BETWEEN_BYTES
        assert slow.messages[sender.id] == MESSAGES
        assert gossip.metric("dropped_total") == 0
        assert gossip.metric("slow_clients_total") == 0
    finally:
        for each in (*floods, other):
            each.stop()
        slow.task.cancel()
