"""Attacks of an intruder that has only a certificate that gossip routers accept, and none of a member of the site.

The canary is a stream of messages from one member to receivers at the other one.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.integration.gossip.support import GossipRouter, Peer
from tests.integration.sites.support.relay_sites import GROUP, RelaySites
from tests.integration.support.certificates import Authority
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary
from tests.security.test_relay_members import PROFILE, context

from isthmus_router.gossip.binding import Binding
from isthmus_router.gossip.messages import Heartbeat, Refused, Register, encode_message
from isthmus_router.groups.announcements import Discover
from isthmus_router.groups.frames import Kind, encode_body, encode_frame
from isthmus_router.groups.identity import (
    MOST_PHYSICAL_ADDRESSES,
    NOBODY,
    GroupName,
    MemberId,
    MemberInfo,
    PhysicalAddress,
    member_id,
    tunnel_address,
)

GOSSIP_PROFILE = "gossip"
SITE = GroupName(GROUP, "nyc", f"{GROUP}/nyc")
GOSSIP_GROUP = f"{GROUP}/nyc"
INVENTED = 320
"""Members, with as many addresses as there can be."""
REGISTRATIONS = 64
"""Of one connection."""
ROUNDS = 1_000
"""Of an attack beside the canary."""
NOWHERE = PhysicalAddress("127.0.0.1", 9)


class Site:
    """Two members, a gossip router, and the authority whose certificates the gossip router accepts."""

    def __init__(self, folder: Path, routers: Routers) -> None:
        own, self.authority = Authority(folder, "own"), Authority(folder, "gossip")
        identity = self.authority.issue("gossip", "localhost")
        self.gossip, self.other = (
            GossipRouter(folder, "--expiry", "300", identity=identity) for _ in range(2)
        )
        """The one that is attacked, and one that carries frames while that restarts."""
        self.one, self.two = (
            routers.add(
                name,
                own.issue(name).profile(PROFILE, ordinal=1),
                self.authority.issue(name).profile(GOSSIP_PROFILE, ordinal=1),
            )
            for name in ("nyc-0", "nyc-1")
        )

    async def start(self, discovery: str) -> None:
        if self.gossip.process is None:
            await self.gossip.start()
        await self.other.start()
        self.sites = RelaySites()
        self.sites.site(
            "nyc",
            self.one,
            self.two,
            plainText=False,
            sslProfile=PROFILE,
            bridgeSslProfile=PROFILE,
            gossipSslProfile=GOSSIP_PROFILE,
            discovery=discovery,
            discoveryHosts=f"127.0.0.1:{self.gossip.port}, 127.0.0.1:{self.other.port}",
            peerNames="nyc-0, nyc-1",
        )
        self.one.start()
        self.two.start()
        self.sites.formed()

    def id_of(self, router: Router) -> MemberId:
        members = self.one.status()["relay"]["members"]
        return MemberId(bytes.fromhex(next(each["id"] for each in members if each["name"] == router.id)))

    async def intruder(self) -> Peer:
        return await Peer.greeted(self.gossip, context(self.authority, "payments-app"))


@pytest.fixture
async def site(tmp_path: Path, routers: Routers) -> AsyncIterator[Site]:
    found = Site(tmp_path, routers)
    try:
        yield found
    finally:
        found.gossip.kill()
        found.other.kill()


def refused(router: Router) -> float:
    """Frames that the member refused because they came through a gossip router."""
    return float(router.metric("relay_transport_events_total", 'event="refused_tunnelled"'))


async def test_frames_through_a_gossip_router_that_only_reports_addresses(site: Site) -> None:
    """The intruder asks for members, and sends frames in its name, past the TLS and the HELLO of members."""
    await site.start("gossipRouter")
    one = site.id_of(site.one)
    before = site.one.status()["relay"]
    intruder = MemberInfo(member_id(os.urandom(16)), "nyc-1", (NOWHERE,))
    intruder = intruder._replace(addresses=(tunnel_address(intruder.id),))
    peer = await site.intruder()
    peer.say(Register(GOSSIP_GROUP, intruder))
    discover = Discover(SITE, intruder, True, None).encode()
    frames = [
        encode_frame(Kind.DISCOVER, intruder.id, NOBODY, discover),
        encode_frame(Kind.JOIN, intruder.id, one, encode_body()),
        encode_frame(Kind.LEAVE, intruder.id, NOBODY, encode_body()),
    ]
    with Canary(site.one, receive_at=site.two, address=f"relay/{GROUP}") as canary:
        for frame in frames:
            peer.writer.write(encode_message(GOSSIP_GROUP, one, intruder.id, frame))
        eventually(lambda: refused(site.one) == len(frames), "all frames are refused")
    canary.report.check()
    assert site.gossip.metric("messages_total") == len(frames), "the members answer nothing"
    after = site.one.status()["relay"]
    assert (after["view"], after["members"]) == (before["view"], before["members"])
    assert any("discovery is not tunnel" in problem for problem in after["problems"])


async def test_first_to_register_at_a_restarted_gossip_router_is_no_member_of_a_tunnel(site: Site) -> None:
    """The intruder registers the UUID of a member before that does, in the group of the site by its plain name and by
    the name that the rule for certificates gives it. It sends LEAVE in the name of that member."""
    await site.start("tunnel")
    one, two = site.id_of(site.one), site.id_of(site.two)
    before = site.one.status()["relay"]
    rule = Binding(("nyc-0", "nyc-1"), bind_names=True)
    bound = rule.group(GOSSIP_GROUP)
    victim = MemberInfo(two, "nyc-1", (tunnel_address(two),))
    site.gossip.kill()
    await site.gossip.start()
    peers, reasons = [], []
    for group, name, stated in [
        (GOSSIP_GROUP, "nyc-1", Binding()),
        (bound, "nyc-1", Binding()),
        (bound, "nyc-1", rule),
        (bound, "payments-app", rule),
    ]:
        peer = await site.intruder()
        peer.say(Register(group, victim._replace(name=name), stated))
        leave = encode_frame(Kind.LEAVE, two, NOBODY, encode_body())
        peer.writer.write(encode_message(group, one, two, leave))
        if group == GOSSIP_GROUP:
            peers.append(peer)  # accepted, in a group of its own
        else:
            answer = await peer.hear()
            assert isinstance(answer, Refused)
            reasons.append(answer.reason)
    assert ["payments-app" in reason for reason in reasons] == [False, True, True]
    eventually(lambda: site.gossip.metric("members") == len(peers) + 2, "both members are registered again")
    with Canary(site.one, receive_at=site.two, address=f"relay/{GROUP}") as canary:
        for peer in peers * ROUNDS:
            for group in (GOSSIP_GROUP, bound):
                peer.writer.write(encode_message(group, one, two, leave))
            peer.say(Heartbeat())
            while not isinstance(await peer.hear(), Heartbeat):
                pass
    canary.report.check()
    after = site.one.status()["relay"]
    assert (after["view"], after["members"]) == (before["view"], before["members"])


async def test_invented_members_do_not_keep_a_site_from_forming(site: Site) -> None:
    await site.gossip.start()
    peers = [await site.intruder() for _ in range(INVENTED // REGISTRATIONS)]
    for number in range(INVENTED):
        addresses = tuple(
            PhysicalAddress(f"127.{1 + number // 250}.{number % 250}.{rank + 1}", 9)
            for rank in range(MOST_PHYSICAL_ADDRESSES)
        )
        member = MemberInfo(member_id(os.urandom(16)), f"nyc-{number}", addresses)
        peers[number // REGISTRATIONS].say(Register(GOSSIP_GROUP, member))
    eventually(lambda: site.gossip.metric("members") == INVENTED, "all are registered")
    await site.start("gossipRouter")
    with Canary(site.one, receive_at=site.two, address=f"relay/{GROUP}") as canary:
        for peer in peers * ROUNDS:
            peer.say(Heartbeat())
            assert isinstance(await peer.hear(), Heartbeat)
    canary.report.check()
    assert site.gossip.metric("members") == INVENTED + 2, "the invented ones are still there"
