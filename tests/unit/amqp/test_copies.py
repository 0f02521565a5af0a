"""Copies of multicast messages are made in steps, between which receivers, senders and connections come and go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from proton import Delivery, Message
from tests.unit.amqp.rig import Peer, Rig, usable

from isthmus_router.amqp.kernel import copies, forward, parking, stream, wide
from isthmus_router.amqp.kernel.delivery import CHUNK_BYTES
from isthmus_router.core.roles import Role
from isthmus_router.message.sections import encode_annotations

ADDRESSES = ("multicast/a", "multicast/b")
ROLES = (Role.NORMAL, Role.NORMAL, Role.NORMAL, Role.EDGE)
AMPLE = 10_000

some = st.integers(0, 1000)
address = st.sampled_from(ADDRESSES)
STEPS = st.one_of(
    *[st.tuples(st.just("receiver"), some, address, st.sampled_from((0, 2, AMPLE)))] * 2,
    st.tuples(st.just("sender"), some, st.one_of(address, st.none())),
    *[st.tuples(st.just("send"), some, address, st.integers(1, 4), st.booleans())] * 4,
    *[st.tuples(st.just("work"), st.integers(1, 5))] * 4,
    *[st.tuples(st.just("begin"), some, address)] * 2,
    *[st.tuples(st.just("end"), some, st.booleans())] * 2,
    st.tuples(st.just("abort"), some),
    st.tuples(st.just("settle"), some, st.sampled_from((Delivery.ACCEPTED, Delivery.RELEASED))),
    st.tuples(st.just("credit"), some),
    st.tuples(st.just("forget"), some),
    st.tuples(st.just("detach"), some),
    st.tuples(st.just("drop"), some),
)
Steps = list[tuple[Any, ...]]


class Listener(Peer):
    """A peer that remembers what it has received."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: dict[str, list[int]] = defaultdict(list)
        """Numbers of messages, by link."""
        self.unanswered: dict[str, list[tuple[Delivery, int]]] = defaultdict(list)
        self.parts: dict[str, bytearray] = defaultdict(bytearray)

    def _read(self, link: Any) -> None:
        while (delivery := link.current) is not None:
            if delivery.pending and not delivery.aborted:
                self.parts[link.name] += link.recv(delivery.pending)
            if delivery.partial and not delivery.aborted:
                return
            link.advance()
            data = bytes(self.parts.pop(link.name, b""))
            if delivery.aborted:
                delivery.settle()
                continue
            message = Message()
            message.decode(data)
            self.seen[link.name].append(message.id)
            if delivery.settled:
                delivery.settle()
            else:
                self.unanswered[link.name].append((delivery, message.id))


