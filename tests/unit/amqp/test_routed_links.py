"""Routed links in either kernel: whatever the two ends do, each is told what the other has said, and credit is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from cproton_ffi import lib
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Delivery
from tests.integration.support.raw import FLOW
from tests.unit.amqp.routed_ends import EXTENSION, Bridge, performatives, said

from isthmus_router.amqp.kernel.delivery import CHUNK_BYTES, STREAM_OUTGOING_HIGH
from isthmus_router.core import model

OUTCOMES = (Delivery.ACCEPTED, Delivery.RELEASED, Delivery.REJECTED, Delivery.MODIFIED)
STATES = (*OUTCOMES, Delivery.RECEIVED, EXTENSION)
MOST = 2**31 - 1

some = st.integers(0, 30)
size = st.sampled_from((0, 1, 100, 3000, 40_000))
state = st.one_of(st.none(), st.sampled_from(STATES))
with_transfer = st.sampled_from((None, None, None, EXTENSION))
STEPS = st.one_of(
    *[st.tuples(st.just("credit"), st.sampled_from((1, 3, 50)))] * 2,
    st.tuples(st.just("credit"), st.sampled_from((-1, -3, -50, MOST))),
    *[st.tuples(st.just("drain"), st.booleans())] * 2,
    *[st.tuples(st.just("send"), size, st.booleans(), with_transfer)] * 3,
    *[st.tuples(st.just("burst"), st.integers(2, 20), size)] * 1,
    st.tuples(st.just("begin"), size, with_transfer),
    st.tuples(st.just("more"), size),
    st.tuples(st.just("finish"), size, st.booleans()),
    st.tuples(st.just("abort")),
    st.tuples(st.just("drained")),
    st.tuples(st.just("read")),
    *[st.tuples(st.just("say"), some, state, st.booleans(), st.booleans())] * 4,
    *[st.tuples(st.just("move"), st.sampled_from(("sender", "receiver")))] * 4,
    st.tuples(st.just("quiet")),
)
SHAPES = st.fixed_dictionaries(
    {
        "client_sends": st.booleans(),
        "frame": st.sampled_from((0, 0, 512, 4096)),
        "window": st.sampled_from((2, 8)),
    }
)


class Play(Bridge):
    """Any steps of the two ends, and what must hold whenever they have come to rest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.granted = 0
        self.boundless = False

    def step(self, what: str, *details: Any) -> None:
        getattr(self, f"do_{what}")(*details)
        if self.into.partner is not None:
            held = self.rig_holds()
            assert held <= STREAM_OUTGOING_HIGH + CHUNK_BYTES

    def rig_holds(self) -> int:
        """Bytes that wait in the router to be sent."""
        return int(lib.pn_session_outgoing_bytes(self.out.session))

    def do_credit(self, count: int) -> None:
        if count == MOST:
            if self.boundless:
                return  # twice that and a little is next to nothing: credit has 32 bits
            self.boundless = True
        self.receiver.flow(max(count, -self.receiver.credit) if not self.boundless else count)

    def do_drain(self, wanted: bool) -> None:
        self.receiver.drain_mode = wanted

    def do_send(self, size: int, settled: bool, state: int | None) -> None:
        self.send(size, settled=settled, state=state)

    def do_burst(self, count: int, size: int) -> None:
        for _ in range(count):
            self.send(size)

    def do_begin(self, size: int, state: int | None) -> None:
        self.begin(size, state=state)

    def do_more(self, size: int) -> None:
        self.more(size)

    def do_finish(self, size: int, settled: bool) -> None:
        self.finish(size, settled=settled)

    def do_abort(self) -> None:
        self.abort()

    def do_drained(self) -> None:
        self.drained()

    def do_read(self) -> None:
        self.read()

    def do_say(self, which: int, kind: int | None, by_sender: bool, settle: bool) -> None:
        self.say(which, kind, by_sender=by_sender, settle=settle)

    def do_move(self, who: str) -> None:
        self.move(who)

    def do_quiet(self) -> None:
        self.quiet()
        self.check()

    def check(self) -> None:
        """At rest, but for a delivery that is being sent and what is not settled."""
        if not self.boundless:
            under_way = int(self.open is not None)
            left = self.receiver.credit - self.sender_ahead() - under_way
            assert max(self.sender.credit - under_way, 0) == max(left, 0)
            told = [fields[6] for fields in performatives(bytes(self.sending.heard), FLOW) if len(fields) > 6]
            assert max(told, default=0) <= MOST, "credit that is a debt"
        whole = [item for item in self.sent if item is not self.open]
        got = [item for item in self.got if item.complete]
        if self.waiting():
            return
        assert [(item.tag, item.data) for item in got] == [(item.tag, item.data) for item in whole]
        for there, here in zip(whole, got, strict=True):
            if not here.settled:
                assert here.delivery.settled == there.settled
                if there.state is not None:
                    assert said(here.delivery.remote) == there.state
            if not there.settled:
                assert there.delivery.settled == here.settled
                if here.state is not None:
                    assert said(there.delivery.remote) == here.state
        kept = [
            item
            for item in zip(self.sent, self.got, strict=False)
            if not (item[0].settled or item[1].settled)
        ]
        assert len(self.into.unsettled) == len(self.out.unsettled)
        assert len(self.into.unsettled) <= len(kept) + 1
        assert self.rig_holds() == 0

    def waiting(self) -> bool:
        """Whether something cannot be passed on for lack of credit: the receiver has taken it back.

        The engine needs credit for the rest of a delivery as well.
        """
        return self.receiver.credit <= 0 and (self.open is not None or self.sender_ahead() > 0)

    def sender_ahead(self) -> int:
        return sum(item.complete for item in self.sent) - sum(item.complete for item in self.got)

    def end(self) -> None:
        """All comes to an end: what is open is finished, everything is settled."""
        self.receiver.drain_mode = False
        self.quiet()
        self.finish(10)
        while (ahead := self.sender_ahead()) > 0:
            before = ahead
            if not self.boundless:
                self.receiver.flow(max(ahead - self.receiver.credit, 0))
            self.quiet()
            assert self.sender_ahead() < before
        self.quiet()
        self.check()
        for index, item in enumerate(self.got):
            if not item.settled:
                self.number += 1
                item.delivery.update(OUTCOMES[index % 4])
                item.settle()
        self.quiet()
        for item in self.sent:
            if not item.settled:
                assert item.delivery.settled
                item.settle()
        self.quiet()
        assert not self.into.unsettled
        assert not self.out.unsettled
        assert self.into.stream is None
        for link in (self.sender, self.receiver):
            assert link.unsettled == 0
        self.receiver.drain_mode = True
        self.quiet()
        assert max(self.sender.credit, self.receiver.credit) <= 0


