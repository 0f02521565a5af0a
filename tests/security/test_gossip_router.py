"""Attacks on a gossip router: taking over the registration of a victim, filling the table, and asking without end.

The canary is a pair of members whose messages pass through the router during the attack.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.gossip.support import GROUP, GossipRouter, Peer, eventually, info
from tests.integration.support.certificates import Authority, Identity
from tests.security.support.canary import cpu_that_counts, main_thread_cpu
from tests.security.support.small_records import SmallRecords

from isthmus_router.gossip.messages import (
    MOST_BYTES,
    MOST_INFOS,
    VERSION,
    FrameReader,
    GetMembers,
    Heartbeat,
    Hello,
    Refused,
    Register,
    Suspect,
    decode_control,
    encode_control,
    encode_message,
)
from isthmus_router.groups.identity import NOBODY
from isthmus_router.places import LEAST
from isthmus_router.transport.framing import PREFIX

MOST_MEMBERS = 80
MOST_OF_ONE = 64
"""Registrations of one identity, with so few members in all."""
MOST_CPU_SECONDS = 0.1
"""For the answer to one member's heartbeat, whatever others ask."""
ASKED = 300
OTHER = "other"
LARGE_BYTES = 15_000_000
LONGEST_BYTES = (1 << 24) - 200
"""Of a payload."""
BEGINNING_BYTES = 12_000
MORE_BYTES = 40_000
"""Enough to be there for longer, and too little to end the frame soon."""
READERS = 12
SMALL_RECORDS = 300_000
LEAST_RECORD_SECONDS = 5e-7
"""Of CPU to decrypt one; they are decrypted, and not ignored."""


def context(identity: Identity) -> ssl.SSLContext:
    """For a client that shows its certificate."""
    made = ssl.create_default_context(cafile=str(identity.trusted))
    made.load_cert_chain(identity.certificate, identity.key)
    return made


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "own")


@pytest.fixture
async def router(tmp_path: Path, authority: Authority) -> AsyncIterator[GossipRouter]:
    found = GossipRouter(
        tmp_path, "--most-members", str(MOST_MEMBERS), identity=authority.issue("gossip", "localhost")
    )
    try:
        yield await found.start()
    finally:
        found.kill()


async def registered(router: GossipRouter, authority: Authority, name: str) -> tuple[Peer, Register]:
    """A member with a certificate of its own name."""
    peer = await Peer.greeted(router, context(authority.issue(name)))
    registration = Register(GROUP, info(name))
    peer.say(registration)
    return peer, registration


async def test_nobody_takes_the_messages_of_a_victim(router: GossipRouter, authority: Authority) -> None:
    victim, registration = await registered(router, authority, "victim")
    sender, own = await registered(router, authority, "sender")
    await eventually(lambda: router.metric("members") == 2, "both registered")
    thief = context(authority.issue("thief"))
    for number in range(20):
        peer = await Peer.greeted(router, thief)
        peer.say(registration)
        refused = await peer.hear()
        assert isinstance(refused, Refused)
        assert "registered by another identity" in refused.reason
        assert await peer.hear() is None
        sender.pass_on(own.info, registration.info.id, b"%d" % number)
        assert await victim.hear() == b"%d" % number
    assert router.metric("taken_over_total") == 0
    assert router.metric("members") == 2


