"""Termini and distributions: who gets a message, and which links are refused."""

from __future__ import annotations

from collections import Counter

import pytest
from proton import Delivery, Described, Message, Terminus, symbol, ulong
from tests.integration.support.client import Clients, Receiver, Sender
from tests.integration.support.routers import Router, Routers, address


def receivers(clients: Clients, router: Router, name: str, count: int, credit: int = 100) -> list[Receiver]:
    """Consumers of one address, each on its own connection."""
    return [clients.connect(router.port).receiver(name, credit=credit) for _ in range(count)]


def settle_all(receiver: Receiver, state: int = Delivery.ACCEPTED) -> None:
    """Settle everything that has arrived and was not settled."""
    for item in receiver.arrived():
        if not item.delivery.settled and item.delivery.local_state != state:
            item.settle(state)


def test_anonymous_sender_reaches_what_each_message_names(clients: Clients, router: Router) -> None:
    one, two = (
        clients.connect(router.port).receiver(name, credit=5, accept=True) for name in ("anon/1", "anon/2")
    )
    sender = clients.connect(router.port).sender(None)
    for to in ("anon/1", "amqp:/anon/2", "anon/1", "amqp://host:1/anon/2"):
        assert sender.deliver(Message(address=to, body=to)) == "accepted"
    assert one.bodies() == ["anon/1", "anon/1"]
    assert two.bodies() == ["amqp:/anon/2", "amqp://host:1/anon/2"]


