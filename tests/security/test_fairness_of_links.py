"""A client with very many links, sessions or frames shares the router's time: others lose nothing and wait for no turn.

`most_cpu_seconds` of the canary is the CPU time that the router spent on anything while one message was on its way:
what a turn for other connections takes at most, and what reading and writing the message takes.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.raw import CLOSE, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.frames import Flood, attach, begin, detach, end, flow, opening

from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import UInt

LINKS = 6000
EDGE_LINKS = 12_000
BATCH = 500
FLAPS = 1000
MOST_CPU_SECONDS = 0.15
"""Of a turn, with room for a collection of garbage. Without slices the turns of these attacks take 0.3 to 3 seconds."""
MEBIBYTE = 1 << 20


def attached(
    router: Router, flood: Flood, *, sessions: int = 1, address: str = "", count: int = LINKS
) -> None:
    """Senders on `sessions` in turn, to one address or each to its own; all of them are attached afterwards."""
    flood.send(opening(), *(begin(channel) for channel in range(sessions)))
    for first in range(0, count, BATCH):
        numbers = range(first, min(first + BATCH, count))
        flood.send(
            *(attach(n // sessions, f"l{n}", address or f"many/{n}", channel=n % sessions) for n in numbers)
        )
    await_links(router, lambda links: links >= count)


def await_links(router: Router, condition: Callable[[float], bool]) -> None:
    """Wait for a number of links; a router that is busy may answer late."""

    def fulfilled() -> bool:
        try:
            return condition(router.metric("links", 'type="endpoint"'))
        except OSError:
            return False

    eventually(fulfilled, "the number of links", 120)


def few(links: float) -> bool:
    """Whether no links but those of the canary are left."""
    return links <= 2


def close(router: Router, flood: Flood) -> None:
    """A close frame with thousands of links in one session."""
    attached(router, flood)
    flood.send(frame(CLOSE, []))
    await_links(router, few)


def drop(router: Router, flood: Flood) -> None:
    """A connection that is lost with thousands of links."""
    attached(router, flood)
    flood.leave()
    await_links(router, few)


def end_one(router: Router, flood: Flood) -> None:
    """The end of a session with thousands of links."""
    attached(router, flood)
    flood.send(end())
    await_links(router, few)


def end_many(router: Router, flood: Flood) -> None:
    """The ends of a thousand sessions with six links each."""
    attached(router, flood, sessions=1000)
    flood.send(*(end(channel) for channel in range(1000)))
    await_links(router, few)


def detach_all(router: Router, flood: Flood) -> None:
    """Thousands of detaches, the newest link first."""
    attached(router, flood)
    flood.send(*(detach(n) for n in reversed(range(LINKS))))
    await_links(router, few)


def meet(router: Router, flood: Flood) -> None:
    """Thousands of receivers of an address that has thousands of senders."""
    half = LINKS // 2
    attached(router, flood, address="one", count=half)
    flood.send(begin(1), *(attach(n, f"r{n}", "one", receiver=True, channel=1) for n in range(half)))
    await_links(router, lambda links: links >= LINKS)
    flood.leave()
    await_links(router, few)


def flap(router: Router, flood: Flood) -> None:
    """A receiver that comes and goes at an address that has thousands of senders."""
    attached(router, flood, address="one", sessions=LINKS // 200)
    with Flood(router.port) as receivers:
        receivers.send(opening(), begin())
        for first in range(0, FLAPS, 20):
            receivers.send(
                *(attach(0, f"r{n}", "one", receiver=True) + detach(0) for n in range(first, first + 20))
            )
        await_counter(router, LINKS + FLAPS)


def churn(router: Router, flood: Flood) -> None:
    """Attaches and detaches in turn, without waiting for an answer."""
    flood.send(opening(), begin())
    flood.send(*(attach(0, f"c{n}", "x", receiver=True) + detach(0) for n in range(LINKS)))
    await_counter(router, LINKS)


def sessions(router: Router, flood: Flood) -> None:
    """Sessions that begin and end in turn, beside many that stay."""
    flood.send(opening(), *(begin(channel) for channel in range(900)))
    flood.send(*(begin(950) + end(950) for _ in range(5000)))
    flood.send(begin(951), attach(0, "last", "x", channel=951))
    await_links(router, lambda links: links > 2)


def flows(router: Router, flood: Flood) -> None:
    """Credit that is changed over and over again."""
    flood.send(opening(), begin(), attach(0, "f", "x", receiver=True))
    flood.send(*(flow(0, n % 50 + 1) for n in range(5 * LINKS)))
    flood.send(attach(1, "last", "x"))
    await_links(router, lambda links: links > 3)


def strangers(router: Router, flood: Flood) -> None:
    """Messages of anonymous senders for a second, each to another address that nobody receives from."""
    flood.send(opening(), begin())
    end = time.monotonic() + 1
    for handle in range(100):
        flood.send(attach(handle, f"anonymous {handle}", None))
        await_links(router, lambda links, least=handle + 2: links > least)
        first = 250 * handle
        flood.send(*(transfer(handle, n, f"to/{n}") for n in range(first, first + 250)))
        if time.monotonic() > end:
            break
    flood.send(attach(handle + 1, "last", "x"))
    await_links(router, lambda links: links > handle + 3)


def transfer(handle: int, number: int, to: str) -> bytes:
    """A pre-settled message."""
    message = encode_message(Message(properties=Properties(to=to), body="x"))
    return frame(TRANSFER, [UInt(handle), UInt(number), struct.pack(">I", number), UInt(0), True], message)


def await_counter(router: Router, count: int) -> None:
    """Wait until that many links have been attached in all."""

    def fulfilled() -> bool:
        try:
            return router.metric("links_attached_total") >= count
        except OSError:
            return False

    eventually(fulfilled, f"{count} links were attached", 120)


ATTACKS = [close, drop, end_one, end_many, detach_all, meet, flap, churn, sessions, flows, strangers]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_one_client_does_not_stop_the_others(
    routers: Routers, attack: Callable[[Router, Flood], None]
) -> None:
    router = routers.start("A")
    before = memory(router.pid)
    with Canary(router, rate=50) as canary, Flood(router.port) as flood:
        attack(router, flood)
    canary.report.check(at_least=5)
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert memory(router.pid) < before + 150 * MEBIBYTE


@pytest.mark.parametrize(
    "leave", [Flood.leave, lambda flood: flood.send(frame(CLOSE, []))], ids=["drop", "close"]
)
def test_an_edge_that_leaves_does_not_stop_others(routers: Routers, leave: Callable[[Flood], None]) -> None:
    edges = free_port()
    router = routers.start("A", listener(edges, "edge"), mode="interior")
    with Canary(router, rate=50) as canary, Flood(edges) as flood:
        attached(router, flood, sessions=EDGE_LINKS // 500, count=EDGE_LINKS)
        before = router.cpu()
        leave(flood)
        await_links(router, few)
    canary.report.check(at_least=5)
    assert router.cpu() - before > 0.1, "it takes more than the turns of other clients may"
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_frames_of_a_peer_that_has_left_keep_their_order(
    routers: Routers, clients: Clients, kernel: str
) -> None:
    """What waits for its slice when the peer closes its socket is not forgotten, and stays in its order."""
    routers.kernel = kernel
    router = routers.start("A")
    receiver = clients.connect(router.port).receiver("orders", credit=1000, accept=True)
    flood = Flood(router.port)
    flood.send(opening(), begin(), attach(0, "s", "orders"))
    await_links(router, lambda links: links >= 2)
    flood.send(
        *(attach(n + 1, f"l{n}", f"x/{n}") + transfer(0, n, "orders") + detach(n + 1) for n in range(200))
    )
    flood.send(*(transfer(0, 200 + n, "orders") for n in range(20)))
    flood.finish()
    received = receiver.expect(220, 60)
    assert len(received) == 220
    await_links(router, lambda links: links <= 1)
