"""Messages to thousands of receivers (multicast): their copies wait for their turns, and other clients do not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.integration.sites.support.relay_sites import RelaySites
from tests.integration.support.by_hand import ByHand, attach_frame, body, send_to, transfer_frame
from tests.integration.support.routers import Router, Routers, address, eventually
from tests.integration.support.topology import Network
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, flow, opening

from isthmus_router.message.types import Symbol

CONNECTIONS, LINKS = 4, 500
RECEIVERS = CONNECTIONS * LINKS
MESSAGES = 50
STREAMS = 30
RELAYED, WITHOUT_CREDIT = 240, 20_000
MOST_CPU_SECONDS = 0.15
"""Of a turn, with room for a collection of garbage. Without steps, a turn of these attacks takes 1 to 4 seconds."""


@contextlib.contextmanager
def receivers(router: Router, name: str = "multicast/all") -> Iterator[list[Flood]]:
    """Thousands of receivers with credit that settle nothing."""
    with contextlib.ExitStack() as stack:
        floods = [stack.enter_context(Flood(router.port)) for _ in range(CONNECTIONS)]
        for flood in floods:
            flood.send(opening(), begin())
            for first in range(0, LINKS, 250):
                flood.send(
                    *(
                        attach(n, f"r{n}", name, receiver=True) + flow(n, 10_000)
                        for n in range(first, first + 250)
                    )
                )
        await_links(router, RECEIVERS)
        yield floods


def at_least(router: Router, name: str, label: str, count: int) -> Callable[[], bool]:
    """Whether a metric is no less; a router that is busy may answer late."""

    def reached() -> bool:
        try:
            return router.metric(name, label) >= count
        except OSError:
            return False

    return reached


def await_links(router: Router, count: int) -> None:
    """Wait until that many links and those of the canary are attached."""
    eventually(at_least(router, "links", 'type="endpoint"', count + 2), f"{count} links")


def await_copies(router: Router, count: int) -> None:
    """Wait until that many deliveries went out."""
    eventually(at_least(router, "deliveries_total", 'direction="out"', count), f"{count} copies", 120)


@pytest.mark.parametrize("settled", [True, False], ids=["presettled", "unsettled"])
def test_messages_to_thousands_of_receivers(compiled_kernel: Callable[[], Routers], *, settled: bool) -> None:
    router = compiled_kernel().add("A", address("multicast", "multicast")).start()
    with Canary(router, rate=50) as canary, receivers(router), ByHand(router.port) as sender:
        sender.attach(send_to("multicast/all"))
        sender.await_credit()
        sender.send(*(transfer_frame(n, body("x"), settled=settled) for n in range(MESSAGES)))
        await_copies(router, MESSAGES * RECEIVERS)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


@pytest.mark.parametrize("at", ["A", "E"], ids=["interior", "edge"])
def test_messages_from_another_router(routers: Routers, at: str) -> None:
    """What else comes from there does not wait for the copies, and nothing is lost."""
    network = Network(routers, common=[address("multicast", "multicast")])
    network.line("A", "B")
    network.edge("E", "B")
    routers.start_all()
    near, far = network[at], network["B"]
    with (
        Canary(far, rate=50) as canary,
        receivers(far),
        Canary(near, receive_at=far, rate=20) as passer,
        ByHand(near.port) as sender,
    ):
        sender.attach(send_to("multicast/all"))
        sender.await_credit()
        sender.send(*(transfer_frame(n, body("x"), settled=n % 2 == 0) for n in range(MESSAGES)))
        await_copies(far, MESSAGES * RECEIVERS)
    canary.report.check()
    passer.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_messages_that_are_passed_on_while_they_arrive(compiled_kernel: Callable[[], Routers]) -> None:
    """However small their pieces are, each goes to all receivers."""
    router = compiled_kernel().add("A", address("multicast", "multicast")).start()
    target = ["multicast/all", None, None, None, None, None, [Symbol("qd.streaming-deliveries")]]
    with Canary(router, rate=50) as canary, receivers(router) as floods, ByHand(router.port) as sender:
        for n in range(STREAMS):
            sender.attach(attach_frame(f"s{n}", n, receiver=False, target=target))
        sender.send(
            *(transfer_frame(n, body("x"), handle=n, settled=True, more=True) for n in range(STREAMS))
        )
        for flood in floods:  # each may be what the streams wait for
            flood.send(*(flow(n, 20_000) for n in range(LINKS)))
        for _ in range(10):
            sender.send(*(transfer_frame(n, b"", handle=n, settled=True, more=True) for n in range(STREAMS)))
        sender.send(*(transfer_frame(n, b"", handle=n, settled=True) for n in range(STREAMS)))
        await_copies(router, STREAMS * RECEIVERS)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_relayed_messages(routers: Routers) -> None:
    """A member of a site has thousands of receivers, to which each message goes from another member."""
    far, near = (routers.add(name) for name in ("nyc-0", "nyc-1"))
    sites = RelaySites()
    sites.site("nyc", far, near)
    routers.start_all()
    sites.formed()
    with Canary(far, rate=50) as canary, receivers(far, "relay/trades"), ByHand(near.port) as sender:
        sender.attach(send_to("relay/trades"))
        sender.await_credit()
        sender.send(*(transfer_frame(n, body("x"), settled=True) for n in range(RELAYED)))
        await_copies(far, RELAYED * RECEIVERS)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_relayed_messages_to_receivers_without_credit(routers: Routers) -> None:
    """As many wait as may. Then each further message detaches receivers, which takes longer than a copy, and those that
    remain are detached when their connections have been idle for too long."""
    far, near = routers.add("nyc-0"), routers.add("nyc-1", idleTimeoutSeconds=0)
    sites = RelaySites()
    sites.site("nyc", far, near)
    routers.start_all()
    sites.formed()
    with Flood(far.port) as one, Flood(far.port) as another, ByHand(near.port) as sender:
        for flood in (one, another):
            flood.send(opening())
            for channel in range(WITHOUT_CREDIT // 400):
                links = (
                    attach(n, f"r{channel}.{n}", "relay/trades", receiver=True, channel=channel)
                    for n in range(200)
                )
                flood.send(begin(channel), *links)
        await_links(far, WITHOUT_CREDIT - 2)
        sender.attach(send_to("relay/trades"))
        sender.await_credit()
        with Canary(far, rate=50) as canary:
            sender.send(*(transfer_frame(n, body("x"), settled=True) for n in range(30)))
            eventually(lambda: far.metric("links", 'type="endpoint"') < 100, "all are detached", 120)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
