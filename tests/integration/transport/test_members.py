"""Connections between members: one for a pair, made when needed, lost or refused, never in the way of others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from random import Random
from typing import Any

import pytest
from tests.integration.transport.recorder import GROUP, Member, Members, until
from tests.security.support.half_open import half_open, still_open

from isthmus_router.groups.frames import Kind, encode_frame
from isthmus_router.groups.identity import NOBODY, MemberInfo, PhysicalAddress, member_id
from isthmus_router.handshakes import MOST_OF_HOST
from isthmus_router.transport.framing import PREFIX
from isthmus_router.transport.hello import Hello, decode_hello, encode_hello


async def test_frames_arrive_in_order_and_answers_take_the_same_connection(members: Members) -> None:
    one, two = members.add(), members.add()
    bodies = [b"%d" % number for number in range(1000)]
    for body in bodies:
        one.send(two, body)
    await until(lambda: len(two.frames) == 1000)
    assert two.bodies == bodies
    assert two.frames[0][0] == one.address
    two.send(one, b"back")
    await until(lambda: one.bodies == [b"back"])
    assert one.connections == two.connections == 1


async def test_a_turn_takes_what_has_arrived_together(members: Members) -> None:
    one, two = members.add(), members.add()
    one.send(two, b"first")
    await until(lambda: len(two.frames) == 1)
    before = two.flushes
    for _ in range(1000):
        one.send(two, b"more")
    await until(lambda: len(two.frames) == 1001)
    assert two.flushes - before < 50


async def test_both_dial_and_one_connection_stays(members: Members) -> None:
    one, two = members.add(), members.add()
    one.send(two, b"from one")
    two.send(one, b"from two")
    await until(lambda: one.bodies == [b"from two"] and two.bodies == [b"from one"])
    await until(lambda: one.connections == two.connections == 1)
    one.send(two, b"again")
    two.send(one, b"again")
    await until(lambda: len(one.bodies) == len(two.bodies) == 2)
    assert one.connections == two.connections == 1
    assert one.lost == two.lost == []


async def test_nobody_listens(members: Members) -> None:
    one, two = members.add(), members.add()
    await two.driver.close()
    one.send(two, b"lost")
    await until(lambda: one.lost == [(two.address, True)])
    assert one.driver.statistics()["lost"] == 1


@pytest.mark.parametrize("host", ["x" * 64, "a..b", "a\u202eb", "nul\0"])
async def test_what_is_no_host_name_is_lost(members: Members, host: str) -> None:
    """Any member may announce such a one."""
    one = members.add()
    to = PhysicalAddress(host, 7800)
    one.send(to, b"lost")
    await until(lambda: one.lost == [(to, False)])


async def test_no_answer_is_not_refusal(members: Members) -> None:
    """The system takes the connection and nobody says HELLO."""
    one = members.add(handshake_timeout=0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        to = PhysicalAddress("127.0.0.1", silent.getsockname()[1])
        one.send(to, b"lost")
        await until(lambda: one.lost == [(to, False)])


async def test_a_member_that_ends_is_lost_at_once_and_found_again(members: Members) -> None:
    one, two = members.add(), members.add()
    one.send(two, b"a")
    await until(lambda: two.bodies == [b"a"])
    loop = asyncio.get_running_loop()
    await two.driver.close()
    begun = loop.time()
    await until(lambda: one.lost == [(two.address, False)])
    assert loop.time() - begun < 0.2
    successor = members.add(port=two.address.port)
    one.send(two, b"b")
    await until(lambda: successor.bodies == [b"b"])


async def test_an_address_that_did_not_answer_is_left_alone_for_a_while(members: Members) -> None:
    one, two = members.add(backoff_least=0.2, backoff_most=0.2), members.add()
    await two.driver.close()
    one.send(two, b"lost")
    await until(lambda: len(one.lost) == 1)
    for _ in range(100):
        one.send(two, b"lost")
    await until(lambda: len(one.lost) == 2)
    assert one.lost_at[1] - one.lost_at[0] >= 0.199
    assert one.driver.statistics()["lost"] == 101


async def test_what_waits_for_a_connection_takes_one_that_comes(members: Members) -> None:
    one, two = members.add(backoff_least=60, backoff_most=60), members.add()
    await two.driver.close()
    one.send(two, b"lost")
    await until(lambda: len(one.lost) == 1)
    one.send(two, b"waits")
    successor = members.add(port=two.address.port)
    successor.send(one, b"here")
    await until(lambda: successor.bodies == [b"waits"])
    assert len(one.lost) == 1


async def test_another_member_at_the_same_address(members: Members) -> None:
    """A member of the same name has taken it over, as after a restart: the former one is lost, once."""
    one, two = members.add(), members.add()
    one.send(two, b"a")
    await until(lambda: len(two.frames) == 1)
    successor = members.add(name=two.info.name)
    successor.announce(two.address)
    successor.send(one, b"hello")
    await until(lambda: one.bodies == [b"hello"])
    assert one.lost == [(two.address, False)]
    one.send(two.address, b"b")
    await until(lambda: successor.bodies == [b"b"])
    await until(lambda: two.lost == [(one.address, False)])
    assert one.lost == [(two.address, False)]


@pytest.mark.parametrize("first", [True, False])
async def test_a_member_that_announces_the_address_of_another_one(members: Members, first: bool) -> None:
    """The member at the address is not lost, and frames for it arrive there, in either order of connections."""
    one, two, mallory = members.add(), members.add(), members.add()
    mallory.announce(two.address)
    for member in (mallory, two) if first else (two, mallory):
        member.send(one, b"hello")
        await until(lambda: len(one.frames) == 1)
        one.frames.clear()
    one.driver.send(two.address, encode_frame(Kind.HEARTBEAT, one.id, two.id, b"for two"))
    await until(lambda: two.bodies == [b"for two"])
    assert mallory.bodies == []
    assert one.lost == two.lost == []
    assert one.connections == 2


@pytest.mark.parametrize(
    "other", [GROUP._replace(group="o"), GROUP._replace(site="sfo"), GROUP._replace(domain="shop/nyc2")]
)
async def test_who_does_not_belong_is_told_why(members: Members, other: Any, caplog: Any) -> None:
    one, stranger = members.add(), members.add(group=other)
    caplog.set_level("INFO")
    stranger.send(one, b"hello")
    await until(lambda: stranger.lost == [(one.address, False)])
    assert one.frames == []
    assert any("refused" in record.reason for record in caplog.records if hasattr(record, "reason"))


async def test_another_version_is_refused_in_words(members: Members) -> None:
    one = members.add()
    peer = MemberInfo(member_id(b"9" * 16), "later", (PhysicalAddress("127.0.0.1", 1),))
    reader, writer = await asyncio.open_connection("127.0.0.1", one.address.port)
    await read_frame(reader)
    write_frame(writer, encode_hello(Hello(GROUP, peer, version=2)))
    with pytest.raises(ValueError, match="peer refused: protocol version 2; this member speaks 1"):
        decode_hello(await read_frame(reader))
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        PREFIX.pack(16 * 1024 + 1),
        PREFIX.pack(3) + b"\x01\x02\x03",
        PREFIX.pack(3) + b"\x0a\x02\x03",
        bytes(100_000),
    ],
)
async def test_garbage_ends_only_the_connection_it_came_by(members: Members, garbage: bytes) -> None:
    one, two = members.add(), members.add()
    one.send(two, b"a")
    await until(lambda: len(two.frames) == 1)
    reader, writer = await asyncio.open_connection("127.0.0.1", one.address.port)
    writer.write(garbage)
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 5)
    writer.close()
    two.send(one, b"b")
    await until(lambda: one.bodies == [b"b"])
    assert one.lost == []


async def test_a_frame_too_long_ends_the_connection(members: Members) -> None:
    one, two = members.add(), members.add(longest_frame=1000)
    one.send(two, bytes(900))
    await until(lambda: len(two.frames) == 1)
    one.send(two, bytes(1000))
    await until(lambda: one.lost == [(two.address, False)])
    assert len(two.frames) == 1


async def test_long_frames(members: Members) -> None:
    one, two = members.add(), members.add()
    bodies = [bytes((number,)) * size for number, size in enumerate((1, 70_000, 5_000_000, 0, 300_000, 10))]
    for body in bodies:
        one.send(two, body)
    await until(lambda: len(two.frames) == len(bodies))
    assert two.bodies == bodies


async def test_part_of_a_frame_is_told(members: Members) -> None:
    """One may be long, and the line slow; who has not said who it is counts for nobody."""
    one = members.add()
    peer = MemberInfo(member_id(b"9" * 16), "slow", (PhysicalAddress("127.0.0.1", 1),))
    hello = encode_hello(Hello(GROUP, peer))
    _, writer = await asyncio.open_connection("127.0.0.1", one.address.port)
    writer.write(PREFIX.pack(len(hello)) + hello[:10])
    await writer.drain()
    writer.write(hello[10:])
    await until(lambda: one.connections == 1)
    frame = encode_frame(Kind.HEARTBEAT, peer.id, NOBODY, bytes(100))
    writer.write(PREFIX.pack(len(frame)) + frame[:60])
    await until(lambda: one.parts == [peer.id])
    assert one.frames == []
    writer.write(frame[60:])
    await until(lambda: one.bodies == [bytes(100)])
    assert one.parts == [peer.id]
    writer.close()


async def test_a_slow_peer_costs_its_own_messages(members: Members) -> None:
    """It reads nothing: messages beyond the bound are dropped and counted, others get theirs."""
    one, two = members.add(queue_bytes=1 << 20, user_timeout=60.0), members.add()
    one.send(two, b"a")
    await until(lambda: len(two.frames) == 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        slow = await slow_member(one, server)
        for number in range(2000):
            one.send(slow.address, bytes(10_000), Kind.BATCH)
            if number % 100 == 0:
                one.send(two, b"x")
                await until(lambda sent=2 + number // 100: len(two.frames) == sent)
        assert one.driver.statistics()["dropped"] > 500
        assert one.lost == []
        # What is not a message is not dropped; when there is no room for it either, the connection ends.
        for _ in range(1000):
            one.send(slow.address, bytes(10_000))
        await until(lambda: one.lost == [(slow.address, False)])
        slow.socket.close()


async def test_all_dial_all(members: Members) -> None:
    """However the connections cross, everything arrives, nothing is lost, and each pair keeps one."""
    everybody = [members.add() for _ in range(8)]
    for turn in range(20):
        for sender in everybody:
            for receiver in everybody:
                if receiver is not sender:
                    sender.send(receiver, b"%d" % turn, Kind.BATCH)
        await asyncio.sleep(0)
    await until(lambda: all(len(member.frames) == 7 * 20 for member in everybody))
    await until(lambda: all(member.connections == 7 for member in everybody))
    assert all(member.lost == [] for member in everybody)


@pytest.mark.parametrize("seed", range(5))
async def test_any_history(members: Members, seed: int) -> None:
    """Members come, go and drop each other at random; those that stay can talk in the end, over one connection."""
    random = Random(seed)
    stay = [members.add(backoff_most=0.1) for _ in range(3)]
    guests: list[Member] = []
    for _ in range(60):
        one, two = random.sample([*stay, *guests], 2)
        match random.choice(("send", "send", "send", "drop", "come", "go", "wait")):
            case "send":
                one.send(two, bytes(random.randrange(100_000)))
            case "drop":
                one.driver.drop(two.address, two.id)
            case "come":
                there = {guest.address.port for guest in guests if not guest.gone}
                left = {guest.address.port for guest in guests} - there
                guests.append(members.add(port=random.choice([0, *sorted(left)])))
            case "go" if guests:
                guest = random.choice(guests)
                guest.gone = True
                await guest.driver.close()
            case _:
                await asyncio.sleep(random.random() * 0.02)
    for guest in guests:
        await guest.driver.close()
    await until(lambda: all(member.connections <= 2 for member in stay))
    for member in stay:
        member.frames.clear()

    def all_heard() -> bool:
        return all({frame[1:17] for _, frame in m.frames} >= {n.id for n in stay if n is not m} for m in stay)

    for _ in range(100):
        if all_heard():
            break
        for one in stay:
            for two in stay:
                if one is not two:
                    one.send(two, b"still here")
        await asyncio.sleep(0.02)
    assert all_heard()
    await until(lambda: all(member.connections == 2 for member in stay))
    assert all(member.driver.statistics()["faults"] == 0 for member in stay)


async def test_strangers_make_room(members: Members) -> None:
    """Connections that do not say who they are do not keep members out."""
    one, two = members.add(most_connections=4), members.add()
    strangers = [await asyncio.open_connection("127.0.0.1", one.address.port) for _ in range(6)]
    two.send(one, b"a")
    await until(lambda: one.bodies == [b"a"])
    for _, writer in strangers:
        writer.close()


async def test_strangers_of_one_host_make_room_for_each_other(members: Members) -> None:
    one = members.add(handshake_timeout=600.0)
    strangers = await asyncio.to_thread(half_open, one.address.port, MOST_OF_HOST + 50)
    await until(lambda: still_open(strangers[:50]) == 0)
    assert still_open(strangers) == MOST_OF_HOST
    for sock in strangers:
        sock.close()


async def test_no_more_members_than_places(members: Members) -> None:
    one, two, three = members.add(most_connections=1), members.add(), members.add()
    two.send(one, b"a")
    await until(lambda: one.bodies == [b"a"])
    three.send(one, b"b")
    await until(lambda: three.lost == [(one.address, False)])
    assert one.driver.statistics()["refused"] == 1
    assert one.bodies == [b"a"]


async def test_who_has_taken_over_an_address_is_not_dropped_with_its_predecessor(members: Members) -> None:
    one, two = members.add(), members.add()
    one.send(two, b"a")
    await until(lambda: two.bodies == [b"a"])
    await two.driver.close()
    heir = members.add(port=two.address.port)
    heir.send(one, b"b")
    await until(lambda: one.bodies == [b"b"])
    one.driver.drop(heir.address, two.id)
    one.send(heir, b"c")
    await until(lambda: heir.bodies == [b"c"])
    assert heir.lost == []


async def test_nobody_speaks_for_another(members: Members) -> None:
    """A frame of another sender than the member that has said HELLO ends its connection."""
    one, two, mallory = members.add(), members.add(), members.add()
    two.send(one, b"a")
    mallory.send(one, b"b")
    await until(lambda: len(one.frames) == 2)
    mallory.driver.send(one.address, two.frame(b"I am another"))
    await until(lambda: one.lost == [(mallory.address, False)])
    two.send(one, b"c")
    await until(lambda: one.bodies[-1] == b"c")
    assert len(one.frames) == 3
    assert one.driver.problems.recent() == (
        f"member {mallory.info.name}: a frame in the name of another member",
    )


async def test_nobody_speaks_for_another_through_a_gossip_router(members: Members) -> None:
    """Routers let members send in their own name only, and so it is within."""
    one, two, mallory = (members.add(tunnel=True) for _ in range(3))
    one.driver.frame(0.0, two.id, two.frame(b"mine"))
    one.driver.frame(0.0, mallory.id, two.frame(b"another's"))
    assert one.bodies == [b"mine"]
    assert one.driver.statistics()["malformed"] == 1


async def test_dropped_by_name(members: Members) -> None:
    """The stack says that a member is gone: no loss is told at this end; it can be dialled again."""
    one, two = members.add(), members.add()
    one.send(two, b"a")
    one.send(two, b"b")
    await until(lambda: len(two.frames) == 2)
    one.send(two, b"c")
    one.driver.drop(two.address, two.id)
    await until(lambda: two.bodies == [b"a", b"b", b"c"])
    await until(lambda: two.lost == [(one.address, False)])
    one.send(two, b"d")
    await until(lambda: two.bodies[-1] == b"d")
    assert one.lost == []


async def test_what_was_sent_before_the_end_arrives(members: Members) -> None:
    one, two = members.add(), members.add()
    one.send(two, b"a")
    await until(lambda: two.bodies == [b"a"])
    for _ in range(50):
        one.send(two, bytes(100_000))
    await one.driver.close()
    await until(lambda: len(two.frames) == 51)


class SlowMember:
    """A peer that has said HELLO and then does not read."""

    def __init__(self, sock: socket.socket, address: PhysicalAddress) -> None:
        self.socket = sock
        self.address = address


async def slow_member(one: Member, server: socket.socket) -> SlowMember:
    """`one` connects to it."""
    loop = asyncio.get_running_loop()
    server.setblocking(False)
    address = PhysicalAddress("127.0.0.1", server.getsockname()[1])
    one.send(address, b"first")
    sock, _ = await loop.sock_accept(server)
    hello = encode_hello(Hello(GROUP, MemberInfo(member_id(b"8" * 16), "slow", (address,))))
    await loop.sock_sendall(sock, PREFIX.pack(len(hello)) + hello)
    await until(lambda: one.connections == 2)
    return SlowMember(sock, address)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """A whole frame."""
    (length,) = PREFIX.unpack(await reader.readexactly(PREFIX.size))
    return await reader.readexactly(length)


def write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """With its length."""
    writer.write(PREFIX.pack(len(frame)) + frame)
