"""Attacks on a gossip router: taking over the registration of a victim, filling the table, and asking without end.

The canary is a pair of members whose messages pass through the router during the attack.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.gossip.support import GROUP, GossipRouter, Peer, eventually, info
from tests.integration.support.certificates import Authority, Identity
from tests.security.support.canary import main_thread_cpu

from isthmus_router.gossip.messages import (
    MOST_INFOS,
    GetMembers,
    Heartbeat,
    Refused,
    Register,
)

MOST_MEMBERS = 80
MOST_OF_ONE = 64
"""Registrations of one identity, with so few members in all."""
MOST_CPU_SECONDS = 0.1
"""For the answer to one member's heartbeat, whatever others ask."""
ASKED = 300


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
            start = main_thread_cpu(router.process.pid)
            canary.say(Heartbeat())
            assert await canary.hear() == Heartbeat()
            spent = max(spent, main_thread_cpu(router.process.pid) - start)
            for _part in range(math.ceil(1025 / MOST_INFOS)):
                assert await asking.frame()
        assert spent < MOST_CPU_SECONDS
        assert router.memory() - before < 20_000_000
    finally:
        router.kill()
