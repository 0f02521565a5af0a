"""A router that has joined the network and announces routers and addresses that do not exist."""

from __future__ import annotations

import urllib.request

from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.raw import Neighbour
from tests.integration.support.routers import Router, Routers, connector, eventually, listener
from tests.security.support.canary import Canary, memory

from isthmus_router.routing.messages import ALL_ROUTERS_ADDRESS, MAX_PEERS

INVENTED = 500


def ready(router: Router) -> bool:
    with urllib.request.urlopen(f"http://localhost:{router.http_port}/readyz", timeout=10) as answer:
        return bool(answer.status == 200)


def neighbours(router: Router) -> set[str]:
    return {row["id"] for row in router.status()["neighbors"]}


def invent(hostile: Neighbour) -> int:
    """Announce routers in every way that there is; the number of messages."""
    names = [f"X{number:03d}" for number in range(INVENTED)]
    hostile.link_state({"A": 1, **dict.fromkeys(names, 1)}, sequence=2)
    for at in range(0, INVENTED, MAX_PEERS - 1):
        hostile.link_state({"A": 1, **dict.fromkeys(names[at : at + MAX_PEERS - 1], 1)}, sequence=3 + at)
    for name in names:
        hostile.hello(id=name)
        hostile.say("RA", ALL_ROUTERS_ADDRESS, id=name, ls_seq=1, mobile_seq=0)
        state = {"id": name, "area": "0", "ls_seq": 1, "peers": {"H": 1}}
        hostile.say("LSU", ALL_ROUTERS_ADDRESS, id=name, ls_seq=1, ls=state)
    for long in ("x" * 10_000, "x" * 128):
        hostile.say("RA", ALL_ROUTERS_ADDRESS, id=long, ls_seq=1, mobile_seq=0)
    return 3 * INVENTED + 8


def test_a_router_that_connects_later_is_a_neighbour(routers: Routers, clients: Clients) -> None:
    port = free_port()
    a = routers.start("A", listener(port, "inter-router", name="routers"), mode="interior")
    with Canary(a) as canary, Neighbour(port, "H", "A") as hostile:
        hostile.until(lambda _: "H" in neighbours(a), "it is a neighbour of A")
        before = memory(a.pid)
        invent(hostile)
        refused = eventually(
            lambda: a.metric("routers_without_place_total", 'outcome="refused"'), "the table of A is full"
        )
        assert refused > 0
        assert ready(a)
        honest = routers.add("B", connector(port, name="to-A"), mode="interior").launch()
        hostile.until(lambda _: neighbours(a) == {"H", "B"}, "B is a neighbour of A")
        honest.await_ready()
        eventually(lambda: neighbours(honest) == {"A"}, "A is a neighbour of B")
        hostile.hello()
        assert a.metric("routers_without_place_total", 'outcome="displaced"') >= 1
        assert ready(a)
        receiver = clients.connect(honest.port).receiver("orders", credit=10, accept=True)
        sender = clients.connect(a.port).sender("orders").await_credit()
        assert sender.deliver("one") == "accepted"
        assert receiver.bodies() == ["one"]
        assert memory(a.pid) < before + (48 << 20)
    canary.report.check()
