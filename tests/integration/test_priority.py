"""The priority of a message chooses its link between routers, so that the urgent do not wait for the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.relay import Relay
from tests.integration.support.routers import Router, Routers, address, eventually
from tests.integration.support.topology import Network

BODY = b"\0Sw\xa1\x01x"
NO_HEADER = b""


@pytest.fixture(scope="module")
def line(either_kernel: Callable[[], Routers]) -> tuple[Router, Router]:
    """Two interior routers; addresses under `urgent` have a priority of their own."""
    urgent = ("address", {"prefix": "urgent", "distribution": "balanced", "priority": 8})
    network = Network(either_kernel(), common=[urgent, address("multicast", "multicast")])
    network.line("A", "B")
    network.start()
    return network["A"], network["B"]


def header(*elements: bytes, large: bool = False) -> bytes:
    """A header section of these encoded fields."""
    body = b"".join(elements)
    count = len(elements)
    if large:
        return b"\0Sp\xd0" + (len(body) + 4).to_bytes(4) + count.to_bytes(4) + body
    return b"\0Sp\xc0" + bytes([len(body) + 1, count]) + body


def priority(value: int) -> bytes:
    return b"\x50" + bytes([value])


def carried(manager: Manager) -> dict[int, int]:
    """Deliveries so far on the links to other routers, by priority."""
    rows = manager.query("org.apache.qpid.dispatch.router.link")
    return {
        row["priority"]: row["deliveryCount"]
        for row in rows
        if row["linkType"] == "inter-router" and row["linkDir"] == "out"
    }


CASES = {
    "no header": (NO_HEADER, 4),
    "empty header": (b"\0Sp\x45", 4),
    "durable alone": (header(b"\x41"), 4),
    "null": (header(b"\x41", b"\x40"), 4),
    "lowest": (header(b"\x41", priority(0)), 0),
    "seven": (header(b"\x40", priority(7)), 7),
    "highest": (header(b"\x42", priority(9)), 9),
    "beyond": (header(b"\x42", priority(10)), 9),
    "far beyond": (header(b"\x42", priority(255)), 9),
    "with the rest": (header(b"\x41", priority(2), b"\x52\x64", b"\x41", b"\x43"), 2),
    "large encoding": (header(b"\x56\x00", priority(3), large=True), 3),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("target", ["priority", "urgent/priority", "multicast/priority", None])
@pytest.mark.parametrize("settled", [False, True])
def test_the_link_of_its_priority(
    clients: Clients, line: tuple[Router, Router], case: str, target: str | None, settled: bool
) -> None:
    near, far = line
    head, expected = CASES[case]
    if target is not None and target.startswith("urgent"):
        expected = 8
    source = target or "priority"
    to = b"" if target else b"\0Ss\xc0\x0e\x03\x40\x40\xa1" + bytes([len(source)]) + source.encode()
    data = head + to + BODY
    receiver = clients.connect(far.port).receiver(source, credit=10, accept=True)
    client = clients.connect(near.port)
    sender = client.sender(target).await_credit()
    eventually(lambda: sender.deliver(data) == "accepted", "the consumer is known")
    manager = Manager(client)
    before = carried(manager)
    count = len(receiver.arrived())
    sender.send(data, settled=settled)
    receiver.expect(count + 1)
    after = carried(manager)
    assert {number for number in after if after[number] != before[number]} == {expected}
    assert {bytes(item.data) for item in receiver.arrived()} == {data}, "the message is as it was"


def test_the_urgent_overtake_what_waits(clients: Clients, routers: Routers) -> None:
    """On a congested way between routers; those of one priority stay in order."""
    network = Network(routers)
    network.interior("A", dataConnectionCount="0")
    network.interior("B", dataConnectionCount="0")
    with Relay(network.inter_router_ports["B"]) as relay:
        network.join("A", "B")
        next(s for _, s in network["A"].sections if s.get("name") == "to-B")["port"] = relay.port
        network.start()
        (connection,) = relay.connections
        receiver = clients.connect(network["B"].port).receiver("q", credit=1000, accept=True)
        low = [clients.connect(network["A"].port).sender("q").await_credit() for _ in range(5)]
        high = clients.connect(network["A"].port).sender("q").await_credit()
        relay.stop(connection.there)
        for number in range(60):
            for at, sender in enumerate(low):
                text = f"low {at} {number}".encode().ljust(60_000)
                sender.send(header(b"\x42", priority(1)) + b"\0Su\xb0" + len(text).to_bytes(4) + text)
        clients.standstill(lambda: sum(s.link.session.outgoing_bytes for s in low), clients.step)
        for number in range(3):
            text = f"high 0 {number}".encode()
            high.send(header(b"\x42", priority(9)) + b"\0Su\xa0" + bytes([len(text)]) + text)
        clients.standstill(lambda: high.link.session.outgoing_bytes, clients.step)
        relay.go_on(connection.there)
        receiver.expect(303)
    order = [bytes(item.data)[-60_000:].strip() for item in receiver.arrived()]
    texts = [text[text.index(b"low") :] if b"low" in text else text[text.index(b"high") :] for text in order]
    last = max(at for at, text in enumerate(texts) if text.startswith(b"high"))
    assert last < 250, "some fifty were overtaken"
    for prefix, count in [(f"low {at} ", 60) for at in range(5)] + [("high 0 ", 3)]:
        numbers = [int(text[len(prefix) :]) for text in texts if text.startswith(prefix.encode())]
        assert numbers == list(range(count))
