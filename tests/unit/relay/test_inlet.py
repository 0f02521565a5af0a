"""What comes from other sites, frame by frame: what is taken, asked for, and acknowledged to whom."""

from __future__ import annotations

from typing import cast

import pytest

from isthmus_router.groups.batch import Batch, GroupMessage, make_batch
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId, member_id
from isthmus_router.groups.streams.log import Log
from isthmus_router.groups.streams.senders import MOST_STEP
from isthmus_router.relay.backpressure import Backpressure
from isthmus_router.relay.inlet import ACK_INTERVAL, MOST_ASKED, Inlet
from isthmus_router.relay.messages import MOST_NUMBERS, BridgeKind, kind_of, pack, unpack, unpack_numbers
from isthmus_router.relay.port import SiteStreams
from isthmus_router.relay.session import Phase, Session

A, B, NEW, OTHER, UNHEARD = (MemberId(bytes([65 + number]) * 16) for number in range(5))


class NobodyIsBehind:
    def until(self, session: Session) -> float:
        return 0.0


class Rig:
    """Streams of two origins of sfo, of one of lon, and sessions with sfo."""

    def __init__(self) -> None:
        self.logs = {A: Log("sfo", 6, 10), B: Log("sfo", 4, 6), OTHER: Log("lon", 3, 4)}
        self.safe = {A: 5, B: 3, OTHER: 2}
        self.new = True
        self.begun: set[MemberId] = set()
        self.full = False
        self.told: list[tuple[object, ...]] = []
        self.sent: list[tuple[object, ...]] = []
        self.sessions = [Session(number, "sfo", Phase.OPEN, 0.0, 0.0) for number in (1, 2)]
        self.sites = {UNHEARD: "lon"}
        """Of members whose streams have not begun here."""
        behind = cast(Backpressure, NobodyIsBehind())
        self.inlet = Inlet(cast(SiteStreams, self), self.send, behind, self.sites.get)

    def origins(self) -> list[MemberId]:
        return list(self.logs)

    def has_stream(self, origin: MemberId) -> bool:
        return origin in self.logs or origin in self.begun

    def log(self, origin: MemberId) -> Log | None:
        return self.logs.get(origin)

    def held(self, origin: MemberId) -> int:
        return self.safe.get(origin, 0)

    def accept(self, now: float, batch: object, source: object, *, disseminate: bool = False) -> bool:
        if not self.full:
            self.begun.add(cast(Batch, batch).origin)
        return self.new

    def start(self, now: float, origin: MemberId, *begin: object) -> None:
        if not self.full:
            self.begun.add(origin)
        self.told.append(("start", origin, *begin))

    def skip(self, now: float, origin: MemberId, *gap: object) -> None:
        self.told.append(("skip", origin, *gap))

    def send(self, session: int, frame: bytes) -> None:
        if kind_of(frame) is BridgeKind.ACK:
            self.sent.append((session, dict(unpack_numbers(frame))))
        else:
            self.sent.append((session, kind_of(frame), *unpack(frame, 1)))

    def get(self, kind: BridgeKind, origin: MemberId, *numbers: int) -> None:
        self.inlet.on_frame(0.0, self.sessions[0], kind, pack(kind, bytes(origin), *numbers))

    def batch(self, origin: MemberId, site: str = "sfo") -> None:
        batch = make_batch(origin, 6, 10, site, None, [GroupMessage("a", b"x")] * 2)
        frame = bytes((BridgeKind.BATCH,)) + batch.encoded
        self.inlet.on_frame(0.0, self.sessions[0], BridgeKind.BATCH, frame)

    def acknowledged(self) -> list[tuple[object, ...]]:
        """What has been sent, with what is due in a moment."""
        self.inlet.on_time(ACK_INTERVAL, self.sessions)
        sent, self.sent = self.sent, []
        return sent


def test_a_session_begins_with_what_is_safe_here_of_its_site() -> None:
    rig = Rig()
    rig.inlet.begin(0.0, rig.sessions[1])
    rig.inlet.on_time(ACK_INTERVAL / 2, rig.sessions)
    assert rig.sent == []
    assert rig.acknowledged() == [(2, {A: 5, B: 3})]
    rig.inlet.held(0.0, A, 6, rig.sessions)
    assert rig.acknowledged() == [(2, {A: 6})]


def test_what_is_safe_is_told_to_the_relay_that_sends_it() -> None:
    rig = Rig()
    rig.batch(A)
    rig.inlet.held(0.0, A, 6, rig.sessions)
    rig.inlet.held(0.0, A, 4, rig.sessions)
    assert rig.acknowledged() == [(1, {A: 6})]


