"""What members retain of reports about other sites: those of relays, and a few of members that may become relays."""

from __future__ import annotations

import pytest

from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.membership.numbers import FIRST_CREDIT
from isthmus_router.groups.views import MOST_MEMBERS, View, ViewId
from isthmus_router.relay.messages import view_fields
from isthmus_router.relay.site_table import (
    MOST_AHEAD,
    MOST_FORMER,
    MOST_MEMBERS_AHEAD,
    SiteTable,
    Told,
    as_told,
    told_fields,
)
from isthmus_router.relay.sites import SiteReport, SiteState


def member(number: int) -> MemberInfo:
    return MemberInfo(MemberId(number.to_bytes(16)), f"m{number}", ())


def view(number: int, *members: int) -> View:
    return View(ViewId(number, member(members[0]).id), tuple(member(each) for each in members))


def told(epoch: ViewId, site: str = "sfo", state: SiteState = SiteState.UP) -> Told:
    return Told(epoch, 1, (), (SiteReport(site, state, (view(1, 900),)),))


def installed(table: SiteTable, present: View) -> None:
    relays = present.ids[:1]
    table.view_installed(present, relays, relays)


def tell(table: SiteTable, number: int, what: Told, present: View) -> bool:
    sender = member(number).id
    if not table.may_tell(sender, what, present):
        return False
    table.take(sender, what, present)
    return True


def test_reports_of_members_that_come_and_go_are_not_retained() -> None:
    table = SiteTable("nyc")
    installed(table, view(1, 1))
    assert tell(table, 1, told(ViewId(1, member(1).id)), view(1, 1))
    for turn in range(50):
        present = view(2 + 2 * turn, 1, 100 + turn)
        installed(table, present)
        assert tell(table, 100 + turn, told(ViewId(1_000, member(100 + turn).id)), present)
        installed(table, view(3 + 2 * turn, 1))
    assert table._told.keys() == {member(1).id}
    assert table.sites["sfo"].state is SiteState.UP


def test_a_few_members_that_are_no_relays_may_report() -> None:
    table = SiteTable("nyc")
    present = view(1, *range(1, 100))
    installed(table, present)
    ahead = [
        number
        for number in range(2, 100)
        if tell(table, number, told(ViewId(2, MemberId(bytes(16)))), present)
    ]
    assert len(ahead) == MOST_AHEAD
    assert tell(table, ahead[0], told(ViewId(3, MemberId(bytes(16)))), present)
    assert tell(table, 1, told(ViewId(1, member(1).id)), present)
    assert len(table._told) == MOST_AHEAD + 1


def test_members_that_are_no_relays_report_a_bounded_number_of_members_together() -> None:
    table = SiteTable("nyc")
    present = view(1, *range(1, 100))
    installed(table, present)
    views = [view(1, *range(first, first + MOST_MEMBERS)) for first in range(1_000, 9_000, MOST_MEMBERS)]
    reports = tuple(SiteReport(f"s{number}", SiteState.UP, (each,)) for number, each in enumerate(views))
    large = Told(ViewId(2, member(2).id), 1, (), reports)
    most = MOST_MEMBERS_AHEAD // large.members
    assert [number for number in range(2, 10) if tell(table, number, large, present)] == [2, 3]
    assert most == 2
    assert tell(table, 2, large, present), "again, in place of what it told"
    assert not tell(table, 4, told(large.epoch), present)
    assert tell(table, 1, large, present)
    assert tell(table, 3, told(large.epoch), present)
    assert tell(table, 4, told(large.epoch), present)


def test_the_next_relay_may_report_before_its_view_is_here() -> None:
    table = SiteTable("nyc")
    installed(table, view(1, 1, 2, 3))
    assert tell(table, 1, told(ViewId(1, member(1).id)), view(1, 1, 2, 3))
    assert tell(table, 2, told(ViewId(2, member(2).id), "lon"), view(1, 1, 2, 3))
    assert table.sites.keys() == {"sfo"}
    installed(table, view(2, 2, 3))
    assert table.sites.keys() == {"lon"}


def test_the_reports_of_few_former_relays_count_until_a_present_one_reports() -> None:
    table = SiteTable("nyc")
    for number in range(1, 31):
        present = view(number, number, number + 1)
        installed(table, present)
        assert tell(table, number, told(present.id, f"s{number}"), present)
    installed(table, view(31, 31))
    assert "s30" in table.sites
    assert len(table._told) <= MOST_FORMER + 1


@pytest.mark.parametrize("sender", [1, 2])
def test_an_epoch_far_above_the_view_is_refused(sender: int) -> None:
    table = SiteTable("nyc")
    present = view(7, 1, 2)
    installed(table, present)
    assert not tell(table, sender, told(ViewId(8 + FIRST_CREDIT, member(sender).id)), present)
    assert tell(table, sender, told(ViewId(7 + FIRST_CREDIT, member(sender).id)), present)


@pytest.mark.parametrize("parts", [(MOST_MEMBERS,), (1,) * MOST_MEMBERS, (600, 424)])
def test_a_site_has_as_many_members_as_relays_count(parts: tuple[int, ...]) -> None:
    views, first = [], 1
    for number, size in enumerate(parts, 1):
        views.append(view(number, *range(first, first + size)))
        first += size
    full = Told(ViewId(1, member(1).id), 1, (), (SiteReport("sfo", SiteState.UP, tuple(views)),))
    assert as_told(told_fields(full)) == full
    fields = told_fields(full)
    sites = fields[4]
    assert isinstance(sites, list)
    sites[0][2].append(view_fields(view(99, 1)))
    with pytest.raises(FrameError):
        as_told(fields)


@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("number", [-1, (1 << 62) + 1, 1 << 63])
def test_numbers_out_of_range_are_malformed(index: int, number: int) -> None:
    fields = told_fields(told(ViewId(1, member(1).id)))
    fields[index] = number
    with pytest.raises(FrameError):
        as_told(fields)
