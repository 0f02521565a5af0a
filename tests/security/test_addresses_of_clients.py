"""A client that has more addresses or link routes than other routers remember of its router."""

from __future__ import annotations

from collections import Counter

from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, connector, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, flow, opening

from isthmus_router.core.claims import MOST_CHARACTERS

LONG = 4_000
"""Characters of an address."""
NUMBER = MOST_CHARACTERS // LONG + 200
IN_A_SESSION = 250
ON_A_CONNECTION = 900
"""Link routes."""
PATIENCE = 120
MOST_CPU_SECONDS = 0.1
"""For anything while a message of the canary is on its way."""
MOST_GROWN = 300 * 2**20
"""Of both routers together, for 34 MB of addresses."""


def test_one_client_does_not_fill_the_room_for_all(routers: Routers, clients: Clients) -> None:
    port = free_port()
    a = routers.start("A", listener(port, "inter-router", name="routers"), mode="interior")
    b = routers.start("B", connector(port, name="to-A"), mode="interior")
    before = a.memory() + b.memory()
    with Canary(a, receive_at=b) as canary, Flood(a.port, address="127.0.0.2") as flood:
        flood.send(opening(), *(begin(channel) for channel in range(NUMBER // IN_A_SESSION + 1)))
        for n in range(NUMBER):
            address = f"{n}/".ljust(LONG, "x")
            flood.send(attach(n, f"l{n}", address, receiver=True, channel=n // IN_A_SESSION))
        # Links come in order: the rest is refused.
        eventually(
            lambda: a.metric("link_refusals_total", 'condition="amqp:resource-limit-exceeded"') > NUMBER // 3,
            "the client has no more addresses",
            PATIENCE,
        )
        receiver = clients.connect(a.port).receiver("orders", credit=10, accept=True)
        sender = clients.connect(b.port).sender("orders").await_credit()
        assert sender.deliver("one") == "accepted"
        assert receiver.bodies() == ["one"]
        assert b.metric("routing_addresses_refused_total") == 0
        grown = a.memory() + b.memory() - before
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert grown < MOST_GROWN, f"{grown} bytes"
    eventually(lambda: a.metric("links", 'type="endpoint"') < 10, "its links are gone", PATIENCE)


def test_link_routes_of_one_client_do_not_fill_the_room_for_all(routers: Routers, clients: Clients) -> None:
    port, writable = free_port(), free_port()
    a = routers.start(
        "A",
        listener(port, "inter-router", name="routers"),
        listener(writable, name="writable", management="write"),
        mode="interior",
    )
    b = routers.start("B", connector(port, name="to-A"), mode="interior")
    statuses: Counter[int] = Counter()
    before = a.memory() + b.memory()
    with Canary(a, receive_at=b) as canary:
        for connection in range(NUMBER // ON_A_CONNECTION + 1):
            manager = Manager(clients.connect(writable))
            for n in range(ON_A_CONNECTION):
                pattern = f"{connection}.{n}.".ljust(LONG, "x")
                body = {"pattern": pattern, "direction": "in"}
                answer = manager.request("CREATE", body, type="router.connection.linkRoute", name=f"{n}")
                statuses[answer.properties["statusCode"]] += 1
                if answer.properties["statusCode"] != 201:
                    assert "no more room for it" in answer.properties["statusDescription"]
                    break
        assert statuses[201] <= MOST_CHARACTERS // LONG // 2
        assert statuses[400] > 3
        with Flood(a.port, address="127.0.0.2") as other:
            other.send(opening(), begin(), attach(0, "other", "orders", receiver=True), flow(0, 10))
            clients.connect(b.port).sender("orders").await_credit()
        assert b.metric("routing_addresses_refused_total") == 0
        grown = a.memory() + b.memory() - before
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report
    assert grown < MOST_GROWN, f"{grown} bytes"
