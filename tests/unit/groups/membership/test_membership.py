"""Named scenarios of membership, with their budgets in time, views and frames."""

from __future__ import annotations

import pytest
from tests.unit.groups.membership.simulation import Group, Node

from isthmus_router.groups.frames import Kind, encode_frame
from isthmus_router.groups.membership import messages
from isthmus_router.groups.membership.history import Step
from isthmus_router.groups.membership.membership import Phase
from isthmus_router.groups.membership.messages import Install, Propose
from isthmus_router.groups.views import View, ViewId


def group_of(size: int, seed: int = 1) -> Group:
    """Members m0, m1, ... in one view in that order."""
    group = Group(seed)
    for place in range(size):
        group.start(place)
        group.run(group.now + 2)
    assert names(group, 0) == [f"m{place}" for place in range(size)]
    return group


def names(group: Group, place: int) -> list[str]:
    view = group.at[place].membership.view
    assert view is not None
    return [info.name for info in view.members]


def agreed(group: Group) -> bool:
    """Whether all that live have one view, of just them."""
    views = {node.membership.view for node in group.at.values()}
    view = next(iter(views))
    return len(views) == 1 and view is not None and set(view.ids) == {node.id for node in group.at.values()}


def until_agreed(group: Group, limit: float) -> float:
    """Seconds from now until then."""
    start = group.now
    while not agreed(group) and group.now < start + limit:
        group.run(group.now + 0.001)
    assert agreed(group), {place: names(group, place) for place in group.at}
    return group.now - start


def last_views(group: Group, since: float) -> list[set[str]]:
    """Per member: the ids of the views it has installed since."""
    return [{str(view.id) for at, view in node.views if at >= since} for node in group.at.values()]


def test_the_first_member_makes_a_view_of_its_own() -> None:
    group = Group(1)
    group.start(0)
    assert until_agreed(group, 1.01) >= group.settings.join_timeout


def test_who_joins_is_last_and_told_where_streams_start() -> None:
    group = group_of(2)
    group.start(2)
    assert until_agreed(group, 0.1) < 0.1
    assert names(group, 2) == ["m0", "m1", "m2"]
    assert group.nodes[0].states_of[-1] == {group.at[1].id}, "members tell their states, joiners have none"


@pytest.mark.parametrize("size", range(2, 8))
@pytest.mark.parametrize("seed", range(5))
def test_members_that_start_at_once_are_soon_one_group(size: int, seed: int) -> None:
    group = Group(seed)
    for place in range(size):
        group.start(place)
    assert until_agreed(group, 3) < 1.6
    assert sum(len(node.views) for node in group.nodes) <= 2 * size, (
        "the first makes a view, the others come in at once"
    )


def test_joins_that_arrive_together_are_one_view() -> None:
    group = group_of(2)
    since = group.now
    for place in range(2, 12):
        group.start(place)
    until_agreed(group, 1)
    assert [len(views) for views in last_views(group, since)] == [1] * 12


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("place", [0, 1])
def test_a_killed_member_is_out_of_the_view_in_a_quarter_of_a_second(size: int, place: int) -> None:
    group = group_of(size)
    since = group.now
    group.do("crash", place)
    assert until_agreed(group, 1) < 0.25
    assert all(len(views) == 1 for views in last_views(group, since))


@pytest.mark.parametrize("killed", [1, 2, 3, 5])
def test_when_the_first_ranks_die_together_the_next_leads(killed: int) -> None:
    group = group_of(6)
    for place in range(killed):
        group.do("crash", place)
    assert until_agreed(group, 1) < 0.25
    assert names(group, killed) == [f"m{place}" for place in range(killed, 6)]


@pytest.mark.parametrize("vanished", [(0,), (1,), (0, 1), (0, 1, 2)])
def test_members_that_vanish_without_a_word_are_missed(vanished: tuple[int, ...]) -> None:
    group = group_of(5)
    for place in vanished:
        group.do("vanish", place)
    # Neighbours are watched by the same members: the third only once the two before it are suspects.
    assert until_agreed(group, 10) < (4.2 if len(vanished) < 3 else 8.4)


def test_who_is_suspected_but_answers_stays() -> None:
    group = group_of(3)
    views = [len(node.views) for node in group.nodes]
    for suspect in (0, 1):
        group.do("suspect", 2, suspect)
    group.run(group.now + 5)
    assert [len(node.views) for node in group.nodes] == views


