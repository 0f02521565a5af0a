"""Routers that ask for all addresses of one that has very many get them in one message, which is made in steps."""

from __future__ import annotations

from tests.unit.routing.driver import LINK, Driver

from isthmus_router.core.treatment import Treatment
from isthmus_router.routing import actions as act
from isthmus_router.routing.messages import (
    MobileAddress,
    MobileAddressRequest,
    MobileAddressUpdate,
    decode_control,
    encode_control,
)
from isthmus_router.routing.mobile import MOST_ANNOUNCED
from isthmus_router.routing.waiting import STEP

MANY = 40 * STEP
REQUEST = encode_control(MobileAddressRequest("PEER", 0), "x")


def own(number: int) -> MobileAddress:
    return MobileAddress(f"M{number}", Treatment.CLOSEST)


def with_many(pair: Driver) -> list[MobileAddressUpdate]:
    """A router that has announced as many addresses, and how."""
    actions: list[act.Action] = []
    for number in range(MANY):
        actions += pair.engine.local_address_added(own(number), pair.now)
    for _ in range(20):
        pair.now += 0.05
        actions += pair.engine.on_tick(pair.now)
    return updates_in(actions)


def updates_in(actions: list[act.Action]) -> list[MobileAddressUpdate]:
    """What is said about addresses, in this order."""
    payloads = [one.payload for one in actions if isinstance(one, act.SendUnicast | act.SendMulticast)]
    messages = [decode_control(payload, most=10 * MANY) for payload in payloads]
    return [message for message in messages if isinstance(message, MobileAddressUpdate)]


def work_off(pair: Driver) -> tuple[list[act.Action], int]:
    actions: list[act.Action] = []
    steps = 0
    while pair.engine.has_work(pair.now):
        actions += pair.engine.work(pair.now)
        steps += 1
    return actions, steps


def test_very_many_addresses_are_announced_in_several_updates(pair: Driver) -> None:
    announced = with_many(pair)
    assert [update.sequence for update in announced] == list(range(1, len(announced) + 1))
    assert max(len(update.present) for update in announced) == MOST_ANNOUNCED < MANY
    assert {address for update in announced for address in update.present} == {own(n) for n in range(MANY)}


def test_an_answer_is_made_in_steps(pair: Driver) -> None:
    sequence = with_many(pair)[-1].sequence
    assert not updates_in(pair.engine.on_message(LINK, REQUEST, pair.now))
    actions, steps = work_off(pair)
    assert steps >= MANY / STEP - 1
    (answer,) = updates_in(actions)
    assert (answer.router, answer.sequence, answer.absolute) == ("ME", sequence, True)
    assert set(answer.present) == {own(number) for number in range(MANY)}


def test_the_next_answer_costs_no_more_steps_while_nothing_has_changed(pair: Driver) -> None:
    with_many(pair)
    pair.engine.on_message(LINK, REQUEST, pair.now)
    work_off(pair)
    pair.now += 1
    assert len(updates_in(pair.engine.on_message(LINK, REQUEST, pair.now))) == 1
    assert not pair.engine.has_work(pair.now)


def test_who_asks_can_follow_what_is_announced_next(pair: Driver) -> None:
    """However often addresses come and go while the answer is made."""
    sequence = with_many(pair)[-1].sequence
    found = updates_in(pair.engine.on_message(LINK, REQUEST, pair.now))
    number = MANY
    while pair.engine.has_work(pair.now):
        pair.now += 0.01
        number += 1
        found += updates_in(pair.engine.local_address_added(own(number), pair.now))
        found += updates_in(pair.engine.work(pair.now))
    answer, following = found[:2]
    assert (answer.sequence, answer.absolute) == (sequence, True)
    assert (following.sequence, following.absolute) == (sequence + 1, False)
    assert own(MANY + 1) in following.present
