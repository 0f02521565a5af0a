"""Bridge sessions: dialled, refused, ended, spliced through a member that is no relay."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.integration.support.certificates import Authority
from tests.integration.transport.recorder import Member, Members, profile, until
from tests.security.support.half_open import half_open, still_open

from isthmus_router.credentials import REVOKED
from isthmus_router.handshakes import MOST_OF_HOST
from isthmus_router.places import LEAST
from isthmus_router.relay.settings import Endpoint
from isthmus_router.transport.bridge import LONGEST_HELLO_BYTES
from isthmus_router.transport.framing import PREFIX


def sites(members: Members, count: int, **settings: Any) -> list[Member]:
    """Members that listen for other sites."""
    return [members.add(bridge_host="127.0.0.1", bridge_port=0, **settings) for _ in range(count)]


async def session(one: Member, two: Member, number: int = 1) -> int:
    """A session that `one` has dialled; returns its number at `two`."""
    before = set(two.opened)
    one.driver.bridge.dial(number, "sfo", two.endpoint)
    await until(lambda: number in one.opened and len(two.opened) > len(before))
    return next(iter(set(two.opened) - before))


async def test_frames_both_ways(members: Members) -> None:
    one, two = sites(members, 2)
    other = await session(one, two)
    assert other < 0
    for number in range(100):
        one.driver.bridge.send(1, b"%d" % number * 1000)
    await until(lambda: len(two.bridged) == 100)
    assert two.bridged == [(other, b"%d" % number * 1000) for number in range(100)]
    two.driver.bridge.send(other, b"back")
    await until(lambda: one.bridged == [(1, b"back")])
    assert one.driver.bridge.backlog(1) == 0
    assert one.opened[1] == ()


async def test_names_of_certificates(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "company")
    (one,) = sites(
        members, 1, bridge_profile=profile(authority.issue("nyc", "nyc.example", "nyc.example.org"))
    )
    (two,) = sites(members, 1, bridge_profile=profile(authority.issue("sfo", "sfo.example")))
    other = await session(one, two)
    assert one.opened[1] == ("sfo.example", "sfo")
    assert two.opened[other] == ("nyc.example", "nyc.example.org", "nyc")


async def test_what_waits_is_sent_before_a_session_is_closed(members: Members, tmp_path: Path) -> None:
    """It is written in many pieces."""
    authority = Authority(tmp_path, "company")
    (one,) = sites(members, 1, bridge_profile=profile(authority.issue("nyc")))
    (two,) = sites(members, 1, bridge_profile=profile(authority.issue("sfo")))
    other = await session(one, two)
    frames = [bytes([number]) * 1_000_000 for number in range(20)]
    for frame in frames:
        one.driver.bridge.send(1, frame)
    one.driver.bridge.close(1, "done")
    await until(lambda: bool(two.closed))
    assert two.bridged == [(other, frame) for frame in frames]


async def test_no_certificate_has_all_sessions(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "company")
    most = 2 * LEAST + 20
    (one,) = sites(members, 1, bridge_profile=profile(authority.issue("nyc")), most_connections=most)
    (greedy,) = sites(members, 1, bridge_profile=profile(authority.issue("sfo")))
    (other,) = sites(members, 1, bridge_profile=profile(authority.issue("lon")))
    for number in range(1, most + 1):
        greedy.driver.bridge.dial(number, "nyc", one.endpoint)
        await until(lambda number=number: number in greedy.opened)  # type: ignore[misc]
        greedy.driver.bridge.send(number, b"to be passed on")
        await until(lambda number=number: len(one.opened) + len(greedy.closed) >= number)  # type: ignore[misc]
    for accepted in one.opened:
        one.driver.bridge.send(accepted, b"answered")
    assert len(one.opened) == LEAST + 10
    await session(other, one)
    assert one.driver.bridge.counts["refused"] == LEAST + 10


async def test_wrong_authority(members: Members, tmp_path: Path) -> None:
    (one,) = sites(members, 1, bridge_profile=profile(Authority(tmp_path, "own").issue("nyc")))
    (two,) = sites(members, 1, bridge_profile=profile(Authority(tmp_path, "other").issue("sfo")))
    one.driver.bridge.dial(1, "sfo", two.endpoint)
    await until(lambda: len(one.closed) == 1)
    assert one.closed[0][0] == 1
    assert "certificate verify failed" in one.closed[0][1]
    assert one.opened == two.opened == {}


async def test_nobody_listens(members: Members) -> None:
    one, two = sites(members, 2)
    endpoint = two.endpoint
    await two.driver.close()
    one.driver.bridge.dial(7, "sfo", endpoint)
    await until(lambda: len(one.closed) == 1)
    number, reason = one.closed[0]
    assert number == 7
    assert str(endpoint) in reason
    assert "refused" in reason


async def test_names_are_resolved(members: Members) -> None:
    one, two = sites(members, 2)
    one.driver.bridge.dial(1, "sfo", Endpoint("localhost", two.endpoint.port))
    await until(lambda: 1 in one.opened)
    one.driver.bridge.dial(2, "sfo", Endpoint("no-such-host.invalid", 1))
    await until(lambda: [number for number, _ in one.closed] == [2])


async def test_closing_writes_what_was_sent_and_is_not_told(members: Members) -> None:
    one, two = sites(members, 2)
    other = await session(one, two)
    two.driver.bridge.send(other, b"welcome")
    await until(lambda: len(one.bridged) == 1)
    one.driver.bridge.send(1, bytes(3_000_000))
    one.driver.bridge.send(1, b"goodbye")
    one.driver.bridge.close(1, "done")
    await until(lambda: [number for number, _ in two.closed] == [other])
    assert [len(frame) for _, frame in two.bridged] == [3_000_000, 7]
    assert one.closed == []
    one.driver.bridge.send(1, b"too late")
    assert one.driver.bridge.backlog(1) == 0


async def test_garbage_and_frames_too_long(members: Members) -> None:
    (one,) = sites(members, 1)
    (two,) = sites(members, 1, longest_frame=1000)
    other = await session(one, two)
    one.driver.bridge.send(1, bytes(1001))
    await until(lambda: one.closed != [] and two.closed != [])
    assert two.closed == [(other, "frame of 1001 bytes; 1000 at most")]
    assert two.bridged == []


async def test_who_was_not_answered_says_little(members: Members) -> None:
    """Frames wait in memory until they are whole, and whoever can connect may begin one."""
    one, two = sites(members, 2)
    other = await session(one, two)
    one.driver.bridge.send(1, bytes(LONGEST_HELLO_BYTES))
    await until(lambda: len(two.bridged) == 1)
    one.driver.bridge.send(1, bytes(LONGEST_HELLO_BYTES + 1))
    await until(lambda: one.closed != [] and two.closed != [])
    assert two.closed == [(other, f"frame of {LONGEST_HELLO_BYTES + 1} bytes; {LONGEST_HELLO_BYTES} at most")]


async def test_strangers_of_one_host_make_room_for_each_other(members: Members) -> None:
    one, two = sites(members, 2)
    answered = await session(two, one)
    one.driver.bridge.send(answered, b"answer")
    strangers = await asyncio.to_thread(half_open, one.endpoint.port, MOST_OF_HOST + 50)
    await until(lambda: still_open(strangers[:50]) == 0)
    assert still_open(strangers) == MOST_OF_HOST
    assert answered not in [number for number, _ in one.closed]
    for sock in strangers:
        sock.close()


async def test_part_of_a_frame_is_told(members: Members) -> None:
    """One may be long, and the line slow."""
    (one,) = sites(members, 1)
    _, writer = await asyncio.open_connection("127.0.0.1", one.endpoint.port)
    await until(lambda: len(one.opened) == 1)
    (session,) = one.opened
    writer.write(PREFIX.pack(30) + bytes(10))
    await until(lambda: one.parts == [session])
    writer.write(bytes(10))
    await until(lambda: one.parts == [session, session])
    assert one.bridged == []
    writer.write(bytes(10))
    await until(lambda: one.bridged == [(session, bytes(30))])
    assert one.parts == [session, session]
    writer.close()


async def test_splice(members: Members, tmp_path: Path) -> None:
    """A member that is no relay passes frames on, to the relay and back, more than either would hold."""
    identity = profile(Authority(tmp_path, "company").issue("site"))
    dialler, between, relay = sites(members, 3, bridge_profile=identity, queue_bytes=8 << 20)
    inner = await session(dialler, between)
    between.driver.bridge.splice(inner, relay.endpoint, b"first")
    await until(lambda: len(relay.opened) == 1)
    (outer,) = relay.opened
    for number in range(400):
        dialler.driver.bridge.send(1, number.to_bytes(2, "big") + bytes(100_000))
        await until(lambda: dialler.driver.bridge.backlog(1) < 4 << 20)
    await until(lambda: len(relay.bridged) == 401)
    assert relay.bridged[0] == (outer, b"first")
    assert [int.from_bytes(frame[:2], "big") for _, frame in relay.bridged[1:]] == list(range(400))
    relay.driver.bridge.send(outer, b"back")
    await until(lambda: dialler.bridged == [(1, b"back")])
    assert between.bridged == []
    dialler.driver.bridge.close(1, "done")
    await until(lambda: [number for number, _ in relay.closed] == [outer])
    assert between.closed == []


async def test_splice_to_a_slow_relay(members: Members) -> None:
    """What is not read there waits where it was sent, not in between."""
    (dialler,) = sites(members, 1, queue_bytes=64 << 20, bridge_user_timeout=60.0)
    between, relay = sites(members, 2, queue_bytes=1 << 20, bridge_user_timeout=60.0)
    inner = await session(dialler, between)
    between.driver.bridge.splice(inner, relay.endpoint, b"first")
    await until(lambda: len(relay.bridged) == 1)
    (outer,) = relay.opened
    relay.driver.bridge._sessions[outer].pause_reading(True)
    for number in range(400):
        dialler.driver.bridge.send(1, number.to_bytes(2, "big") + bytes(100_000))
        await asyncio.sleep(0)
    assert dialler.driver.bridge.backlog(1) > 10_000_000
    assert len(relay.bridged) < 100
    relay.driver.bridge._sessions[outer].pause_reading(False)
    await until(lambda: len(relay.bridged) == 401)
    assert [int.from_bytes(frame[:2], "big") for _, frame in relay.bridged[1:]] == list(range(400))
    assert dialler.closed == relay.closed == []


async def test_splice_to_nobody_ends_the_session(members: Members) -> None:
    dialler, between, gone = sites(members, 3)
    endpoint = gone.endpoint
    await gone.driver.close()
    inner = await session(dialler, between)
    between.driver.bridge.splice(inner, endpoint, b"first")
    await until(lambda: [number for number, _ in dialler.closed] == [1])


async def test_sessions_of_older_credentials_are_told(members: Members, tmp_path: Path) -> None:
    """They go on; a session that is dialled then shows the new certificate."""
    authority = Authority(tmp_path, "company")
    one, two = sites(members, 2, bridge_profile=profile(authority.issue("old")))
    await session(one, two)
    two.driver.bridge.dial(1, "nyc", one.endpoint)
    await until(lambda: 1 in two.opened)
    one.driver.reload(bridge_profile=profile(authority.issue("new")))
    assert one.renewed == [1]
    one.driver.bridge.send(1, b"still")
    await until(lambda: len(two.bridged) == 1)
    other = await session(one, two, 2)
    assert two.opened[other] == ("localhost", "new")
    assert one.closed == two.closed == []


async def test_sessions_with_a_revoked_site_end(members: Members, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "company")
    own, revoked = authority.issue("one"), authority.issue("two")
    lists = {"crl_file": str(authority.revoke())}
    one, two = (
        sites(members, 1, bridge_profile=profile(identity, **lists))[0] for identity in (own, revoked)
    )
    await session(two, one)
    authority.revoke(revoked)
    one.driver.reload(bridge_profile=profile(own, files_digest="after", **lists))
    await until(lambda: [reason for _, reason in one.closed] == [REVOKED])


async def test_sessions_with_a_site_of_a_revoked_authority_end(members: Members, tmp_path: Path) -> None:
    """They are refused from then on, whichever site dials."""
    root = Authority(tmp_path, "company")
    lost = root.subordinate("lost")
    own = root.issue("one")
    lists = {"crl_file": str(root.revoke())}
    one, two = (
        sites(members, 1, bridge_profile=profile(identity, **lists))[0]
        for identity in (own, lost.issue("two"))
    )
    await session(two, one)
    root.revoke(lost)
    one.driver.reload(bridge_profile=profile(own, files_digest="after", **lists))
    await until(lambda: [reason for _, reason in one.closed] == [REVOKED])
    two.driver.bridge.dial(2, "sfo", one.endpoint)
    await until(lambda: 2 in [number for number, _ in two.closed])
    one.driver.bridge.dial(3, "nyc", two.endpoint)
    await until(lambda: 3 in [number for number, _ in one.closed])
    assert "certificate revoked" in one.closed[-1][1]
    assert len(one.opened) == 1


async def test_nothing_is_told_before_a_call_has_returned(members: Members) -> None:
    """A queue that overflows before there is a connection ends the session, after the call."""
    one, two = sites(members, 2, queue_bytes=1000)
    one.driver.bridge.dial(1, "sfo", two.endpoint)
    one.driver.bridge.send(1, bytes(1000))
    one.driver.bridge.send(1, bytes(5_000_000))
    assert one.closed == []
    await until(lambda: one.closed == [(1, "the peer does not read")])
    assert one.opened == {}
