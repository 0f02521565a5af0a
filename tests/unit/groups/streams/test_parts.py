"""Parts of a site, each with a view of its own for a while, come together again."""

from __future__ import annotations

from tests.unit.groups.streams.site import Site

from isthmus_router.groups.streams.user import StreamsSettings


def test_a_member_that_returns_is_told_what_it_missed_for_good() -> None:
    site = Site(3)
    first, second, last = site.members
    first.publish()
    site.run(0.5)
    site.install([first, second])
    for _ in range(4):
        first.publish(count=2)
    site.run(0.5)
    site.install([first, second, last])
    site.run(2)
    first.publish()
    site.run(0.5)
    assert last.got[first.id] == [1, -2, -3, -4, -5, 6]
    assert last.gaps == [(first.id, 2, 5, 8)]
    site.check_forgotten()


def test_what_only_one_has_is_given_to_those_that_it_comes_together_with() -> None:
    site = Site(2)
    first, second = site.members
    other = site.new("other")
    site.install([other])
    other.publish()
    other.publish()
    site.run(0.5)
    assert other.protects == 0
    site.install([first, second, other], [other])
    site.run(2)
    assert other.protects == 2
    for member in (first, second):
        assert member.got[other.id] == [1, 2]
        assert member.gaps == []
    site.check_forgotten()


def test_parts_that_come_together_tell_what_the_others_missed_of_them() -> None:
    site = Site(2, settings=StreamsSettings(copies=1))
    first, second = site.members
    other = site.new("other")
    site.install([other])
    for member in (first, other):
        member.publish(count=3)
        member.publish()
    site.run(0.5)
    other.publish()
    other.needed = 2
    site.install([first, second, other], [other])
    site.run(2)
    other.publish()
    first.publish()
    site.run(1)
    for member in (first, second):
        assert member.got[other.id] == [-1, -2, 3, 4]
        assert member.gaps == [(other.id, 1, 2, 4)]
    assert other.got[first.id] == [-1, -2, 3]
    assert other.gaps == [(first.id, 1, 2, 4)]


def test_who_has_forgotten_the_others_meanwhile_is_told_that_it_missed_something() -> None:
    site = Site(2, settings=StreamsSettings(copies=1, linger=60.0))
    first, last = site.members
    first.publish()
    site.run(0.5)
    for part in ([last], [first]):
        site.install(part)
    site.run(100)
    assert first.id not in last.streams.origins()
    first.publish(count=7)
    site.run(0.5)
    site.install([first, last], [last])
    site.run(2)
    assert [(origin, to) for origin, _, to, _ in last.gaps] == [(first.id, 2)]