class Play:
    """A router and its peers."""

    def __init__(self, *, compiled: bool) -> None:
        self.rig = Rig(compiled=compiled)
        self.jobs: list[Iterator[None]] = []
        self.rig.driver.work = self.jobs.append  # type: ignore[method-assign]
        self.peers = [Listener(self.rig, f"peer-{number}", role) for number, role in enumerate(ROLES)]
        self.rig.peers += self.peers
        self.edge = self.peers[-1]
        self.senders: list[tuple[Listener, Any]] = []
        self.receivers: list[tuple[Listener, Any]] = []
        self.sent: dict[str, list[tuple[int, frozenset[str]]]] = defaultdict(list)
        """By link: numbers, and the receivers that were there."""
        self.unsettled: list[tuple[Listener, Any, int, Delivery]] = []
        self.begun: dict[str, tuple[Listener, Any, Delivery, int, frozenset[str], bytes]] = {}
        """By link: messages of which the rest is still to be sent."""
        self.accepted: set[int] = set()
        self.number = 0
        self.rig.settle_down()

    def take(self, steps: Steps) -> None:
        for what, *details in steps:
            getattr(self, what)(*details)
            self.rig.settle_down()

    @staticmethod
    def able(links: list[tuple[Listener, Any]]) -> list[tuple[Listener, Any]]:
        return [(peer, link) for peer, link in links if not peer.dropped and usable(link)]

    def _pick(self, links: list[tuple[Listener, Any]], at: int) -> tuple[Listener, Any] | None:
        able = self.able(links)
        return able[at % len(able)] if able else None

    def receiver(self, at: int, source: str, credit: int) -> None:
        peer = self.peers[at % len(self.peers)]
        if not peer.dropped:
            self.number += 1
            link = peer.session.receiver(f"r{self.number}")
            link.source.address = source
            link.open()
            link.flow(credit)
            self.receivers.append((peer, link))

    def sender(self, at: int, target: str | None) -> None:
        peer = self.peers[at % len(self.peers)]
        if not peer.dropped:
            self.number += 1
            link = peer.session.sender(f"s{self.number}")
            link.target.address = None if peer is self.edge else target
            link.open()
            self.senders.append((peer, link))

    def _there(self, peer: Listener, to: str) -> frozenset[str]:
        """Receivers that get what the peer sends."""
        return frozenset(
            receiver.name
            for other, receiver in self.able(self.receivers)
            if receiver.source.address == to and not other is peer is self.edge
        )

    def _message(self, peer: Listener, to: str, size: int) -> bytes:
        self.number += 1
        data = Message(address=to, id=self.number, body=b"x" * size).encode()
        if peer is self.edge:
            data = encode_annotations(0, to, "E", ["E"], None) + data
        return data

    def send(self, at: int, to: str, count: int, settled: bool) -> None:
        found = self._pick([one for one in self.senders if one[1].name not in self.begun], at)
        if found is None:
            return
        peer, link = found
        to = link.target.address or to
        there = self._there(peer, to)
        for _ in range(min(count, link.credit)):
            data = self._message(peer, to, 10)
            delivery = link.delivery(str(self.number))
            link.send(data)
            link.advance()
            self._sent(peer, link, delivery, self.number, there, settled=settled)

    def _sent(
        self,
        peer: Listener,
        link: Any,
        delivery: Delivery,
        number: int,
        there: frozenset[str],
        *,
        settled: bool,
    ) -> None:
        self.sent[link.name].append((number, there))
        if settled:
            delivery.settle()
        else:
            self.unsettled.append((peer, link, number, delivery))

    def begin(self, at: int, to: str) -> None:
        """Send most of a large message."""
        found = self._pick([one for one in self.senders if one[1].name not in self.begun], at)
        if found is None or found[1].credit <= 0:
            return
        peer, link = found
        to = link.target.address or to
        data = self._message(peer, to, 200_000)
        delivery = link.delivery(str(self.number))
        link.send(data[:150_000])
        self.begun[link.name] = peer, link, delivery, self.number, self._there(peer, to), data[150_000:]

    def end(self, at: int, settled: bool) -> None:
        """Send the rest of one."""
        found = self._pick([one for one in self.senders if one[1].name in self.begun], at)
        if found is not None:
            peer, link, delivery, number, there, rest = self.begun.pop(found[1].name)
            if link.credit <= 0:  # it was drained meanwhile: the engine of the peer does not go on
                link.close()
                return
            link.send(rest)
            link.advance()
            self._sent(peer, link, delivery, number, there, settled=settled)

    def abort(self, at: int) -> None:
        """Send no more of one."""
        found = self._pick([one for one in self.senders if one[1].name in self.begun], at)
        if found is not None:
            link = found[1]
            if link.credit <= 0:  # as above
                del self.begun[link.name]
                link.close()
            else:
                self.begun.pop(link.name)[2].abort()

    def work(self, count: int) -> None:
        """The router makes some steps."""
        for _ in range(count):
            if self.jobs:
                job = self.jobs.pop(0)
                if next(job, self) is not self:
                    self.jobs.append(job)
                self.rig.driver.flush()

    def settle(self, at: int, state: Any) -> None:
        found = self._pick(self.receivers, at)
        if found is not None:
            self._settle(*found, state)

    def _settle(self, peer: Listener, link: Any, state: Any) -> None:
        for delivery, number in peer.unanswered.pop(link.name, ()):
            if state == Delivery.ACCEPTED:
                self.accepted.add(number)
            delivery.update(state)
            delivery.settle()

    def forget(self, at: int) -> None:
        """A sender settles without waiting for an outcome."""
        waiting = [one for one in self.unsettled if not one[0].dropped and usable(one[1])]
        if waiting:
            one = waiting[at % len(waiting)]
            self.unsettled.remove(one)
            one[3].settle()

    def credit(self, at: int) -> None:
        found = self._pick(self.receivers, at)
        if found is not None:
            found[1].flow(5)

    def detach(self, at: int) -> None:
        found = self._pick([*self.senders, *self.receivers], at)
        if found is not None:
            found[1].close()

    def drop(self, at: int) -> None:
        if sum(not peer.dropped for peer in self.peers) > 2:
            self.peers[at % len(self.peers)].drop()

    def come_to_rest(self) -> None:
        """All copies are made, and accepted."""
        for _, link in self.able(self.receivers):
            link.flow(AMPLE)
        for _ in self.senders:
            self.end(0, False)
        while True:
            self.rig.settle_down()
            for peer, link in self.able(self.receivers):
                self._settle(peer, link, Delivery.ACCEPTED)
            self.rig.settle_down()
            if not self.jobs:
                return
            self.work(1)

    def check(self) -> None:
        """Fail when a message came twice, out of order or not at all, or when something is left behind."""
        for peer, link in self.receivers:
            seen = peer.seen[link.name]
            assert len(seen) == len(set(seen)), "nothing comes twice"
            for messages in self.sent.values():
                numbers = [number for number, _ in messages]
                from_there = [number for number in seen if number in numbers]
                assert from_there == sorted(from_there), "the order is kept"
                if not peer.dropped and usable(link):
                    due = {number for number, there in messages if link.name in there}
                    assert due <= set(from_there), "who was there before and after gets all"
        for peer, link, number, delivery in self.unsettled:
            if not peer.dropped and usable(link):
                assert delivery.settled, "each sender that is there gets an outcome"
                assert (delivery.remote_state == Delivery.ACCEPTED) == (number in self.accepted)
        for connection in self.rig.core.connections.values():
            for link in connection.links:
                assert not link.paused
                assert not link.parked
                assert not link.parked_bytes
                assert not link.unsettled
        for connection in self.rig.core.connections.values():
            assert not connection.crowded
            assert not connection.waiting_bytes
            assert not self.rig.driver.forwarder.copies.wait_from(connection)


