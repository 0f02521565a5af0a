"""The end of routed links in either kernel: what was sent before arrives before it, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Condition, Delivery
from tests.unit.amqp.routed_ends import Bridge, OwnEnd

REASON = Condition("test:reason", "of its own")
LOST = "qd:routed-link-lost"

who = st.sampled_from(("sender", "receiver"))
BEFORE = st.one_of(
    st.tuples(st.just("send"), st.sampled_from((1, 3000, 40_000)), st.booleans()),
    st.tuples(st.just("send"), st.sampled_from((1, 3000, 40_000)), st.booleans()),
    st.tuples(st.just("begin"), st.sampled_from((1, 3000))),
    st.tuples(st.just("finish"), st.sampled_from((1, 3000))),
    st.tuples(st.just("credit"), st.sampled_from((5, -5))),
    st.tuples(st.just("read")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("move"), who),
)
ENDS = st.one_of(
    st.tuples(st.just("close"), who, st.booleans(), st.booleans()),
    st.tuples(st.just("end"), who),
    st.tuples(st.just("drop"), who),
)


class Ending(Bridge):
    """Steps up to the end of the link."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.said: set[Any] = set()
        """Links that their own end has detached."""
        self.ended: set[OwnEnd] = set()
        """Who has ended the session."""

    def step(self, what: str, *details: Any) -> None:
        getattr(self, f"do_{what}")(*details)

    def _end(self, which: str) -> tuple[OwnEnd, Any]:
        return (self.sending, self.sender) if which == "sender" else (self.receiving, self.receiver)

    def _of(self, link: Any) -> OwnEnd:
        return self.sending if link is self.sender else self.receiving

    def _there(self, link: Any) -> bool:
        """Whether it is attached, as far as its end knows."""
        peer = self._of(link)
        return not (link in self.said or link.name in peer.over or peer in self.ended or peer.dropped)

    def do_send(self, size: int, settled: bool) -> None:
        if self._there(self.sender):
            self.send(size, settled=settled)

    def do_begin(self, size: int) -> None:
        if self._there(self.sender):
            self.begin(size)

    def do_finish(self, size: int) -> None:
        if self._there(self.sender):
            self.finish(size)

    def do_credit(self, count: int) -> None:
        if self._there(self.receiver):
            self.receiver.flow(max(count, -self.receiver.credit))

    def do_read(self) -> None:
        """Also what is left when the sender has detached: the session would fill up."""
        if not (self.receiver in self.said or self.receiving in self.ended or self.receiving.dropped):
            self.read()

    def do_settle(self) -> None:
        if self._there(self.receiver):
            self.say(0, Delivery.ACCEPTED, by_sender=False, settle=True)

    def do_move(self, which: str) -> None:
        self.move(which)

    def do_close(self, which: str, closed: bool, plainly: bool) -> None:
        _, link = self._end(which)
        if self._there(link):
            self.said.add(link)
            if not plainly:
                link.condition = REASON
            (link.close if closed else link.detach)()

    def do_end(self, which: str) -> None:
        peer, link = self._end(which)
        if peer not in self.ended:
            self.ended.add(peer)
            link.session.close()

    def do_drop(self, which: str) -> None:
        self._end(which)[0].drop()

    def rest(self) -> None:
        """Until nobody has any more to say, with the receiver reading."""
        for _ in range(10_000):
            self.rig.settle_down()
            self.do_read()
            if not sum(peer.turn() for peer in self.rig.peers):
                return
        raise AssertionError("it never comes to rest")

    def check(self) -> None:
        """Nothing is left of the link, and its connections do their work."""
        assert not self.routing.routed
        for half in self.halves:
            assert half not in half.connection.links
            assert not half.unsettled
            assert half.partner is None
        assert not self.rig.driver.forwarder.routed._parting
        for peer in (self.client, self.container):
            if not peer.dropped:
                assert not peer.router_side.links
                assert not peer.router_side.detached._total
                assert not any(of.cut_short for of in peer.router_side.detached._sessions.values())
                if peer not in self.ended:
                    assert peer.over.keys() == {
                        link.name for link in (self.sender, self.receiver) if self._of(link) is peer
                    }

    def again(self) -> None:
        """Another link on the same connections, and more than a window full of messages."""
        if self.client.dropped or self.container.dropped:
            return
        if self.client in self.ended or (self.receiving is self.client and self.receiver in self.said):
            return
        self.sent, self.got = [], []
        self.ended.clear()
        self.said.clear()
        self.join("another")
        self.receiver.flow(10)
        self.rest()
        for _ in range(10):
            self.send(1000)
        self.rest()
        assert len(self.got) == 10


