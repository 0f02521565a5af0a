"""Streams of a site whose network loses, repeats and reorders, and whose members crash, join, part and come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.groups.streams.site import REMOTE, Member, Site

from isthmus_router.groups.batch import GroupMessage, make_batch
from isthmus_router.groups.identity import MemberId
from isthmus_router.groups.streams.user import StreamsSettings

SETTINGS = StreamsSettings(early_batches=200, window_bytes=50_000)
SEEDS = range(60)


def check_order(member: Member) -> None:
    """No number twice, none left out, whatever a gap was told for."""
    for origin, numbers in member.got.items():
        seen = [abs(number) for number in numbers]
        assert seen == list(range(seen[0], seen[0] + len(seen))), (member.name, origin, numbers)


def check_bounds(site: Site) -> None:
    """Nothing grows beyond its bound while faults last."""
    for member in site.by_id.values():
        assert member.streams.early <= SETTINGS.early_batches
        log = member.streams.log(member.id)
        assert log is not None
        assert log.bytes <= SETTINGS.window_bytes + 500


def publish(member: Member) -> None:
    """If there is room."""
    if member.streams.room > 0:
        member.publish(size=member.site.random.choice([0, 10, 300]))


@pytest.mark.parametrize("seed", SEEDS)
def test_loss_repetition_and_disorder(seed: int) -> None:
    size = 1 + seed % 5
    settings = replace(SETTINGS, copies=min(2, size))
    site = Site(size, seed=seed, loss=0.3, repeat=0.3, delay=0.02, settings=settings)
    for _ in range(150):
        publish(site.random.choice(site.members))
        site.run(site.random.random() * 0.01)
        check_bounds(site)
    site.run(20)
    for member in site.members:
        assert member.gaps == []
        for origin in site.members:
            last = origin.marks()[origin.id]
            assert member.got[origin.id] == list(range(1, last + 1))
        assert member.protects == member.marks()[member.id]
    site.check_forgotten()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_protected_batch_is_lost_by_one_crash(seed: int) -> None:
    site = Site(3 + seed % 3, seed=seed, loss=0.2, repeat=0.2, delay=0.02, settings=SETTINGS)
    for _ in range(60):
        publish(site.random.choice(site.members))
        site.run(site.random.random() * 0.01)
    victim = site.random.choice(site.members)
    site.crash(victim)
    protected = victim.protects
    survivors = [member for member in site.members if member is not victim]
    for _ in range(20):
        publish(site.random.choice(survivors))
        site.run(site.random.random() * 0.01)
    site.install(survivors)
    for _ in range(20):
        publish(site.random.choice(survivors))
        site.run(site.random.random() * 0.01)
    site.run(20)
    for member in survivors:
        check_order(member)
        assert member.got[victim.id] == survivors[0].got[victim.id]
        assert member.numbers(victim.id)[:protected] == list(range(1, protected + 1))
        assert [gap for gap in member.gaps if gap[0] != victim.id] == []
        for origin in survivors:
            assert member.numbers(origin.id)[-1:] == origin.numbers(origin.id)[-1:]
        assert member.protects == member.marks()[member.id]
    site.check_forgotten()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_relay_that_crashes_loses_nothing_that_it_said_is_held(seed: int) -> None:
    site = Site(3, seed=seed, loss=0.2, repeat=0.2, delay=0.02, settings=SETTINGS)
    relay, *others = site.members
    relay.streams.start(site.now, REMOTE, "SFO", 5, 4)
    for number in range(5, 60):
        relay.bridged(make_batch(REMOTE, number, number - 1, "SFO", None, [GroupMessage("news", b"1")]))
        site.run(site.random.random() * 0.01)
    held = relay.holds.get(REMOTE, 0)
    site.crash(relay)
    site.install(others)
    second = others[0]
    site.run(3)
    assert second.marks("SFO").get(REMOTE, 0) >= held
    mark = second.marks("SFO").get(REMOTE, 4)
    second.streams.start(site.now, REMOTE, "SFO", mark + 1, mark)
    for number in range(mark + 1, 80):
        second.bridged(make_batch(REMOTE, number, number - 1, "SFO", None, [GroupMessage("news", b"1")]))
    site.run(20)
    for member in others:
        assert member.got[REMOTE][-1] == 79
        assert member.gaps == []
        check_order(member)
    assert second.holds[REMOTE] == 79
    site.check_forgotten()


@pytest.mark.parametrize("seed", SEEDS)
def test_members_come_and_go(seed: int) -> None:
    site = Site(3, seed=seed, loss=0.15, repeat=0.15, delay=0.02, settings=SETTINGS)
    absent: list[Member] = []
    for _ in range(10):
        for _ in range(30):
            publish(site.random.choice(site.members))
            if absent:
                publish(site.random.choice(absent))
            site.run(site.random.random() * 0.01)
        members = list(site.members)
        action = site.random.choice(["join", "join", "crash", "part", "return"])
        joiners: list[Member] = []
        if action == "join":
            joiners = [site.new("new")]
            members += joiners
        elif action == "return" and absent:
            members += absent
            absent = []
        elif len(members) > 1 and action in {"crash", "part"}:
            gone = members.pop(site.random.randrange(len(members)))
            if action == "crash":
                site.crash(gone)
            else:
                absent.append(gone)
        site.install(members, joiners)
        check_bounds(site)
    site.run(5)
    joiners = [] if len(site.members + absent) > 1 else [site.new("last")]
    site.install(site.members + absent + joiners, joiners)
    site.run(40)
    last: dict[MemberId, int] = site.members[0].marks()
    for member in site.members:
        check_order(member)
        assert member.marks() == last
    site.check_forgotten()
