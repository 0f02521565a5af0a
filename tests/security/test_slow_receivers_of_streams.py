"""Receivers of a multicast address that take no large messages: others wait for them no longer than is configured."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.by_hand import ByHand, begin_frame, credit_frame, receive_from
from tests.integration.support.client import Clients, Pour
from tests.integration.support.data import MEGA, head
from tests.integration.support.routers import Router, Routers, address
from tests.integration.support.topology import Network, await_everyone
from tests.security.support.canary import Canary

SECONDS = 1
SIZE = 3 * MEGA
FRAMES = 32
"""In a session between routers: less than the message."""
MOST_CPU_SECONDS = 0.15
MOST_SECONDS = 30
"""Until a message has arrived, with room for a busy machine; without a bound, it does not arrive."""


@pytest.fixture(scope="module")
def network(compiled_kernel: Callable[[], Routers]) -> Network:
    network = Network(compiled_kernel(), common=[address("multicast", "multicast")])
    network.line("A", "B")
    for router in network.routers.all.values():
        router.sections[0][1]["slowReceiverTimeoutSeconds"] = SECONDS
        router.sections[0][1]["stalledMessageTimeoutSeconds"] = 3 * SECONDS
        for _, section in router.sections:
            if section.get("role") == "inter-router":
                section["maxSessionFrames"] = FRAMES
    return network.start()


@contextlib.contextmanager
def slow_receivers(router: Router, name: str) -> Iterator[None]:
    """One without credit, and one whose session takes three frames."""
    with (
        ByHand(router.port, begun=begin_frame(incoming=3)) as without_credit,
        ByHand(router.port, begun=begin_frame(incoming=3)) as without_window,
    ):
        without_credit.attach(receive_from(name))
        without_window.attach(receive_from(name))
        without_window.send(credit_frame(0, 100, incoming=3))
        without_window.round_trip()
        yield


@pytest.mark.parametrize("at", ["A", "B"], ids=["here", "far"])
def test_receivers_beside_others(clients: Clients, network: Network, *, at: str) -> None:
    """At the router of the sender, or at another one."""
    check(clients, network, at)


def test_receivers_that_are_the_only_ones_of_their_router(clients: Clients, network: Network) -> None:
    """That router cannot see that others wait."""
    check(clients, network, "B", alone=True)


def check(clients: Clients, network: Network, at: str, *, alone: bool = False) -> None:
    """Send large messages while there are slow receivers at one of the routers."""
    near, far = network["A"], network["B"]
    name = f"multicast/{at}/{alone}"
    honest = [clients.connect(router.port).receiver(name, credit=10, accept=True) for router in (near, far)]
    source = clients.connect(near.port).sender(name).await_credit()
    await_everyone(source, honest)
    message = head(SIZE) + bytes(SIZE)
    with Canary(near, receive_at=far) as canary, slow_receivers(network[at], name):
        if alone:
            clients.round_trip()
            honest.pop().client.drop()
        for _ in range(2):
            pour = Pour(source.await_credit(), message)
            for receiver in honest:
                assert bytes(receiver.next(MOST_SECONDS).data) == message
            assert source.outcome(pour.sent) == "accepted"
        small = source.await_credit().send("small")
        for receiver in honest:
            assert receiver.next().body == "small"
        assert small.outcome is None, "the slow receivers may still take it"
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