def test_anonymous_sender_follows_a_consumer_that_comes_and_goes(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender(None)
    message = Message(address="anon/later", body="x")
    assert sender.deliver(message) == "released"
    client = clients.connect(router.port)
    receiver = client.receiver("anon/later", credit=5, accept=True)
    assert sender.deliver(message) == "accepted"
    client.detach(receiver.link)
    assert sender.deliver(message) == "released"


def test_message_without_an_address_is_rejected(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender(None).await_credit()
    sent = sender.send(Message(body="whereto"))
    assert sender.outcome(sent) == "rejected"
    assert sent.condition is not None
    assert sent.condition.name == "amqp:precondition-failed"


def test_request_and_reply(clients: Clients, router: Router) -> None:
    client, server = clients.connect(router.port), clients.connect(router.port)
    replies = client.receiver(None, dynamic=True, credit=10, accept=True)
    assert replies.address.startswith("amqp:/_topo/0/A/temp.")
    service = server.receiver("service", credit=10)
    request = client.sender("service").await_credit()
    request.send(Message(body="ping", reply_to=replies.address, correlation_id="17"))
    asked = service.next()
    asked.settle()
    answer = Message(address=asked.message.reply_to, body="pong", correlation_id=asked.message.correlation_id)
    assert server.sender(None).deliver(answer) == "accepted"
    message = replies.next().message
    assert (message.body, message.correlation_id) == ("pong", "17")
    # A reply can also be sent on a link of its own.
    assert server.sender(replies.address).deliver("again") == "accepted"


def test_temporary_address_ends_with_its_link(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    replies = client.receiver(None, dynamic=True, credit=10)
    gone = replies.address
    client.detach(replies.link)
    assert clients.connect(router.port).sender(None).deliver(Message(address=gone, body="late")) == "released"


def test_temporary_addresses_differ(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    assert len({client.receiver(None, dynamic=True).address for _ in range(20)}) == 20


def test_dynamic_target(clients: Clients, router: Router) -> None:
    sender = clients.connect(router.port).sender(None, dynamic=True)
    name = sender.link.remote_target.address
    assert name.startswith("amqp:/_$temp.")
    receiver = clients.connect(router.port).receiver(name, credit=5, accept=True)
    assert sender.deliver("x") == "accepted"
    assert receiver.bodies() == ["x"]


def test_closest_takes_turns(clients: Clients, router: Router) -> None:
    consumers = receivers(clients, router, "closest/x", 3)
    sender = clients.connect(router.port).sender("closest/x").await_credit()
    for number in range(30):
        sender.send(str(number))
    clients.until(lambda: sum(len(item.received) for item in consumers) == 30, "all messages")
    assert [len(item.received) for item in consumers] == [10, 10, 10]


@pytest.mark.parametrize("distribution", ["closest", "balanced", "multicast"])
@pytest.mark.parametrize("anonymous", [False, True])
def test_consumer_that_left_is_not_chosen_again(
    clients: Clients, router: Router, distribution: str, anonymous: bool
) -> None:
    name = f"{distribution}/left-{anonymous}"
    leaving, staying = receivers(clients, router, name, 2)
    leaving.auto_accept = staying.auto_accept = True
    sender = clients.connect(router.port).sender(None if anonymous else name)
    for _ in range(4):
        assert sender.deliver(Message(address=name, body="to both")) == "accepted"
    assert leaving.received
    leaving.client.detach(leaving.link)
    staying.received.clear()
    for _ in range(4):
        assert sender.deliver(Message(address=name, body="to one")) == "accepted"
    assert staying.bodies() == ["to one"] * 4


def test_balanced_prefers_the_idle_consumer(clients: Clients, router: Router) -> None:
    """One consumer never settles, the other at once: the busy one gets no more than it has to."""
    busy, idle = receivers(clients, router, "balanced/x", 2)
    sender = clients.connect(router.port).sender("balanced/x")
    for number in range(40):
        sender.await_credit().send(str(number))
        clients.until(lambda n=number: len(busy.received) + len(idle.received) == n + 1, "the next message")
        settle_all(idle)
        clients.until(
            lambda: sum(item.outcome is not None for item in sender.sent.values()) == len(idle.received),
            "the outcomes",
        )
    counts = Counter(busy=len(busy.received), idle=len(idle.received))
    assert counts["busy"] <= 2, counts
    assert counts["idle"] >= 38, counts


def test_balanced_spreads_evenly_among_equals(clients: Clients, router: Router) -> None:
    consumers = receivers(clients, router, "balanced/even", 4)
    sender = clients.connect(router.port).sender("balanced/even").await_credit()
    for number in range(100):
        sender.send(str(number))
    clients.until(lambda: sum(len(item.received) for item in consumers) == 100, "all messages")
    assert [len(item.received) for item in consumers] == [25] * 4


def test_balanced_takes_turns_among_the_idle(clients: Clients, router: Router) -> None:
    consumers = receivers(clients, router, "balanced/idle", 2)
    for consumer in consumers:
        consumer.auto_accept = True
    sender = clients.connect(router.port).sender("balanced/idle")
    for number in range(10):
        assert sender.deliver(str(number)) == "accepted"
    assert [len(item.received) for item in consumers] == [5, 5]


def test_balanced_consumer_without_credit_does_not_hold_up_others(clients: Clients, router: Router) -> None:
    """All messages go to the consumer that takes them, however many that has."""
    stuck, taking = receivers(clients, router, "balanced/stuck", 2, credit=0)
    taking.grant(100)
    sender = clients.connect(router.port).sender("balanced/stuck").await_credit()
    for number in range(50):
        sender.send(str(number))
    clients.round_trip()
    assert (len(stuck.received), len(taking.received)) == (0, 50)
    settle_all(taking)
    clients.until(lambda: all(item.outcome == "accepted" for item in sender.sent.values()), "all outcomes")


@pytest.mark.parametrize("distribution", ["closest", "balanced"])
def test_consumer_that_drains_its_credit_gets_nothing_while_others_take(
    clients: Clients, router: Router, distribution: str
) -> None:
    drained, taking = receivers(clients, router, f"{distribution}/drained", 2, credit=0)
    drained.drain(10)
    clients.until(lambda: drained.link.credit == 0, "the drain is answered")
    taking.grant(100)
    sender = clients.connect(router.port).sender(f"{distribution}/drained").await_credit()
    for number in range(10):
        sender.send(str(number))
    taking.expect(10)


def multicast(clients: Clients, router: Router, name: str, count: int) -> tuple[Sender, list[Receiver]]:
    """Consumers and a sender of a multicast address."""
    consumers = receivers(clients, router, f"multicast/{name}", count)
    return clients.connect(router.port).sender(f"multicast/{name}").await_credit(), consumers


def test_multicast_reaches_everyone_once(clients: Clients, router: Router) -> None:
    sender, consumers = multicast(clients, router, "all", 5)
    for consumer in consumers:
        consumer.auto_accept = True
    for number in range(20):
        sender.send(str(number))
    for consumer in consumers:
        consumer.expect(20)
        assert consumer.bodies() == [str(number) for number in range(20)]
    clients.until(lambda: all(item.outcome == "accepted" for item in sender.sent.values()), "all outcomes")


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((Delivery.ACCEPTED, Delivery.ACCEPTED), "accepted"),
        ((Delivery.ACCEPTED, Delivery.REJECTED), "rejected"),
        ((Delivery.RELEASED, Delivery.MODIFIED), "modified"),
        ((Delivery.RELEASED, Delivery.ACCEPTED), "accepted"),
        ((Delivery.RELEASED, Delivery.RELEASED), "released"),
    ],
)
def test_multicast_outcome_is_the_worst(
    clients: Clients, router: Router, outcomes: tuple[int, int], expected: str
) -> None:
    sender, consumers = multicast(clients, router, f"worst-{expected}-{outcomes[0]}", 2)
    sent = sender.send("x")
    for consumer in consumers:
        consumer.expect(1)
    consumers[0].next().settle(outcomes[0])
    clients.round_trip()
    assert sent.outcome is None, "the slowest consumer decides when"
    consumers[1].next().settle(outcomes[1])
    assert sender.outcome(sent) == expected


def test_multicast_with_a_slow_consumer(clients: Clients, router: Router) -> None:
    """The others are served at once; the slow one gets every message in the end, or its loss ends the wait."""
    sender, consumers = multicast(clients, router, "slow", 1)
    consumers[0].auto_accept = True
    slow_client = clients.connect(router.port)
    slow = slow_client.receiver("multicast/slow")
    sent = [sender.send(str(number)) for number in range(50)]
    consumers[0].expect(50)
    slow.grant(20)
    for item in slow.expect(20):
        item.settle()
    assert [sender.outcome(item) for item in sent[:20]] == ["accepted"] * 20
    clients.round_trip()
    assert all(item.outcome is None for item in sent[20:])
    slow_client.drop()
    assert [sender.outcome(item) for item in sent[20:]] == ["accepted"] * 30, "accepted outranks released"


def test_multicast_presettled(clients: Clients, router: Router) -> None:
    sender, consumers = multicast(clients, router, "presettled", 3)
    sender.send("x", settled=True)
    for consumer in consumers:
        assert consumer.next().presettled


def test_unavailable_address_is_refused(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    for link in (client.sender("nobody/x").link, client.receiver("nobody/x").link):
        condition = client.refusal(link)
        assert condition.name == "amqp:not-found"
    sender = client.sender(None)
    assert sender.deliver(Message(address="nobody/x", body="x")) == "released"


def test_the_answer_tells_what_is_in_place(clients: Clients, router: Router) -> None:
    """Who asks for a filter, for browsing or for a durable subscription sees that there is none."""
    client = clients.connect(router.port)
    link = client.session.receiver("asks for much")
    link.source.address = "honest"
    link.source.durability, link.source.expiry_policy = Terminus.DELIVERIES, Terminus.EXPIRE_NEVER
    link.source.timeout, link.source.distribution_mode = 60, Terminus.DIST_MODE_COPY
    link.source.filter.put_object({symbol("selector"): "colour = 'red'"})
    link.source.capabilities.put_symbol(symbol("topic"))
    link.open()
    client.attached(link)
    answer = link.remote_source
    assert answer.address == "honest"
    assert (answer.durability, answer.expiry_policy) == (Terminus.NONDURABLE, Terminus.EXPIRE_WITH_LINK)
    assert (answer.timeout, answer.distribution_mode) == (0, Terminus.DIST_MODE_UNSPECIFIED)
    assert not answer.filter.next(), "no filter is in place"
    answer.capabilities.rewind()
    assert answer.capabilities.next()
    assert answer.capabilities.get_symbol() == "topic"


def test_a_dynamic_node_lives_as_long_as_its_link(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    link = client.session.receiver("lives longer")
    link.source.dynamic = True
    delete_on_no_links = Described(ulong(0x2C), [])
    link.source.properties.put_object({symbol("lifetime-policy"): delete_on_no_links})
    link.open()
    client.attached(link)
    properties = link.remote_source.properties
    properties.rewind()
    assert properties.next()
    assert properties.get_object() == {symbol("lifetime-policy"): Described(ulong(0x2B), [])}


def test_what_is_left_where_everything_is_unavailable_by_default(clients: Clients, routers: Routers) -> None:
    """What the router itself offers, and addresses of the configuration; the rest is refused."""
    router = routers.add("A", address("open", "closest"))
    router.sections[0][1]["defaultDistribution"] = "unavailable"
    router.start()
    client = clients.connect(router.port)
    assert client.refusal(client.sender("x").link).name == "amqp:not-found"
    client.sender("$management").await_credit()
    receiver = client.receiver("open/door", credit=1, accept=True)
    anonymous = client.sender(None).await_credit()
    refused = anonymous.send(Message(address="x", body="x"))
    assert anonymous.outcome(refused) == "rejected"
    assert refused.condition is not None
    assert refused.condition.name == "amqp:not-found"
    assert anonymous.deliver(Message(address="open/window", body="x")) == "released"
    assert anonymous.deliver(Message(address="open/door", body="x")) == "accepted"
    assert receiver.bodies() == ["x"]


def test_coordinator_is_refused(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    sender = client.sender(None, coordinator=True)
    condition = client.refusal(sender.link)
    assert condition.name == "amqp:precondition-failed"
    assert "transaction" in condition.description
    assert "prefix $coordinator" in condition.description, "what to configure"
    assert sender.link.remote_target.type == Terminus.UNSPECIFIED
    assert client.sender(None).await_credit(), "the connection stays usable"


def test_receiver_without_a_source_is_refused(clients: Clients, router: Router) -> None:
    client = clients.connect(router.port)
    receiver = client.receiver(None)
    condition = client.refusal(receiver.link)
    assert condition.name == "qd:no-route-to-dest"
    assert receiver.link.remote_source.type == Terminus.UNSPECIFIED


def test_patterns_and_prefixes_choose_the_distribution(clients: Clients, routers: Routers) -> None:
    router = routers.start(
        "A",
        address("a", "multicast"),
        address("a/b", "closest"),
        ("address", {"pattern": "*/news/#", "distribution": "multicast"}),
    )

    def copies(name: str) -> int:
        consumers = receivers(clients, router, name, 2)
        clients.connect(router.port).sender(name).await_credit().send("x")
        clients.until(lambda: any(item.received for item in consumers), "a copy")
        clients.round_trip()
        return sum(len(item.received) for item in consumers)

    assert copies("a") == 2
    assert copies("a/c") == 2
    assert copies("a/b/c") == 1, "the longer prefix wins"
    assert copies("ab") == 1, "a prefix ends at a separator"
    assert copies("any/news/today/sport") == 2
    assert copies("any/other") == 1