async def test_no_identity_fills_the_table(router: GossipRouter, authority: Authority) -> None:
    victim, registration = await registered(router, authority, "victim")
    before = router.memory()
    greedy = context(authority.issue("greedy"))
    peers = [await Peer.greeted(router, greedy) for _ in range(4)]
    for peer in peers[:2]:
        for number in range(MOST_OF_ONE // 2):
            peer.say(Register(f"group-{number}", info("greedy")))
    await eventually(lambda: router.metric("members") == 1 + MOST_OF_ONE, "all that one identity may have")
    for peer in peers[2:]:
        for number in range(MOST_OF_ONE // 2):
            peer.say(Register(f"group-{number}", info("greedy")))
    ends = await asyncio.gather(*(peer.hear() for peer in peers[2:]))
    assert all(isinstance(end, Refused) and "by one identity" in end.reason for end in ends)
    assert router.metric("members") == 1 + MOST_OF_ONE
    sender, own = await registered(router, authority, "sender")
    sender.pass_on(own.info, registration.info.id, b"still here")
    assert await victim.hear() == b"still here"
    assert router.memory() - before < 50_000_000


async def test_no_identity_has_all_connections(tmp_path: Path, authority: Authority) -> None:
    most = 2 * LEAST + 20
    identity = authority.issue("gossip", "localhost")
    router = GossipRouter(tmp_path, "--most-connections", str(most), identity=identity)
    try:
        await router.start()
        greedy = context(authority.issue("greedy"))
        peers = []
        for _ in range(most):
            peers.append(await Peer.greeted(router, greedy))
            peers[-1].say(Register(GROUP, info("greedy")))
            peers[-1].say(Heartbeat())
            assert isinstance(await peers[-1].hear(), Heartbeat | Refused)
        assert router.metric("members") == LEAST + 10
        victim, registration = await registered(router, authority, "victim")
        sender, own = await registered(router, authority, "sender")
        await eventually(lambda: router.metric("members") == LEAST + 12, "both registered")
        sender.pass_on(own.info, registration.info.id, b"still here")
        assert await victim.hear() == b"still here"
    finally:
        router.kill()


@pytest.mark.parametrize("moves", [False, True], ids=["as-before", "with-another-address"])
async def test_nobody_keeps_the_router_busy_with_questions(tmp_path: Path, *, moves: bool) -> None:
    """A member of a group of a thousand registers again before each of its questions, and sends all in one piece."""
    router = GossipRouter(tmp_path)
    try:
        await router.start()
        crowd = [await Peer.greeted(router) for _ in range(16)]
        for peer in crowd:
            for _ in range(64):
                peer.say(Register(GROUP, info("crowd")))
        await eventually(lambda: router.metric("members") == 1024, "the group")
        canary, asking = await Peer.greeted(router), await Peer.greeted(router)
        before = router.memory()
        mine = info("asking")
        for number in range(ASKED):
            address = mine.addresses[0]._replace(port=number if moves else 1)
            asking.say(Register(GROUP, mine._replace(addresses=(address,))))
            asking.say(GetMembers(GROUP))
        assert router.process is not None
        spent = 0.0
        for _ in range(ASKED):
            start = cpu_that_counts(router.process.pid)
            canary.say(Heartbeat())
            assert await canary.hear() == Heartbeat()
            spent = max(spent, cpu_that_counts(router.process.pid) - start)
            for _part in range(math.ceil(1025 / MOST_INFOS)):
                assert await asking.frame()
        assert spent < MOST_CPU_SECONDS
        assert router.memory() - before < 20_000_000
    finally:
        router.kill()


class Reader:
    """A member that reads all that comes, and counts it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.read = 0
        self.ended = False
        self.task = asyncio.create_task(self._read())
        self._beats = asyncio.create_task(self._beat())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self.peer.reader.read(1 << 20):
                self.read += len(data)
        self.ended = True

    async def _beat(self) -> None:
        while not self.ended:
            self.peer.say(Heartbeat())
            await asyncio.sleep(2)

    def stop(self) -> None:
        self.task.cancel()
        self._beats.cancel()


async def test_large_messages_to_everybody_cut_off_no_member_that_reads(tmp_path: Path) -> None:
    """Two members send messages of 15 MB to a group. Members of another group go on meanwhile."""
    router = GossipRouter(tmp_path)
    readers: list[Reader] = []
    try:
        await router.start()
        readers = [Reader(await Peer.registered(router, info(f"m{number}"))) for number in range(READERS)]
        evil = [info(f"evil{number}") for number in range(2)]
        senders = [await Peer.registered(router, member) for member in evil]
        here, there = info("here"), info("there")
        canary, victim = (
            await Peer.registered(router, here, OTHER),
            await Peer.registered(router, there, OTHER),
        )
        await eventually(lambda: router.metric("members") == READERS + 4, "all registered")
        before = router.memory()
        for _ in range(3):
            for sender, member in zip(senders, evil, strict=True):
                sender.pass_on(member, NOBODY, bytes(LARGE_BYTES))
        readers += map(Reader, senders)
        expected, peak = 6 * LARGE_BYTES, 0
        number = 0
        while not all(reader.read > expected or reader.ended for reader in readers[:READERS]):
            canary.writer.write(encode_message(OTHER, there.id, here.id, b"%d" % number))
            assert await victim.hear() == b"%d" % number
            victim.writer.write(encode_message(OTHER, here.id, there.id, b"answer"))
            assert await canary.hear() == b"answer"
            number += 1
            peak = max(peak, router.memory())
            await asyncio.sleep(0.01)
        assert not any(reader.ended for reader in readers)
        assert router.metric("slow_clients_total") == 0
        assert router.metric("dropped_total") == 0
        assert peak - before < 200_000_000
    finally:
        for reader in readers:
            reader.stop()
        router.kill()


async def test_members_that_leave_messages_unread_hold_back_their_group_alone(tmp_path: Path) -> None:
    """Senders without end, and receivers that read nothing, so that all that may wait does."""
    router = GossipRouter(tmp_path, "--most-held-bytes", str(32 << 20))
    readers: list[Reader] = []
    try:
        await router.start()
        here, there = info("here"), info("there")
        canary, victim = (
            await Peer.registered(router, here, OTHER),
            await Peer.registered(router, there, OTHER),
        )
        silent = [info(f"silent{number}") for number in range(4)]
        deaf = [await Peer.registered(router, member) for member in silent]
        for peer in deaf:
            peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        evil = [info(f"evil{number}") for number in range(6)]
        senders = [await Peer.registered(router, member) for member in evil]
        await eventually(lambda: router.metric("members") == 12, "all registered")
        before = router.memory()
        for sender, member in zip(senders, evil, strict=True):
            for _ in range(100):
                sender.pass_on(member, silent[0].id, bytes(1_000_000))
        readers += map(Reader, senders)
        await eventually(lambda: router.metric("held_bytes") > 5_000_000, "messages wait")
        large = bytes(4_000_000)
        number = 0
        while router.metric("slow_clients_total") == 0:
            canary.writer.write(encode_message(OTHER, there.id, here.id, large))
            assert await victim.hear() == large
            number += 1
        assert number
        assert router.memory() - before < 100_000_000
        assert "takes none" in router.log
    finally:
        for reader in readers:
            reader.stop()
        router.kill()


class Incomplete:
    """A member that sends the beginning of the longest message there may be, and then little more at a time."""

    def __init__(self, peer: Peer, frame: bytes) -> None:
        self._reader = Reader(peer)
        self._peer = peer
        self._frame = frame
        self._task = asyncio.create_task(self._send())

    @classmethod
    async def of(cls, router: GossipRouter, group: str, source: str) -> Incomplete:
        """`source`: the address, which is the identity."""
        member = info("incomplete")
        peer = await Peer.registered(router, member, group, source)
        return cls(peer, encode_message(group, member.id, member.id, bytes(LONGEST_BYTES)))

    async def _send(self) -> None:
        at = 0
        for more in (BEGINNING_BYTES, *[MORE_BYTES] * (LONGEST_BYTES // MORE_BYTES)):
            self._peer.writer.write(self._frame[at : at + more])
            at += more
            await asyncio.sleep(4)

    def stop(self) -> None:
        self._task.cancel()
        self._reader.stop()


@pytest.mark.parametrize("groups", [1, 5], ids=["one-group", "a-group-each"])
@pytest.mark.parametrize("size", [1_000_000, LARGE_BYTES])
async def test_messages_that_stay_incomplete_hold_back_no_other_group(
    tmp_path: Path, groups: int, size: int
) -> None:
    """Identities begin more messages than the router has room for, and honest members of another group go on."""
    router = GossipRouter(tmp_path, "--expiry", "60")
    incomplete: list[Incomplete] = []
    try:
        await router.start()
        here, there = info("here"), info("there")
        canary = await Peer.registered(router, here, OTHER, "127.0.0.2")
        victim = await Peer.registered(router, there, OTHER, "127.0.0.2")
        for number in range(6 * groups):
            source = f"127.0.0.{3 + number // 5}"  # five connections of each identity
            incomplete.append(await Incomplete.of(router, f"evil{number // 5 % groups}", source))
        # The first ones have a reservation, and there is no room for the last ones.
        await eventually(lambda: router.metric("held_bytes") > 2 * LONGEST_BYTES, "room is reserved")
        payload = bytes(size)
        for _ in range(20):
            canary.writer.write(encode_message(OTHER, there.id, here.id, payload))
            assert await victim.hear() == payload
            for peer in (canary, victim):
                peer.say(Heartbeat())
                assert await peer.hear() == Heartbeat()
        assert router.metric("dropped_total") == 0
    finally:
        for each in incomplete:
            each.stop()
        router.kill()


async def test_an_incomplete_message_gives_its_room_up_to_those_that_wait_for_it(tmp_path: Path) -> None:
    """In the group of the honest members as well."""
    router = GossipRouter(tmp_path, "--expiry", "60")
    incomplete: list[Incomplete] = []
    try:
        await router.start()
        here, there = info("here"), info("there")
        canary = await Peer.registered(router, here, source="127.0.0.2")
        victim = await Peer.registered(router, there, source="127.0.0.2")
        for number in range(15):
            incomplete.append(await Incomplete.of(router, GROUP, f"127.0.0.{3 + number // 5}"))
        await eventually(lambda: router.metric("held_bytes") > 2 * LONGEST_BYTES, "room is reserved")
        payload = bytes(LARGE_BYTES)
        for _ in range(2):
            canary.pass_on(here, there.id, payload)
            said = await victim.hear()
            while said == Heartbeat():  # while the canary waits
                said = await victim.hear()
            assert said == payload
        assert router.metric("dropped_total") == 0
    finally:
        for each in incomplete:
            each.stop()
        router.kill()


async def test_connections_with_many_registrations_that_end_together(tmp_path: Path) -> None:
    """Each of the members has to be told of each registration that is gone."""
    others, ending, each = 200, 16, 64
    router = GossipRouter(tmp_path)
    try:
        await router.start()
        group = [await Peer.registered(router, info(f"member-{number}")) for number in range(others)]
        gone = [await Peer.greeted(router) for _ in range(ending)]
        for peer in gone:
            for number in range(each):
                peer.say(Register(GROUP, info(f"gone-{number}")))
        await eventually(lambda: router.metric("members") == others + ending * each, "the group")
        canary = await Peer.greeted(router)
        assert router.process is not None
        pid = router.process.pid

        expected = ending * each * len(encode_control(Suspect(GROUP, info("gone").id)))

        async def suspects(peer: Peer) -> bytes:
            """What it is told; to decode all of that would take longer than the router may take."""
            data = bytearray()
            while len(data) < expected:
                more = await peer.reader.read(1 << 18)
                assert more, "cut off"
                data += more
            return bytes(data)

        told = asyncio.gather(*(suspects(peer) for peer in group))
        for peer in gone:
            peer.writer.transport.abort()
        spent = 0.0
        while not told.done():
            start = cpu_that_counts(pid)
            canary.say(Heartbeat())
            assert await canary.hear() == Heartbeat()
            spent = max(spent, cpu_that_counts(pid) - start)
        first, *rest = await told
        assert all(data == first for data in rest)
        reader = FrameReader(MOST_BYTES)
        reader.feed(first)
        messages = [decode_control(frame) for frame in reader.cut(len(first), len(first))]
        members = {message.member for message in messages if isinstance(message, Suspect)}
        assert len(members) == len(messages) == ending * each
        assert spent < MOST_CPU_SECONDS
        assert router.metric("suspected_total") == ending * each
    finally:
        router.kill()


async def test_small_tls_records_of_a_member_hold_up_no_others(
    router: GossipRouter, authority: Authority
) -> None:
    """They are the beginning of a frame."""
    victim, registration = await registered(router, authority, "victim")
    sender, own = await registered(router, authority, "sender")
    await eventually(lambda: router.metric("members") == 2, "both registered")
    assert router.process is not None
    pid = router.process.pid
    tls = context(authority.issue("evil"))
    with SmallRecords(router.port, tls) as evil:
        evil.say(encode_control(Hello(VERSION)) + encode_control(Register(GROUP, info("evil"))))
        await eventually(lambda: router.metric("members") == 3, "all registered")
        evil.say(PREFIX.pack(900_000))
        await asyncio.to_thread(evil.prepare, SMALL_RECORDS)
        before, most = main_thread_cpu(pid), 0.0
        sending = asyncio.create_task(asyncio.to_thread(evil.send))
        number = 0
        while not sending.done() or number < 100:
            start = cpu_that_counts(pid)
            sender.pass_on(own.info, registration.info.id, b"%d" % number)
            assert await victim.hear() == b"%d" % number
            most = max(most, cpu_that_counts(pid) - start)
            number += 1
            await asyncio.sleep(0.005)
        await sending
        await eventually(
            lambda: main_thread_cpu(pid) - before > SMALL_RECORDS * LEAST_RECORD_SECONDS, "decrypted"
        )
    assert most < MOST_CPU_SECONDS
