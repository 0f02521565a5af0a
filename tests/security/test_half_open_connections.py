"""Attack: a host connects to the ports for members, other sites and gossip routers, and opens no connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.integration.gossip.support import GROUP as GOSSIP_GROUP
from tests.integration.gossip.support import GossipRouter, Peer, eventually, info
from tests.integration.sites.support.relay_sites import GROUP, RelaySites
from tests.integration.support import routers as processes
from tests.integration.support.certificates import Authority
from tests.integration.support.routers import Router, Routers
from tests.security.support.canary import Canary, memory
from tests.security.support.half_open import flood, half_open, still_open
from tests.security.test_gossip_router import context

from isthmus_router.gossip.messages import Register
from isthmus_router.handshakes import MOST_OF_HOST

PROFILE = "tls"
MORE = 100
"""Beyond what a host may have."""
MOST_CPU_SECONDS = 0.1
"""For anything while a message of the canary is on its way, also where a member joins."""


def oldest_are_dropped(port: int) -> None:
    """Of too many connections of one host."""
    sockets = half_open(port, MOST_OF_HOST + MORE)
    processes.eventually(
        lambda: still_open(sockets[:MORE]) == 0 and still_open(sockets[-MORE:]) == MORE,
        "the oldest connections are closed, and the newest ones are not",
    )
    for sock in sockets:
        sock.close()


def site(routers: Routers, authority: Authority | None) -> list[Router]:
    """The three members of a site with a bridge."""
    names = ("nyc-0", "nyc-1", "nyc-2")
    members = [
        routers.add(name, *([authority.issue(name).profile(PROFILE, ordinal=1)] if authority else []))
        for name in names
    ]
    tls = {"plainText": False, "sslProfile": PROFILE, "bridgeSslProfile": PROFILE} if authority else {}
    sites = RelaySites()
    sites.site("nyc", *members, **tls)
    routers.start_all()
    sites.formed()
    return members


def port_of(router: Router, name: str) -> int:
    section = next(values for kind, values in router.sections if kind == "relaySite")
    return int(str(section[name]))


@pytest.mark.parametrize("secured", [True, False], ids=["tls", "clear"])
def test_a_flood_from_one_host_keeps_no_member_out(routers: Routers, tmp_path: Path, secured: bool) -> None:
    one, two, three = site(routers, Authority(tmp_path, "own") if secured else None)
    ports = [port_of(one, name) for name in ("memberPort", "bridgePort")]
    for port in ports:
        oldest_are_dropped(port)
    before = memory(one.pid)
    with Canary(one, receive_at=two, address=f"relay/{GROUP}") as canary, flood(*ports):
        for size in (2, 3):
            three.stop() if size == 2 else three.start()
            processes.eventually(
                lambda size=size: len(one.status()["relay"]["members"]) == size,
                f"{size} members",
                timeout=120,
            )
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert memory(one.pid) - before < 150_000_000


@pytest.mark.parametrize("secured", [True, False], ids=["tls", "clear"])
async def test_a_flood_from_one_host_keeps_no_member_from_a_gossip_router(
    tmp_path: Path, secured: bool
) -> None:
    authority = Authority(tmp_path, "own")
    router = GossipRouter(tmp_path, identity=authority.issue("gossip", "localhost") if secured else None)
    try:
        await router.start()
        await asyncio.to_thread(oldest_are_dropped, router.port)
        before = router.memory()
        with flood(router.port):
            peers = []
            for name in ("one", "two"):
                tls = context(authority.issue(name)) if secured else None
                peer, member = await Peer.greeted(router, tls), info(name)
                peer.say(Register(GOSSIP_GROUP, member))
                peers.append((peer, member))
            await eventually(lambda: router.metric("members") == 2, "both are registered")
            (sender, own), (receiver, other) = peers
            for number in range(20):
                sender.pass_on(own, other.id, b"%d" % number)
                assert await receiver.hear() == b"%d" % number
        assert router.memory() - before < 150_000_000
    finally:
        router.kill()
