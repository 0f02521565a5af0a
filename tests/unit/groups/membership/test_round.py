"""What a leader retains of the answers to its proposal has bounds, whatever members answer."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from isthmus_router.groups.frames import FrameError, Kind, encode_frame
from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.membership import messages
from isthmus_router.groups.membership.history import MOST_POOL_MEMBERS, Pool, Step
from isthmus_router.groups.membership.merging import Merging
from isthmus_router.groups.membership.messages import MOST_STATE_BYTES, Agree
from isthmus_router.groups.membership.port import MembershipSettings
from isthmus_router.groups.membership.round import MOST_STATES_BYTES, Round
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId


def member(number: int) -> MemberInfo:
    return MemberInfo(MemberId(number.to_bytes(16)), f"m{number}", ())


MEMBERS = tuple(member(number) for number in range(1, MOST_MEMBERS + 1))
FIRST, SECOND = MEMBERS[:2]


def step(number: int, size: int = MOST_MEMBERS) -> Step:
    base = ViewId(number - 1, FIRST.id)
    return Step((base,), View(ViewId(number, FIRST.id), MEMBERS[:size]))


def round_of(size: int = 200) -> Round:
    own = View(ViewId(1, FIRST.id), MEMBERS[:size])
    proposal = View(ViewId(1 << 20, FIRST.id), MEMBERS[:size])
    return Round(proposal, own, set(), Pool(), b"", 0.0, deque())


def agree(state: bytes = b"", *steps: Step, installed: bool = True, agreed: bool = True) -> Agree:
    view = ViewId(1, FIRST.id)
    return Agree(ViewId(1 << 20, FIRST.id), agreed, view if installed else None, 1, steps, state)


def encoded(state: bytes) -> bytes:
    return encode_frame(Kind.AGREE, SECOND.id, FIRST.id, messages.encode_agree(agree(state)))


def test_a_state_has_the_positions_of_all_streams_at_most() -> None:
    streams = StreamsSettings().most_streams + 2 * MOST_MEMBERS
    assert streams * 24 <= MOST_STATE_BYTES
    assert len(messages.decode_agree(encoded(bytes(MOST_STATE_BYTES))).state) == MOST_STATE_BYTES
    with pytest.raises(FrameError, match="state of"):
        messages.decode_agree(encoded(bytes(MOST_STATE_BYTES + 1)))


def test_states_of_all_answers_have_a_bound() -> None:
    current = round_of()
    state = bytes(MOST_STATE_BYTES)
    for _ in range(2):
        for info in MEMBERS[1:200]:
            current.agree(info.id, agree(state))
    kept = [each.state for each in current.agreed.values()]
    assert len(kept) == 199
    assert not current.waiting
    assert MOST_STATES_BYTES - len(state) < sum(map(len, kept)) <= MOST_STATES_BYTES


def test_nothing_is_retained_of_the_state_of_a_member_without_a_view() -> None:
    current = round_of()
    current.agree(SECOND.id, agree(b"state", installed=False))
    assert current.agreed[SECOND.id].state == b""


def test_steps_of_each_answer_are_taken_once() -> None:
    current = round_of()
    for number in range(2, 50):
        for agreed in (False, True):
            answer = agree(b"", step(2 * number + agreed, 5), agreed=agreed)
            current.learn(SECOND.id, answer)
            if agreed:
                current.agree(SECOND.id, answer)
    assert len(current.pool.ids) == 2
    assert current.agreed[SECOND.id].steps == ()
    assert current.agreed[SECOND.id].installed == ViewId(1, FIRST.id)


def test_a_pool_has_a_bound_of_members_of_all_views() -> None:
    pool = Pool(step(number) for number in range(2, 1_000))
    pool.add([step(number) for number in range(2, 10)])
    assert len(pool.ids) == MOST_POOL_MEMBERS // MOST_MEMBERS


def test_parts_to_be_merged_have_a_bound_of_members_of_all_views() -> None:
    merging = Merging(MembershipSettings(), Random(1))
    for number in range(100):
        merging.add(member(2_000 + number).id, (step(number + 1), step(number + 2)))
    assert len(merging.parts) == MOST_POOL_MEMBERS // MOST_MEMBERS // 2
    merging.add(member(2_000).id, (step(500, 5),))
    merging.add(member(3_000).id, (step(501, 5),))
    assert merging.parts[member(3_000).id][0].view.id.number == 501
