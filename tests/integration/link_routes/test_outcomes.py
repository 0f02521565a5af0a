"""States and settlement of deliveries on routed links are the ends' own, in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from proton import Condition, Delivery, Link, symbol, ulong
from tests.integration.support.link_routes import Chain
from tests.integration.support.links import Received, Receiver, Sender, Sent

TRANSACTIONAL = 0x34
"""A state of an extension: a transaction's id and an outcome."""


def delivered(sender: Sender, receiver: Receiver, *, settled: bool = False) -> tuple[Sent, Received]:
    """One delivery: what either end has of it."""
    receiver.grant(1)
    sent = sender.await_credit().send("x", settled=settled)
    return sent, receiver.next()


def state_of(delivery: Any) -> tuple[Any, ...]:
    """Everything that the peer has said of a delivery."""
    remote = delivery.remote
    match delivery.remote_state:
        case Delivery.REJECTED:
            condition = remote.condition
            return ("rejected", condition.name, condition.description, condition.info)
        case Delivery.MODIFIED:
            return ("modified", remote.failed, remote.undeliverable, remote.annotations)
        case Delivery.RECEIVED:
            return ("received", remote.section_number, remote.section_offset)
        case Delivery.ACCEPTED | Delivery.RELEASED as plain:
            return (int(plain),)
        case 0:
            return ()
        case extension:
            return (int(extension), remote.data)


def rejected(delivery: Any) -> None:
    info = {symbol("code"): ulong(7), "why": ["a", {"list": True}]}
    delivery.local.condition = Condition("acme:no", "not this one", info)
    delivery.update(Delivery.REJECTED)


def modified(delivery: Any) -> None:
    delivery.local.failed = delivery.local.undeliverable = True
    delivery.local.annotations = {symbol("x-opt-seen"): "by me"}
    delivery.update(Delivery.MODIFIED)


def modified_a_little(delivery: Any) -> None:
    delivery.local.undeliverable = True
    delivery.update(Delivery.MODIFIED)


def received(delivery: Any) -> None:
    delivery.local.section_number, delivery.local.section_offset = 3, 2**33
    delivery.update(Delivery.RECEIVED)


def transactional(delivery: Any) -> None:
    delivery.local.data = [b"transaction 1"]
    delivery.update(TRANSACTIONAL)


STATES: list[tuple[Callable[[Any], None], tuple[Any, ...]]] = [
    (lambda delivery: delivery.update(Delivery.ACCEPTED), (int(Delivery.ACCEPTED),)),
    (lambda delivery: delivery.update(Delivery.RELEASED), (int(Delivery.RELEASED),)),
    (rejected, ("rejected", "acme:no", "not this one", {"code": 7, "why": ["a", {"list": True}]})),
    (modified, ("modified", True, True, {"x-opt-seen": "by me"})),
    (modified_a_little, ("modified", False, True, None)),
    (received, ("received", 3, 2**33)),
    (transactional, (TRANSACTIONAL, [b"transaction 1"])),
]
EACH_STATE = pytest.mark.parametrize(
    ("give", "expected"),
    STATES,
    ids=[*"ar", "rejected", "modified", "undeliverable", "received", "extension"],
)


@EACH_STATE
def test_a_state_of_the_receiver(
    chain: Chain, give: Callable[[Any], None], expected: tuple[Any, ...]
) -> None:
    """Without settlement, then settled by the sender."""
    for sender, receiver in chain.both_ways():
        sent, item = delivered(sender, receiver)
        give(item.delivery)
        chain.clients.until(lambda s=sent: s.delivery.remote_state, "the state is known")  # type: ignore[misc]
        assert sent.delivery is not None
        assert state_of(sent.delivery) == expected
        assert not sent.delivery.settled
        sent.delivery.settle()
        chain.clients.until(lambda i=item: i.delivery.settled, "the settlement is known")  # type: ignore[misc]


@EACH_STATE
def test_a_state_with_settlement_by_the_receiver(
    chain: Chain, give: Callable[[Any], None], expected: tuple[Any, ...]
) -> None:
    for sender, receiver in chain.both_ways():
        seen: list[tuple[Any, ...]] = []

        def note(engines: Any, seen: list[tuple[Any, ...]] = seen) -> None:
            delivery = Delivery.wrap(engines)
            seen.append((state_of(delivery), delivery.settled))

        sender.client._updated = note  # type: ignore[method-assign]
        _, item = delivered(sender, receiver)
        give(item.delivery)
        item.delivery.settle()
        chain.clients.until(lambda seen=seen: seen, "the outcome is known")  # type: ignore[misc]
        assert seen == [(expected, True)]