def play(steps: list[tuple[Any, ...]], shape: dict[str, Any], *, compiled: bool) -> tuple[Any, ...]:
    with patch.object(model.Link, "__hash__", lambda link: hash(link.id)):
        game = Play(compiled=compiled, **shape)
        try:
            for step in steps:
                game.step(*step)
            game.end()
            return (
                [bytes(peer.heard) for peer in game.rig.peers],
                game.rig.counters(),
                game.rig.readings(),
            )
        finally:
            game.close()


SMALL_WINDOW = {"client_sends": True, "frame": 512, "window": 2}
WIDE = {"client_sends": True, "frame": 0, "window": 2}
TAKEN_BACK: list[tuple[Any, ...]] = [
    ("credit", 5),
    ("quiet",),
    ("credit", -5),
    ("burst", 4, 100),
    ("quiet",),
    ("credit", 2),
    ("quiet",),
]


MORE_IN_A_DRAIN: list[tuple[Any, ...]] = [
    ("credit", 1),
    ("quiet",),
    ("drain", True),
    ("begin", 1, None),
    ("quiet",),
    ("credit", 1),
    ("quiet",),
]

TAKEN_BACK_IN_A_DRAIN: list[tuple[Any, ...]] = [
    ("credit", 1),
    ("drain", True),
    ("move", "receiver"),
    ("move", "sender"),
    ("drained",),
    ("credit", -1),
]