def play(before: list[Any], ends: list[Any], shape: dict[str, Any], *, compiled: bool) -> Any:
    game = Ending(compiled=compiled, **shape)
    try:
        game.receiver.flow(10)
        game.rest()
        for step in (*before, *ends):
            game.step(*step)
        game.rest()
        if game.receiver.credit <= 0:
            game.step("credit", 20)  # the engine detaches after what it was given to send
            game.rest()
        game.check()
        if [step[:2] for step in ends] == [("close", "sender")] and ("credit", -5) not in before:
            complete = [item.tag for item in game.sent if item.complete]
            assert [item.tag for item in game.got if item.complete] == complete
        heard = [bytes(peer.heard) for peer in game.rig.peers]
        game.again()
        return heard
    finally:
        game.close()


SHAPES = st.fixed_dictionaries(
    {"client_sends": st.booleans(), "frame": st.sampled_from((0, 512)), "window": st.sampled_from((2, 8))}
)


@settings(max_examples=100)
@given(st.lists(BEFORE, max_size=20), ENDS, st.lists(BEFORE, max_size=6), st.lists(ENDS, max_size=2), SHAPES)
def test_nothing_is_left(
    before: list[Any], end: Any, between: list[Any], ends: list[Any], shape: dict[str, Any]
) -> None:
    compiled = play(before, [end, *between, *ends], shape, compiled=True)
    assert compiled == play(before, [end, *between, *ends], shape, compiled=False)


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def ending(request: pytest.FixtureRequest) -> Iterator[Ending]:
    """A link on either kernel, its messages in small frames and windows."""
    ending = Ending(compiled=request.param, frame=512, window=2)
    ending.receiver.flow(100)
    ending.rest()
    yield ending
    ending.close()


@pytest.mark.parametrize("settled", [True, False])
def test_what_was_sent_before_a_detach_arrives_before_it(ending: Ending, settled: bool) -> None:
    """The receiver's window is closed when the sender leaves."""
    for _ in range(20):
        ending.send(400, settled=settled)
        ending.rig.settle_down()
    ending.sender.close()
    ending.rig.settle_down()
    assert not ending.container.over
    ending.rest()
    assert [item.complete for item in ending.got] == [True] * 20
    assert ending.container.over == {"mine@client": None}
    ending.check()


@pytest.mark.parametrize("first", ["drop", "close", "end"])
def test_a_receiver_may_leave_while_a_sender_is_about_to(ending: Ending, first: str) -> None:
    for _ in range(20):
        ending.send(400)
        ending.rig.settle_down()
    ending.sender.close()
    ending.rig.settle_down()
    if first == "close":
        ending.step("close", "receiver", True, False)
    else:
        ending.step(first, "receiver")
    ending.rest()
    ending.check()
    assert ending.client.over.keys() == {"mine"}


@pytest.mark.parametrize("first", ["drop", "end"])
def test_a_message_that_is_cut_short_does_not_keep_the_link(ending: Ending, first: str) -> None:
    """Its receiver has taken its credit back: there is none to abort it with."""
    ending.begin(100)
    ending.rest()
    ending.step("credit", -5)
    ending.receiver.flow(-ending.receiver.credit)
    ending.rest()
    ending.step(first, "sender")
    ending.rest()
    ending.check()
    condition = ending.container.over["mine@client"]
    assert condition is not None
    assert condition.name == LOST


def test_a_session_is_not_filled_by_messages_that_are_cut_short(ending: Ending) -> None:
    for number in range(5):
        ending.begin(900)
        ending.rig.settle_down()
        ending.step("close", "receiver", True, True)
        ending.rest()
        ending.check()
        ending.sent, ending.got = [], []
        ending.said.clear()
        ending.client.over.clear()
        ending.container.over.clear()
        ending.join(f"another {number}")
        ending.receiver.flow(100)
        ending.rest()
    for _ in range(10):
        ending.send(1000)
    ending.rest()
    assert len(ending.got) == 10
