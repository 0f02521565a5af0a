"""The two halves of a routed link in one router, in every order of events that there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import pytest

from isthmus_router.core.terms import Condition
from isthmus_router.linkroute.chain import LINK_LOST, Action, Answer, Chain, Detach, End, Half

NEAR, FAR = Half.NEAR, Half.FAR
REASON = Condition("test:reason", "of its own")
ANSWERED = "answered"
Event = tuple[str, Half, bool]
"""What happens, to which half, and whether that closes it."""


def orders() -> Iterator[tuple[Event, ...]]:
    """Every event at most once, in every order; nothing comes from a half that is lost."""
    for near_closes, far_closes in product((True, False), repeat=2):
        events: list[Event] = [
            (ANSWERED, FAR, False),
            ("detached", NEAR, near_closes),
            ("detached", FAR, far_closes),
            ("lost", NEAR, False),
            ("lost", FAR, False),
        ]
        for count in range(1, len(events) + 1):
            for order in permutations(events, count):
                lost = [half for what, half, _ in order if what == "lost"]
                if all(
                    order.index(("lost", half, False)) > order.index(event)
                    for half in lost
                    for event in order
                    if event[1] is half and event[0] != "lost"
                ):
                    yield order


class Watched:
    """A chain, what its peers have said and been told, and whether that is in order."""

    def __init__(self, *, outlives: bool) -> None:
        self.chain = Chain(outlives=outlives)
        self.outlives = outlives
        self.answered = False
        self.told: dict[Half, Detach] = {}
        self.heard: dict[Half, bool] = {}
        self.lost: set[Half] = set()
        self.ended: set[Half] = set()

    def happens(self, event: Event) -> None:
        what, half, closed = event
        if what == ANSWERED:
            actions = self.chain.on_answered()
        elif what == "lost":
            self.lost.add(half)
            actions = self.chain.on_lost(half)
        else:
            self.heard[half] = closed
            actions = self.chain.on_detached(half, REASON, closed=closed)
        for action in actions:
            self._check(action)
        over = self.told or self.heard or self.lost
        assert self.chain.attached == (self.answered and not over)
        assert self.chain.ended == all(half in self.ended | self.lost for half in Half)

    def _check(self, action: Action) -> None:
        match action:
            case Answer():
                assert not self.answered
                assert NEAR not in self.told
                assert NEAR not in self.lost
                self.answered = True
            case Detach(half, condition, closed):
                assert half not in self.told
                assert half not in self.lost
                if condition is REASON:
                    assert closed is self.heard[half.other]
                elif condition is LINK_LOST:
                    assert half.other in self.lost
                    assert half not in self.heard
                    assert closed is not self.outlives
                else:
                    assert half in self.heard, "an answer"
                self.told[half] = action
            case End(half):
                assert half in self.told
                assert half in self.heard
                assert half not in self.ended | self.lost
                self.ended.add(half)

    def come_to_rest(self) -> None:
        """Peers answer what they are told."""
        for half in (NEAR, FAR, NEAR):
            if half in self.told and half not in self.heard and half not in self.lost:
                self.happens(("detached", half, self.told[half].closed))


@pytest.mark.parametrize("outlives", [False, True])
def test_every_order(outlives: bool) -> None:
    """Each half is detached at most once, with what the other peer has said, and ended when both ends have."""
    count = 0
    for order in orders():
        count += 1
        watched = Watched(outlives=outlives)
        for event in order:
            watched.happens(event)
        watched.come_to_rest()
        assert watched.chain.ended or set(order) <= {(ANSWERED, FAR, False)}
    assert count > 400


def test_a_detach_goes_to_the_other_end_and_back() -> None:
    chain = Chain()
    assert chain.on_answered() == [Answer()]
    assert chain.attached
    assert chain.on_detached(FAR, REASON, closed=False) == [Detach(NEAR, REASON, closed=False)]
    assert not chain.attached
    assert chain.on_detached(NEAR, None, closed=True) == [
        Detach(FAR, None, closed=True),
        End(FAR),
        End(NEAR),
    ]
    assert chain.ended


def test_what_is_refused_is_answered_first() -> None:
    chain = Chain()
    assert chain.on_answered() == [Answer()]
    assert chain.on_detached(FAR, REASON, closed=True) == [Detach(NEAR, REASON, closed=True)]


def test_a_client_that_changes_its_mind_has_its_answer_all_the_same() -> None:
    chain = Chain()
    assert chain.on_detached(NEAR, None, closed=True) == [Detach(FAR, None, closed=True)]
    assert chain.on_answered() == [Answer()]
    assert chain.on_detached(FAR, None, closed=True) == [Detach(NEAR, None, closed=True), End(NEAR), End(FAR)]


def test_a_detach_is_answered_plainly_if_the_other_half_is_lost_meanwhile() -> None:
    chain = Chain(outlives=True)
    chain.on_answered()
    chain.on_detached(NEAR, None, closed=True)
    assert chain.on_lost(FAR) == [Detach(NEAR, None, closed=True), End(NEAR)]
    assert chain.ended
    assert chain.on_lost(FAR) == []
    assert chain.on_detached(NEAR, None, closed=True) == []
