"""An address has thousands of receivers. Clients that attach and detach some, that spell the address in thousands of
ways, or that limit the size of messages do not delay others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.integration.support.by_hand import ByHand, send_to, transfer_frame
from tests.integration.support.routers import Router, Routers, eventually
from tests.security.support.canary import Canary, main_thread_cpu
from tests.security.support.frames import Flood, attach, begin, detach, flow, opening

from isthmus_router.message.control import Message, Properties, encode_message

CONNECTIONS, LINKS = 4, 2_500
RECEIVERS = CONNECTIONS * LINKS
CHANGING = 20
LEAST_CHANGES = 2_000
BUFFER = 1 << 16
"""Bytes of changes that a client has sent and the router has not read; with more of them, a client waits long."""
MESSAGES = 3_000
"""Of the canary."""
RATE = 200
"""Messages in a second."""
SPELLINGS = 8_000
AMPLE = 1_000_000
PAYLOAD = b"\x00\x53\x75\xa0\x01x"
MEBIBYTE = 1 << 20
MOST_CPU_SECONDS = 0.15
"""Of a turn, with room for a collection of garbage: with 10,000 receivers it takes up to 0.11 s."""
MOST_CPU_OF_MOST = 0.05
"""Of 99 messages of 100."""

pytestmark = pytest.mark.timeout(600)


def crowd(kernel: Callable[[], Routers], distribution: str = "balanced", phase: int = 0) -> Router:
    """A router where `crowd/x` has a distribution, and clients send to it and receive from it in a phase.

    They send no heartbeats.
    """
    attributes = {
        "prefix": "crowd",
        "distribution": distribution,
        "ingressPhase": phase,
        "egressPhase": phase,
    }
    return kernel().add("A", ("address", attributes), idleTimeoutSeconds=0).start()


@contextlib.contextmanager
def receivers(
    router: Router, credit: int = 0, limit: Callable[[int], int] = lambda number: 0
) -> Iterator[None]:
    """Thousands of receivers that settle nothing. `limit`: the max-message-size of each (0: any size)."""
    with contextlib.ExitStack() as stack:
        for connection in range(CONNECTIONS):
            flood = stack.enter_context(Flood(router.port))
            flood.send(opening(), begin())
            for first in range(0, LINKS, 250):
                flood.send(
                    *(
                        attach(
                            n,
                            f"r{n}",
                            "crowd/x",
                            receiver=True,
                            max_message_size=limit(connection * LINKS + n),
                        )
                        + (flow(n, credit) if credit else b"")
                        for n in range(first, first + 250)
                    )
                )
        await_metric(router, "links", 'type="endpoint"', RECEIVERS)
        yield


def await_metric(router: Router, name: str, label: str, count: int) -> None:
    """Wait until a metric is no less; a router that is busy may answer late."""

    def reached() -> bool:
        try:
            return router.metric(name, label) >= count
        except OSError:
            return False

    eventually(reached, f"{count} {name}", 240)


def check(canary: Canary) -> None:
    """The messages arrived, and no turn was long."""
    canary.report.check()
    assert canary.report.cpu_p99 < MOST_CPU_OF_MOST, canary.report
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


@pytest.mark.parametrize("distribution", ["balanced", "closest"])
def test_receivers_that_come_and_go(compiled_kernel: Callable[[], Routers], distribution: str) -> None:
    """The canary's messages are to their address, and it alone has credit."""
    router = crowd(compiled_kernel, distribution)
    with receivers(router), contextlib.ExitStack() as stack:
        floods = [stack.enter_context(Flood(router.port, buffer=BUFFER)) for _ in range(CHANGING)]
        for flood in floods:
            flood.send(opening(), begin())
        before = int(router.metric("links_attached_total"))
        with Canary(router, address="crowd/x", rate=RATE, enough=MESSAGES) as canary:
            number = 0
            while not canary.has_sent_enough:
                changes = (
                    attach(0, f"c{number + n}", "crowd/x", receiver=True) + detach(0) for n in range(10)
                )
                sent = b"".join(changes)
                for flood in floods:
                    flood.send(sent)
                number += 10
        assert int(router.metric("links_attached_total")) >= before + LEAST_CHANGES
    check(canary)


def test_two_receivers_among_thousands_without_credit(either_kernel: Callable[[], Routers]) -> None:
    """A message to the two costs about the same as without the others."""
    router = crowd(either_kernel)
    with ByHand(router.port) as sender, Flood(router.port) as one, Flood(router.port) as other:
        for flood in (one, other):
            flood.send(opening(), begin(), attach(0, "two", "crowd/x", receiver=True), flow(0, AMPLE))
        sender.attach(send_to("crowd/x"))
        sender.await_credit()
        sent = 0

        def cpu_of_messages() -> float:
            """CPU seconds of the router for 4,000 messages."""
            nonlocal sent
            before = main_thread_cpu(router.pid)
            for _ in range(40):
                sender.send(*(transfer_frame(sent + n, PAYLOAD, settled=True) for n in range(100)))
                sent += 100
                sender.round_trip()
            return main_thread_cpu(router.pid) - before

        cpu_of_messages()
        alone = cpu_of_messages()
        with receivers(router):
            cpu_of_messages()
            among_others = cpu_of_messages()
    assert among_others < 4 * alone, (alone, among_others)


def test_messages_that_spell_the_address_in_thousands_of_ways(compiled_kernel: Callable[[], Routers]) -> None:
    """In a phase, where the annotations of each message state the address."""
    router = crowd(compiled_kernel, phase=1)
    with receivers(router), Canary(router, rate=50) as canary, ByHand(router.port) as sender:
        sender.attach(send_to(None))
        sender.await_credit()
        before = router.memory()
        for first in range(0, SPELLINGS, 250):
            sender.send(
                *(
                    transfer_frame(n, spelled(f"amqp://h{n}/crowd/x"), settled=True)
                    for n in range(first, first + 250)
                )
            )
            await_metric(router, "deliveries_total", 'direction="in"', first + 250)
        grown = router.memory() - before
        with Flood(router.port) as flood:
            flood.send(opening(), begin(), attach(0, "one", "crowd/x", receiver=True))
            await_metric(router, "links", 'type="endpoint"', RECEIVERS + 4)
    check(canary)
    assert grown < 64 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB"


def spelled(to: str) -> bytes:
    """A message to an address in some spelling."""
    return encode_message(Message(properties=Properties(to=to), body="x"))


def test_receivers_with_different_limits_of_size(compiled_kernel: Callable[[], Routers]) -> None:
    """Few of them take a message, and each message asks for others."""
    router = crowd(compiled_kernel)
    with (
        receivers(router, credit=100, limit=lambda number: 100 + number),
        Canary(router, rate=50) as canary,
        ByHand(router.port) as sender,
    ):
        sender.attach(send_to("crowd/x"))
        sender.await_credit()
        taken = 0
        for size in range(200, 10_000, 100):
            payload = b"\x00\x53\x75\xb0" + (size - 8).to_bytes(4) + bytes(size - 8)
            sender.send(*(transfer_frame(taken + n, payload, settled=True) for n in range(50)))
            taken += 50
            await_metric(router, "deliveries_total", 'direction="out"', taken)
    check(canary)