@pytest.mark.parametrize("compiled", [True, False])
@settings(max_examples=50, deadline=None)
@given(steps=st.lists(STEPS, min_size=5, max_size=40), at_once=st.sampled_from((0, 2)))
@example(
    steps=[
        ("send", 0, ADDRESSES[0], 1, False),
        ("begin", 0, ADDRESSES[0]),
        ("abort", 0),
        ("send", 0, ADDRESSES[0], 1, False),
        ("detach", 0),
    ],
    at_once=0,
)
def test_copies_in_steps(steps: Steps, at_once: int, *, compiled: bool) -> None:
    start: Steps = [
        *[("sender", at, ADDRESSES[0]) for at in range(len(ROLES))],
        *[("receiver", at, ADDRESSES[0], AMPLE) for at in range(len(ROLES))],
    ]
    # Two messages that wait hold up the link of a client, and five of them all of its links.
    with (
        patch.multiple(copies, AT_ONCE=at_once, STEP=1, PLACE_BYTES=600_000, MOST_WAITING_BYTES=1 << 40),
        patch.multiple(parking, CONNECTION_PARKED_HIGH=2_500_000, CONNECTION_PARKED_LOW=1_300_000),
        patch.object(stream, "MANY_RECEIVERS", 1),
        patch.multiple(wide, STEP=1, PLACE_BYTES=200_000),
    ):
        play = Play(compiled=compiled)
        try:
            play.take(start + steps)
            play.come_to_rest()
            play.check()
        finally:
            play.rig.close()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("how", ["end", "abort"])
def test_what_waits_behind_a_large_message_arrives_when_the_sender_has_gone(
    how: str, *, compiled: bool
) -> None:
    """The large message waits for copies of the first one, and all of both has arrived at the router."""
    with (
        patch.multiple(copies, AT_ONCE=0, STEP=1),
        patch.multiple(stream, MANY_RECEIVERS=1),
    ):
        play = Play(compiled=compiled)
        play.take([("receiver", at, ADDRESSES[0], AMPLE) for at in range(3)])
        play.take([("sender", 0, ADDRESSES[0]), ("send", 0, ADDRESSES[0], 1, False)])
        last: tuple[Any, ...] = ("end", 0, False) if how == "end" else ("abort", 0)
        for _ in range(2):
            play.take([("begin", 0, ADDRESSES[0]), last])
        play.take([("send", 0, ADDRESSES[0], 2, False), ("detach", 0)])
        play.come_to_rest()
        play.check()
        complete = 5 if how == "end" else 3
        assert [sum(map(len, peer.seen.values())) for peer in play.peers[:3]] == [complete] * 3
        play.rig.close()


