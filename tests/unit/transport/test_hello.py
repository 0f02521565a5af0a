"""What members say on a connection first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import GroupName, MemberInfo, PhysicalAddress, member_id, tunnel_address
from isthmus_router.message.types import encode
from isthmus_router.transport.hello import HELLO, REFUSED, Hello, decode_hello, encode_hello, encode_refused

ONE, TWO = (member_id(bytes((number,)) * 16) for number in (1, 2))
GROUP = GroupName("orders", "nyc", "shop/nyc")
MEMBER = MemberInfo(ONE, "one", (PhysicalAddress("10.0.0.1", 7800), tunnel_address(ONE)))
OWN = Hello(GROUP, MEMBER)
PEER = Hello(GROUP, MEMBER._replace(id=TWO))


def test_there_and_back() -> None:
    hello = Hello(GROUP, MEMBER, generation=3)
    assert decode_hello(encode_hello(hello)) == hello
    assert PEER.objection(OWN) is None


@pytest.mark.parametrize(
    ("peer", "told"),
    [
        (PEER._replace(group=GROUP._replace(group="o")), "group 'o'; this member is of 'orders'"),
        (PEER._replace(group=GROUP._replace(site="sfo")), "site 'sfo'; this member is of 'nyc'"),
        (PEER._replace(group=GROUP._replace(domain="a/b")), "domain 'a/b'; this member is of 'shop/nyc'"),
        (OWN, "this is the member itself"),
    ],
)
def test_objections(peer: Hello, told: str) -> None:
    assert OWN.objection(peer) == told


def test_a_later_version_may_say_more() -> None:
    body = [1, *GROUP, [TWO, "two", [["10.0.0.2", 1, False, "more"]], "more"], 0, "more"]
    assert decode_hello(bytes((HELLO,)) + encode(body)).member.name == "two"


@pytest.mark.parametrize("reason", ["no", "ü" * 1000])
def test_refusal(reason: str) -> None:
    frame = encode_refused(reason)
    assert len(frame) < 1100
    with pytest.raises(FrameError, match=f"peer refused: {reason[:500]}"):
        decode_hello(frame)


def test_a_refusal_without_a_reason_says_so() -> None:
    with pytest.raises(FrameError, match="peer refused: it gave no reason"):
        decode_hello(encode_refused(""))


def test_a_refusal_that_says_much_is_cut_short() -> None:
    said = bytes((REFUSED,)) + encode("x" * 5_000)
    with pytest.raises(FrameError) as caught:
        decode_hello(said)
    assert len(str(caught.value)) < 1100
    with pytest.raises(FrameError, match="malformed HELLO: 8193 bytes; 8192 at most"):
        decode_hello(said.ljust(8_193, b"\0"))


@pytest.mark.parametrize(
    "body",
    [
        [],
        [1, *GROUP, [TWO, "two", []], 0],
        [1, *GROUP, [bytes(16), "two", [["h", 1, False]]], 0],
        [1, *GROUP, [b"short", "two", [["h", 1, False]]], 0],
        [1, *GROUP, [TWO, "x" * 256, [["h", 1, False]]], 0],
        [1, *GROUP, [TWO, "two", [["h", 65536, False]]], 0],
        [1, *GROUP, [TWO, "two", [["h", 1, False]] * 17], 0],
        ["1", *GROUP, [TWO, "two", [["h", 1, False]]], 0],
        [1, "g", "s", None, [TWO, "two", [["h", 1, False]]], 0],
        "text",
    ],
)
def test_malformed(body: object) -> None:
    with pytest.raises(FrameError):
        decode_hello(bytes((HELLO,)) + encode(body))


@given(st.binary(max_size=200), st.integers(0, 255))
def test_any_bytes(data: bytes, at: int) -> None:
    """FrameError or a HELLO, also where a right one is damaged."""
    right = bytearray(encode_hello(OWN))
    right[at % len(right) : at % len(right) + len(data) % 7] = data
    for frame in (data, b"\x01" + data, bytes(right)):
        try:
            assert isinstance(decode_hello(frame), Hello)
        except FrameError:
            continue
