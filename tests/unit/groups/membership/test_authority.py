"""Frames of membership are taken from the members that may send them only, and numbers of views rise step by step."""

from __future__ import annotations

import pytest
from tests.unit.groups.membership.simulation import Found, Group, Node
from tests.unit.groups.membership.test_membership import agreed, group_of, names, until_agreed

from isthmus_router.groups.frames import (
    HEADER_BYTES,
    MOST_LIST_BYTES,
    MOST_NUMBER,
    MOST_VIEW_VALUES,
    FrameError,
    Kind,
    encode_body,
    encode_frame,
)
from isthmus_router.groups.identity import (
    MOST_PHYSICAL_ADDRESSES,
    MemberId,
    MemberInfo,
    PhysicalAddress,
    member_id,
)
from isthmus_router.groups.membership import leader as leading
from isthmus_router.groups.membership import messages
from isthmus_router.groups.membership.history import LENGTH, MOST_STEPS, Pool, Step
from isthmus_router.groups.membership.messages import Agree, Install, NotAMember, Propose
from isthmus_router.groups.membership.numbers import FIRST_CREDIT, ViewNumbers
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId

STRANGER = MemberInfo(member_id(b"stranger" * 2), "stranger", ())
SOON_EXHAUSTED = MOST_NUMBER - 2
LONGEST = "n" * 255


def give(group: Group, node: Node, kind: Kind, sender: MemberId, body: bytes) -> None:
    """A frame as it comes from a connection; what is refused is logged by the driver, and counted."""
    frame = encode_frame(kind, sender, node.id, body)
    node.membership.heard(group.now, sender)
    node.membership.on_frame(group.now, kind, sender, frame)
    group._arm(node)


def installed(node: Node) -> View:
    view = node.membership.view
    assert view is not None
    return view


def forged(node: Node, number: int, coordinator: MemberInfo = STRANGER) -> Step:
    """A view that a stranger has made of that of a member."""
    view = installed(node)
    others = [info for info in view.members if info.id != coordinator.id]
    return Step((view.id,), View(ViewId(number, coordinator.id), (coordinator, *others)))


@pytest.mark.parametrize("number", [7, SOON_EXHAUSTED])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_view_that_a_member_has_not_agreed_to_is_not_installed(place: int, number: int) -> None:
    group = group_of(3)
    node = group.at[place]
    before = installed(node)
    step = forged(node, number)
    with pytest.raises(FrameError, match=r"not agreed to|too far above"):
        give(group, node, Kind.INSTALL, STRANGER.id, messages.encode_install(Install((step,), None)))
    assert installed(node) == before
    group.run(group.now + 8)
    assert [installed(each) for each in group.at.values()] == [before] * 3


def test_one_install_near_the_end_of_the_range_does_not_split_a_site() -> None:
    group = group_of(3)
    for node in (group.at[0], group.at[2]):
        step = forged(node, SOON_EXHAUSTED, group.at[1].info)
        with pytest.raises(FrameError, match="too far above"):
            give(group, node, Kind.INSTALL, group.at[1].id, messages.encode_install(Install((step,), None)))
    group.start(3)
    group.do("crash", 0)
    assert until_agreed(group, 5) < 5
    assert installed(group.at[1]).id.number < 100


@pytest.mark.parametrize("kind", [Kind.PROPOSE, Kind.MERGE, Kind.AGREE])
def test_no_frame_takes_the_number_of_views_near_the_end_of_the_range(kind: Kind) -> None:
    group = group_of(3)
    node, sender = group.at[0], group.at[1]
    alone = View(ViewId(SOON_EXHAUSTED, STRANGER.id), (STRANGER,))
    leader = STRANGER.id if kind is Kind.MERGE else sender.id
    known = (installed(node).id,)
    if kind is Kind.AGREE:
        group.sent.clear()
        group.start(3)
        group.run(group.now + 1, stop=lambda: Kind.PROPOSE in group.sent)
        proposal = ViewId(node.membership._leader.numbers.highest, node.id)
        body = messages.encode_agree(Agree(proposal, False, known[0], SOON_EXHAUSTED, (), b""))
    elif kind is Kind.PROPOSE:
        view = View(ViewId(SOON_EXHAUSTED, sender.id), (sender.info, node.info))
        body = messages.encode_propose(Propose(view, known))
    else:
        body = encode_body(messages.encode_steps([Step((), alone)]))
    with pytest.raises(FrameError, match="too far above"):
        give(group, node, kind, leader, body)
    group.run(group.now + 8)
    assert agreed(group)
    assert installed(node).id.number < 100


