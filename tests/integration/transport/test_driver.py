"""Time, names, multicast and gossip routers, as a driver brings them to its stack."""

from __future__ import annotations

import asyncio
import math
import socket
from pathlib import Path

import pytest
from tests.integration.gossip.support import GossipRouter
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.transport.recorder import Member, Members, profile, until

from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import PhysicalAddress, tunnel_address
from isthmus_router.transport.multicast import LONGEST_BYTES
from isthmus_router.transport.settings import MulticastSettings
from isthmus_router.transport.strangers import AT_ONCE, PER_SECOND


async def test_deadlines(members: Members) -> None:
    one = members.add()
    one.deadline = one.driver.clock() + 0.05
    asked = one.deadline
    one.driver.wake()
    await until(lambda: len(one.times) == 1)
    assert asked <= one.times[0]
    # An earlier one takes the place of what was to come.
    one.deadline = one.driver.clock() + 60
    one.driver.wake()
    await until(lambda: one.driver.armed > one.times[0] + 50)
    one.deadline = one.driver.clock()
    one.driver.wake()
    await until(lambda: len(one.times) == 2)


async def test_a_later_deadline_is_kept_too(members: Members) -> None:
    one = members.add()
    one.deadline = one.driver.clock() + 0.5
    one.driver.wake()
    await until(lambda: one.driver.armed < math.inf)
    one.deadline += 0.1
    asked = one.deadline
    await until(lambda: len(one.times) == 1)
    assert one.times[0] >= asked


async def test_a_deadline_is_waited_for_without_turning(members: Members) -> None:
    one = members.add()
    before = one.flushes
    for count in range(1, 21):
        one.deadline = one.driver.clock() + 0.0004
        one.driver.wake()
        await until(lambda: len(one.times) == count)  # noqa: B023
    assert one.flushes - before <= 20 * 5


async def test_what_the_stack_raises_ends_nothing(members: Members, caplog: pytest.LogCaptureFixture) -> None:
    one, two = members.add(), members.add()

    def react(frame: bytes) -> None:
        raise errors.pop()

    errors: list[Exception] = [RuntimeError("a mistake"), *(FrameError("nonsense") for _ in range(100))]
    two.reaction = react
    for _ in range(101):
        one.send(two, b"x")
    await until(lambda: len(two.frames) == 101)
    counts = two.driver.statistics()
    assert (counts["malformed"], counts["faults"]) == (100, 1)
    assert len([record for record in caplog.records if record.name == "TRANSPORT"]) == 1
    assert one.lost == two.lost == []


async def test_names(members: Members) -> None:
    one = members.add()
    one.driver.resolve("127.0.0.3")
    one.driver.resolve("localhost")
    one.driver.resolve("no-such-host.invalid")
    one.driver.resolve("x" * 300)
    await until(lambda: len(one.resolved) == 4)
    told = [f"host {host}: the name has no IP address" for host in ("no-such-host.invalid", "x" * 300)]
    assert sorted(one.driver.problems.recent()) == sorted(told), "others have been found"
    assert one.resolved["127.0.0.3"] == ("127.0.0.3",)
    assert "127.0.0.1" in one.resolved["localhost"]
    assert one.resolved["no-such-host.invalid"] == one.resolved["x" * 300] == ()


