"""Logical names: bounded, and no key to anything."""

from __future__ import annotations

from random import Random

import pytest

from isthmus_router.groups.identity import MemberId, member_id
from isthmus_router.groups.names import Names


def ids(count: int, seed: int = 1) -> list[MemberId]:
    random = Random(seed)
    return [member_id(random.randbytes(16)) for _ in range(count)]


def test_two_of_one_name_are_told_apart() -> None:
    first, second = ids(2)
    names = Names()
    names.put(first, "till")
    names.put(second, "till")
    assert names.ids("till") == (first, second)
    assert names.name(first) == names.name(second) == "till"
    assert names.describe(first) != names.describe(second)
    assert names.describe(first) == f"till({first[:4].hex()})"


def test_who_is_not_known_is_called_by_its_id() -> None:
    (member,) = ids(1)
    names = Names()
    assert names.name(member) == member[:4].hex()
    assert names.ids("till") == ()
    names.put(member, "")
    assert names.name(member) == member[:4].hex()


def test_beyond_the_limit_the_oldest_goes() -> None:
    first, second, third = ids(3)
    names = Names(limit=2)
    names.put(first, "a")
    names.put(second, "b")
    names.put(first, "a")
    names.put(third, "c")
    assert [names.name(member) for member in (first, third)] == ["a", "c"]
    assert names.ids("b") == ()


@pytest.mark.parametrize("seed", range(20))
def test_any_order(seed: int) -> None:
    """Both directions agree with what was put, whatever is put and removed."""
    random = Random(seed)
    members, words = ids(6, seed), ("a", "b", "c")
    names = Names(limit=4)
    put: dict[MemberId, str] = {}
    for _ in range(200):
        member = random.choice(members)
        put.pop(member, None)
        if random.random() < 0.3:
            names.remove(member)
        else:
            if len(put) == 4:
                del put[next(iter(put))]
            put[member] = random.choice(words)
            names.put(member, put[member])
        assert len(names) == len(put)
        for word in words:
            assert set(names.ids(word)) == {each for each, name in put.items() if name == word}
        for each in members:
            assert names.name(each) == put.get(each, each[:4].hex())


def test_an_id_is_a_random_uuid() -> None:
    """Two connects never have the same one."""
    many = ids(1_000)
    assert len(set(many)) == len(many)
    assert all(member[6] >> 4 == 4 and member[8] >> 6 == 2 for member in many)
