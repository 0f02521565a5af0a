"""Peers that keep to no order: both kernels survive them, say the same to everyone, and go on for the others."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from cproton_ffi import lib
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Delivery, Message
from tests.unit.amqp.garbage import nothing_left_to_collect
from tests.unit.amqp.raw_peer import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED, RawPeer
from tests.unit.amqp.rig import Peer, Rig, usable
from tests.unit.amqp.waiting import check_counts

from isthmus_router.amqp import driver, events, freeing
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.kernel import copies, forward, parking, stalled
from isthmus_router.amqp.kernel.delivery import Hold
from isthmus_router.core import model
from isthmus_router.core.roles import Role

ROLES = (Role.NORMAL, Role.NORMAL, Role.EDGE)
ADDRESSES = ("balanced/a", "balanced/a", "closest/c", "multicast/d", "nobody/n")
CHANNELS = (0, 0, 0, 1, 2)
HANDLES = (0, 0, 1, 1, 2, 3, 200)

peer = st.integers(0, len(ROLES) - 1)
channel = st.sampled_from(CHANNELS)
handle = st.sampled_from(HANDLES)
address = st.sampled_from(ADDRESSES)
flag = st.sampled_from((False, False, False, True))
number = st.integers(0, 12)
skew = st.sampled_from((0, 0, 0, 0, 0, 1, 5, -1))
FRAMES = st.one_of(
    *[
        st.tuples(
            st.just("transfer"),
            peer,
            channel,
            handle,
            address,
            st.sampled_from((10, 10, 10, 300, 20_000, -1)),
            flag,
            flag,
            flag,
            skew,
        )
    ]
    * 4,
    *[
        st.tuples(
            st.just("disposition"),
            peer,
            channel,
            st.sampled_from((True, True, True, False)),
            number,
            number,
            st.sampled_from((True, True, False)),
            st.sampled_from((ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, REJECTED, MODIFIED, RECEIVED, None)),
        )
    ]
    * 3,
    *[
        st.tuples(
            st.just("attach"),
            peer,
            channel,
            handle,
            st.booleans(),
            st.one_of(address, st.none()),
            st.sampled_from((None, None, None, 1)),
        )
    ]
    * 2,
    st.tuples(
        st.just("flow"),
        peer,
        channel,
        st.one_of(st.none(), handle),
        st.sampled_from((0, 1, 10, 2**31)),
        flag,
        number,
    ),
    st.tuples(st.just("detach"), peer, channel, handle, st.sampled_from((True, True, True, False))),
    st.tuples(st.just("end"), peer, channel),
    st.tuples(st.just("begin"), peer, channel),
    st.tuples(st.just("close"), peer),
    st.tuples(st.just("say"), peer, st.binary(min_size=1, max_size=40)),
)
STEPS = st.one_of(
    *[st.lists(FRAMES, min_size=1, max_size=12)] * 6,  # said at once: the engine reports them together
    st.tuples(st.just("drop"), peer),
    st.tuples(st.just("hold"), peer),
    st.tuples(st.just("lift"), st.integers(0, 3)),
    st.tuples(st.just("follow"), number),
    st.tuples(st.just("later"), st.sampled_from((3, 12))),
)
WITH_ROUNDS = st.one_of(STEPS, STEPS, st.tuples(st.just("rounds"), st.integers(1, 3)))
Frame = tuple[Any, ...]
Step = list[Frame] | Frame


class Errors(logging.Handler):
    """What the router could not deal with."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Disorder:
    """A router between peers that keep to no order, and two that do."""

    def __init__(self, *, compiled: bool) -> None:
        self.rig = Rig(compiled=compiled)
        self.holds: list[Hold] = []
        self.raw = [RawPeer(self.rig, f"raw-{index}", role) for index, role in enumerate(ROLES)]
        self.rig.peers += self.raw
        self.sender, self.receiver = (self.rig.connect(Role.NORMAL) for _ in range(2))
        self.rig.settle_down()
        self.calm_sender, self.calm_receiver = self._calm_links(self.sender, self.receiver)

    def _calm_links(self, sender: Peer, receiver: Peer) -> tuple[Any, Any]:
        out, back = sender.session.sender("calm"), receiver.session.receiver("calm")
        out.target.address = back.source.address = "balanced/calm"
        out.open()
        back.open()
        back.flow(100)
        self.rig.settle_down()
        assert usable(out)
        assert usable(back)
        return out, back

    def take(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, list):
                for what, at, *details in step:
                    getattr(self.raw[at], what)(*details)
            else:
                getattr(self, step[0])(step[1])
            self.rig.settle_down()
            self.accounts_agree()

    def drop(self, at: int) -> None:
        self.raw[at].drop()

    def later(self, seconds: int) -> None:
        self.rig.seconds_pass(seconds)

    def rounds(self, count: int) -> None:
        """The loop goes round, in which long pieces of work go on."""
        for _ in range(count):
            self.rig.loop_goes_round()

    def hold(self, at: int) -> None:
        """What leads to one peer is held, as while links are handed over."""
        core = self.raw[at].router_side.core
        if core is not None:
            found = [link for link in sorted(core.links, key=lambda link: link.id) if not link.incoming]
            self.holds += [self.rig.driver.forwarder.parking.hold(link) for link in found]

    def lift(self, at: int) -> None:
        if self.holds:
            self.rig.driver.forwarder.parking.lift(self.holds.pop(at % len(self.holds)))
            self.rig.driver.flush()

    def follow(self, at: int) -> None:
        """A link to one peer takes over from a link to another one, or to the same."""
        links = [
            link
            for raw in self.raw
            if raw.router_side.core is not None
            for link in sorted(raw.router_side.core.links, key=lambda link: link.id)
            if not link.incoming and not link.routed and link.io in raw.router_side.links
        ]
        if len(links) > 1:
            old, new = links[at % len(links)], links[(at + 1 + at // 3) % len(links)]
            if old is not new:
                self.rig.core.unbind_consumer(old)
                if not self.rig.driver.forwarder.parking.hand_over(old, new):
                    self.holds.append(self.rig.driver.forwarder.parking.hold(new))

    def others_go_on(self) -> None:
        """Messages of the two calm peers still pass."""
        payload = Message(body=b"calm").encode()
        sent = []
        for index in range(5):
            sent.append(self.calm_sender.delivery(str(index)))
            self.calm_sender.send(payload)
            self.calm_sender.advance()
        self.rig.settle_down()
        arrived = self.receiver.deliveries.pop(self.calm_receiver.name)
        assert len(arrived) == 5
        for delivery in arrived:
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        self.rig.settle_down()
        assert [delivery.remote_state for delivery in sent] == [Delivery.ACCEPTED] * 5

    def accounts_agree(self) -> None:
        """Core and engine have the same deliveries under way on links on which the router sends, and counts of what
        waits agree with it.

        Links of a connection that ends, whose turn to be forgotten has not come, have no part in that.
        """
        for connection in self.rig.core.connections.values():
            for link in connection.links:
                if not link.incoming and not link.routed and link.io in connection.io.links:
                    begun = int(link.stream is not None and link.stream.has_begun(link))
                    assert lib.pn_link_unsettled(link.io) == len(link.unsettled) + begun, link.name
        check_counts(self.rig)

    def all_leave(self) -> None:
        """Nothing stays behind of peers that are gone."""
        for raw in self.raw:
            raw.drop()
        self.rig.peers[:] = [self.sender, self.receiver]
        self.raw.clear()
        self.holds.clear()
        self.rig.settle_down()
        self.rig.work_off()
        connections = self.rig.driver.connections.values()
        assert {connection.peer for connection in connections} == {"peer-3", "peer-4"}
        assert not self.rig.driver.activity.busy
        for connection in self.rig.core.connections.values():
            for link in connection.links:
                assert not link.unsettled, link.name
                assert not link.parked, link.name

    def result(self) -> tuple[list[bytes], dict[str, list[int]]]:
        return [bytes(raw.heard) for raw in self.raw], self.rig.counters()


def play(steps: list[Step], *, compiled: bool) -> Any:
    """Take the steps with one kernel; sets of links are in the same order every time, and seconds do not count."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    with (
        patch.object(model.Link, "__hash__", lambda link: hash(link.id)),
        patch.object(Driver, "_second_passed", lambda driver: None),
        nothing_left_to_collect(),
    ):
        disorder = Disorder(compiled=compiled)
        try:
            disorder.take(steps)
            disorder.others_go_on()
            result = disorder.result()
            disorder.all_leave()
            disorder.others_go_on()
            assert errors.records == []
        finally:
            logging.getLogger().removeHandler(errors)
            disorder.rig.close()
    return result


def transfers(at: int, channel: int, handle: int, count: int, to: str = "balanced/a") -> list[Frame]:
    """Of whole messages, in order."""
    return [("transfer", at, channel, handle, to, 10, False, False, False, 0)] * count


START: list[Step] = [
    [("attach", at, 0, 0, False, None if at == 2 else "balanced/a", None) for at in range(3)],
    [("attach", at, 0, 1, True, "balanced/a", None) for at in range(2)],
    [("flow", at, 0, 1, 100, False, 0) for at in range(2)],
]
DETACH, ACCEPT = [("detach", 0, 0, 0, True)], [("disposition", 1, 0, True, 0, 10, True, ACCEPTED)]
AGAIN = [("attach", 0, 0, 0, False, "balanced/a", None)]


def test_the_start_lets_messages_pass() -> None:
    heard, counters = play([*START, transfers(0, 0, 0, 6), ACCEPT], compiled=True)
    assert heard[0].count(b"xxxxxxxxxx") == heard[1].count(b"xxxxxxxxxx") == 3
    assert counters["raw-0/raw-0/1"][:4] == [6, 0, 0, 3]


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=15))
@example([transfers(0, 0, 0, 3) + DETACH + transfers(0, 0, 0, 3)])
@example([transfers(0, 0, 0, 3) + DETACH + AGAIN + transfers(0, 0, 0, 3), ACCEPT + ACCEPT])
@example([transfers(0, 0, 0, 3) + AGAIN, ACCEPT])
@example(
    [transfers(1, 0, 1, 1), [("detach", 1, 0, 1, True)], [("disposition", 1, 0, False, 0, 3, True, ACCEPTED)]]
)
@example([transfers(0, 0, 0, 2) + transfers(0, 0, 1, 1), ACCEPT])
@example([transfers(1, 0, 0, 5) + transfers(0, 0, 0, 5), [*ACCEPT, ("detach", 1, 0, 1, True), *ACCEPT]])
@example([transfers(0, 0, 0, 5), [("end", 1, 0), *ACCEPT], [("begin", 1, 0), *ACCEPT]])
@example([transfers(0, 0, 0, 5), [*ACCEPT, ("end", 0, 0)], transfers(0, 0, 0, 1)])
@example([[*transfers(0, 0, 0, 5), ("close", 0), *transfers(0, 0, 0, 5)], ACCEPT])
@example([transfers(0, 0, 0, 5), ("drop", 0), ACCEPT])
@example([("hold", 1), transfers(0, 0, 0, 5), ("drop", 0), ("lift", 0), ACCEPT])
@example([("hold", 1), transfers(0, 0, 0, 5), [("detach", 1, 0, 1, True)], ("lift", 0)])
@example([("hold", 1), transfers(0, 0, 0, 5), ("follow", 0), ("drop", 0), ("lift", 0), ACCEPT])
@example([("hold", 1), transfers(0, 0, 0, 5), ("follow", 1), [("detach", 1, 0, 1, True)], ("lift", 0)])
@example([transfers(0, 0, 0, 5), [*ACCEPT, ("close", 1), *ACCEPT]])
@example([transfers(0, 0, 0, 5), [("disposition", 0, 0, False, 0, 3, True, None)], ACCEPT])
@example(
    [
        [("transfer", 0, 0, 0, "", 300, False, True, False, 0)],
        [("transfer", 0, 0, 0, "", 0, False, False, True, 0)],
    ]
)
def test_both_kernels_survive_disorder(steps: list[Step]) -> None:
    python, compiled = (play(START + steps, compiled=compiled) for compiled in (False, True))
    assert compiled == python


TOLD = [("disposition", 0, 0, True, 0, 10, False, ACCEPTED)]


@settings(max_examples=200, deadline=None)
@given(st.lists(WITH_ROUNDS, min_size=1, max_size=15))
@example([transfers(2, 0, 0, 8), TOLD, [("detach", 0, 0, 1, True)], ("drop", 2), ("rounds", 3)])
@example(
    [
        transfers(2, 0, 0, 8),
        TOLD,
        ("drop", 0),
        [("disposition", 2, 0, False, 0, 3, True, None)],
        ("rounds", 3),
    ]
)
def test_both_kernels_survive_disorder_in_the_middle_of_long_work(steps: list[Step]) -> None:
    """What is done for many messages in steps is done for two of them."""
    with ExitStack() as patches:
        for module in (forward, parking, copies, stalled, freeing):
            patches.enter_context(patch.object(module, "AT_ONCE", 1))
        for module in (driver, events):
            patches.enter_context(patch.object(module, "MANY_LINKS", 1))
        python, compiled = (play(START + steps, compiled=compiled) for compiled in (False, True))
    assert compiled == python
