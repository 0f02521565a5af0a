"""An edge has as many link routes and senders as it may: what the interior does for it takes many turns.

`most_cpu_seconds` of the canary is the CPU time that the router spent on anything while one message was on its way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER, OPEN, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, detach, flow, opening

from isthmus_router.core.terms import Direction
from isthmus_router.linkroute.messages import encode_link_routes
from isthmus_router.linkroute.table import route_key
from isthmus_router.message.types import Symbol, UInt, UShort

LINK_ROUTES = 20_000
ADDRESSES = 4000
MOST_CPU_SECONDS = 0.12


@pytest.fixture
def interior(compiled_kernel: Callable[[], Routers]) -> tuple[Router, int]:
    """An interior router, and its port for edges."""
    port = free_port()
    return compiled_kernel().start(
        "A", listener(port, "edge", idleTimeoutSeconds=0), mode="interior", idleTimeoutSeconds=0
    ), port


def edge_opening() -> Iterator[bytes]:
    """As an edge with a mesh, in a session."""
    properties = {Symbol("isthmus.mesh-key"): "k" * 43}
    fields = ["E", "localhost", UInt(65536), UShort(2000), None, None, None, None, None, properties]
    yield AMQP_HEADER
    yield frame(OPEN, fields)
    yield begin()


def transfers(first: int, messages: Iterable[bytes]) -> Iterator[bytes]:
    """The frames of messages on handle 0, numbered from `first`."""
    for number, message in enumerate(messages, first):
        for start in range(0, len(message), 16_000):
            more = start + 16_000 < len(message)
            fields = [UInt(0), UInt(number), str(number).encode(), UInt(0), False, more]
            yield frame(TRANSFER, fields, message[start : start + 16_000])


def told(reachable: bool | None, at_once: int, count: int = LINK_ROUTES) -> Iterator[bytes]:
    """Messages about as many link routes."""
    for first in range(0, count, at_once):
        keys = range(first, min(first + at_once, count))
        yield encode_link_routes((f"Cq{number}", reachable) for number in keys)


def settled_at(router: Router, metric: str, low: float, high: float) -> None:
    """Wait for a number; a router that is busy may answer late."""

    def there() -> bool:
        try:
            return low <= router.metric(metric) <= high
        except OSError:
            return False

    eventually(there, f"{low} to {high} {metric}", 120)


def test_link_routes_of_an_edge_are_told_and_forgotten_between_messages(interior: tuple[Router, int]) -> None:
    router, port = interior
    before = router.metric("addresses")
    with Flood(port) as edge:
        edge.send(*edge_opening(), attach(0, "routes", "_$qd.link_routes"))
        settled_at(router, "links", 1, 9)
        with Canary(router) as canary:
            number = 0
            for reachable in (True, False, True):
                messages = list(told(reachable, 130))
                edge.send(*transfers(number, messages))
                number += len(messages)
                settled_at(router, "addresses", before + LINK_ROUTES, before + LINK_ROUTES + 9)
            edge.send(detach(0))
            settled_at(router, "addresses", 0, before + 9)
            edge.send(attach(0, "again", "_$qd.link_routes"))
            edge.send(*transfers(number, told(True, 100)))
            settled_at(router, "addresses", before + LINK_ROUTES, before + LINK_ROUTES + 9)
            edge.leave()
            settled_at(router, "addresses", 0, before + 9)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_message_about_too_many_link_routes_is_ignored(interior: tuple[Router, int]) -> None:
    router, port = interior
    before = router.metric("addresses")
    with Flood(port) as edge:
        edge.send(*edge_opening(), attach(0, "routes", "_$qd.link_routes"))
        settled_at(router, "links", 1, 9)
        with Canary(router) as canary:
            edge.send(*transfers(0, told(True, LINK_ROUTES)))
            edge.send(*transfers(1, [encode_link_routes([("Cq" * 30_000, True)])]))
            edge.send(*transfers(2, [encode_link_routes([("C" + "q." * 500_000, True)])]))
            router.await_log("message about link routes ignored")
            edge.send(*transfers(3, told(True, 100, 1000)))
            settled_at(router, "addresses", before + 1000, before + 1009)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def attached(flood: Flood, count: int, *, receiver: bool) -> None:
    """Links to as many addresses, 200 in a session."""
    for first in range(0, count, 200):
        channel = 1 + first // 200
        flood.send(
            begin(channel),
            *(
                attach(n, f"l{first + n}", f"t/{first + n}", receiver=receiver, channel=channel)
                for n in range(200)
            ),
        )


def test_edge_that_asks_for_the_addresses_of_all_of_its_senders(interior: tuple[Router, int]) -> None:
    router, port = interior
    last = f"Mt/{ADDRESSES - 1}".encode()
    with Flood(router.port) as client, Flood(port) as edge:
        client.send(opening(), begin())
        edge.send(*edge_opening())
        attached(client, ADDRESSES, receiver=True)
        settled_at(router, "links", ADDRESSES, ADDRESSES)
        attached(edge, ADDRESSES, receiver=False)
        settled_at(router, "tracked_addresses", ADDRESSES, ADDRESSES)
        with Canary(router) as canary:
            for _ in range(5):
                edge.tail = b""
                edge.send(
                    attach(5, "track", "_$qd.edge_addr_tracking", receiver=True), flow(5, 2 * ADDRESSES)
                )
                eventually(lambda: last in edge.tail, "the edge is told all")
                edge.send(detach(5))
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_links_to_an_address_that_thousands_of_patterns_of_an_edge_are_like(
    interior: tuple[Router, int],
) -> None:
    """A search for the one that matches would take minutes."""
    router, port = interior
    patterns = (".".join([*tokens, "z"]) for tokens in itertools.product("q*#", repeat=8))
    keys = sorted({route_key(pattern, Direction.IN) for pattern in patterns})
    before = router.metric("addresses")
    with Flood(port) as edge, Flood(router.port) as client:
        client.send(opening(), begin())
        edge.send(*edge_opening(), attach(0, "routes", "_$qd.link_routes"))
        settled_at(router, "links", 1, 9)  # the window of the session is not announced before
        messages = (
            encode_link_routes((key, True) for key in keys[first : first + 100])
            for first in range(0, len(keys), 100)
        )
        edge.send(*transfers(0, messages))
        settled_at(router, "addresses", before + len(keys), before + len(keys) + 9)
        with Canary(router) as canary:
            client.send(*(attach(n, f"l{n}", "q." * 2000) for n in range(50)))
            router.await_log('"link":"l49"', "amqp:resource-limit-exceeded")
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
