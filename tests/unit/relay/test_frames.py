"""What is sent over the bridge, and that whatever comes neither ends a relay nor grows in it."""

from __future__ import annotations

import tracemalloc
from random import Random

import pytest
from tests.unit.relay.world import World

from isthmus_router.groups.frames import PROTOCOL_VERSION, FrameError, Kind, encode_frame
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, member_id
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId
from isthmus_router.relay.messages import (
    MOST_NUMBERS,
    MOST_ORIGINS,
    BridgeKind,
    Hello,
    Position,
    Unicast,
    as_endpoints,
    pack_hello,
    pack_numbers,
    pack_unicast,
    unpack_hello,
    unpack_names,
    unpack_numbers,
    unpack_unicast,
)
from isthmus_router.relay.settings import Endpoint
from isthmus_router.relay.site_acks import decode_site_acks, encode_site_acks
from isthmus_router.relay.site_table import MOST_SITES
from isthmus_router.relay.sites import KnownSite, newest

A, B, C, D = (member_id(bytes((index,)) * 16) for index in range(1, 5))


def view(number: int, *ids: MemberId) -> View:
    return View(ViewId(number, ids[0]), tuple(MemberInfo(member, member.hex(), ()) for member in ids))


def test_what_is_packed_is_unpacked() -> None:
    hello = Hello(
        PROTOCOL_VERSION,
        "group",
        "nyc",
        "ns/nyc",
        "sfo",
        A,
        (Endpoint("::1", 5), Endpoint("host", 6)),
        view(3, A, B),
        (Position(C, 7, 70),),
        through=True,
        via=bytes(D),
    )
    assert unpack_hello(pack_hello(BridgeKind.HELLO, hello)) == hello
    unicast = Unicast(Kind.UNICAST, 2, A, B, b"body")
    assert unpack_unicast(pack_unicast(unicast)) == unicast
    assert unpack_numbers(pack_numbers(BridgeKind.ACK, [(A, 1), (B, 2**40)])) == [(A, 1), (B, 2**40)]
    acks = {"sfo": {A: 1, B: 2}, "lon": {}}
    assert [(site, dict(numbers)) for site, numbers in decode_site_acks(encode_site_acks(acks), acks)] == [
        ("sfo", acks["sfo"]),
        ("lon", acks["lon"]),
    ]
    assert [site for site, _ in decode_site_acks(encode_site_acks(acks), {"lon"})] == ["lon"]


def test_acknowledgements_of_sites_in_a_frame_are_bounded() -> None:
    ids = [member_id(number.to_bytes(16)) for number in range(1, MOST_ORIGINS + 2)]
    most = encode_site_acks({"sfo": dict.fromkeys(ids[1:], 1)})
    assert [len(numbers) for _, numbers in decode_site_acks(most, {"sfo"})] == [MOST_ORIGINS]
    few = encode_site_acks({"sfo": {A: 1}})
    bodies = [encode_site_acks({site: dict.fromkeys(ids, 1)}) for site in ("sfo", "lon")]
    bodies += [few * 2, encode_site_acks({str(site): {} for site in range(MOST_SITES + 1)})]
    for body in bodies:
        with pytest.raises(FrameError, match=r"most|twice|more than"):
            list(decode_site_acks(body, {"sfo"}))


def test_names_are_those_of_the_greeting() -> None:
    hello = Hello(PROTOCOL_VERSION, "group", "nyc", "ns/nyc", "sfo", A, (), view(3, A), ())
    frame = pack_hello(BridgeKind.HELLO, hello)
    assert unpack_names(frame) == hello[:6]
    for cut in range(1, len(frame)):
        with pytest.raises(FrameError):
            unpack_names(frame[:cut])


def test_numbers_of_a_frame_are_bounded() -> None:
    numbers = [(A, number) for number in range(1, MOST_NUMBERS + 2)]
    assert unpack_numbers(pack_numbers(BridgeKind.PING, numbers[1:])) == numbers[1:]
    with pytest.raises(FrameError, match="more than 1024 numbers"):
        unpack_numbers(pack_numbers(BridgeKind.PING, numbers))


def test_views_of_a_site_have_a_bounded_number_of_members_together() -> None:
    known = KnownSite("sfo", 10.0)
    ids = [member_id(number.to_bytes(16)) for number in range(1, 3 * MOST_MEMBERS)]
    for number in range(12):
        first = number * MOST_MEMBERS // 4
        known.heard(ids[first], view(number, *ids[first : first + MOST_MEMBERS // 4]))
    assert [each.id.number for each in known.views] == [11, 10, 9, 8]
    known.heard(ids[0], view(20, *ids[:MOST_MEMBERS]))
    assert [each.id.number for each in known.views] == [20]


def test_views_with_the_same_members_count_each_unless_they_are_alike() -> None:
    """Relays of an honest site tell one view; invented ones may tell many of the same members."""
    known = KnownSite("sfo", 10.0)
    ids = [member_id(number.to_bytes(16)) for number in range(1, MOST_MEMBERS + 1)]
    tracemalloc.start()
    try:
        for relay in ids[:64]:
            known.heard(relay, view(7, *ids))
        assert [known.stale(relay) for relay in ids[:64]] == 64 * [False]
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
        for number, relay in enumerate(ids[:64], 8):
            known.heard(relay, view(number, *ids))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert [each.id.number for each in known.told.values()] == [71]
    assert known.stale(ids[0])
    for relay in ids[:64]:
        known.heard(relay, view(71, *ids))
    assert [known.stale(relay) for relay in ids[:64]] == 64 * [False]


@pytest.mark.parametrize("port", [-1, 65_536, 1 << 40])
def test_an_endpoint_has_a_port(port: int) -> None:
    with pytest.raises(FrameError, match="port"):
        as_endpoints([["host", port]])


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_counted_and_changes_nothing(seed: int) -> None:
    random = Random(seed)
    world = World(seed, {"nyc": 2, "sfo": 2})
    world.run(1.0)
    target = world.node("nyc0")
    before = target.relay.global_view
    sessions = list(target.relay._bridge.sessions)
    hello = pack_hello(BridgeKind.HELLO_ACK, target.relay.hello("sfo"))
    for _ in range(300):
        frame = bytearray(bytes((random.randrange(17),)) + random.randbytes(random.randrange(60)))
        if random.random() < 0.3:
            frame = bytearray(hello)
            for _ in range(random.randrange(1, 4)):
                frame[random.randrange(1, len(frame))] = random.randrange(256)
        if frame[:1] in (b"\x03", b"\x04", b"\x0f"):
            continue  # REFUSED, NOT_RELAY and GOODBYE say something, however short
        for session in sessions:
            target.relay.frame(world.now, session, bytes(frame))
        for kind in (Kind.SITES, Kind.SITE_ACKS, Kind.FORWARD):
            try:
                target.relay.on_frame(
                    world.now, kind, world.node("nyc1").id, encode_frame(kind, A, NOBODY, frame)
                )
            except FrameError:
                continue
    assert target.relay.snapshot(world.now).malformed_frames > 0
    assert target.relay.global_view == before
    origin = world.node("nyc1")
    origin.publish()
    world.run(5.0)
    world.check_complete([origin])


def test_of_views_that_share_a_member_the_newest_counts() -> None:
    stale, newer, half = view(5, A, B, C), view(6, B, C), view(4, D)
    assert newest([stale, newer]) == (newer,)
    assert newest([half, newer, stale]) == (newer, half)
