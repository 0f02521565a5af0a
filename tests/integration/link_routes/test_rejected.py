"""Deliveries that the router itself rejects on routed links, and one that it leaves to the container."""

from __future__ import annotations

from tests.integration.support.link_routes import Chain


def test_a_message_of_no_bytes_passes(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(2)
        sender.await_credit(2)
        first, second = sender.send(b""), sender.send("next")
        one, other = receiver.expect(2)
        assert (bytes(one.data), other.body) == (b"", "next")
        one.settle()
        other.settle()
        assert (sender.outcome(first), sender.outcome(second)) == ("accepted", "accepted")


def test_a_delivery_tag_that_is_too_long_is_rejected_and_the_link_stays(chain: Chain) -> None:
    for sender, receiver in chain.both_ways():
        receiver.grant(5)
        sender.await_credit(5)
        for tag, data in (
            ("a" * 32, b"\x00Sw\xa1\x01a"),
            ("b" * 33, b"\x00Sw\xa1\x01b"),
            ("c" * 33, bytes(300_000)),
            ("d", b"\x00Sw\xa1\x01d"),
        ):
            sender.begin(data, tag=tag)
            sender.finish()
        assert [item.delivery.tag for item in receiver.expect(2)] == ["a" * 32, "d"]
        for tag in ("b" * 33, "c" * 33):
            sent = sender.sent[tag]
            assert sender.outcome(sent) == "rejected"
            assert sent.condition is not None
            assert sent.condition.name == "amqp:invalid-field"
            assert "32 bytes" in sent.condition.description
        sender.client.clients.until(lambda s=sender: s.credit == 3, "the rejected ones use no credit")
        assert receiver.link.credit == 3


def test_the_router_settles_what_it_rejects_where_the_ends_would_settle_in_turn(chain: Chain) -> None:
    sender, receiver = chain.to_container(second=True)
    receiver.grant(2)
    sender.await_credit(2)
    refused = sender.begin(b"\x00Sw\xa1\x01a", tag="a" * 33)
    sender.finish()
    assert sender.outcome(refused) == "rejected"
    chain.clients.until(lambda: sender.credit == 2, "it uses no credit")
    sender.send("next")
    assert receiver.expect(1)[0].body == "next"
