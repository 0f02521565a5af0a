"""What the codec can carry, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from isthmus_router.gossip.binding import Binding
from isthmus_router.gossip.messages import (
    MOST_BYTES,
    Control,
    FrameReader,
    GetMembers,
    Heartbeat,
    Hello,
    Members,
    NotHere,
    Refused,
    Register,
    Suspect,
    Unregister,
)
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, PhysicalAddress

NAMES = st.text(max_size=60)
IDS = st.binary(min_size=16, max_size=16).filter(lambda octets: octets != NOBODY).map(MemberId)
ADDRESSES = st.builds(PhysicalAddress, NAMES, st.integers(0, 65_535), st.booleans())
INFOS = st.builds(MemberInfo, IDS, NAMES, st.lists(ADDRESSES, max_size=16).map(tuple))
PEER_NAMES = st.lists(st.text("ab.*-", min_size=1), max_size=3).map(tuple)
CONTROLS: st.SearchStrategy[Control] = st.one_of(
    st.builds(Hello, st.just(1), st.binary(max_size=16), st.floats(0, 1e6), st.integers(0, 1 << 32)),
    st.builds(Register, NAMES, INFOS, st.builds(Binding, PEER_NAMES, st.booleans())),
    st.builds(Unregister, NAMES, IDS),
    st.builds(GetMembers, NAMES),
    st.builds(Members, NAMES, st.lists(INFOS, max_size=4).map(tuple), st.booleans()),
    st.builds(Heartbeat),
    st.builds(Suspect, NAMES, IDS),
    st.builds(NotHere, NAMES, IDS),
    st.builds(Refused, NAMES),
)


def frames_of(piece: bytes) -> list[bytes]:
    """The frames that are sent as one piece."""
    reader = FrameReader(MOST_BYTES)
    reader.feed(piece)
    frames = reader.cut(len(piece), len(piece))
    assert b"".join(frames) == piece
    return frames
