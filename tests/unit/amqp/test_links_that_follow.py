"""A link follows another one of the same consumer and takes over what waits, however many messages there are."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from proton import Delivery
from tests.unit.amqp.rig import Peer, Rig
from tests.unit.amqp.waiting import check_counts

from isthmus_router.amqp.kernel import forward, parking
from isthmus_router.amqp.kernel.delivery import Hold
from isthmus_router.core.model import Link
from isthmus_router.core.roles import Role

ADDRESS = "balanced/queue"
MANY, FEW = 30, 4
LARGE = 100_000


class Reader(Peer):
    """Accepts all messages. Their names and numbers are in a list for all connections."""

    def __init__(self, rig: Rig, name: str, log: list[tuple[str, int]]) -> None:
        super().__init__(rig, name, Role.NORMAL)
        self.log = log
        rig.peers.append(self)

    def _read(self, link: Any) -> None:
        while (delivery := link.current) is not None:
            if delivery.partial and not delivery.aborted:
                return
            if not delivery.aborted:
                name, number = link.recv(delivery.pending).partition(b"@")[2].split()[:2]
                self.log.append((name.decode(), int(number)))
                delivery.update(Delivery.ACCEPTED)
            link.advance()
            delivery.settle()


class Consumer:
    """Receivers of one consumer, each on a connection of its own. The last one follows those before."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.log: list[tuple[str, int]] = []
        self.peers: list[Reader] = []
        self.ends: list[Any] = []
        self.links: list[Link] = []
        self.holds: list[Hold] = []

    def attach(self) -> Link:
        """One more receiver, without credit."""
        peer = Reader(self.rig, f"reader-{len(self.links)}", self.log)
        end = peer.session.receiver("from")
        end.source.address = ADDRESS
        end.open()
        self.rig.settle_down()
        (link,) = peer.router_side.core.links
        self.peers.append(peer)
        self.ends.append(end)
        self.links.append(link)
        return link

    def follow(self, old: Link, new: Link) -> None:
        """The same as `Driver.hand_over`, without markers."""
        parking = self.rig.driver.forwarder.parking
        self.rig.core.unbind_consumer(old)
        if not parking.hand_over(old, new):
            self.holds.append(parking.hold(new))

    def lift(self, number: int = 0) -> None:
        """The receiver has got what was sent before, or time has passed: both lift it."""
        hold = self.holds.pop(number)
        for _ in range(2):
            self.rig.driver.forwarder.parking.lift(hold)
        self.rig.driver.flush()
        self.rig.settle_down()

    def give_credit(self, credit: int, number: int = -1) -> None:
        self.ends[number].flow(credit)
        self.rig.settle_down()
        self.rig.work_off()

    @property
    def dropped(self) -> int:
        """Pre-settled messages that the router has given up."""
        return sum(link.dropped_presettled for link in self.links)


class Sender:
    """Sends numbered messages."""

    def __init__(self, rig: Rig, name: str) -> None:
        self.rig, self.name = rig, name
        self.peer = rig.connect(Role.NORMAL)
        self.end = self.peer.session.sender(name)
        self.end.target.address = ADDRESS
        self.end.open()
        rig.settle_down()
        (self.link,) = self.peer.router_side.core.links
        self.unsettled: dict[int, Delivery] = {}
        self.settled = self.count = 0
        self.begun = False
        """A message is not complete."""
        self.large: set[int] = set()

    def send(self, messages: int = 1, *, settled: bool = False) -> None:
        for _ in range(messages):
            if self.begun or self.end.credit <= 0:
                return
            delivery = self._begin(b"")
            self._end(delivery if settled else None)

    def begin_large(self) -> None:
        if not self.begun and self.end.credit > 0:
            self.large.add(self.count)
            self._begin(b"x" * (LARGE - 30_000))
            self.begun = True
            self.rig.settle_down()

    def end_large(self) -> None:
        if self.begun:
            self.end.send(b"x" * 30_000)
            self.begun = False
            self._end(None)

    def _begin(self, more: bytes) -> Delivery:
        body = b"@%s %d " % (self.name.encode(), self.count) + more
        size = len(body) + 30_000 if more else len(body)
        delivery: Delivery = self.end.delivery(str(self.count))
        self.unsettled[self.count] = delivery
        self.end.send(b"\x00\x53\x75\xb0" + size.to_bytes(4) + body)
        return delivery

    def _end(self, settled: Delivery | None) -> None:
        self.end.advance()
        if settled is not None:
            settled.settle()
            del self.unsettled[self.count]
            self.settled += 1
        self.count += 1
        self.rig.settle_down()


