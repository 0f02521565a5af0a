"""The rules of connection groups, one by one: `c2` is a control connection of ordinal 2, `d2` a data connection."""

from __future__ import annotations

import pytest

from isthmus_router.upgrade.groups import (
    Action,
    Begin,
    Carry,
    ConnectionGroups,
    End,
    Label,
    Refuse,
    Resume,
    TakeOver,
    Wait,
)


class Groups(ConnectionGroups[str]):
    """Groups that are told by name: `c2`, or `d2'` for another one of the same kind."""

    correlator: str | None = "connector"

    def opens(self, *names: str) -> list[Action[str]]:
        """What follows from the last of these."""
        actions: list[Action[str]] = []
        for name in names:
            opened = self.control_opened if name[0] == "c" else self.data_opened
            actions = opened(name, Label(self.correlator, int(name[1:].rstrip("'"))))
        return actions


@pytest.fixture
def groups() -> Groups:
    return Groups()


def refused(actions: list[Action[str]]) -> list[str]:
    assert all(isinstance(action, Refuse) for action in actions)
    return [action.connection for action in actions]


# The first control connection


def test_the_first_control_connection_is_the_current_one(groups: Groups) -> None:
    assert groups.opens("c3") == [Begin("c3"), Carry("c3", ())]
    assert groups.is_current("c3")


def test_without_a_correlator_each_connection_is_a_group_of_its_own(groups: Groups) -> None:
    groups.correlator = None
    assert groups.opens("c3") == [Begin("c3"), Carry("c3", ())]
    assert groups.opens("c3'") == [Begin("c3'"), Carry("c3'", ())]
    assert groups.closed("c3") == [End("c3")]
    assert groups.is_current("c3'")


def test_other_correlators_are_other_groups(groups: Groups) -> None:
    groups.opens("c3")
    groups.correlator = "another"
    assert groups.opens("c1") == [Begin("c1"), Carry("c1", ())]


# A greater ordinal


def test_a_greater_ordinal_waits_until_it_is_fit(groups: Groups) -> None:
    groups.opens("c1")
    assert groups.opens("c2") == [Wait("c2", "c1")]
    assert groups.is_current("c1")
    assert groups.is_pending("c2")
    assert groups.control_fit("c2") == [TakeOver("c2", "c1"), Carry("c2", ())]
    assert groups.is_current("c2")
    assert not groups.is_pending("c2")
    assert groups.upgrades == 1


def test_ordinals_may_jump(groups: Groups) -> None:
    groups.opens("c1")
    assert groups.opens("c900") == [Wait("c900", "c1")]


@pytest.mark.parametrize("name", ["c1", "c2'"])
def test_an_ordinal_that_is_not_greater_is_refused(groups: Groups, name: str) -> None:
    groups.opens("c2")
    assert refused(groups.opens(name)) == [name]
    assert groups.group_of(name) is None
    assert groups.closed(name) == []
    assert groups.is_current("c2")


@pytest.mark.parametrize("name", ["c1'", "c2", "c3'"])
def test_an_ordinal_that_is_not_greater_than_the_pending_one_is_refused(groups: Groups, name: str) -> None:
    groups.opens("c1", "c3")
    assert refused(groups.opens(name)) == [name]
    assert groups.is_pending("c3")


def test_being_fit_means_nothing_for_what_is_not_pending(groups: Groups) -> None:
    groups.opens("c1", "c2")
    assert groups.control_fit("c1") == []
    groups.control_fit("c2")
    assert groups.control_fit("c2") == groups.control_fit("c1") == groups.control_fit("unknown") == []


# One rotation before the last one is complete


def test_several_wait_in_the_order_of_their_ordinals(groups: Groups) -> None:
    groups.opens("c1", "c2")
    assert groups.opens("c3") == [Wait("c3", "c1")]
    assert groups.control_fit("c2") == [TakeOver("c2", "c1"), Wait("c3", "c2"), Carry("c2", ())]
    assert groups.control_fit("c3") == [TakeOver("c3", "c2"), Carry("c3", ())]


def test_what_is_passed_over_stays_open_but_never_takes_over(groups: Groups) -> None:
    """The other router may have found it fit, and have begun to use it."""
    groups.opens("c1", "c2", "c3")
    assert groups.control_fit("c3") == [TakeOver("c3", "c1", ("c2",)), Carry("c3", ())]
    assert groups.control_fit("c2") == []
    assert not groups.is_pending("c2")
    assert groups.closed("c3") == [End("c3")]
    assert not groups.is_current("c2")


