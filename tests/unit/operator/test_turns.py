"""Namespaces take turns, and a namespace that was idle does not wait for each of many others."""

from __future__ import annotations

from collections import Counter

import pytest

from isthmus_operator.turns import AGING, Key, Turn, Turns

TOTAL, SHARE, CREDIT = 16, 8, 32.0


class World:
    """Places in which each turn ends when all those have ended that began before it."""

    def __init__(
        self,
        total: int = TOTAL,
        share: int = SHARE,
        credit: float = CREDIT,
        slow_share: int | None = None,
        late_share: int = 0,
    ) -> None:
        self.turns: Turns[str] = Turns(total, share, credit, slow_share, late_share)
        self.turns_under_way: list[Turn[str]] = []
        self.had: Counter[Key] = Counter()
        self.costs: dict[Key, float] = {}
        self.waiting: Counter[Key] = Counter()

    def ask(self, key: Key, number: int = 1) -> None:
        for _ in range(number):
            self.turns.wait(key, f"ticket of {key}")
        self.waiting[key] += number
        self.fill()

    def fill(self) -> None:
        while (found := self.turns.admit()) is not None:
            assert found.ticket == f"ticket of {found.key}"
            self.turns_under_way.append(found)
            self.had[found.key] += 1
            self.waiting[found.key] -= 1

    @property
    def under_way(self) -> list[Key]:
        return [turn.key for turn in self.turns_under_way]

    def end_one(self) -> Key:
        turn = self.turns_under_way.pop(0)
        self.turns.leave(turn, self.costs.get(turn.key, 0.0))
        self.fill()
        return turn.key

    def attack(self, namespaces: int, each: int) -> None:
        for number in range(namespaces):
            self.ask(f"w{number}", each)

    def chain(self, key: str, length: int) -> int:
        """Ask for turns one after the other. Return how many turns of others end meanwhile."""
        ended = 0
        for _ in range(length):
            self.ask(key)
            while self.end_one() != key:
                ended += 1
        return ended


def test_a_chain_of_an_idle_namespace_does_not_wait_for_those_that_have_had_more() -> None:
    """With one queue, each turn of the chain came after 8 of each other namespace: 960."""
    world = World()
    world.attack(120, 200)
    for _ in range(120 * 10):
        world.end_one()
    assert world.chain("canary", 5) <= 5 * TOTAL


@pytest.mark.parametrize("before", [0, 10_000])
def test_a_chain_waits_for_one_turn_of_each_other_namespace_at_most(before: int) -> None:
    """However much the namespace has had itself."""
    world = World()
    world.attack(120, 1_000)
    world.ask("canary", before)
    for _ in range(before + 120 * 50):
        world.end_one()
    while world.waiting["canary"] or "canary" in world.under_way:
        world.end_one()
    assert world.chain("canary", 20) <= 20 * (120 + TOTAL)


def test_namespaces_with_many_waiting_take_equal_turns() -> None:
    world = World()
    world.attack(10, 1_000)
    for _ in range(2_000):
        world.end_one()
    assert max(world.had.values()) - min(world.had.values()) <= SHARE


def test_short_pieces_of_work_go_before_long_ones() -> None:
    """Also when they come one after the other without a pause."""
    world = World()
    for number in range(120):
        world.turns.begin(f"w{number}", 8)
    world.attack(120, 400)
    for _ in range(120 * 10):
        world.end_one()
    ended = []
    for _ in range(20):
        world.turns.begin("canary", 8)
        ended.append(world.chain("canary", 4))
    assert sum(ended) / len(ended) <= 2 * 120
    world.turns.forget("canary")
    for number in range(120):
        world.turns.forget(f"w{number}")
    assert not world.turns._early


def test_short_pieces_of_work_do_not_starve_long_ones() -> None:
    world = World(total=1, share=1)
    world.ask("long", 10_000)
    for _ in range(1_000):
        world.turns.begin("short", 8)
        world.ask("short", 4)
        for _ in range(5):
            world.end_one()
    assert world.had["long"] >= 800


def test_turns_that_cost_more_come_less_often() -> None:
    world = World(total=4, share=1)
    world.costs = {f"w{number}": 9.0 for number in range(5)}
    world.attack(10, 10_000)
    for _ in range(4_000):
        world.end_one()
    assert world.had["w9"] > 5 * world.had["w0"]


def test_the_cost_of_one_turn_delays_a_namespace_for_a_bounded_time() -> None:
    world = World(total=1, share=1)
    world.costs = {"slow": 1e9}
    world.ask("slow")
    world.attack(5, 1_000)
    world.ask("slow")
    had = world.had.total()
    while world.had["slow"] < 2:
        world.end_one()
    assert world.had.total() - had <= 5 * (2 * CREDIT + 2)