def test_a_leader_does_not_take_views_of_others_that_it_has_not_agreed_to() -> None:
    group = group_of(3)
    leader, liar = group.at[0], group.at[2]
    group.sent.clear()
    group.start(3)
    group.run(group.now + 1, stop=lambda: Kind.PROPOSE in group.sent)
    proposal = ViewId(leader.membership._leader.numbers.highest, leader.id)
    step = forged(leader, proposal.number - 1 + 3, liar.info)
    body = messages.encode_agree(Agree(proposal, True, step.view.id, 9, (step,), b"state of " + liar.id))
    with pytest.raises(FrameError, match="not agreed to"):
        give(group, leader, Kind.AGREE, liar.id, body)
    until_agreed(group, 8)
    assert all(view.id != step.view.id for _, view in leader.views)


def part(members: int, name: str = "", addresses: tuple[PhysicalAddress, ...] = ()) -> bytes:
    """A view of the stranger and of members that it has invented."""
    invented = (MemberInfo(member_id(number.to_bytes(16)), name, addresses) for number in range(1, members))
    view = View(ViewId(3, STRANGER.id), (STRANGER, *invented))
    return encode_body(messages.encode_steps([Step((), view)]))


def ask_the_stranger(group: Group, node: Node) -> None:
    """Discovery has found the stranger with a view of its own, so that the coordinator asks it to merge."""
    node.membership.found(group.now, [Found(STRANGER, True, ViewId(3, STRANGER.id), STRANGER.id)])