class Walked(deque[Any]):
    """Counts the messages that somebody walks over."""

    walked = 0

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            Walked.walked += 1
            yield item

    def __reversed__(self) -> Iterator[Any]:
        for item in super().__reversed__():
            Walked.walked += 1
            yield item

    def __contains__(self, item: object) -> bool:
        return any(each is item for each in self)


def watch(link: Link) -> None:
    """Count from now on what is walked over of the messages that wait on a link."""
    link.parked, link.parked_presettled = Walked(link.parked), Walked(link.parked_presettled)
    Walked.walked = 0


def fill(rig: Rig, link: Link, name: str, messages: int) -> Sender:
    """Messages wait on a link. Every second one is pre-settled."""
    sender = Sender(rig, name)
    for number in range(messages):
        sender.send(settled=number % 2 == 1)
    assert link.waiting == messages
    return sender


@pytest.fixture
def consumer(rig: Rig) -> Consumer:
    return Consumer(rig)


def numbers(name: str, *ranges: range) -> list[tuple[str, int]]:
    return [(name, number) for some in ranges for number in some]


def test_a_new_link_takes_over_without_a_walk_over_the_messages(rig: Rig, consumer: Consumer) -> None:
    old = consumer.attach()
    sender = fill(rig, old, "s", MANY)
    new = consumer.attach()
    watch(old)
    consumer.follow(old, new)
    for _ in range(2):
        rig.driver.forwarder.parking.lift(consumer.holds[0])
    assert Walked.walked == 0
    check_counts(rig)
    assert (old.waiting, new.waiting) == (0, MANY)
    sender.send(FEW)
    consumer.give_credit(MANY + FEW)
    assert consumer.log == numbers("s", range(MANY + FEW))
    assert {delivery.remote_state for delivery in sender.unsettled.values()} == {Delivery.ACCEPTED}


@pytest.mark.parametrize(("first", "then"), [(MANY, FEW), (FEW, MANY)])
def test_of_two_queues_the_shorter_one_is_walked_over(
    rig: Rig, consumer: Consumer, first: int, then: int
) -> None:
    old = consumer.attach()
    fill(rig, old, "a", first)
    rig.core.unbind_consumer(old)
    new = consumer.attach()
    fill(rig, new, "b", then)
    watch(old)
    watch(new)
    consumer.follow(old, new)
    assert Walked.walked <= FEW + FEW // 2
    consumer.lift()
    check_counts(rig)
    consumer.give_credit(MANY + FEW)
    assert consumer.log == numbers("a", range(first)) + numbers("b", range(then))


def test_streams_stay_and_the_messages_around_them_go(rig: Rig, consumer: Consumer) -> None:
    old = consumer.attach()
    senders = [fill(rig, old, "a", FEW), Sender(rig, "b"), Sender(rig, "c"), Sender(rig, "d")]
    for large, other in ((1, 0), (2, 3)):
        senders[large].begin_large()
        senders[other].send(FEW)
    new = consumer.attach()
    watch(old)
    consumer.follow(old, new)
    assert Walked.walked == 0
    consumer.lift()
    assert (old.waiting, new.waiting) == (2, 3 * FEW)
    consumer.give_credit(MANY)
    assert consumer.log == numbers("a", range(2 * FEW)) + numbers("d", range(FEW))
    for sender in senders[1:3]:
        sender.end_large()
    consumer.give_credit(1, 0)
    check_counts(rig)
    assert consumer.log[3 * FEW :] == numbers("b", range(1))
    consumer.peers[0].drop()
    rig.work_off()
    assert senders[2].unsettled[0].remote_state == Delivery.RELEASED
    check_counts(rig)


@pytest.mark.parametrize("room", [True, False])
def test_the_sender_leaves_after_two_queues_became_one(
    rig: Rig, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, *, room: bool
) -> None:
    links, senders = [], []
    for name, messages in (("a", MANY), ("b", FEW), ("c", FEW)):
        links.append(consumer.attach())
        senders.append(fill(rig, links[-1], name, messages))
        rig.core.unbind_consumer(links[-1])
    for old, new in ((links[1], links[2]), (links[0], links[2])):
        consumer.follow(old, new)
    while consumer.holds:
        consumer.lift()
    if not room:
        monkeypatch.setattr(parking, "PARKED_BYTES_HIGH", 0)
    for sender in senders:
        sender.peer.drop()
        rig.settle_down()
        check_counts(rig)
    rig.work_off()
    check_counts(rig)
    consumer.give_credit(MANY + 2 * FEW)
    settled = range(1, MANY, 2)
    assert consumer.log == [
        (name, number)
        for name, messages in (("a", MANY), ("b", FEW), ("c", FEW))
        for number in range(messages)
        if room or number in settled
    ]
    assert not links[2].parked_bytes