def test_what_the_peer_has_passed_over_never_takes_over(groups: Groups) -> None:
    groups.opens("c1", "c2")
    assert groups.control_closed("c1") == []
    assert groups.control_closed("c2") == [Resume("c1")]
    assert not groups.is_pending("c2")
    assert groups.control_fit("c2") == []
    assert groups.closed("c1") == [End("c1")]
    assert groups.closed("c2") == []


# Loss


def test_the_loss_of_a_pending_one_changes_nothing(groups: Groups) -> None:
    groups.opens("c1", "c2")
    assert groups.closed("c2") == [Resume("c1")]
    assert groups.is_current("c1")
    assert groups.opens("c2") == [Wait("c2", "c1")]


def test_the_loss_of_one_of_several_pending_ones_leaves_the_others(groups: Groups) -> None:
    groups.opens("c1", "c2", "c3")
    assert groups.closed("c3") == []
    assert groups.closed("c2") == [Resume("c1")]


def test_the_pending_one_takes_over_at_once_from_a_lost_one(groups: Groups) -> None:
    groups.opens("c1", "c2")
    assert groups.closed("c1") == [TakeOver("c2", "c1"), Carry("c2", ())]
    assert groups.closed("c2") == [End("c2")]


def test_the_greatest_of_several_takes_over_from_a_lost_one(groups: Groups) -> None:
    groups.opens("c1", "c2", "c3")
    assert groups.closed("c1") == [TakeOver("c3", "c1", ("c2",)), Carry("c3", ())]


def test_the_loss_of_the_current_one_with_none_to_follow_is_the_end(groups: Groups) -> None:
    groups.opens("c1")
    assert groups.closed("c1") == [End("c1")]
    assert groups.opens("c1'") == [Begin("c1'"), Carry("c1'", ())]


def test_what_was_replaced_is_never_used_again(groups: Groups) -> None:
    groups.opens("c1", "c2")
    groups.control_fit("c2")
    assert groups.closed("c2") == [End("c2")]
    assert not groups.is_current("c1")
    assert groups.opens("c2'") == [Begin("c2'"), Carry("c2'", ())]


def test_while_anything_is_open_ordinals_do_not_decrease(groups: Groups) -> None:
    groups.opens("c1", "c2")
    groups.control_fit("c2")
    groups.closed("c2")
    assert refused(groups.opens("c1'")) == ["c1'"]
    groups.closed("c1")
    assert groups.opens("c1'") == [Begin("c1'"), Carry("c1'", ())]


def test_the_loss_of_a_replaced_one_means_nothing(groups: Groups) -> None:
    groups.opens("c1", "c2")
    groups.control_fit("c2")
    assert groups.closed("c1") == []
    assert groups.closed("c1") == []
    assert groups.is_current("c2")


# Data connections


def test_data_connections_of_its_ordinal_carry_streams_of_the_current_one(groups: Groups) -> None:
    groups.opens("c1")
    assert groups.opens("d1") == [Carry("c1", ("d1",))]
    assert groups.opens("d1'") == [Carry("c1", ("d1", "d1'"))]
    assert groups.closed("d1") == [Carry("c1", ("d1'",))]


def test_data_connections_may_open_first(groups: Groups) -> None:
    assert groups.opens("d1") == []
    assert groups.opens("c1") == [Begin("c1"), Carry("c1", ("d1",))]


def test_data_connections_of_a_pending_one_wait_with_it(groups: Groups) -> None:
    groups.opens("c1", "d1")
    assert groups.opens("d2") == []
    groups.opens("c2")
    assert groups.opens("d2'") == []
    assert groups.control_fit("c2") == [TakeOver("c2", "c1"), Carry("c2", ("d2", "d2'"))]
    assert groups.closed("d1") == []


def test_data_connections_of_a_replaced_ordinal_stay_but_carry_nothing(groups: Groups) -> None:
    """The peer may have opened them in time, and send streams over them."""
    groups.opens("c1", "c2")
    assert groups.opens("d1") == [Carry("c1", ("d1",))]
    groups.control_fit("c2")
    assert groups.opens("d1'") == []
    assert groups.group_of("d1'") is not None
    assert groups.opens("d2") == [Carry("c2", ("d2",))]


def test_data_connections_outlive_their_control_connection(groups: Groups) -> None:
    groups.opens("c1", "d1")
    assert groups.closed("c1") == [End("c1")]
    assert groups.opens("c1'") == [Begin("c1'"), Carry("c1'", ("d1",))]


def test_nothing_is_remembered_of_what_is_gone(groups: Groups) -> None:
    names = ["c1", "d1", "c2", "d2", "c3", "c2'", "d2'"]
    for name in names:
        groups.opens(name)
    groups.control_fit("c3")
    for name in names:
        groups.closed(name)
    assert groups._groups == groups._members == {}