def proposals_of(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[tuple[MemberId, int]]:
    """To which members it sends PROPOSE from now on, and how many bytes."""
    sent: list[tuple[MemberId, int]] = []
    send = node.send

    def record(now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        if kind is Kind.PROPOSE:
            sent.append((to, len(body)))
        send(now, to, kind, body)

    monkeypatch.setattr(node, "send", record)
    return sent


def test_an_answer_to_a_merge_that_the_coordinator_has_not_asked_for_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = group_of(2)
    before = [installed(node) for node in group.nodes]
    sent = proposals_of(group.at[0], monkeypatch)
    give(group, group.at[0], Kind.MERGE_AGREE, STRANGER.id, part(10))
    group.run(group.now + 2)
    assert sent == []
    assert [installed(node) for node in group.nodes] == before


def test_the_answer_to_a_merge_comes_in_time_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(2)
    ask_the_stranger(group, group.at[0])
    sent = proposals_of(group.at[0], monkeypatch)
    group.run(group.now + group.settings.promise)
    give(group, group.at[0], Kind.MERGE_AGREE, STRANGER.id, part(1))
    group.run(group.now + 2)
    assert sent == []


@pytest.mark.parametrize("kind", [Kind.MERGE, Kind.MERGE_AGREE])
def test_a_part_with_more_members_than_a_view_may_have_is_refused(kind: Kind) -> None:
    group = group_of(2)
    ask_the_stranger(group, group.at[0])
    with pytest.raises(FrameError, match="more than 1024 members"):
        give(group, group.at[0], kind, STRANGER.id, part(MOST_MEMBERS + 1))


def test_parts_together_have_no_more_members_than_a_view_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(3)
    ask_the_stranger(group, group.at[0])
    monkeypatch.setattr(leading, "_MOST_PROPOSED_BYTES", 1 << 40)
    sent = proposals_of(group.at[0], monkeypatch)
    give(group, group.at[0], Kind.MERGE_AGREE, STRANGER.id, part(MOST_MEMBERS))
    group.run(group.now + 0.05)
    assert len({to for to, _ in sent}) == MOST_MEMBERS - 1


@pytest.mark.parametrize("host", ["10.0.0.1", "h" * 255])
def test_a_proposal_with_a_large_part_fits_into_a_frame(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Otherwise the members of the leader refuse it, and the view does not change until the leader gives it up."""
    group = group_of(16)
    before = [installed(node) for node in group.nodes]
    ask_the_stranger(group, group.at[0])
    sent = proposals_of(group.at[0], monkeypatch)
    addresses = tuple(PhysicalAddress(host, port) for port in range(MOST_PHYSICAL_ADDRESSES))
    fit = MOST_VIEW_VALUES // (4 + 4 * MOST_PHYSICAL_ADDRESSES)
    give(group, group.at[0], Kind.MERGE_AGREE, STRANGER.id, part(fit, LONGEST, addresses))
    group.run(group.now + 0.05)
    promises = [group.at[place].membership._follower.promise for place in range(1, 16)]
    assert all(promise is not None and 400 < len(promise.view.ids) < fit for promise in promises)
    assert max(size for _, size in sent) < MOST_LIST_BYTES - HEADER_BYTES
    group.run(group.now + 20)
    assert [installed(node) for node in group.nodes] == before


def test_an_address_with_a_long_host_is_refused() -> None:
    group = group_of(2)
    ask_the_stranger(group, group.at[0])
    body = part(2, "name", (PhysicalAddress("ü" * 128, 1),))
    with pytest.raises(FrameError, match="host is too long"):
        give(group, group.at[0], Kind.MERGE_AGREE, STRANGER.id, body)


def test_members_of_a_part_that_do_not_answer_get_few_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(2)
    before = installed(group.at[0])
    ask_the_stranger(group, group.at[0])
    sent = proposals_of(group.at[0], monkeypatch)
    give(group, group.at[0], Kind.MERGE_AGREE, STRANGER.id, part(1_000, LONGEST))
    group.run(group.now + 0.05)
    assert 100_000 < sum(size for _, size in sent) < 1_400_000
    group.run(group.now + 0.5)
    assert len({to for to, _ in sent}) < 10, (
        "members of which it has not asked any are given up with the part"
    )
    group.start(2)
    assert until_agreed(group, 1) < 1
    assert installed(group.at[0]).ids[:2] == before.ids


def test_a_part_with_a_large_proposal_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """More bytes than may be unanswered: the leader goes on as members answer."""
    monkeypatch.setattr(leading, "_MOST_PROPOSED_BYTES", 1)
    group = group_of(4)
    group.do("cut", (0, 1), (2, 3))
    group.do("cut", (2, 3), (0, 1))
    group.run(group.now + 10)
    assert names(group, 0) == ["m0", "m1"]
    group.do("heal")
    until_agreed(group, 10)


def chain(node: Node, length: int) -> list[Step]:
    """Steps of one member each, from its present view on."""
    steps: list[Step] = []
    at = installed(node).id
    for number in range(at.number + 1, at.number + 1 + length):
        view = View(ViewId(number, node.id), (node.info,))
        steps.append(Step((at,), view))
        at = view.id
    return steps


@pytest.mark.parametrize("kind", [Kind.INSTALL, Kind.AGREE, Kind.MERGE, Kind.MERGE_AGREE])
def test_frames_with_more_steps_than_members_remember_are_refused(kind: Kind) -> None:
    group = group_of(2)
    node = group.at[0]
    view = installed(node).id
    most = MOST_STEPS if kind is Kind.INSTALL else LENGTH
    steps = chain(node, most + 1)
    body = {
        Kind.INSTALL: messages.encode_install(Install(tuple(steps), None)),
        Kind.AGREE: messages.encode_agree(Agree(view, True, view, 9, tuple(steps), b"")),
    }.get(kind, encode_body(messages.encode_steps(steps)))
    with pytest.raises(FrameError, match=f"more than {most} steps"):
        give(group, node, kind, STRANGER.id, body)


class Bases(tuple[ViewId, ...]):
    """It counts how often a view is looked for in them."""

    searched = 0

    def __contains__(self, view: object) -> bool:
        Bases.searched += 1
        return super().__contains__(view)


def test_the_search_for_a_path_does_not_compare_all_steps_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    group = group_of(2)
    node = group.at[0]
    monkeypatch.setattr(Bases, "searched", 0)
    steps = [step._replace(bases=Bases(step.bases)) for step in chain(node, MOST_STEPS)]
    assert Pool(steps).path(node.id, installed(node).id) == steps
    assert Bases.searched <= MOST_STEPS


def test_no_path_is_searched_to_a_view_that_a_member_has_not_agreed_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = group_of(2)
    node = group.at[0]

    def search(*_: object) -> list[Step]:
        raise AssertionError("the path is searched")

    monkeypatch.setattr(Pool, "path", search)
    with pytest.raises(FrameError, match="not agreed to"):
        give(
            group,
            node,
            Kind.INSTALL,
            STRANGER.id,
            messages.encode_install(Install(tuple(chain(node, 5)), None)),
        )


def test_nobody_removes_others_by_saying_that_they_have_another_view() -> None:
    group = group_of(4)
    views = [len(node.views) for node in group.nodes]
    node = group.at[0]
    others = tuple(info.id for info in installed(node).members[1:])
    group.run(group.now + 2)
    for sender in (STRANGER.id, group.at[3].id):
        body = messages.encode_not_a_member(NotAMember(ViewId(50, sender), others[:2]))
        give(group, node, Kind.NOT_A_MEMBER, STRANGER.id, body)
    group.run(group.now + 8)
    assert [len(each.views) for each in group.nodes] == views


def test_nobody_removes_a_member_by_asking_to_join_in_its_name() -> None:
    group = group_of(3)
    views = [len(node.views) for node in group.nodes]
    victim = group.at[1]
    leader = group.at[0]
    group.run(group.now + 2)
    leader.membership._leader._installs.clear()
    for sender in (STRANGER.id, group.at[2].id):
        give(group, leader, Kind.JOIN, sender, encode_body(messages.encode_member(victim.info)))
    group.run(group.now + 8)
    assert [len(each.views) for each in group.nodes] == views


def test_a_member_that_lives_comes_back_although_somebody_has_left_in_its_name() -> None:
    group = group_of(3)
    victim = group.at[1]
    for node in (group.at[0], group.at[2]):
        give(group, node, Kind.LEAVE, victim.id, encode_body())
    group.run(group.now + 1)
    assert names(group, 0) == ["m0", "m2"]
    until_agreed(group, group.settings.tombstone + 10)
    assert group.at[1] is victim
    assert sorted(names(group, 0)) == ["m0", "m1", "m2"]


def test_parts_that_changed_their_views_for_years_come_together() -> None:
    numbers = ViewNumbers()
    numbers.raise_to(0.0, 5, joins=True)
    numbers.raise_to(1.0, FIRST_CREDIT, joins=False)
    assert numbers.next() == FIRST_CREDIT + 1


def test_numbers_that_are_raised_again_and_again_are_never_used_up() -> None:
    numbers = ViewNumbers()
    year = 365 * 86400
    for second in range(0, 100 * year, year):
        reach = numbers.highest + int(numbers._accrued(float(second)))
        numbers.raise_to(float(second), reach, joins=False)
        with pytest.raises(FrameError, match="too far above"):
            numbers.raise_to(float(second), reach + 1, joins=False)
    assert numbers.highest < 1 << 43


def test_who_has_no_view_joins_a_group_of_any_age() -> None:
    numbers = ViewNumbers()
    numbers.raise_to(0.0, 1 << 50, joins=True)
    assert numbers.next() == (1 << 50) + 1
    with pytest.raises(FrameError, match="too far above"):
        numbers.check(0.0, MOST_NUMBER - 1, joins=True)