def test_the_same_place_again_is_another_member() -> None:
    group = group_of(3)
    old = group.at[1]
    group.do("crash", 1)
    group.start(1)
    until_agreed(group, 3)
    assert group.at[1].id != old.id
    assert names(group, 0) == ["m0", "m2", "m1"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_member_leaves_when_the_others_have_let_it_go(place: int) -> None:
    group = group_of(3)
    node = group.at[place]
    since = group.now
    group.do("leave", place)
    assert until_agreed(group, 1) < 0.05
    group.run(group.now + 0.1)
    assert node.membership.phase is Phase.LEFT
    assert node.left_at - since < 0.05
    assert all(len(views) == 1 for views in last_views(group, since))


def test_all_leave_at_once_and_none_waits() -> None:
    group = group_of(3)
    since = group.now
    for place in range(3):
        group.do("leave", place)
    group.run(group.now + 1)
    assert not group.at
    assert all(node.left_at - since < 0.05 for node in group.nodes)


def test_a_leaving_member_whose_word_is_lost_goes_in_time() -> None:
    group = group_of(2)
    node = group.at[1]
    since = group.now
    group.do("cut", (0, 1), (0, 1))
    group.do("leave", 1)
    group.run(group.now + 2)
    assert node.left_at - since == pytest.approx(group.settings.leave_timeout, abs=0.01)


def test_both_parts_of_a_partition_go_on_and_come_together() -> None:
    group = group_of(5)
    group.do("cut", (0, 1), (2, 3, 4))
    group.do("cut", (2, 3, 4), (0, 1))
    group.run(group.now + 8)
    assert names(group, 0) == ["m0", "m1"]
    assert names(group, 4) == ["m2", "m3", "m4"]
    parts = {group.at[0].membership.view, group.at[4].membership.view}
    before = [len(node.views) for node in group.nodes]
    group.do("heal")
    assert until_agreed(group, 8) < 5
    view = group.at[0].membership.view
    assert view is not None
    assert set(view.merged) == {part.id for part in parts if part is not None}
    assert names(group, 0) == ["m2", "m3", "m4", "m0", "m1"], "the larger part keeps its coordinator"
    assert [len(node.views) for node in group.nodes] == [views + 1 for views in before]


def test_a_coordinator_that_slept_finds_out_and_comes_back() -> None:
    group = group_of(3)
    sleeper = group.at[0]
    group.do("pause", 0, 6.0)
    group.run(group.now + 5)
    assert names(group, 1) == ["m1", "m2"]
    group.run(group.now + 1)
    assert until_agreed(group, 6) < 5
    assert group.at[0] is sleeper, "with the same identity"
    assert names(group, 0) == ["m1", "m2", "m0"]


def test_who_slept_does_not_suspect_all_the_others() -> None:
    group = group_of(3)
    group.do("pause", 2, 2.9)
    group.run(group.now + 1)
    views = [len(node.views) for node in group.nodes]
    group.do("pause", 1, 2.9)
    group.run(group.now + 6)
    assert [len(node.views) for node in group.nodes] == views


def test_a_successor_completes_the_view_that_its_predecessor_died_installing() -> None:
    group = group_of(4)
    group.sent.clear()
    group.start(4)
    group.run(group.now + 1, stop=lambda: Kind.PROPOSE in group.sent)
    # What m0 installs reaches nobody but m3, and m0 dies.
    group.cuts |= {(0, place) for place in (1, 2, 4)}
    dying, reached = group.at[0], group.at[3]
    group.run(group.now + 1, stop=lambda: len(reached.views) == 2)
    assert [len(group.at[place].views) for place in (1, 2, 4)] == [3, 2, 0]
    group.do("crash", 0)
    group.cuts.clear()
    until_agreed(group, 3)
    completed = dying.views[-1][1]
    for node in group.nodes[1:4]:
        assert next(view for _, view in node.views[-2:]) == completed
        assert not node.views[-1][1].merged


def test_a_hundred_members_that_start_at_once() -> None:
    group = Group(3)
    for place in range(100):
        group.start(place)
    assert until_agreed(group, 3) < 1.8
    frames = {kind.name: count for kind, count in group.sent.items()}
    assert frames["PROPOSE"] <= 250
    assert frames["AGREE"] <= 250
    assert frames["INSTALL"] <= 200
    assert max(len(node.views) for node in group.nodes) <= 4

    group.sent.clear()
    since = group.now
    first = group.at[0].membership.view
    assert first is not None
    group.do("crash", coordinator(group).place)
    assert until_agreed(group, 1) < 0.25
    assert all(len(views) == 1 for views in last_views(group, since))
    frames = {kind.name: count for kind, count in group.sent.items()}
    assert frames["PROPOSE"] + frames["AGREE"] + frames["INSTALL"] <= 3 * 98

    group.sent.clear()
    group.run(group.now + 10)
    frames = {kind.name: count for kind, count in group.sent.items()}
    assert set(frames) == {"HEARTBEAT"}
    assert frames["HEARTBEAT"] <= 99 * 2 * 21


def coordinator(group: Group) -> Node:
    return next(node for node in group.at.values() if node.membership.coordinates)


def test_who_follows_a_successor_does_not_take_the_view_of_its_predecessor() -> None:
    group = group_of(3)
    one, two, node = (group.at[place] for place in range(3))
    old = node.membership.view
    assert old is not None
    of_successor = View(ViewId(90, two.id), old.members[1:])
    of_predecessor = Step((old.id,), View(ViewId(80, one.id), old.members))
    install = messages.encode_install(Install((of_predecessor,), None))

    def give(kind: Kind, sender: Node, body: bytes) -> None:
        group.receive(node, sender, encode_frame(kind, sender.id, node.id, body))

    give(Kind.PROPOSE, one, messages.encode_propose(Propose(of_predecessor.view, (old.id,))))
    give(Kind.PROPOSE, two, messages.encode_propose(Propose(of_successor, (old.id,))))
    give(Kind.INSTALL, one, install)
    assert node.membership.view == old, "the successor was told that this is the view to go on from"
    group.run(group.now + group.settings.promise + 0.3)
    give(Kind.INSTALL, one, install)
    assert node.membership.view == of_predecessor.view, "it has not waited for ever"
