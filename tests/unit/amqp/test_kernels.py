"""The compiled kernel does what the Python one does: the same bytes to everyone, the same counters."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Delivery, Link, Message, symbol
from tests.unit.amqp.rig import COUNTERS, Peer, Rig, usable
from tests.unit.steps import finished

from isthmus_router.amqp.kernel.handles import WHY_NOT_COMPILED
from isthmus_router.core import model
from isthmus_router.core.address import Address
from isthmus_router.core.balance import MOST_LOOKS
from isthmus_router.core.guard import MessageGuard
from isthmus_router.core.roles import Role
from isthmus_router.core.sums import sums_of
from isthmus_router.message.sections import FLAG_STREAMING, encode_annotations

ADDRESSES = ("balanced/a", "balanced/b", "closest/c", "multicast/d")
ROLES = (Role.NORMAL, Role.NORMAL, Role.NORMAL, Role.EDGE)
STATES = (
    Delivery.ACCEPTED,
    Delivery.ACCEPTED,
    Delivery.ACCEPTED,
    Delivery.RELEASED,
    Delivery.REJECTED,
    Delivery.MODIFIED,
    None,
)

some = st.integers(min_value=0, max_value=1000)
address = st.sampled_from(ADDRESSES)
STEPS = st.one_of(
    st.tuples(
        st.just("sender"),
        some,
        st.one_of(address, address, st.none()),
        st.sampled_from((Link.RCV_FIRST, Link.RCV_FIRST, Link.RCV_SECOND)),
        st.sampled_from((None, None, "qd.resend-released", "qd.streaming-deliveries")),
    ),
    st.tuples(
        st.just("receiver"),
        some,
        address,
        st.sampled_from((0, 1, 5, 100)),
        st.sampled_from((Link.SND_SETTLED, Link.SND_UNSETTLED, Link.SND_MIXED)),
        st.sampled_from((0, 0, 0, 1000)),
    ),
    *[
        st.tuples(
            st.just("send"),
            some,
            address,
            st.sampled_from((1, 3, 20)),
            st.sampled_from((0, 10, 500, 20_000, 300_000)),
            st.sampled_from((False, False, True)),
            st.sampled_from((None, None, 0, 4, 9)),
        )
    ]
    * 4,
    *[st.tuples(st.just("settle"), some, st.sampled_from((1, 5, 50)), st.sampled_from(STATES))] * 3,
    st.tuples(st.just("tell"), some, st.sampled_from((1, 5, 50)), st.sampled_from(STATES[:-1])),
    st.tuples(st.just("credit"), some, st.sampled_from((1, 5, 100))),
    st.tuples(st.just("forget"), some),
    st.tuples(st.just("nonsense"), some, st.binary(max_size=40)),
    st.tuples(st.just("detach"), some),
    st.tuples(st.just("drop"), some),
    st.tuples(st.just("later"), st.sampled_from((1, 3, 12))),
)


def _guarded(link: model.Link) -> bool:
    """A link handler: every third sender may name no user but this one."""
    if link.incoming and link.connection.role is Role.NORMAL and int(link.name[1:]) % 3 == 0:
        link.guard = MessageGuard(None, b"me", lambda: None)
    return False


class Play:
    """The same steps for any kernel."""

    def __init__(self, *, compiled: bool) -> None:
        self.rig = Rig(compiled=compiled)
        self.rig.core.link_handlers.append(_guarded)
        self.peers = [self.rig.connect(role) for role in ROLES]
        self.senders: list[tuple[Peer, Link]] = []
        self.receivers: list[tuple[Peer, Link]] = []
        self.sent: dict[str, list[Delivery]] = {}
        """Unsettled when they were sent."""
        self.number = 0
        self.rig.settle_down()

    def step(self, what: str, *details: Any) -> None:
        getattr(self, what)(*details)
        self.rig.settle_down()

    def _link(self, links: list[tuple[Peer, Link]], at: int) -> tuple[Peer, Link] | None:
        able = [(peer, link) for peer, link in links if not peer.dropped and usable(link)]
        return able[at % len(able)] if able else None

    def _peer(self, at: int) -> Peer | None:
        peer = self.peers[at % len(self.peers)]
        return None if peer.dropped else peer

    def sender(
        self, at: int, target: str | None, mode: int = Link.RCV_FIRST, capability: str | None = None
    ) -> None:
        peer = self._peer(at)
        if peer is not None:
            self.number += 1
            link = peer.session.sender(f"s{self.number}")
            link.target.address = target
            link.rcv_settle_mode = mode
            if capability is not None:
                link.target.capabilities.put_symbol(symbol(capability))
            link.open()
            self.senders.append((peer, link))

    def receiver(self, at: int, source: str, credit: int, mode: int, most: int = 0) -> None:
        peer = self._peer(at)
        if peer is not None:
            self.number += 1
            link = peer.session.receiver(f"r{self.number}")
            link.source.address = source
            link.snd_settle_mode = mode
            link.max_message_size = most
            link.open()
            link.flow(credit)
            self.receivers.append((peer, link))

    def send(self, at: int, to: str, count: int, size: int, settled: bool, priority: int | None) -> None:
        found = self._link(self.senders, at)
        if found is None:
            return
        peer, link = found
        message = Message(address=to, body=b"x" * size)
        if priority is not None:
            message.priority = priority
            message.user_id = {0: b"me", 9: b"other"}.get(priority, b"")
        data = message.encode()
        if peer is self.peers[-1]:
            data = encode_annotations(FLAG_STREAMING if size > 500 else 0, to, "E", ["E"], None) + data
        for _ in range(min(count, link.credit)):
            self.number += 1
            delivery = link.delivery(str(self.number))
            link.send(data)
            link.advance()
            if settled:
                delivery.settle()
            else:
                self.sent.setdefault(link.name, []).append(delivery)

    def nonsense(self, at: int, data: bytes) -> None:
        """Not a message."""
        found = self._link(self.senders, at)
        if found is not None and found[1].credit > 0:
            self.number += 1
            found[1].delivery(str(self.number))
            found[1].send(data)
            found[1].advance()

    def settle(self, at: int, count: int, state: Any) -> None:
        found = self._link(self.receivers, at)
        if found is None:
            return
        peer, link = found
        waiting = peer.deliveries.get(link.name, [])
        for delivery in waiting[:count]:
            if state is not None:
                delivery.update(state)
            delivery.settle()
        del waiting[:count]

    def tell(self, at: int, count: int, state: Any) -> None:
        """An outcome that is to be settled by the sender first."""
        found = self._link(self.receivers, at)
        if found is None:
            return
        peer, link = found
        waiting = peer.deliveries.get(link.name, [])
        for delivery in waiting[:count]:
            delivery.update(state)
        peer.told.setdefault(link.name, []).extend(waiting[:count])
        del waiting[:count]

    def forget(self, at: int) -> None:
        """A sender settles first, without waiting for an outcome."""
        found = self._link(self.senders, at)
        if found is not None:
            waiting = [item for item in self.sent.get(found[1].name, ()) if not item.settled]
            if waiting:
                waiting[0].settle()

    def credit(self, at: int, count: int) -> None:
        found = self._link(self.receivers, at)
        if found is not None:
            found[1].flow(count)

    def detach(self, at: int) -> None:
        found = self._link([*self.senders, *self.receivers], at)
        if found is not None:
            found[1].close()

    def drop(self, at: int) -> None:
        if sum(not peer.dropped for peer in self.peers) > 2:
            self.peers[at % len(self.peers)].drop()

    def later(self, seconds: int) -> None:
        self.rig.seconds_pass(seconds)

    def result(self) -> tuple[Any, ...]:
        core = self.rig.core
        addresses = {key: (*_deliveries(found), *_balance(found)) for key, found in core.addresses.items()}
        return [bytes(peer.heard) for peer in self.peers], self.rig.counters(), addresses, self.rig.readings()


def _deliveries(address: Address) -> tuple[int, int, int]:
    sums = finished(sums_of(address))
    return sums.ingress, sums.egress, sums.transit


def _balance(address: Address) -> tuple[Any, ...]:
    balance = address.balance
    return balance.turn, balance.least, balance.candidate and balance.candidate.place


def play(steps: list[tuple[Any, ...]], *, compiled: bool) -> tuple[Any, ...]:
    """Take the steps; sets of links are in the same order every time."""
    with patch.object(model.Link, "__hash__", lambda link: hash(link.id)):
        game = Play(compiled=compiled)
        try:
            for step in steps:
                game.step(*step)
            return game.result()
        finally:
            game.rig.close()


START: list[tuple[Any, ...]] = [
    ("sender", 0, "balanced/a"),
    ("sender", 1, None),
    ("sender", 3, None),
    ("receiver", 1, "balanced/a", 100, Link.SND_MIXED),
    ("receiver", 3, "balanced/a", 100, Link.SND_MIXED),
]


def test_there_is_a_compiled_kernel() -> None:
    assert WHY_NOT_COMPILED is None


def test_the_steps_move_messages() -> None:
    steps = [("send", at, "balanced/a", 20, size, False, None) for at in (0, 1, 2) for size in (10, 20_000)]
    settle = [("settle", at, 50, Delivery.ACCEPTED) for at in (0, 1)]
    _, counters, addresses, readings = play(START + steps + settle, compiled=True)
    assert addresses["Mbalanced/a"][:3] == (120, 120, 0)
    assert sorted(row[COUNTERS.index("accepted")] for row in counters.values()) == [10, 40, 40, 40, 50]
    assert [
        (name, sum(reading.sizes.values()), sum(reading.latencies.values()))
        for name, reading in sorted(readings.items())
        if reading is not None
    ] == [
        (name, row[COUNTERS.index("deliveries")], row[COUNTERS.index("accepted")])
        for name, row in sorted(counters.items())
    ]
    assert sum(reading.octets for name, reading in readings.items() if "/s" in name) == sum(
        reading.octets for name, reading in readings.items() if "/r" in name
    )


LATE: list[tuple[Any, ...]] = [
    ("send", 0, "balanced/a", 3, 10, False, None),
    ("later", 3),
    ("settle", 0, 2, Delivery.ACCEPTED),
    ("later", 12),
    ("settle", 0, 5, Delivery.ACCEPTED),
    ("settle", 1, 5, Delivery.ACCEPTED),
]


SECOND: list[tuple[Any, ...]] = [
    ("sender", 0, "closest/c", Link.RCV_SECOND),
    ("receiver", 3, "closest/c", 100, Link.SND_MIXED),
    ("send", 0, "closest/c", 3, 10, False, None),
    ("send", 2, "closest/c", 3, 10, False, None),
    ("send", 3, "closest/c", 3, 10, False, None),
    ("tell", 0, 5, Delivery.ACCEPTED),
    ("tell", 2, 5, Delivery.ACCEPTED),
    ("settle", 1, 5, Delivery.REJECTED),
    ("settle", 2, 5, Delivery.ACCEPTED),
]


SELECTIVE: list[tuple[Any, ...]] = [
    ("sender", 0, "balanced/a", Link.RCV_FIRST, "qd.resend-released"),
    ("receiver", 0, "balanced/a", 5, Link.SND_MIXED, 1000),
    *[("send", at, "balanced/a", 3, size, False, None) for at in (0, 3) for size in (10, 20_000)],
    *[("settle", at, 2, Delivery.RELEASED) for at in (0, 1, 2)],
    ("detach", 3),
    *[("settle", at, 5, Delivery.ACCEPTED) for at in (0, 1, 2)],
]


MANY: list[tuple[Any, ...]] = [
    *[("receiver", at, "balanced/a", 0 if at % 30 else 5, Link.SND_MIXED) for at in range(MOST_LOOKS + 30)],
    *[("send", 0, "balanced/a", 3, 10, False, None), ("settle", 2, 2, Delivery.ACCEPTED)] * 3,
    ("detach", 4),
    *[("credit", at, 1) for at in range(20, 90)],
    *[("send", 1, "balanced/a", 20, 10, False, None)] * 5,
    *[("settle", at, 1, STATES[at % len(STATES)]) for at in range(90)],
    *[("send", at, "balanced/a", 20, 10, False, None) for at in (0, 1)] * 3,
]
"""Receivers of one address, more than are looked at for one delivery."""


@settings(max_examples=150, deadline=None)
@example(MANY)
@example(LATE)
@example(SELECTIVE)
@example(SECOND)
@given(st.lists(STEPS, min_size=5, max_size=60))
def test_both_kernels_do_the_same(steps: list[tuple[Any, ...]]) -> None:
    python, compiled = (play(START + steps, compiled=compiled) for compiled in (False, True))
    assert compiled == python
