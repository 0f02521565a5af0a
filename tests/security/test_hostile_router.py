"""A router that has joined the network and announces routers and addresses that do not exist."""

from __future__ import annotations

import contextlib
import http.client
import time
import urllib.request

from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.raw import Neighbour
from tests.integration.support.routers import Router, Routers, connector, eventually, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.frames import Flood, opening

from isthmus_router.interior.connections import MAX_HOPS, MOST_HOPS_OF_ONE
from isthmus_router.interior.rates import OF_ORIGIN
from isthmus_router.routing.messages import ALL_ROUTERS_ADDRESS, ALL_ROUTERS_MOBILE_ADDRESS, MAX_PEERS

INVENTED = 500
FAR = 2**62
CHANGES = 2000
LONG_ADDRESSES = 3000
LONG = 15_000
MANY_ADDRESSES = 100_000
COSTS = 10
NAMES = 4000
ADVERTISEMENTS = 20_000
MOST_CPU_SECONDS = 0.6
"""For anything while a message of the canary is on its way, with room for a machine on which that takes long."""
MOST_CPU_SECONDS_OF_CHANGES = 0.15
"""A third of what it took when all addresses were dealt with at once."""
PATIENCE = 120


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


def test_connections_whose_peers_say_nothing_do_not_keep_a_router_out(routers: Routers) -> None:
    """Their number is that of the identifiers for neighbors, and more."""
    port = free_port()
    a = routers.start("A", listener(port, "inter-router", name="routers"), mode="interior")
    with Canary(a) as canary, contextlib.ExitStack() as stack:
        for _ in range(MAX_HOPS + 2):
            stack.enter_context(Flood(port)).send(opening())
        eventually(
            lambda: a.log.count('"container":"flood"') > MAX_HOPS, "all connections are open", PATIENCE
        )
        honest = routers.start("B", connector(port, name="to-A"), mode="interior")
        eventually(lambda: neighbours(a) == {"B"}, "B is a neighbour of A", PATIENCE)
        eventually(lambda: neighbours(honest) == {"A"}, "A is a neighbour of B", PATIENCE)
    canary.report.check()


def test_a_host_whose_connections_are_all_neighbors_keeps_no_other_router_out(routers: Routers) -> None:
    """It says HELLO in another name on each connection, and in 128 names on one."""
    port = free_port()
    a = patient(routers, port)
    with Canary(a) as canary, contextlib.ExitStack() as stack:
        hostile = []
        for number in range(MOST_HOPS_OF_ONE):
            name = f"H{number}"
            hostile.append(stack.enter_context(Neighbour(port, name, "A", address="127.0.0.2")))
            hostile[-1].hello()
        for number in range(MAX_HOPS):
            hostile[0].hello(id=f"X{number}")
        expected = {f"H{number}" for number in range(MOST_HOPS_OF_ONE)}
        eventually(lambda: neighbours(a) == expected, "each connection has one neighbor", PATIENCE)
        excess = [stack.enter_context(Flood(port, address="127.0.0.2")) for _ in range(MOST_HOPS_OF_ONE + 1)]
        for one in excess:
            one.send(opening())
        for one in excess:
            eventually(lambda one=one: b"amqp:resource-limit-exceeded" in one.tail, "it is refused", PATIENCE)
        routers.start("B", connector(port, name="to-A"), mode="interior")
        eventually(lambda: neighbours(a) == {*expected, "B"}, "B is a neighbor of A", PATIENCE)
    canary.report.check()


def test_a_router_that_has_no_place_for_a_neighbor_is_not_ready(routers: Routers) -> None:
    """Two hosts have as many neighbors as there are connections, which is one more than there are places."""
    port = free_port()
    a = patient(routers, port)
    with Canary(a) as canary, contextlib.ExitStack() as stack:
        for number in range(MAX_HOPS):
            if number == MAX_HOPS - 1:
                eventually(lambda: len(neighbours(a)) == MAX_HOPS - 1, "all places are taken", PATIENCE)
                assert probed(a) == (200, "ready")
                assert a.status()["router"]["ready"] is True
            host = "127.0.0.2" if number < MOST_HOPS_OF_ONE else "127.0.0.3"
            stack.enter_context(Neighbour(port, f"H{number}", "A", address=host)).hello()
        eventually(lambda: probed(a)[0] == 503, "it is not ready", PATIENCE)
        assert "no place in the table of routers" in probed(a)[1]
        assert a.status()["router"]["ready"] is False
        assert len(neighbours(a)) == MAX_HOPS - 1
    canary.report.check()


