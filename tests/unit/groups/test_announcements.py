"""What members say about where they are, as bytes, and any other bytes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.groups.address_network import GROUP, Member, Network

from isthmus_router.groups.announcements import (
    MOST_WANTED,
    Discover,
    Found,
    IHave,
    Invalidate,
    VersionMismatchError,
    WhoHas,
)
from isthmus_router.groups.frames import (
    MOST_NUMBER,
    PROTOCOL_VERSION,
    FrameError,
    Kind,
    decode_body,
    encode_body,
    encode_frame,
)
from isthmus_router.groups.identity import NOBODY, MemberInfo, PhysicalAddress, member_id, tunnel_address
from isthmus_router.groups.views import ViewId

ADA, BOB = member_id(b"a" * 16), member_id(b"b" * 16)
INFO = MemberInfo(ADA, "ada", (PhysicalAddress("10.0.0.1", 7_800), tunnel_address(ADA)))
OTHER = MemberInfo(BOB, "bøb", ())
VIEW = ViewId(7, BOB)
KINDS = {
    Discover: Kind.DISCOVER,
    Found: Kind.FOUND,
    WhoHas: Kind.WHO_HAS,
    IHave: Kind.I_HAVE,
    Invalidate: Kind.INVALIDATE,
}
Announcement = Discover | Found | WhoHas | IHave | Invalidate
MESSAGES: list[Announcement] = [
    Discover(GROUP, INFO, initial=True, view=None),
    Discover(GROUP, OTHER, initial=False, view=VIEW),
    Found(GROUP, INFO, None, None),
    Found(GROUP, INFO, VIEW, OTHER),
    WhoHas(GROUP, INFO, (ADA, BOB)),
    IHave(GROUP, (INFO, OTHER)),
    Invalidate(GROUP, ADA),
]


def framed(message: Announcement) -> bytes:
    return encode_frame(KINDS[type(message)], ADA, NOBODY, message.encode())


@pytest.mark.parametrize("message", MESSAGES)
def test_round_trip(message: Announcement) -> None:
    assert type(message).decode(framed(message)) == message


@pytest.mark.parametrize("message", MESSAGES)
def test_another_version_is_told(message: Announcement) -> None:
    body = encode_body(PROTOCOL_VERSION + 1, "whatever that may be")
    with pytest.raises(VersionMismatchError) as caught:
        type(message).decode(encode_frame(KINDS[type(message)], ADA, NOBODY, body))
    assert caught.value.version == PROTOCOL_VERSION + 1


V, G = PROTOCOL_VERSION, list(GROUP)
A_INFO: list[object] = [ADA, "ada", [["10.0.0.1", 7_800, False]]]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Invalidate, []),
        (Invalidate, ["1", G, ADA]),
        (Invalidate, [V, G]),
        (Invalidate, [V, ["payments", "nyc"], ADA]),
        (Invalidate, [V, ["payments", "nyc", 7], ADA]),
        (Invalidate, [V, G, ADA[:15]]),
        (Invalidate, [V, G, NOBODY]),
        (Invalidate, [V, G, "ada"]),
        (WhoHas, [V, G, A_INFO, [ADA] * (MOST_WANTED + 1)]),
        (WhoHas, [V, G, A_INFO, ADA]),
        (IHave, [V, G, [A_INFO] * (MOST_WANTED + 1)]),
        (IHave, [V, G, [[ADA, "x" * 256, []]]]),
        (IHave, [V, G, [[ADA, "ada", [["h", 1, False]] * 17]]]),
        (IHave, [V, G, [[ADA, "ada", [["h", 65_536, False]]]]]),
        (IHave, [V, G, [[ADA, "ada", [["h", -1, False]]]]]),
        (IHave, [V, G, [[ADA, "ada", [["", 1, False]]]]]),
        (IHave, [V, G, [[ADA, "ada", [["h", 1]]]]]),
        (IHave, [V, G, [[ADA, 7, []]]]),
        (Found, [V, G, A_INFO, [7, BOB], None]),
        (Found, [V, G, A_INFO, None, A_INFO]),
        (Found, [V, G, A_INFO, ["7", BOB], A_INFO]),
        (Found, [V, G, A_INFO, [-1, BOB], A_INFO]),
        (Discover, [V, G, A_INFO, True, [MOST_NUMBER + 1, BOB]]),
        (Discover, [V, G, A_INFO, True, [7]]),
    ],
)
def test_what_is_malformed_is_refused(kind: type[Announcement], fields: list[object]) -> None:
    with pytest.raises(FrameError):
        kind.decode(encode_frame(KINDS[kind], ADA, NOBODY, encode_body(*fields)))


@pytest.mark.parametrize("message", MESSAGES)
def test_later_versions_of_a_peer_may_append_fields(message: Announcement) -> None:
    frame = framed(message)
    fields = [*decode_body(frame, fields=1), "more", [1, 2]]
    longer = encode_frame(KINDS[type(message)], ADA, NOBODY, encode_body(*fields))
    assert type(message).decode(longer) == message


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(sorted(KINDS.values())), body=st.binary(max_size=200))
@example(kind=Kind.I_HAVE, body=b"")
def test_any_bytes_are_taken_or_refused(kind: Kind, body: bytes) -> None:
    network = Network()
    member = Member(network, "m", PhysicalAddress("10.0.0.9", 1))
    member.arrive(bytes([kind]) + ADA + NOBODY + body)
    assert member.heard.malformed + len(member.heard.mismatches) == 1
    member.arrive(body)
    assert len(member.resolver.cache) == 0


@pytest.mark.parametrize("seed", range(40))
def test_frames_with_flipped_bytes_are_taken_or_refused(seed: int) -> None:
    random = Random(seed)
    network = Network(seed)
    member = Member(network, "m", PhysicalAddress("10.0.0.9", 1))
    for _ in range(50):
        frame = bytearray(framed(random.choice(MESSAGES)))
        for _ in range(random.randint(1, 4)):
            frame[random.randrange(len(frame))] = random.randrange(256)
        member.arrive(
            bytes(frame[: random.randint(1, len(frame))]) if random.random() < 0.3 else bytes(frame)
        )
    network.run(3.0)
    assert member.heard.malformed > 0
    assert member.resolver.queued == (0, 0)
