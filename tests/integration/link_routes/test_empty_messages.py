"""A delivery that routers on the way might reject, and leave to the container."""

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
