"""Attack: have the router remember routes, by spellings of addresses that stay, and by destinations of messages."""

from __future__ import annotations

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.raw import TRANSFER, frame
from tests.integration.support.routers import Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, detach, opening

from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import UInt

ADDRESSES = 10
SPELLINGS = 1000
LINKS = 4
DESTINATIONS = 6_000
LONG = 950
"""Characters of a destination."""
AT_ONCE = 50
IN_A_WINDOW = 200
MEBIBYTE = 1 << 20
PATIENCE = 120

pytestmark = pytest.mark.parametrize("kernel", ["compiled", "python"])


def test_spellings_of_targets(routers: Routers, kernel: str) -> None:
    """A client attaches to addresses that it consumes from, each time with another spelling, and detaches."""
    routers.kernel = kernel
    router = routers.start("A")
    with Canary(router) as canary, Flood(router.port) as flood:
        flood.send(opening(), begin(), begin(1))
        flood.send(*(attach(n, f"r{n}", f"q{n}", receiver=True) for n in range(ADDRESSES)))
        eventually(lambda: router.metric("links") >= ADDRESSES, "the receivers are attached", PATIENCE)
        before = router.memory()
        for n in range(ADDRESSES):
            for first in range(0, SPELLINGS, AT_ONCE):
                numbers = range(first, first + AT_ONCE)
                spelled = [f"amqp://{number}".ljust(4 * LONG, "z") + f"/q{n}" for number in numbers]
                assert flood.send(*(attach(0, f"{n}", each, channel=1) + detach(0, 1) for each in spelled))
        attached = ADDRESSES * (SPELLINGS + 1)
        eventually(lambda: router.metric("links_attached_total") >= attached, "all is attached", PATIENCE)
        grown = router.memory() - before
    canary.report.check()
    assert grown < 15 * MEBIBYTE


def test_destinations_that_nobody_has(routers: Routers, kernel: str) -> None:
    """An edge sends pre-settled messages to many destinations on each of several links without a target."""
    routers.kernel = kernel
    port = free_port()
    router = routers.start("A", listener(port, "edge"))
    content = encode_message(Message(properties=Properties(to="@" * LONG), body=None))
    with Canary(router) as canary, Flood(port) as flood:
        flood.send(opening(), begin(), *(attach(n, f"l{n}", None) for n in range(LINKS)))
        before = router.memory()
        sent = 0
        for link in range(LINKS):
            for first in range(0, DESTINATIONS, IN_A_WINDOW):
                transfers = []
                for number in range(first, first + IN_A_WINDOW):
                    to = f"{link}/{number}/".ljust(LONG, "z").encode()
                    fields = [UInt(link), UInt(sent), str(sent).encode(), UInt(0), True]
                    transfers.append(frame(TRANSFER, fields, content.replace(b"@" * LONG, to)))
                    sent += 1
                assert flood.send(*transfers)
                eventually(lambda: router.metric("deliveries_total") >= sent, "they arrive", PATIENCE)  # noqa: B023
        grown = router.memory() - before
    canary.report.check()
    assert grown < 15 * MEBIBYTE
