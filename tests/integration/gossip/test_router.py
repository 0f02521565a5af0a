"""The gossip router's process over real sockets: registrations, messages, silence, and its own end."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from random import Random

import pytest
from tests.integration.gossip.conftest import StartMember, StartRouter
from tests.integration.gossip.support import GROUP, POLL_SECONDS, GossipRouter, Peer, eventually, info

from isthmus_router.gossip.client import ClientSettings
from isthmus_router.gossip.link import PROGRESS_BYTES, STALLED_BEHIND_SECONDS
from isthmus_router.gossip.messages import (
    VERSION,
    GetMembers,
    Heartbeat,
    Hello,
    Members,
    NotHere,
    Refused,
    Register,
    Suspect,
    Unregister,
    encode_control,
    encode_message,
)
from isthmus_router.groups.identity import NOBODY

QUICK = ClientSettings(heartbeat=0.2, least_pause=0.02, most_pause=0.2)


async def test_register_get_and_unregister(start_router: StartRouter) -> None:
    router = await start_router()
    a, b = info("a"), info("b")
    peer = await Peer.registered(router, a)
    other = await Peer.registered(router, b)
    other.say(GetMembers(GROUP))
    await other.hear()
    peer.say(GetMembers(GROUP))
    found = await peer.hear()
    assert isinstance(found, Members)
    assert set(found.infos) == {a, b}
    other.say(Unregister(GROUP, b.id))
    other.say(GetMembers(GROUP))
    assert await other.hear() == Members(GROUP, (a,), True)
    other.say(GetMembers("another group"))
    assert await other.hear() == Members("another group", (), True)


async def test_messages_and_heartbeats(start_router: StartRouter) -> None:
    router = await start_router()
    a, b, c, stranger = (info(name) for name in ("a", "b", "c", "stranger"))
    peers = [await Peer.registered(router, member) for member in (a, b, c)]
    await eventually(lambda: router.metric("members") == 3, "three members")
    for number in range(100):
        peers[0].pass_on(a, b.id, b"to b %d" % number)
    assert [await peers[1].hear() for _ in range(100)] == [b"to b %d" % number for number in range(100)]
    peers[0].pass_on(a, NOBODY, b"to all")
    assert await peers[1].hear() == await peers[2].hear() == b"to all"
    peers[0].pass_on(a, stranger.id, b"lost")
    assert await peers[0].hear() == NotHere(GROUP, stranger.id)
    peers[0].pass_on(b, c.id, b"in the name of another")
    peers[0].say(Heartbeat())
    assert await peers[0].hear() == Heartbeat()
    assert router.metric("not_registered_total") == 1
    assert router.metric("messages_total") == 102


async def test_silent_member_expires_and_is_suspected(start_router: StartRouter) -> None:
    router = await start_router("--expiry", "0.5")
    a, b = info("a"), info("b")
    silent, other = await Peer.registered(router, a), await Peer.registered(router, b)
    said: list[object] = []
    while not said or said[-1] != Suspect(GROUP, a.id):
        other.say(Heartbeat())
        said.append(await other.hear())
    reason = await silent.hear()
    assert isinstance(reason, Refused)
    assert "silent" in reason.reason
    assert await silent.hear() is None
    assert router.metric("expired_total") == 1


async def test_late_close_of_an_old_connection_keeps_the_newer_registration(
    start_router: StartRouter,
) -> None:
    router = await start_router()
    a, b = info("a"), info("b")
    old, other = await Peer.registered(router, a), await Peer.registered(router, b)
    await eventually(lambda: router.metric("members") == 2, "both registered")
    new = await Peer.registered(router, a)
    await eventually(lambda: router.metric("taken_over_total") == 1, "taken over")
    old.abort()
    await eventually(lambda: router.metric("connections") == 2, "old connection gone")
    other.pass_on(b, a.id, b"still here")
    assert await new.hear() == b"still here"
    other.say(Heartbeat())
    assert await other.hear() == Heartbeat()  # and nothing was suspected


@pytest.mark.parametrize("option", ["--most-queued-bytes", "--most-held-bytes"])
async def test_slow_client_is_cut_off_and_delays_nobody(start_router: StartRouter, option: str) -> None:
    """The sender has to wait for the slow one until that one is cut off; others have not."""
    router = await start_router(option, "4000000")
    a, slow, quick, other = info("a"), info("slow"), info("quick"), info("other")
    sender, other_peer = await Peer.registered(router, a), await Peer.registered(router, other)
    slow_peer, quick_peer = await Peer.registered(router, slow), await Peer.registered(router, quick)
    slow_peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await eventually(lambda: router.metric("members") == 4, "all registered")
    for _ in range(1_000):
        # What is beyond the bound is in buffers of sockets.
        sender.pass_on(a, slow.id, bytes(16_384))
    sender.pass_on(a, quick.id, b"last")
    await eventually(lambda: router.metric("held_bytes") > 1_000_000, "messages waiting")
    delays: list[float] = []
    heard: list[object] = []
    while router.metric("slow_clients_total") == 0:
        before = time.perf_counter()
        other_peer.pass_on(other, quick.id, b"x")
        while (said := await quick_peer.hear()) != b"x":
            heard.append(said)
        delays.append(time.perf_counter() - before)
        await asyncio.sleep(POLL_SECONDS)
    assert "and it takes none" in router.log
    delays.sort()
    assert delays[len(delays) * 9 // 10] < 0.1, "as long as until the slow one is cut off, had they to wait"
    while len(heard) < 2:
        heard.append(await quick_peer.hear())
    # The sender was only held back.
    assert heard in ([Suspect(GROUP, slow.id), b"last"], [b"last", Suspect(GROUP, slow.id)])
    await eventually(lambda: router.metric("connections") == 3, "slow one gone")
    await eventually(lambda: router.metric("held_bytes") == 0, "nothing waits")


async def test_any_bytes_do_no_harm(start_router: StartRouter) -> None:
    router = await start_router("--most-frame-bytes", "100000", "--most-held-bytes", "4000000")
    random = Random(7)
    a, b = info("a"), info("b")
    frames = [
        encode_control(Hello(1)),
        encode_control(Register(GROUP, b)),
        encode_control(GetMembers(GROUP)),
        encode_message(GROUP, a.id, b.id, b"payload"),
    ]
    healthy = await Peer.registered(router, a)
    before = router.memory()
    peers: list[Peer] = []
    for number in range(300):
        peer = await (Peer.greeted if number % 3 == 2 else Peer.connect)(router)
        peers.append(peer)
        if number % 3 == 0:
            peer.writer.write(random.randbytes(random.randrange(1, 2_000)))
        elif number % 3 == 1:
            stream = bytearray(b"".join(frames))
            for _ in range(random.randrange(1, 6)):
                stream[random.randrange(len(stream))] = random.randrange(256)
            peer.writer.write(bytes(stream))
        else:
            # The longest frame there may be, of which one byte is missing.
            peer.writer.write((100_000).to_bytes(4, "big") + bytes([6]) + bytes(99_998))
    await eventually(lambda: router.metric("slow_clients_total") > 0, "bound of what is held")
    assert router.metric("held_bytes") <= 5_000_000  # a quarter more, as many may be read at the same time
    assert router.memory() - before < 80_000_000
    healthy.say(Heartbeat())
    said = await healthy.hear()
    while said != Heartbeat():
        assert said is not None
        said = await healthy.hear()


async def test_another_version_is_told(start_router: StartRouter) -> None:
    router = await start_router()
    peer = await Peer.connect(router)
    peer.say(Hello(2))
    assert isinstance(await peer.hear(), Hello)
    refused = await peer.hear()
    assert isinstance(refused, Refused)
    assert "version 2" in refused.reason
    assert await peer.hear() is None


async def test_losing_one_of_two_routers_is_not_noticed(
    start_router: StartRouter, start_member: StartMember
) -> None:
    first, second = await start_router(), await start_router()
    members = [start_member(name, first, second, settings=QUICK) for name in "abc"]
    for router in (first, second):
        await eventually(lambda router=router: router.metric("members") == 3, "registered with both")
    for member in members:
        member.ask()
    await eventually(lambda: all(len(member.seen) == 2 for member in members), "members found")
    a, b, c = members
    sent = 0
    a.tell(b.info.id, b"0")
    await eventually(lambda: b.frames, "a message")
    first.kill()
    for member in members:
        await eventually(lambda member=member: len(member.client.registered) == 1, "loss seen")
    while len(b.frames) < 50:
        sent += 1
        assert a.tell(b.info.id, b"%d" % sent)
        await asyncio.sleep(0)
    assert b.frames == [b"%d" % number for number in range(len(b.frames))]
    assert not any(member.suspected for member in members)

    # The router comes back, and has everybody again.
    await first.start()
    await eventually(lambda: first.metric("members") == 3, "registered again")
    await c.end()
    await eventually(lambda: first.metric("members") == second.metric("members") == 2, "unregistered")
    assert not any(member.suspected for member in members)


async def test_member_lost_by_both_routers_is_suspected(
    start_router: StartRouter, start_member: StartMember
) -> None:
    first, second = await start_router(), await start_router()
    member = start_member("a", first, second, settings=QUICK)
    other = info("b")
    peers = [await Peer.registered(router, other) for router in (first, second)]
    for router in (first, second):
        await eventually(lambda router=router: router.metric("members") == 2, "registered")
    member.ask()
    await eventually(lambda: other.id in member.seen, "found")
    peers[0].abort()
    await eventually(lambda: first.metric("suspected_total") == 1, "lost by the first")
    answers = member.answers
    member.ask()
    await eventually(lambda: member.answers >= answers + 2, "answers of both")
    assert member.suspected == []
    peers[1].abort()
    await eventually(lambda: member.suspected, "lost by both")
    assert member.suspected == [other.id]


async def test_sigterm_ends_it_without_suspicions(
    start_router: StartRouter, start_member: StartMember
) -> None:
    router = await start_router()
    members = [start_member(name, router, settings=QUICK) for name in "ab"]
    await eventually(lambda: router.metric("members") == 2, "registered")
    assert await asyncio.to_thread(router.terminate) == 0
    lines = [json.loads(line) for line in router.log.splitlines()]
    assert [line["message"] for line in lines if line["module"] == "GOSSIP"] == [
        "gossip router started",
        "members are not authenticated",
        "gossip router stopping",
    ]
    await eventually(lambda: not any(member.client.registered for member in members), "loss seen")
    assert not any(member.suspected for member in members)


async def test_sigterm_does_not_wait_for_a_client_that_is_stuck(start_router: StartRouter) -> None:
    router = await start_router()
    a, stuck = info("a"), info("stuck")
    sender, receiver = await Peer.registered(router, a), await Peer.registered(router, stuck)
    receiver.reader._transport.pause_reading()  # type: ignore[attr-defined]
    await eventually(lambda: router.metric("members") == 2, "registered")
    for _ in range(16):
        sender.pass_on(a, stuck.id, bytes(1_000_000))
    await eventually(lambda: router.metric("held_bytes") > 0, "messages waiting")
    assert await asyncio.to_thread(router.terminate) == 0


async def test_too_many_connections_are_turned_away(start_router: StartRouter) -> None:
    router = await start_router("--most-connections", "2")
    peers = [await Peer.registered(router, info(name)) for name in "ab"]
    await eventually(lambda: router.metric("members") == 2, "both registered")
    assert await (await Peer.connect(router)).hear() is None
    assert router.metric("turned_away_total") == 1
    peers[0].abort()
    await eventually(lambda: router.metric("connections") == 1, "room again")
    await Peer.greeted(router)


async def test_a_client_without_members_makes_room(start_router: StartRouter) -> None:
    router = await start_router("--most-connections", "2")
    idle = [await Peer.greeted(router) for _ in range(2)]
    peers = [await Peer.registered(router, info(name)) for name in "ab"]
    assert [await each.hear() for each in idle] == [None] * 2
    await eventually(lambda: router.metric("members") == 2, "both registered")
    peers[0].say(Heartbeat())
    assert await peers[0].hear() == Heartbeat()


async def test_nobody_says_much_before_hello(start_router: StartRouter) -> None:
    router = await start_router()
    peer = await Peer.connect(router)
    peer.writer.write((1 << 20).to_bytes(4, "big") + bytes([1]))
    refused = await peer.hear()
    assert isinstance(refused, Refused)
    assert "1 to 4096 are allowed" in refused.reason
    assert await peer.hear() is None


async def test_who_says_nothing_makes_room(start_router: StartRouter) -> None:
    """For everybody who does; of many that come and go the log says little."""
    router = await start_router("--most-connections", "3")
    peer = await Peer.greeted(router)
    silent = [await Peer.connect(router) for _ in range(50)]
    assert await silent[0].hear() is None
    peer.say(Heartbeat())
    assert await peer.hear() == Heartbeat()
    others = [await Peer.greeted(router) for _ in range(2)]
    assert [await each.hear() for each in silent] == [None] * 50
    assert router.metric("connections") == 1 + len(others)
    assert router.metric("turned_away_total") == 50
    assert router.log.count("turned away") < 10


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--host", "203.0.113.1"], 1, "cannot start"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere", "--anonymous-members"], 1, "/nowhere"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], 2, "give --tls-ca"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], 2, "state --anonymous-members"),
        (
            [
                "--tls-cert",
                "/nowhere",
                "--tls-key",
                "/nowhere",
                "--tls-ca",
                "/nowhere",
                "--anonymous-members",
            ],
            2,
            "contradicts",
        ),
        (["--tls-cert", "/nowhere"], 2, "--tls-key"),
        (["--plain-text", "--tls-crl", "/nowhere"], 2, "--tls-ca"),
        (["--port", "65536"], 2, "from 0 to 65535"),
        (["--expiry", "nan"], 2, "--expiry"),
    ],
)
async def test_options_that_cannot_be_used(
    tmp_path: Path, options: list[str], status: int, said: str
) -> None:
    router = GossipRouter(tmp_path)
    process = await asyncio.create_subprocess_exec(*router.command(*options), stderr=asyncio.subprocess.PIPE)
    _, output = await process.communicate()
    assert process.returncode == status
    assert said in output.decode()


async def test_slow_receiver_that_reads_all_the_time_is_not_cut_off(start_router: StartRouter) -> None:
    """It reads 128 KiB a second of 12 MiB, for longer than one that reads nothing has."""
    router = await start_router()
    a, slow = info("a"), info("slow")
    sender = await Peer.registered(router, a)
    receiver = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", router.port), 20)
    try:
        receiver.sendall(encode_control(Hello(VERSION)) + encode_control(Register(GROUP, slow)))
        await eventually(lambda: router.metric("members") == 2, "all registered")
        for _ in range(4):
            sender.pass_on(a, slow.id, bytes(3 << 20))
        await eventually(lambda: router.metric("held_bytes") > 8 << 20, "most of it waits")
        begun, read = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < 2.5 * STALLED_BEHIND_SECONDS:
            while read < passed * 128 * 1024:
                read += len(await asyncio.to_thread(receiver.recv, 16 * 1024))
            await asyncio.sleep(POLL_SECONDS)
        assert router.metric("slow_clients_total") == 0
        assert read > PROGRESS_BYTES
    finally:
        receiver.close()