@EACH_STATE
def test_a_state_of_the_sender(chain: Chain, give: Callable[[Any], None], expected: tuple[Any, ...]) -> None:
    for sender, receiver in chain.both_ways():
        sent, item = delivered(sender, receiver)
        give(sent.delivery)
        chain.clients.until(lambda i=item: i.delivery.remote_state, "the state is known")  # type: ignore[misc]
        assert state_of(item.delivery) == expected
        assert not item.delivery.settled


def test_a_transfer_has_a_state_of_a_transaction(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(2)
        for size in (1, 200_000):
            sent = sender.await_credit().begin()
            transactional(sent.delivery)
            sender.more(bytes(size))
            sender.finish()
            assert state_of(receiver.next().delivery) == (TRANSACTIONAL, [b"transaction 1"])


def test_states_follow_each_other(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        sent, item = delivered(sender, receiver)
        for offset in (1, 2, 3):
            item.delivery.local.section_offset = offset
            item.delivery.update(Delivery.RECEIVED)
            chain.clients.until(
                lambda s=sent, o=offset: s.delivery.remote.section_offset == o,  # type: ignore[misc]
                "how far the receiver is",
            )
        item.settle()
        assert sender.outcome(sent) == "accepted"


def test_settlement_without_a_state(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        sent, item = delivered(sender, receiver)
        item.settle(None)
        assert sender.outcome(sent) == "none"
        sent, item = delivered(sender, receiver)
        assert sent.delivery is not None
        sent.delivery.settle()
        chain.clients.until(lambda i=item: i.delivery.settled, "the sender has settled")  # type: ignore[misc]
        assert not item.presettled


def test_the_order_of_outcomes_is_the_receivers(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(6)
        sender.await_credit(6)
        sent = [sender.send(str(number)) for number in range(6)]
        items = receiver.expect(6)
        for at in (4, 1, 5, 0):
            items[at].settle(Delivery.RELEASED if at % 2 else Delivery.ACCEPTED)
        expected = ["accepted", "released", None, None, "accepted", "released"]
        chain.clients.until(
            lambda s=sent: sum(one.settled for one in s) == 4,  # type: ignore[misc]
            "four outcomes",
        )
        assert [one.outcome for one in sent] == expected


@pytest.mark.parametrize("mode", [Link.SND_MIXED, Link.SND_SETTLED, Link.SND_UNSETTLED])
@pytest.mark.parametrize("second", [False, True])
def test_settle_modes_are_agreed_by_the_ends(chain: Chain, mode: int, second: bool) -> None:
    for _, far in (
        chain.to_container(settle_mode=mode, second=second),
        chain.from_container(settle_mode=mode, second=second),
    ):
        asked = (mode, Link.RCV_SECOND if second else Link.RCV_FIRST)
        assert (far.link.remote_snd_settle_mode, far.link.remote_rcv_settle_mode) == asked

    def other(link: Any) -> None:
        link.snd_settle_mode, link.rcv_settle_mode = Link.SND_UNSETTLED, Link.RCV_FIRST

    chain.container.dress = other
    near, _ = chain.to_container(settle_mode=mode, second=second)
    answered = (near.link.remote_snd_settle_mode, near.link.remote_rcv_settle_mode)
    assert answered == (Link.SND_UNSETTLED, Link.RCV_FIRST)


def test_second_mode(chain: Chain) -> None:
    """The receiver settles when it has heard that the sender has."""
    pairs = [chain.to_container(second=True)]
    receiver, sender = chain.from_container(second=True)
    pairs.append((sender, receiver))
    for sender, receiver in pairs:
        sent, item = delivered(sender, receiver)
        item.delivery.update(Delivery.ACCEPTED)
        chain.clients.until(lambda s=sent: s.delivery.remote_state, "the outcome is known")  # type: ignore[misc]
        chain.round_trip()
        assert sent.delivery is not None
        assert not sent.delivery.settled
        assert not item.delivery.settled
        sent.delivery.settle()
        chain.clients.until(lambda i=item: i.delivery.settled, "the sender has settled")  # type: ignore[misc]
        item.delivery.settle()


def test_presettled_deliveries(chain: Chain) -> None:
    pairs = [chain.to_container(settle_mode=Link.SND_SETTLED)]
    receiver, sender = chain.from_container(settle_mode=Link.SND_SETTLED)
    pairs.append((sender, receiver))
    for sender, receiver in pairs:
        receiver.grant(20)
        sender.await_credit(20)
        for number in range(20):
            sender.send(str(number), settled=True)
        assert all(item.presettled for item in receiver.expect(20))
        assert receiver.bodies() == [str(number) for number in range(20)]
