"""An edge, or a client of a listener for edges, that attaches links without end: others do not wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER, OPEN, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, end, flow

from isthmus_router.core.mesh import MOST_CONNECTIONS
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK
from isthmus_router.edge.messages import MESH_DISCOVERY_ADDRESS, encode_mesh_announcement
from isthmus_router.linkroute.messages import LINK_ROUTES_ADDRESS
from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort

LINKS = 2400
IN_SESSION = 200
FIRST_CHANNEL = 10
MOST_CPU_SECONDS = 0.15
"""Of a turn, with room for a collection of garbage. Links that all took over in one turn took a second of it."""
KEY = "k" * 43


class Edge(Flood):
    """A connection of the edge E, with a session for what it announces."""

    def __init__(self, port: int, key: str | None = None) -> None:
        super().__init__(port)
        properties = {Symbol("isthmus.mesh-key"): key} if key else None
        fields = ["E", "localhost", UInt(65536), UShort(2000), *[None] * 5, properties]
        self.send(AMQP_HEADER, frame(OPEN, fields), begin(), begin(1))

    def __exit__(self, *_: object) -> None:
        self.leave()

    def attach_many(
        self, address: Callable[[int], str], *, receiver: bool = True, links: int = LINKS
    ) -> None:
        for first in range(0, links, IN_SESSION):
            channel = FIRST_CHANNEL + first // IN_SESSION
            self.send(
                begin(channel),
                *(
                    attach(n, f"l{first + n}", address(first + n), receiver=receiver, channel=channel)
                    for n in range(IN_SESSION)
                ),
            )

    def announce(self, mesh: str) -> None:
        self.send(
            attach(9, "discovery", MESH_DISCOVERY_ADDRESS, channel=1),
            frame(
                TRANSFER,
                [UInt(9), UInt(0), b"0", UInt(0), True, False],
                encode_mesh_announcement(mesh),
                channel=1,
            ),
        )


@pytest.fixture(scope="module")
def edges(compiled_kernel: Callable[[], Routers]) -> tuple[Router, int]:
    port = free_port()
    router = compiled_kernel().add("A", listener(port, "edge"), mode="interior").start()
    return router, port


def await_links(router: Router, number: int) -> None:
    """Wait for a number of links of edges; a router that is busy may answer late."""

    def there() -> bool:
        try:
            return router.metric("links", 'type="endpoint"') >= number
        except OSError:
            return False

    eventually(there, f"{number} links", 120)


def await_end(router: Router) -> None:
    eventually(lambda: router.metric("links", 'type="endpoint"') == 0, "the end of all links", 120)


def one(_: int) -> str:
    return "one"


def many(number: int) -> str:
    return f"many/{number}"


def test_one_attach_that_takes_over_from_thousands_of_links(edges: tuple[Router, int]) -> None:
    router, port = edges
    with Edge(port, KEY) as first, Edge(port, KEY) as second:
        first.attach_many(one)
        await_links(router, LINKS)
        with Canary(router) as canary:
            for number in range(20):
                second.send(attach(number, f"new{number}", "one", receiver=True))
            await_links(router, LINKS + 20 + 2)
    await_end(router)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


@pytest.mark.parametrize(("address", "receiver"), [(one, True), (many, True), (many, False)])
def test_an_announcement_that_concerns_thousands_of_links(
    edges: tuple[Router, int], address: Callable[[int], str], *, receiver: bool
) -> None:
    router, port = edges
    with Edge(port) as first, Edge(port) as second:
        first.attach_many(address, receiver=receiver)
        second.attach_many(address, receiver=receiver)
        await_links(router, 2 * LINKS)
        with Canary(router) as canary:
            first.announce("m" * 15)
            second.announce("m" * 15)
            await_links(router, 2 * LINKS + 2 + 2)
            # The last one that takes part: all before it have been looked at.
            second.send(attach(5000, "last", "last", receiver=True), flow(5000, 1))
            await_links(router, 2 * LINKS + 2 + 3)
    await_end(router)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


MANY_LINKS = 40_000
ENDS = 700
MOST_CPU_SECONDS_OF_ENDS = 0.05
"""Sessions that end together held a turn for 0.1 seconds."""


def test_sessions_that_end_together_beside_many_links(edges: tuple[Router, int]) -> None:
    """The engine walks over all links of the connection for the end of each session."""
    router, port = edges
    channels = range(
        FIRST_CHANNEL + MANY_LINKS // IN_SESSION, FIRST_CHANNEL + MANY_LINKS // IN_SESSION + ENDS
    )
    with Edge(port) as edge:
        edge.attach_many(many, receiver=False, links=MANY_LINKS)
        await_links(router, MANY_LINKS)
        with Canary(router) as canary:
            for number in range(3):
                edge.send(*map(begin, channels))
                edge.send(*map(end, channels))
                edge.send(attach(5000 + number, f"last{number}", "last"))
                await_links(router, MANY_LINKS + number + 1)
    await_end(router)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS_OF_ENDS, canary.report


def downlink(number: int) -> bytes:
    source = Described(ULong(0x28), ["E", *[None] * 9, Symbol(CAPABILITY_EDGE_DOWNLINK)])
    fields = [f"d{number}", UInt(number), True, None, None, source, Described(ULong(0x29), [None])]
    return frame(0x12, [*fields, None, None, UInt(0)])


def test_thousands_of_downlinks(edges: tuple[Router, int]) -> None:
    """Each of them concerns all others of the same id."""
    router, port = edges
    with Edge(port, KEY) as edge, Canary(router) as canary:
        for number in range(LINKS):
            edge.send(downlink(number))
        edge.send(attach(5000, "last", "last", receiver=True))
        await_links(router, 2 + 1)
    await_end(router)
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


@pytest.mark.parametrize(
    ("key", "link"),
    [(None, downlink(0)), (KEY, attach(0, "routes", LINK_ROUTES_ADDRESS))],
    ids=["downlinks", "link routes"],
)
def test_many_connections_of_one_edge(edges: tuple[Router, int], key: str | None, link: bytes) -> None:
    """Each downlink, and each link on which an edge tells of link routes, concerns all others of the same id. Of
    downlinks with the same key, only the newest counts."""
    router, port = edges
    with contextlib.ExitStack() as stack:
        canary = stack.enter_context(Canary(router))
        opened = [stack.enter_context(Edge(port, key)) for _ in range(MOST_CONNECTIONS + 20)]
        for edge in opened:
            edge.send(link, attach(1, "last", "last"))
            eventually(lambda edge=edge: b"last" in edge.tail, "the answers", 60)
        refused = [b"amqp:resource-limit-exceeded" in edge.tail for edge in opened]
    assert refused == [False] * MOST_CONNECTIONS + [True] * 20
    await_end(router)
    canary.report.check()