async def test_multicast(members: Members) -> None:
    port = free_port()
    settings = MulticastSettings(port=port, interfaces=("lo",))
    one, two, three = (members.add(multicast=settings) for _ in range(3))
    elsewhere = members.add(multicast=MulticastSettings("239.192.8.8", port, interfaces=("lo",)))
    without = members.add()
    without.driver.multicast(without.frame(b"nobody hears"))
    one.driver.multicast(one.frame(b"anybody?"))
    await until(lambda: two.bodies == three.bodies == [b"anybody?"])
    assert two.frames[0][0] is None
    assert one.frames == elsewhere.frames == without.frames == []
    one.driver.multicast(one.frame(bytes(LONGEST_BYTES)))
    assert one.driver.statistics()["multicast_unsent"] == 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as garbage:
        garbage.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        garbage.sendto(b"", (settings.group, port))
        garbage.sendto(b"garbage", (settings.group, port))
    await until(lambda: len(one.frames) == 2)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_gossip_routers(members: Members, tmp_path: Path, encrypted: bool) -> None:
    identity = Authority(tmp_path, "site").issue("any") if encrypted else None
    files = None if identity is None else profile(identity)
    routers = [await GossipRouter(tmp_path, identity=identity).start() for _ in range(2)]
    try:
        addresses = tuple(PhysicalAddress("127.0.0.1", router.port) for router in routers)
        one, two = (
            members.add(gossip_routers=addresses, gossip_profile=files, tunnel=True) for _ in range(2)
        )

        def ask_until_known() -> bool:
            one.driver.ask_gossip_routers()
            return two.info in one.gossiped

        await until(ask_until_known)
        bodies = [b"%d" % number * 100 for number in range(100)]
        for body in bodies:
            one.send(tunnel_address(two.id), body)
        await until(lambda: len(two.frames) == 100)
        assert two.bodies == bodies
        assert two.frames[0][0] == tunnel_address(one.id)
        two.send(tunnel_address(one.id), b"back")
        await until(lambda: one.bodies == [b"back"])
        await two.driver.close()
        assert one.suspects == []  # it has taken its leave
        one.send(PhysicalAddress("no hexadecimal", 0, tunnelled=True), b"lost")
        one.send(PhysicalAddress("00", 0, tunnelled=True), b"lost")
    finally:
        for router in routers:
            router.kill()


async def test_tunnelled_frames_are_refused_where_gossip_routers_only_report_addresses(
    members: Members, tmp_path: Path
) -> None:
    router = await GossipRouter(tmp_path).start()
    try:
        addresses = (PhysicalAddress("127.0.0.1", router.port),)
        one, two = (members.add(gossip_routers=addresses, tunnel=tunnel) for tunnel in (False, True))

        def ask_until_known() -> bool:
            for member in (one, two):
                member.driver.ask_gossip_routers()
            return two.info in one.gossiped and one.info in two.gossiped

        await until(ask_until_known)
        two.send(tunnel_address(one.id), b"past TLS between members")
        await until(lambda: one.driver.statistics()["refused_tunnelled"] == 1)
        passed_on = router.metric("messages_total")
        one.send(tunnel_address(two.id), b"past TLS between members")
        two.send(tunnel_address(one.id), b"after it")
        await until(lambda: one.driver.statistics()["refused_tunnelled"] == 2)
        assert one.frames == two.frames == []
        assert router.metric("messages_total") == passed_on + 1, "only that of the other member"
        assert any("discovery is not tunnel" in problem for problem in one.driver.problems.recent())
    finally:
        router.kill()


async def test_frames_of_a_stranger_in_a_tunnel_are_bounded_and_malformed_ones_more(
    members: Members, tmp_path: Path
) -> None:
    """Those of members are not."""
    router = await GossipRouter(tmp_path).start()
    try:
        addresses = (PhysicalAddress("127.0.0.1", router.port),)
        one, stranger, member = (members.add(gossip_routers=addresses, tunnel=True) for _ in range(3))
        one.strangers.add(stranger.id)

        def ask_until_known() -> bool:
            one.driver.ask_gossip_routers()
            return {stranger.info, member.info} <= set(one.gossiped)

        await until(ask_until_known)

        def ignored() -> int:
            return one.driver.statistics()["ignored_tunnelled"]

        def counted(sender: Member) -> int:
            return sum(source == tunnel_address(sender.id) for source, _ in one.frames)

        def refuse(frame: bytes) -> None:
            if frame.endswith(b"malformed"):
                raise FrameError("malformed")

        one.reaction = refuse
        sent = 3 * AT_ONCE
        for each in (stranger, member):
            for _ in range(sent):
                each.send(tunnel_address(one.id), b"of discovery")
        await until(lambda: counted(member) == sent and counted(stranger) + ignored() == sent)
        assert counted(stranger) >= AT_ONCE
        assert ignored() > 0
        assert any("not in the view" in problem for problem in one.driver.problems.recent())

        await asyncio.sleep(AT_ONCE / PER_SECOND)
        one.frames.clear()
        before = ignored()
        for each in (stranger, member):
            for _ in range(sent):
                each.send(tunnel_address(one.id), b"malformed")
        await until(lambda: counted(member) == sent and counted(stranger) + ignored() - before == sent)
        assert counted(stranger) < AT_ONCE // 2
    finally:
        router.kill()
