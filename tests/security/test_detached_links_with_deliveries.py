"""A client has deliveries on routed links that the router detaches, does not answer, and attaches more of them.

The engine retains the deliveries of a link until both ends have detached it, so they count until then. Those that a
receiver has got are settled when the router detaches its link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from tests.integration.support.by_hand import (
    ByHand,
    body,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.ports import free_port
from tests.integration.support.raw import (
    ATTACH,
    BEGIN,
    DETACH,
    END,
    FLOW,
    TRANSFER,
    Arrived,
    await_input,
    frame,
)
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import detach
from tests.security.support.small_container import AMPLE_FOR_ALL, AnsweringContainer, SmallContainer

from isthmus_router.message.types import UInt, UShort

pytestmark = pytest.mark.timeout(600)

MOST = 100_000
CREDIT = 40_000
"""Of each link on which the client sends: the router detaches it after one transfer more."""
AT_ONCE = 240
"""Frames that fit into any window of the router's."""
WAITING = 60
MOST_GROWTH = 300 << 20

MOST_OF_LINK = 50_000
"""Deliveries: the router detaches a link that has one more."""
ROUNDS = 3
MOST_GROWTH_OF_ROUNDS = 24 << 20


def started(routers: Routers) -> tuple[Router, int]:
    """A router with a link route to a container, and the port for that one."""
    port = free_port()
    route = ("linkRoute", {"prefix": "q", "direction": "both", "containerId": "broker"})
    brokers = listener(port, "route-container", name="brokers", idleTimeoutSeconds=0)
    return routers.start("A", brokers, route, idleTimeoutSeconds=0), port  # no end sends heartbeats


def test_a_sender_that_sends_beyond_its_credit_on_one_link_after_the_other(
    compiled_kernel: Callable[[], Routers],
) -> None:
    router, port = started(compiled_kernel())
    with (
        SmallContainer(port, handle_max=100, channel_max=100, credit=CREDIT) as container,
        Canary(router, rate=50) as canary,
        ByHand(router.port) as client,
    ):
        before = router.memory()
        ids = count()

        def send(handle: int, amount: int) -> None:
            while amount:
                these = min(amount, AT_ONCE)
                arrived = len(container.payloads) + these
                client.send(*(transfer_frame(next(ids), body("x"), handle=handle) for _ in range(these)))
                container.wait(lambda arrived=arrived: len(container.payloads) == arrived)
                amount -= these

        full, rest = divmod(MOST, CREDIT)
        for handle in range(full):
            client.attach(send_to(f"q/{handle}", handle))
            client.await_credit()
            send(handle, CREDIT)
            client.send(transfer_frame(next(ids), body("too much"), handle=handle))
            client.expect(DETACH)
        client.attach(send_to("q/last", full))
        client.await_credit()
        send(full, rest)
        grown = router.memory() - before
        client.send(*(transfer_frame(next(ids), body("y"), handle=full) for _ in range(WAITING)))
        client.round_trip()
        eventually(lambda: "client.unsettled" in router.log, "the links of the client wait")
        assert len(container.payloads) == MOST
        # The client answers one detach.
        client.send(detach(0))
        container.wait(lambda: len(container.payloads) == MOST + WAITING)
    canary.report.check(at_least=5)
    assert grown < MOST_GROWTH, f"{grown >> 20} MiB"


class SendingContainer(AnsweringContainer):
    """A container that sends one delivery more on each link than may be unsettled, and answers everything."""

    def __init__(self, port: int) -> None:
        super().__init__(port, channel_max=1000)
        self._window: dict[int, int] = {}
        """By channel: the first transfer that the router does not take yet."""
        self._next: dict[int, int] = {}
        self._left: dict[tuple[int, int], int] = {}
        """Deliveries to be sent, by channel and handle."""
        self._allowed: dict[tuple[int, int], int] = {}
        """Deliveries for which the router has given credit so far, in the same way."""

    def _answer(self, one: Arrived) -> None:
        channel, send = one.channel, self._connection.send
        if one.code == BEGIN:
            self._next[channel], self._window[channel] = 0, int(one.field(2))
            send(frame(BEGIN, [UShort(channel), UInt(0), *[AMPLE_FOR_ALL] * 2, UInt(100)], channel=channel))
        elif one.code == ATTACH:
            self._left[channel, int(one.fields[1])] = MOST_OF_LINK + 1
            self._allowed.pop((channel, int(one.fields[1])), None)
            fields = [one.fields[0], one.fields[1], False, None, None, *one.fields[5:7], None, None, UInt(0)]
            send(frame(ATTACH, fields, channel=channel))
        elif one.code == FLOW:
            self._window[channel] = int(one.field(0) or 0) + int(one.field(1))
            if one.field(4) is not None:
                self._allowed[channel, int(one.field(4))] = int(one.field(5) or 0) + int(one.field(6) or 0)
            self._go_on(channel)
        elif one.code == DETACH:
            self._left.pop((channel, int(one.fields[0])), None)
            send(frame(DETACH, [one.fields[0], True], channel=channel))
        elif one.code == END:
            send(frame(END, [], channel=channel))

    def _go_on(self, channel: int) -> None:
        for (of, handle), left in self._left.items():
            if of == channel:
                first = self._next[channel]
                credit = self._allowed.get((of, handle), 0) - (MOST_OF_LINK + 1 - left)
                numbers = range(first, min(first + left, first + credit, self._window[channel]))
                self._connection.send(
                    *(transfer_frame(one, body("m"), handle=handle, channel=channel) for one in numbers)
                )
                self._next[channel] += len(numbers)
                self._left[of, handle] -= len(numbers)


def test_a_receiver_that_settles_nothing_on_one_link_after_the_other(
    compiled_kernel: Callable[[], Routers],
) -> None:
    router, port = started(compiled_kernel())
    with (
        SendingContainer(port),
        Canary(router, rate=50) as canary,
        ByHand(router.port) as client,
    ):
        grown = []
        for handle in range(ROUNDS):
            credit = credit_frame(handle, MOST_OF_LINK + 10, incoming=AMPLE_FOR_ALL)
            client.send(receive_from("q/x", handle) + credit)
            found: Counter[int] = Counter()
            while not found[DETACH]:
                await_input(client.socket, 1)
                found += Counter(one.code for one in client.rest())
                assert not client.ended
            assert found[TRANSFER] == MOST_OF_LINK
            grown.append(router.memory())
    canary.report.check(at_least=5)
    more = grown[-1] - grown[0]
    assert more < MOST_GROWTH_OF_ROUNDS, f"{more >> 20} MiB"
