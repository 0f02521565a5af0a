"""Where members are: who is believed, what is kept, and for how long."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from isthmus_router.groups.address_cache import MOST_FORGOTTEN, AddressCache
from isthmus_router.groups.choosers import make_chooser
from isthmus_router.groups.identity import MemberId, PhysicalAddress, member_id

P, Q, R, S = (PhysicalAddress(f"10.0.0.{number}", 7_800) for number in range(1, 5))
EVE, ADA, BOB, CAT = (member_id(bytes([number]) * 16) for number in range(1, 5))


def make_cache(*, limit: int = 10, chooser: str = "first") -> AddressCache:
    return AddressCache(make_chooser(chooser, ()), limit=limit, expire_after=120.0, avoid_for=30.0)


def known(cache: AddressCache, member: MemberId) -> tuple[PhysicalAddress, ...]:
    entry = cache.get(member)
    return () if entry is None else entry.addresses


def choice(cache: AddressCache, member: MemberId) -> PhysicalAddress | None:
    entry = cache.get(member)
    return None if entry is None else entry.choice


def test_own_word_overwrites_and_others_word_does_not() -> None:
    cache = make_cache()
    assert cache.learn(0.0, ADA, (P,), own_word=False) == ()
    assert cache.learn(0.0, ADA, (Q,), own_word=False) == ()
    assert known(cache, ADA) == (P,)
    assert cache.learn(0.0, ADA, (R, S), own_word=True) == (P,)
    assert known(cache, ADA) == (R, S)
    assert choice(cache, ADA) == R
    cache.learn(0.0, ADA, (), own_word=True)
    assert known(cache, ADA) == (R, S)


def test_an_address_that_somebody_else_has_is_not_free() -> None:
    cache = make_cache()
    cache.keep(0.0, {ADA, BOB})
    cache.learn(0.0, ADA, (P,), own_word=True)
    cache.learn(0.0, BOB, (P, Q), own_word=True)
    assert cache.learn(0.0, ADA, (R,), own_word=True) == ()
    assert cache.remove(BOB) == (P, Q)


def test_another_interface_is_used_when_one_fails() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P, Q, R), own_word=True)
    cache.lost(1.0, P)
    assert choice(cache, ADA) == Q
    cache.lost(2.0, R)
    assert choice(cache, ADA) == Q
    cache.lost(3.0, Q)
    assert choice(cache, ADA) == P, "the one that was lost longest ago is tried again"
    cache.lost(40.0, P)
    assert choice(cache, ADA) == Q, "what was lost half a minute ago is as good as any"
    cache.lost(75.0, R)
    assert choice(cache, ADA) == Q, "what works is not left for what might be better"


def test_addresses_that_a_member_has_no_longer_are_not_remembered_as_lost() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P,), own_word=True)
    for port in range(1, 1_001):
        there = PhysicalAddress("10.0.0.9", port)
        cache.lost(float(port), choice(cache, ADA) or P)
        cache.learn(float(port), ADA, (there, P), own_word=False)
        assert choice(cache, ADA) == there
        cache.lost(float(port), P)
    entry = cache.get(ADA)
    assert entry is not None
    assert len(entry.lost) <= len(entry.addresses) == 2


def test_when_all_fail_others_are_believed() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P,), own_word=True)
    cache.lost(1.0, P)
    entry = cache.get(ADA)
    assert entry is not None
    assert entry.doubtful
    assert cache.learn(1.0, ADA, (Q,), own_word=False) == (P,)
    assert choice(cache, ADA) == Q
    assert not entry.doubtful


def test_own_word_makes_failed_addresses_good_again() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P, Q), own_word=True)
    cache.lost(1.0, P)
    cache.learn(2.0, ADA, (P, Q), own_word=True)
    assert choice(cache, ADA) == Q, "what works is not changed"
    cache.lost(3.0, Q)
    assert choice(cache, ADA) == P
    entry = cache.get(ADA)
    assert entry is not None
    assert not entry.doubtful


def test_a_loss_is_nothing_to_who_is_elsewhere() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P,), own_word=True)
    cache.learn(0.0, BOB, (Q,), own_word=True)
    cache.lost(1.0, P)
    entry = cache.get(BOB)
    assert entry is not None
    assert not entry.doubtful


def test_who_is_not_in_the_view_is_forgotten() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P,), own_word=True)
    cache.learn(5.0, BOB, (Q,), own_word=True)
    cache.keep(10.0, {ADA})
    assert cache.deadline == 125.0
    assert cache.expire(124.9) == []
    assert cache.expire(125.0) == [(BOB, Q)]
    assert list(cache) == [ADA]
    assert cache.deadline == inf
    cache.keep(200.0, set())
    assert cache.expire(319.9) == []
    assert cache.expire(320.0) == [(ADA, P)]
    assert list(cache) == []


def test_who_is_told_of_again_is_kept_longer() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P,), own_word=True)
    cache.learn(100.0, ADA, (P,), own_word=True)
    cache.expire(219.9)
    assert ADA in cache
    cache.expire(220.0)
    assert ADA not in cache


def test_beyond_the_limit_strangers_go_and_the_view_stays() -> None:
    cache = make_cache(limit=2)
    cache.keep(0.0, {ADA, BOB, CAT})
    cache.learn(0.0, ADA, (P,), own_word=True)
    cache.learn(0.0, EVE, (Q,), own_word=True)
    cache.learn(0.0, BOB, (R,), own_word=True)
    assert set(cache) == {ADA, BOB}
    cache.learn(0.0, EVE, (Q,), own_word=True)
    assert set(cache) == {ADA, BOB}
    cache.learn(0.0, CAT, (S,), own_word=True)
    assert set(cache) == {ADA, BOB, CAT}


class Counted(PhysicalAddress):
    """It counts comparisons."""

    compared = 0
    __hash__ = PhysicalAddress.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return super().__eq__(other)


def many(cache: AddressCache, members: int) -> None:
    """Members of 16 addresses each."""
    for number in range(members):
        addresses = tuple(Counted(f"10.0.{number}.{each}", 7_800) for each in range(16))
        cache.learn(0.0, member_id(number.to_bytes(16)), addresses, own_word=False)


def test_each_member_in_a_full_cache_costs_as_much_as_in_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Counted, "compared", 0)
    cache = make_cache(limit=100)
    many(cache, 300)
    assert len(cache) == 100
    cache.expire(200.0)
    assert Counted.compared < 300 * 16 * 4


def test_a_bounded_number_of_members_is_forgotten_in_one_step() -> None:
    cache = make_cache(limit=1_000)
    many(cache, 3 * MOST_FORGOTTEN)
    for left in (2, 1, 0):
        assert cache.deadline <= 200.0
        cache.expire(200.0)
        assert len(cache) == left * MOST_FORGOTTEN
    assert cache.deadline == inf


def test_who_said_that_it_goes_does_not_come_back() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P,), own_word=True)
    assert cache.end(1.0, ADA) == (P,)
    assert cache.is_gone(ADA)
    cache.learn(2.0, ADA, (P,), own_word=False)
    cache.learn(2.0, ADA, (P,), own_word=True)
    assert ADA not in cache
    assert cache.deadline == 121.0
    cache.expire(121.0)
    assert not cache.is_gone(ADA)


def test_of_those_who_said_that_they_go_only_so_many_are_remembered() -> None:
    cache = make_cache(limit=2)
    for member in (ADA, BOB, CAT):
        cache.end(0.0, member)
    assert [cache.is_gone(member) for member in (ADA, BOB, CAT)] == [False, True, True]


def test_who_restarts_at_an_address_takes_it_from_its_former_self() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P, Q), own_word=True)
    cache.learn(0.0, BOB, (P,), own_word=True)
    assert known(cache, ADA) == (Q,)
    assert choice(cache, ADA) == Q
    cache.learn(0.0, CAT, (Q,), own_word=True)
    assert ADA not in cache
    assert (known(cache, BOB), known(cache, CAT)) == ((P,), (Q,))


def test_others_word_and_the_view_take_no_address_away() -> None:
    cache = make_cache()
    cache.learn(0.0, ADA, (P,), own_word=True)
    cache.learn(0.0, BOB, (P,), own_word=False)
    cache.keep(0.0, {BOB})
    cache.learn(0.0, CAT, (P, Q), own_word=True)
    assert known(cache, BOB) == (P,), "the view has it still"
    assert ADA not in cache
    assert known(cache, CAT) == (P, Q)


@pytest.mark.parametrize("chooser", ["first", "rotate"])
@pytest.mark.parametrize("seed", range(25))
def test_any_order(seed: int, chooser: str) -> None:
    """Bounded; the choice is one of the addresses; who is gone stays so; the view stays, and others do not for ever."""
    random = Random(seed)
    members = [member_id(random.randbytes(16)) for _ in range(12)]
    places = [PhysicalAddress(f"10.0.0.{number}", 1) for number in range(8)]
    limit = 5
    cache = make_cache(limit=limit, chooser=chooser)
    view: set[MemberId] = set()
    gone: set[MemberId] = set()
    told: dict[MemberId, float] = {}
    now = 0.0
    for _ in range(400):
        now += random.choice((0.0, 0.1, 20.0))
        member = random.choice(members)
        match random.randrange(6):
            case 0 | 1 | 2:
                addresses = tuple(random.sample(places, random.randint(1, 3)))
                cache.learn(now, member, addresses, own_word=random.random() < 0.6)
                told[member] = now
            case 3:
                cache.lost(now, random.choice(places))
            case 4:
                view = set(random.sample(members, random.randint(0, 4)))
                cache.keep(now, view)
                told.update(dict.fromkeys(cache, now))
            case _ if random.random() < 0.2:
                assert not set(cache.end(now, member)) & {
                    each for other in cache for each in known(cache, other)
                }
                gone.add(member)
            case _:
                before = set(cache) & view
                cache.expire(now)
                gone = {each for each in gone if cache.is_gone(each)}
                assert before <= set(cache)
                assert all(each in view or told[each] > now - 120.0 for each in cache)
                assert cache.deadline > now
        assert not gone & set(cache)
        assert len(set(cache) - view) <= limit
        assert len(cache) <= limit + len(view)
        for each in cache:
            assert choice(cache, each) in known(cache, each)