def test_new_namespaces_without_end_do_not_starve_a_busy_one() -> None:
    """Each new namespace has its credit, so that it comes first."""
    world = World()
    world.attack(20, 10_000)
    for _ in range(4_000):
        world.end_one()
    had = world.had["w0"]
    for number in range(int(CREDIT / AGING) * 100):
        if number % 4 == 0:
            world.ask(f"new {number}", 4)
        world.end_one()
    assert world.had["w0"] > had


def test_credit_comes_back_while_nobody_else_waits() -> None:
    world = World()
    world.chain("canary", 500)
    world.attack(120, 100)
    for _ in range(120 * 5):
        world.end_one()
    assert world.chain("canary", 4) <= 4 * TOTAL


def test_no_namespace_has_more_than_its_share_and_no_place_stays_empty() -> None:
    world = World()
    world.ask("a", 100)
    assert Counter(world.under_way) == {"a": SHARE}
    world.ask("b", 100)
    assert Counter(world.under_way) == {"a": SHARE, "b": TOTAL - SHARE}
    while world.under_way:
        world.end_one()
        under_way = Counter(world.under_way)
        assert max(under_way.values(), default=0) <= SHARE
    assert world.had == {"a": 100, "b": 100}
    assert world.turns.idle


def test_slow_namespaces_have_a_part_of_the_places_together() -> None:
    world = World(slow_share=6)
    for key in ("a", "b", "c"):
        world.turns.slow(key)
        world.ask(key, 100)
    assert len(world.under_way) == 6
    world.ask("quick", 100)
    assert Counter(world.under_way)["quick"] == SHARE
    for _ in range(200):
        world.end_one()
        assert sum(key != "quick" for key in world.under_way) <= 6
    assert world.had["quick"] >= max(world.had[key] for key in "abc")
    assert max(world.had[key] for key in "abc") - min(world.had[key] for key in "abc") <= SHARE


def test_a_namespace_becomes_slow_and_quick_while_it_waits() -> None:
    world = World(slow_share=4)
    world.ask("a", 100)
    world.turns.slow("a")
    assert world.under_way == ["a"] * SHARE
    for _ in range(SHARE - 4):
        world.end_one()
    assert world.under_way == ["a"] * 4
    world.turns.quick("a")
    world.fill()
    assert world.under_way == ["a"] * SHARE
    while world.under_way:
        world.end_one()
    assert world.had == {"a": 100}
    assert world.turns.idle
    assert not world.turns._slow
    assert not world.turns._queued


def test_late_turns_give_their_places_back_as_far_as_there_is_room_for_them() -> None:
    world = World(total=4, share=4, slow_share=2, late_share=3)
    world.ask("a", 4)
    late = list(world.turns_under_way)
    assert [world.turns.late(turn) for turn in late] == [True, True, True, False]
    world.ask("b", 4)
    assert Counter(world.under_way) == {"a": 4, "b": 3}
    world.turns.leave(late[0])
    assert world.turns.late(late[3])
    world.fill()
    assert Counter(world.under_way)["b"] == 4


def test_turns_of_slow_namespaces_are_late_beside_all_others() -> None:
    world = World(total=4, share=4, slow_share=2, late_share=1)
    world.ask("a", 1)
    assert world.turns.late(world.turns_under_way[0])
    world.turns.slow("s")
    for _ in range(2):
        world.ask("s", 3)
        expected = [turn for turn in world.turns_under_way if turn.expected]
        assert len(expected) == 2, "late ones count as well"
        assert all(world.turns.late(turn) for turn in expected if turn.has_place)
    world.ask("b", 9)
    assert Counter(world.under_way)["b"] == 4
    while world.under_way:
        world.end_one()
    assert world.turns.idle
    assert not world.turns._places
    assert world.had == {"a": 1, "s": 6, "b": 9}


def test_slow_namespaces_and_quick_ones_take_equal_turns_if_there_is_room() -> None:
    world = World(slow_share=8)
    world.attack(4, 1_000)
    for number in (0, 1):
        world.turns.slow(f"w{number}")
    for _ in range(2_000):
        world.end_one()
    assert max(world.had.values()) - min(world.had.values()) <= SHARE


def test_one_that_does_not_wait_any_more_gets_no_turn() -> None:
    turns: Turns[str] = Turns(1, 1, CREDIT)
    for ticket in ("one", "two", "three"):
        turns.wait("a", ticket)
    one = turns.admit()
    assert one == Turn("a", "one", expected=False)
    turns.withdraw("a", "two")
    turns.withdraw("a", "one")
    turns.withdraw("b", "unknown")
    turns.leave(one)
    three = turns.admit()
    assert three == Turn("a", "three", expected=False)
    turns.leave(three)
    turns.wait("a", "four")
    turns.withdraw("a", "four")
    assert turns.admit() is None
    assert turns.idle


def test_namespaces_that_are_gone_leave_nothing_behind() -> None:
    world = World()
    for number in range(20_000):
        world.ask(f"n{number}", 3)
        while world.under_way:
            world.end_one()
    turns = world.turns
    assert turns.idle
    assert len(turns._taken) < 100
    assert not turns._queue
    assert not turns._queued