@settings(max_examples=200)
@example(TAKEN_BACK, SMALL_WINDOW)
@example(MORE_IN_A_DRAIN, WIDE)
@example(TAKEN_BACK_IN_A_DRAIN, WIDE)
@example(MORE_IN_A_DRAIN, WIDE | {"client_sends": False})
@example([("credit", 1), ("quiet",), ("credit", -1), ("begin", 3000, None), ("quiet",)], SMALL_WINDOW)
@example([("credit", 3), ("quiet",), ("send", 10, True, None)], WIDE)
@given(st.lists(STEPS, min_size=5, max_size=50), SHAPES)
def test_any_sequence(steps: list[tuple[Any, ...]], shape: dict[str, Any]) -> None:
    compiled = play(steps, shape, compiled=True)
    assert compiled == play(steps, shape, compiled=False)


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def bridge(request: pytest.FixtureRequest) -> Iterator[Play]:
    """A link on either kernel, its messages in small frames and windows."""
    bridge = Play(compiled=request.param, **SMALL_WINDOW)
    yield bridge
    bridge.close()


def test_credit_taken_back_is_no_debt_of_the_sender(bridge: Play) -> None:
    """What the sender had sent by then has no credit; told of less than none, it would take that for very much."""
    for step in TAKEN_BACK:
        bridge.step(*step)
    assert (bridge.sender.credit, bridge.receiver.credit) == (0, 0)
    assert len(bridge.got) == 2
    told = [fields[6] for fields in performatives(bytes(bridge.client.heard), FLOW) if len(fields) > 6]
    assert set(told) <= set(range(6))


def test_a_receiver_that_took_back_what_was_on_its_way_has_not_given_without_bounds(bridge: Play) -> None:
    bridge.receiver.flow(2)
    bridge.quiet()
    bridge.send(1)
    bridge.send(1)
    bridge.move("sender")
    bridge.receiver.flow(-1)
    bridge.quiet()
    assert (bridge.sender.credit, bridge.receiver.credit, len(bridge.got)) == (0, -1, 2)
    bridge.receiver.flow(4)
    bridge.quiet()
    assert (bridge.sender.credit, bridge.receiver.credit) == (3, 3)


@pytest.mark.parametrize("more", [1, 2**31 - 1])
def test_a_receiver_may_give_more_than_the_engine_counts(bridge: Play, more: int) -> None:
    bridge.receiver.flow(MOST)
    bridge.receiver.flow(more)
    bridge.quiet()
    assert bridge.sender.credit == MOST
    for _ in range(10):
        bridge.send(10)
    bridge.quiet()
    assert len(bridge.got) == 10
    assert bridge.sender.credit >= MOST - 10


def test_a_drain_is_over_when_what_is_before_has_left(bridge: Play) -> None:
    """The receiver's window is closed when the sender gives its credit back."""
    bridge.receiver.flow(9)
    bridge.quiet()
    bridge.send(1500)
    bridge.receiver.drain_mode = True
    for _ in range(10):
        bridge.rig.settle_down()
        bridge.drained()
    assert bridge.sender.credit == 0
    assert (bridge.got, bridge.receiver.credit) == ([], 9)
    bridge.quiet()
    assert (len(bridge.got), bridge.receiver.credit) == (1, 0)
    bridge.receiver.drain_mode = False
    bridge.receiver.flow(3)
    bridge.quiet()
    assert (bridge.sender.credit, bridge.sender.drain_mode) == (3, False)