def test_what_comes_again_is_acknowledged_again() -> None:
    rig = Rig()
    rig.batch(A)
    assert rig.acknowledged() == []
    rig.new = False
    rig.batch(A)
    assert rig.acknowledged() == [(1, {A: 5})]
    counts = rig.inlet.counts["sfo"]
    assert (counts.messages, counts.duplicates) == (4, 2)


def test_what_is_missing_is_asked_for() -> None:
    rig = Rig()
    rig.safe = {}
    rig.inlet.on_ping(0.0, rig.sessions[0], [(NEW, 7), (A, 8), (A, 5), (B, 10_000)])
    assert rig.acknowledged() == [
        (1, BridgeKind.NAK, NEW, 0, 0, 0),
        (1, BridgeKind.NAK, A, 6, 8, 10),
        (1, BridgeKind.NAK, B, 4, 4 + MOST_ASKED, 6),
    ]


def test_a_ping_is_answered_with_what_is_safe() -> None:
    rig = Rig()
    rig.inlet.on_ping(0.0, rig.sessions[0], [(A, 5), (OTHER, 2)])
    assert rig.acknowledged() == [(1, {A: 5})]


def test_gaps_are_told_of_what_is_still_to_come() -> None:
    rig = Rig()
    rig.get(BridgeKind.GAP, A, 3, 5, 6)
    assert rig.told == []
    rig.get(BridgeKind.GAP, A, 3, 6, 8)
    rig.get(BridgeKind.GAP, NEW, 4, 7, 9)
    assert rig.told == [
        ("skip", A, "sfo", 3, 6, 8),
        ("start", NEW, "sfo", 4, 0),
        ("skip", NEW, "sfo", 4, 7, 9),
    ]
    assert rig.inlet.counts["sfo"].lost == 17


def test_no_site_speaks_for_another_ones_members() -> None:
    rig = Rig()
    rig.get(BridgeKind.START, OTHER, 1, 0)
    rig.get(BridgeKind.START, NEW, 3, 4)
    rig.get(BridgeKind.GAP, OTHER, 3, 9, 14)
    rig.batch(OTHER)
    with pytest.raises(FrameError):
        rig.batch(A, "lon")
    assert rig.told == [("start", NEW, "sfo", 3, 4)]
    assert not rig.inlet.counts["sfo"].messages


def test_no_site_begins_the_stream_of_another_ones_member() -> None:
    rig = Rig()
    rig.get(BridgeKind.START, UNHEARD, 1, 0)
    rig.get(BridgeKind.GAP, UNHEARD, 3, 9, 14)
    rig.batch(UNHEARD)
    assert rig.told == []
    assert not rig.inlet.counts["sfo"].messages


@pytest.mark.parametrize("gap", [(0, 4, 1), (5, 4, 1), (6, 7, -1), (6, 6 + MOST_STEP + 1, 1)])
def test_a_gap_must_be_one(gap: tuple[int, int, int]) -> None:
    with pytest.raises(FrameError):
        Rig().get(BridgeKind.GAP, A, *gap)


def test_acknowledgements_of_many_origins_take_several_frames() -> None:
    rig = Rig()
    origins = [member_id(number.to_bytes(16)) for number in range(1, 2 * MOST_NUMBERS + 2)]
    rig.sessions[0].origins.update(origins)
    for origin in origins:
        rig.inlet.held(0.0, origin, 1, rig.sessions)
    frames = rig.acknowledged()
    assert [len(numbers) for _, numbers in frames] == [MOST_NUMBERS, MOST_NUMBERS, 1]


def test_a_session_remembers_origins_with_a_stream_only() -> None:
    rig = Rig()
    (session, _) = rig.sessions
    invented = [MemberId(number.to_bytes(16)) for number in range(1, 2_000)]
    rig.inlet.on_ping(0.0, session, [(origin, 5) for origin in invented])
    assert len(rig.sent) == len(invented)
    assert session.origins == set()
    rig.full = True
    for origin in invented:
        with pytest.raises(FrameError, match="no place"):
            rig.batch(origin)
        with pytest.raises(FrameError, match="no place"):
            rig.get(BridgeKind.START, origin, 1, 0)
        with pytest.raises(FrameError, match="no place"):
            rig.get(BridgeKind.GAP, origin, 1, 2, 0)
    assert session.origins == set()
    rig.full = False
    rig.batch(NEW)
    rig.inlet.on_ping(0.0, session, [(A, 5)])
    assert session.origins == {NEW, A}
