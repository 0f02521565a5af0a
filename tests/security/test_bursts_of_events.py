"""One disposition names all deliveries that a client has not settled, or a container in a session.

Their events are dealt with in slices, between which others have their turns; each outcome reaches the sender once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.by_hand import (
    ACCEPTED,
    ByHand,
    begin_frame,
    body,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DISPOSITION, END, TRANSFER, Arrived, await_input, frame
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary
from tests.security.support.small_container import SmallContainer

from isthmus_router.message.types import UInt

pytestmark = pytest.mark.timeout(600)

DELIVERIES = 60_000
"""Fewer than a client may have unsettled on routed links."""
LINKS = 2
"""Of each, fewer deliveries than a link may have unsettled."""
AT_ONCE = 240
"""Frames that fit into any window of the router's."""
FAR = 2**31 - 1
PING = begin_frame(9) + frame(END, [], channel=9)
PINGS = 300
"""They take more than a slice, so that they wait for each other and for the outcomes."""
MOST_CPU_SECONDS = 0.06
"""Of a turn. The engine makes the events of a disposition together, in 0.02 s."""


def batches() -> Iterator[list[bytes]]:
    """Transfers of all deliveries, unsettled, on links in turn: no two outcomes have a frame together."""
    for first in range(0, DELIVERIES, AT_ONCE):
        these = range(first, min(first + AT_ONCE, DELIVERIES))
        yield [transfer_frame(one, body("x"), handle=one % LINKS) for one in these]


def named(disposition: Arrived) -> range:
    """The delivery-ids that a disposition is about."""
    first = int(disposition.fields[1])
    return range(first, int(disposition.fields[2] if disposition.field(2) is not None else first) + 1)


def check(router: Router, sender: ByHand, settle: Callable[[], None]) -> None:
    """All deliveries of the sender are accepted by `settle`, each once, and meanwhile others have their turns."""
    found: list[Arrived] = []
    settled: list[int] = []
    with Canary(router) as canary:
        sender.send(PING * PINGS)
        settle()
        sender.send(PING * PINGS)
        while len(settled) < DELIVERIES:
            await_input(sender.socket, 60)
            for one in sender.rest():
                found.append(one)
                if one.code == DISPOSITION:
                    assert (one.field(3), repr(one.field(4))) == (True, repr(ACCEPTED))
                    settled += named(one)
            assert not sender.ended
    assert sorted(settled) == list(range(DELIVERIES))
    codes = [one.code for one in found]
    last = len(codes) - codes[::-1].index(DISPOSITION)
    assert END in codes[codes.index(DISPOSITION) : last], "the sender had no turn before the last outcome"
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_a_container_settles_all_deliveries_at_once(compiled_kernel: Callable[[], Routers]) -> None:
    port = free_port()
    brokers = listener(port, "route-container", name="brokers", idleTimeoutSeconds=0)
    route = ("linkRoute", {"prefix": "q", "direction": "in", "containerId": "broker"})
    router = compiled_kernel().start("A", brokers, route, idleTimeoutSeconds=0)
    with (
        SmallContainer(port, handle_max=100, channel_max=100, credit=1_000_000) as container,
        ByHand(router.port) as client,
    ):
        for handle in range(LINKS):
            client.attach(send_to(f"q/{handle}", handle))
        sent = 0
        for batch in batches():
            client.send(*batch)
            sent += len(batch)
            container.wait(lambda sent=sent: len(container.payloads) == sent)

        def settle() -> None:
            for channel, count in container.received.items():  # one session for each link
                container.settle(channel, 0, count - 1)

        check(router, client, settle)


def test_a_client_settles_all_deliveries_at_once(compiled_kernel: Callable[[], Routers]) -> None:
    router = compiled_kernel().add("A", linkCapacity=DELIVERIES, idleTimeoutSeconds=0)
    router.start()
    with (
        ByHand(router.port, begun=begin_frame(incoming=FAR)) as receiver,
        ByHand(router.port) as sender,
    ):
        receiver.attach(receive_from("q"))
        receiver.send(credit_frame(0, DELIVERIES, incoming=FAR))
        receiver.round_trip()
        for handle in range(LINKS):
            sender.attach(send_to("q", handle))
        for batch in batches():
            sender.send(*batch)
            receiver.expect(TRANSFER, len(batch))
        fields = [True, UInt(0), UInt(DELIVERIES - 1), True, ACCEPTED]
        check(router, sender, lambda: receiver.send(frame(DISPOSITION, fields)))
