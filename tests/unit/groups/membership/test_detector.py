"""The failure detector alone: who watches whom, and who is a suspect when."""

from __future__ import annotations

import pytest

from isthmus_router.groups.frames import Kind
from isthmus_router.groups.identity import MemberId, MemberInfo, member_id
from isthmus_router.groups.membership.detector import Detector
from isthmus_router.groups.membership.port import MembershipSettings
from isthmus_router.groups.views import View, ViewId

IDS = [member_id(bytes([number]) * 16) for number in range(5)]
VIEW = View(ViewId(1, IDS[0]), tuple(MemberInfo(member, "", ()) for member in IDS))
SETTINGS = MembershipSettings()


class Port:
    """Notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[Kind, MemberId]] = []

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        self.sent.append((kind, to))

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        raise AssertionError("heartbeats go to neighbours only")

    def take(self) -> list[tuple[Kind, MemberId]]:
        sent, self.sent = self.sent, []
        return sent


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def detector(port: Port) -> Detector:
    """Of the middle one of five."""
    detector = Detector(IDS[2], SETTINGS, port)
    detector.view_installed(0.0, VIEW)
    return detector


def run(detector: Detector, start: float, end: float, *heard: MemberId) -> None:
    """Time passes, and those are heard of."""
    now = start
    while (now := max(now, detector.deadline)) <= end:
        for member in heard:
            detector.heard(now, member)
        detector.on_time(now)


def test_heartbeats_go_to_the_two_before_and_over_those_that_failed(detector: Detector, port: Port) -> None:
    assert port.take() == [(Kind.HEARTBEAT, IDS[0]), (Kind.HEARTBEAT, IDS[1])]
    detector.confirm(0.1, IDS[1])
    run(detector, 0.1, 0.5)
    assert port.take() == [(Kind.HEARTBEAT, IDS[4]), (Kind.HEARTBEAT, IDS[0])]


def test_of_two_that_are_watched_the_silent_one_is_asked_twice_and_then_a_suspect(
    detector: Detector, port: Port
) -> None:
    run(detector, 0.0, SETTINGS.silence - 0.01, IDS[3])
    port.take()
    run(detector, SETTINGS.silence - 0.01, SETTINGS.silence + SETTINGS.verify - 0.01, IDS[3])
    assert [sent for sent in port.take() if sent[0] is Kind.ARE_YOU_ALIVE] == [
        (Kind.ARE_YOU_ALIVE, IDS[4])
    ] * 2
    assert not detector.gone
    run(detector, SETTINGS.silence + 0.15, SETTINGS.silence + SETTINGS.verify, IDS[3])
    assert detector.gone == {IDS[4]}


def test_who_is_heard_of_is_a_suspect_no_more_but_who_departed_stays_away(detector: Detector) -> None:
    detector.confirm(0.1, IDS[3])
    detector.depart(0.1, IDS[4])
    assert detector.heard(0.2, IDS[3])
    assert not detector.heard(0.2, IDS[4])
    assert detector.gone == {IDS[4]}
    detector.view_installed(0.3, VIEW)
    assert not detector.gone


def test_who_slept_asks_again_before_it_judges(detector: Detector, port: Port) -> None:
    detector.verify(0.1, IDS[0])
    port.take()
    detector.on_time(10.0)
    assert not detector.gone
    detector.on_time(10.0 + SETTINGS.verify / 2)
    assert (Kind.ARE_YOU_ALIVE, IDS[0]) in port.take()
    detector.on_time(10.0 + SETTINGS.verify)
    assert detector.gone == {IDS[0]}


def test_nobody_suspects_itself_nor_strangers(detector: Detector) -> None:
    for member in (IDS[2], member_id(b"x" * 16)):
        detector.verify(0.1, member)
        detector.confirm(0.1, member)
        detector.depart(0.1, member)
    run(detector, 0.1, 1.0)
    assert not detector.gone


def test_after_a_silent_one_the_next_in_the_ring_are_asked_at_once(detector: Detector) -> None:
    """Many that fall silent together are not found one silence after the other."""
    run(detector, 0.0, SETTINGS.silence + 2.5 * SETTINGS.verify)
    assert detector.gone == {IDS[3], IDS[4], IDS[0], IDS[1]}


def test_suspicions_that_are_repeated_do_not_put_off_the_answer(detector: Detector) -> None:
    for tenth in range(10):
        detector.verify(0.1 + tenth * SETTINGS.verify / 10, IDS[3])
    detector.on_time(0.1 + SETTINGS.verify)
    assert detector.suspects == {IDS[3]}


def test_who_was_a_suspect_and_is_not_is_watched_again(detector: Detector) -> None:
    detector.confirm(0.1, IDS[3])
    detector.heard(0.2, IDS[3])
    others = [member for member in IDS if member != IDS[3]]
    run(detector, 0.2, 0.3 + SETTINGS.silence + SETTINGS.heartbeat + SETTINGS.verify, *others)
    assert detector.suspects == {IDS[3]}