def test_the_steps_make_copies() -> None:
    with patch.object(copies, "AT_ONCE", 0), patch.object(copies, "STEP", 1):
        play = Play(compiled=True)
        play.take([("receiver", at, ADDRESSES[0], AMPLE) for at in range(3)])
        play.take([("sender", 0, ADDRESSES[0]), ("send", 0, ADDRESSES[0], 2, False), ("work", 2)])
        assert [len(peer.seen) for peer in play.peers] == [1, 1, 0, 0]
        play.come_to_rest()
        play.check()
        assert play.accepted == {number for number, _ in next(iter(play.sent.values()))}
        play.rig.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_sender_goes_whose_message_waited_for_a_receiver_that_is_being_left(*, compiled: bool) -> None:
    """What waits for the receiver is given back in steps, and the message is part of that."""
    with patch.object(forward, "AT_ONCE", 0):
        play = Play(compiled=compiled)
        play.take([("receiver", 1, ADDRESSES[0], 0), *[("sender", 0, ADDRESSES[0])] * 3])
        play.take([("begin", 0, ADDRESSES[0])] * 3)
        client = play.peers[0].router_side.core
        assert client is not None
        assert client.waiting_bytes > 3 * 64 * 1024
        play.take([("detach", 3), ("detach", 2), ("detach", 1)])
        assert not play.peers[0].dropped, "the router has found no error"
        play.take([("work", 5)])
        play.come_to_rest()
        play.check()
        play.rig.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_what_waits_of_all_links_of_a_client_is_bounded(*, compiled: bool) -> None:
    """Small messages of many links to receivers without credit: each copy takes memory."""
    links, receivers, most = 40, 20, 50_000
    with patch.multiple(parking, CONNECTION_PARKED_HIGH=most, CONNECTION_PARKED_LOW=most // 2):
        play = Play(compiled=compiled)
        play.take([("receiver", 1, ADDRESSES[0], 0) for _ in range(receivers)])
        play.take([("sender", 0, ADDRESSES[0]) for _ in range(links)])
        play.take([("send", n, ADDRESSES[0], 3, False) for n in range(links)])
        client = play.peers[0].router_side.core
        assert client is not None
        assert most < client.waiting_bytes < most + 2 * receivers * parking.PLACE_BYTES
        play.take([("sender", 0, ADDRESSES[0]), ("send", links, ADDRESSES[0], 1, True)])
        assert client.waiting_bytes < most + 2 * receivers * parking.PLACE_BYTES, (
            "nor does a new link add to it"
        )
        play.come_to_rest()
        play.check()
        assert len(play.accepted) == 3 * links
        play.rig.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_message_that_waits_for_receivers_counts_its_place_at_each(*, compiled: bool) -> None:
    receivers = 20
    play = Play(compiled=compiled)
    play.take([("receiver", 1, ADDRESSES[0], 0) for _ in range(receivers)])
    play.take([("sender", 0, ADDRESSES[0]), ("begin", 0, ADDRESSES[0])])
    client = play.peers[0].router_side.core
    assert client is not None
    assert client.waiting_bytes >= CHUNK_BYTES + receivers * parking.PLACE_BYTES
    play.come_to_rest()
    play.check()
    play.rig.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_stream_goes_to_its_receivers_in_steps(*, compiled: bool) -> None:
    with patch.object(stream, "MANY_RECEIVERS", 1), patch.object(wide, "STEP", 1):
        play = Play(compiled=compiled)
        play.take([("receiver", at, ADDRESSES[0], AMPLE) for at in range(3)])
        play.take([("sender", 0, ADDRESSES[0]), ("begin", 0, ADDRESSES[0])])
        play.take([("work", 4)])  # it queues for them, and lets the next message do so
        assert [sum(map(len, peer.parts.values())) for peer in play.peers] == [0, 0, 0, 0]
        play.take([("work", 2)])
        sizes = [sum(map(len, peer.parts.values())) for peer in play.peers]
        assert sizes[0] > 0 < sizes[1]
        assert sizes[2:] == [0, 0]
        play.take([("detach", 1), ("work", 100), ("end", 0, False), ("work", 2)])
        play.come_to_rest()
        play.check()
        assert [sum(map(len, peer.seen.values())) for peer in play.peers[1:]] == [1, 1, 0]
        assert len(play.accepted) == 1
        play.rig.close()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_stream_goes_on_while_much_waits_of_other_links(*, compiled: bool) -> None:
    with patch.multiple(parking, CONNECTION_PARKED_HIGH=2_000, CONNECTION_PARKED_LOW=1_000):
        play = Play(compiled=compiled)
        play.take([("receiver", 1, ADDRESSES[0], 0), ("receiver", 2, ADDRESSES[1], AMPLE)])
        play.take([("sender", 0, ADDRESSES[1]), ("begin", 0, ADDRESSES[1])])
        play.take([("sender", 0, ADDRESSES[0]), *[("send", 0, ADDRESSES[0], 4, False)] * 3])
        client = play.peers[0].router_side.core
        assert client is not None
        assert client.crowded
        play.take([("end", 0, True)])
        assert sum(map(len, play.peers[2].seen.values())) == 1
        play.come_to_rest()
        play.check()
        play.rig.close()