def test_messages_come_while_those_before_are_given_back(
    rig: Rig, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interior has reported that an address has no consumers, and that it has some again."""
    monkeypatch.setattr(forward, "AT_ONCE", 1)
    monkeypatch.setattr(parking, "AT_ONCE", 1)
    old = consumer.attach()
    sender = fill(rig, old, "s", FEW)
    rig.core.port.release_parked(old)
    check_counts(rig)
    assert sender.unsettled[2].remote_state != Delivery.RELEASED
    sender.send(FEW)
    new = consumer.attach()
    consumer.follow(old, new)
    rig.work_off()
    consumer.lift()
    check_counts(rig)
    assert (old.parked_bytes, old.dropped_presettled, new.waiting) == (0, FEW // 2, FEW)
    assert [sender.unsettled[number].remote_state for number in (0, 2)] == [Delivery.RELEASED] * 2
    consumer.give_credit(FEW)
    assert consumer.log == numbers("s", range(FEW, 2 * FEW))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("at_once", [1, parking.AT_ONCE])
def test_whatever_happens_before_and_after(
    rig: Rig, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    monkeypatch.setattr(forward, "AT_ONCE", at_once)
    monkeypatch.setattr(parking, "AT_ONCE", at_once)
    chance = random.Random(seed)
    consumer.attach()
    senders = [Sender(rig, f"s{number}") for number in range(4)]
    gone: list[Sender] = []
    for _ in range(80):
        what = chance.choice(
            ["send"] * 6
            + ["settled", "begin", "end", "credit", "lift", "drain", "leave", "close", "rounds"]
            + ["follow"] * 2
        )
        sender = chance.choice(senders)
        if what in {"send", "settled"}:
            sender.send(chance.randrange(1, 6), settled=what == "settled")
        elif what == "begin":
            sender.begin_large()
        elif what == "end":
            sender.end_large()
        elif what == "credit":
            consumer.ends[chance.randrange(len(consumer.ends))].flow(chance.randrange(1, 5))
        elif what == "drain":
            consumer.ends[-1].drain(1)
        elif what == "lift" and consumer.holds:
            consumer.lift(chance.randrange(len(consumer.holds)))
        elif what == "leave" and len(senders) > 2:
            senders.remove(sender)
            gone.append(sender)
            sender.peer.drop()
        elif what == "close" and len(consumer.links) > 1:
            number = chance.randrange(len(consumer.links) - 1)
            if chance.random() < 0.5:
                consumer.ends[number].close()
            else:
                consumer.peers[number].drop()
        elif what == "rounds":
            rig.loop_goes_round()
        elif what == "follow":
            olds = [link for link in consumer.links[-2:] if link in link.connection.links]
            new = consumer.attach()
            if chance.random() < 0.5:
                sender.send(2)
            for old in reversed(olds):
                consumer.follow(old, new)
        rig.settle_down()
        check_counts(rig)
    for sender in senders:
        sender.end_large()
    for end in consumer.ends[:-1]:
        end.close()
    rig.settle_down()
    rig.work_off()
    while consumer.holds:
        consumer.lift()
    consumer.give_credit(10_000)
    check_counts(rig)
    for sender in senders:
        arrived = [number for name, number in consumer.log if name == sender.name]
        assert len(set(arrived)) == len(arrived)
        in_order = [number for number in arrived if number not in sender.large]  # streams stay on their links
        assert in_order == sorted(in_order)
        states = {number: delivery.remote_state for number, delivery in sender.unsettled.items()}
        for number, state in states.items():
            assert state != Delivery.ACCEPTED or number in arrived
            assert state != Delivery.RELEASED or number not in arrived
        assert set(states.values()) <= {Delivery.ACCEPTED, Delivery.RELEASED, Delivery.MODIFIED}
        assert (sender.link.sent_parked, sender.link.parked_bytes) == ({}, 0)
    settled = sum(sender.settled for sender in senders)
    arrived = sum(
        number not in sender.unsettled
        for sender in senders
        for name, number in consumer.log
        if name == sender.name
    )
    if not gone:
        assert settled == arrived + consumer.dropped
    assert all(link.parked_bytes == 0 for link in consumer.links)