def probed(router: Router) -> tuple[int, str]:
    """The answer to a probe of readiness."""
    connection = http.client.HTTPConnection("localhost", router.http_port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()


def patient(routers: Routers, port: int) -> Router:
    """A router that loses no neighbour however slow the machine is."""
    router = routers.add("A", listener(port, "inter-router", name="routers"), mode="interior")
    router.sections[0][1].update(helloMaxAgeSeconds=600, remoteLsMaxAgeSeconds=600)
    return router.start()


def announce(neighbour: Neighbour, sequence: int, *names: str, **fields: object) -> None:
    """Announce further addresses."""
    added = [[f"M{name}", 2, 0, None] for name in names]
    body = {"pv": 2, "mobile_seq": sequence, "add": added, "del": [], **fields}
    neighbour.say("MAU", ALL_ROUTERS_MOBILE_ADDRESS, **body)


def joined(router: Router, port: int, name: str) -> Neighbour:
    neighbour = Neighbour(port, name, router.id)
    neighbour.until(lambda _: name in neighbours(router), f"{name} is a neighbour")
    neighbour.link_state({router.id: 1})
    return neighbour


def test_a_router_is_heard_though_another_one_sends_in_its_name(routers: Routers, clients: Clients) -> None:
    port = free_port()
    a = patient(routers, port)
    with Canary(a) as canary, joined(a, port, "B") as honest, joined(a, port, "H") as hostile:
        announce(honest, 1, "first")
        clients.connect(a.port).sender("first").await_credit()
        name: dict[str, object] = {"id": "B", "instance": honest.instance}
        state = {"id": "B", "area": "0", "ls_seq": FAR, "peers": {"H": 1}}
        forged = [
            ("RA", {**name, "ls_seq": FAR, "mobile_seq": 1}),
            ("RA", {**name, "ls_seq": 1, "mobile_seq": FAR}),
            ("RA", {**name, "instance": 5, "ls_seq": 1, "mobile_seq": 1}),
            ("LSU", {**name, "ls_seq": FAR, "ls": state}),
            ("LSU", {**name, "instance": FAR, "ls_seq": FAR, "ls": state}),
        ]
        honest.hello()
        for opcode, fields in forged:
            hostile.say(opcode, ALL_ROUTERS_ADDRESS, **fields)
        announce(hostile, FAR, id="B", exist=[])
        refused = len(forged) + 1
        eventually(lambda: a.metric("routing_messages_refused_total") == refused, "all are refused", PATIENCE)
        # Difference 2 is forged, and the one that B sends under that number shows it.
        announce(hostile, 2, id="B", **{"del": [["Mfirst"]]})
        hostile.ask_link_state()
        hostile.until(lambda payload: b"LSU" in payload, "all of that is dealt with", PATIENCE)
        announce(honest, 2, "second")
        honest.until(lambda payload: b"MAR" in payload, "A asks B for all addresses", PATIENCE)
        announce(honest, 2, exist=[["Mfirst", 2, 0, None], ["Msecond", 2, 0, None]])
        for address in ("first", "second"):
            sender = clients.connect(a.port).sender(address).await_credit()
            assert sender.link.credit > 0
        assert neighbours(a) == {"B", "H"}
        assert ready(a)
    canary.report.check()


def taken(router: Router) -> float:
    """Announced addresses that the router has taken over or refused."""
    return router.metric("addresses") + router.metric("routing_addresses_refused_total")


def test_floods_of_changes_and_of_long_addresses_are_bounded(routers: Routers) -> None:
    port = free_port()
    a = patient(routers, port)
    with Canary(a) as canary, joined(a, port, "H") as hostile:
        before, computations = memory(a.pid), a.metric("path_computations_total")
        for number in range(CHANGES):
            hostile.instance = 1001 + number % 2
            hostile.say("RA", ALL_ROUTERS_ADDRESS, ls_seq=1, mobile_seq=0)
            hostile.link_state({"A": 1, "X": 1})
        for number in range(LONG_ADDRESSES):
            announce(hostile, 1 + number, f"{number:0{LONG}}")
            if number % 50 == 49:
                # Further ones than those that may wait would be given up, and asked for.
                hostile.until(lambda _, least=number: taken(a) > least, "they are dealt with", PATIENCE)
        hostile.ask_link_state()
        hostile.until(lambda payload: b"LSU" in payload, "all of that is dealt with", PATIENCE)
        assert a.metric("path_computations_total") - computations < CHANGES / 4
        assert a.metric("routing_addresses_refused_total") > 0
        assert memory(a.pid) < before + (192 << 20)
        assert a.log.count("no room for") <= 10
        assert ready(a)
    canary.report.check()


def test_large_updates_of_addresses_are_read_between_other_work(routers: Routers) -> None:
    """100,000 addresses in a message, again and again, and messages of other kinds that are larger than any may be."""
    port = free_port()
    a = patient(routers, port)
    with Canary(a) as canary, joined(a, port, "H") as hostile:
        before = memory(a.pid)
        for sequence in range(1, 4):
            exist = [[f"Mlarge.{sequence}.{number}", 2, 0, None] for number in range(MANY_ADDRESSES)]
            announce(hostile, sequence, exist=exist)
            hostile.hello()
        large = {f"{number:06d}" * 20: 1 for number in range(5000)}
        hostile.link_state({"A": 1, **large}, sequence=2)
        hostile.hello()
        eventually(
            lambda: a.metric("routing_messages_refused_total") == 1, "the link state is refused", PATIENCE
        )
        hostile.until(lambda _: a.metric("addresses") >= MANY_ADDRESSES, "the addresses are known", PATIENCE)
        assert memory(a.pid) < before + (256 << 20)
        assert ready(a)
        assert neighbours(a) == {"H"}
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS, canary.report


def test_changes_of_routers_that_have_announced_many_addresses(routers: Routers) -> None:
    """The cost of a path changes again and again, one router restarts, and another one leaves."""
    port = free_port()
    a = patient(routers, port)

    def wait(fewest: float, most: float, what: str) -> None:
        eventually(lambda: fewest <= a.metric("addresses") < most, what, PATIENCE)

    with joined(a, port, "H0") as hostile, joined(a, port, "H1") as leaving:
        for router in (hostile, leaving):
            exist = [[f"M{router.id}.{number}", 2, 0, None] for number in range(MANY_ADDRESSES)]
            announce(router, 1, exist=exist)
        wait(2 * MANY_ADDRESSES, FAR, "all addresses are known")
        with Canary(a) as canary:
            for change in range(COSTS):
                computed = a.metric("path_computations_total")
                hostile.link_state({"A": 1, "X": 1 + change % 2}, sequence=2 + change)
                eventually(
                    lambda before=computed: a.metric("path_computations_total") > before,
                    "paths are computed",
                    PATIENCE,
                )
            hostile.instance += 1
            hostile.say("RA", ALL_ROUTERS_ADDRESS, ls_seq=1, mobile_seq=0)
            wait(MANY_ADDRESSES, 1.1 * MANY_ADDRESSES, "those of H0 are forgotten")
            leaving.socket.close()
            wait(0, 0.1 * MANY_ADDRESSES, "those of H1 are forgotten")
    canary.report.check()
    assert canary.report.most_cpu_seconds < MOST_CPU_SECONDS_OF_CHANGES, canary.report


def test_names_of_control_addresses_that_nobody_uses(routers: Routers) -> None:
    """A router makes an address for each name in the table of addresses, and these of peers would stay for good."""
    port = free_port()
    a = patient(routers, port)
    with Canary(a) as canary, joined(a, port, "H") as hostile:
        before = memory(a.pid)
        for number in range(NAMES):
            hostile.say("RA", f"amqp:/_topo/0/all/{number:0{LONG}}", ls_seq=1, mobile_seq=0)
            if number % 100 == 0:
                hostile.hello()
        hostile.ask_link_state()
        hostile.until(lambda payload: b"LSU" in payload, "all of that is dealt with", PATIENCE)
        assert memory(a.pid) < before + (24 << 20)
    canary.report.check()


def test_messages_that_a_router_sends_to_all_have_a_bounded_rate(routers: Routers) -> None:
    ports = [free_port(), free_port()]
    a = patient(routers, ports[0])
    b = routers.start("B", connector(ports[0], name="to-A"), mode="interior")
    with Canary(a, receive_at=b) as canary, joined(a, ports[0], "H") as hostile:
        eventually(lambda: b.metric("routers") == 2, "B knows H", PATIENCE)
        start = time.monotonic()
        for _ in range(ADVERTISEMENTS):
            hostile.say("RA", ALL_ROUTERS_ADDRESS, ls_seq=1, mobile_seq=0)
        eventually(
            lambda: a.metric("routing_messages_total", 'opcode="RA"') >= ADVERTISEMENTS, "A has all", PATIENCE
        )
        dropped = a.metric("routing_messages_dropped_total")
        most = OF_ORIGIN.messages + OF_ORIGIN.messages_a_second * (time.monotonic() - start)
        assert ADVERTISEMENTS - dropped <= most
        eventually(
            lambda: b.metric("routing_messages_total", 'opcode="RA"') >= ADVERTISEMENTS - dropped,
            "B has those that were passed on",
            PATIENCE,
        )
        assert neighbours(a) == {"B", "H"}
    canary.report.check()
