"""Routing messages for others have a bounded rate, for each neighbor and for each router behind it."""

from __future__ import annotations

import pytest
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.core.model import Connection, Link
from isthmus_router.core.terms import Direction, Terminus
from isthmus_router.interior.network import MOST_WAITING_BYTES, InteriorNetwork
from isthmus_router.interior.rates import MOST_KNOWN, OF_NEIGHBOUR, OF_ORIGIN, PassingRates
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.sections import encode_annotations
from isthmus_router.routing.engine import RoutingEngine
from isthmus_router.routing.messages import control_address


def passed(rates: PassingRates, link: int, origin: str, number: int, now: float, size: int = 100) -> int:
    return sum(rates.allows(link, origin, 1, size, now) for _ in range(number))


def test_one_origin_has_a_bounded_rate() -> None:
    rates = PassingRates()
    most = int(OF_ORIGIN.messages)
    assert passed(rates, 1, "X", 2 * most, 0.0) == most
    assert rates.dropped == most
    assert passed(rates, 1, "X", 2 * most, 1.0) == OF_ORIGIN.messages_a_second
    assert passed(rates, 1, "Y", 100, 1.0) == 100, "others behind the same neighbor"
    assert passed(rates, 2, "X", 100, 1.0) == 100, "the same router by another neighbor"
    assert passed(rates, 1, "X", 2 * most, 1000.0) == most


def test_a_neighbor_has_a_bounded_rate_whatever_names_it_uses() -> None:
    rates = PassingRates()
    got = sum(passed(rates, 1, f"R{number}", 2_000, 0.0) for number in range(127))
    assert got == OF_NEIGHBOUR.messages
    assert not rates.allows(1, "another", 1, 100, 0.0)
    assert rates.allows(2, "another", 1, 100, 0.0)


def test_bytes_count() -> None:
    rates = PassingRates()
    size = 16 << 20
    assert passed(rates, 1, "X", 100, 0.0, size) == OF_ORIGIN.bytes // size
    assert passed(rates, 1, "X", 100, 1.0, size) == OF_ORIGIN.bytes_a_second // size


def test_copies_count() -> None:
    rates = PassingRates()
    allowed = sum(rates.allows(1, "X", 127, 100, 0.0) for _ in range(int(OF_ORIGIN.messages)))
    assert allowed == OF_ORIGIN.messages // 16


def test_a_network_of_128_routers_may_start_at_a_time() -> None:
    """Each asks each of the others for link state and addresses, and answers, by way of one in the middle of a line."""
    rates = PassingRates()
    origins, destinations = 64, 63
    for number in range(origins):
        assert passed(rates, 1, f"R{number}", 4 * destinations + 10, 0.0) == 4 * destinations + 10
    assert rates.dropped == 0


def test_what_is_known_is_bounded() -> None:
    rates = PassingRates()
    for number in range(3 * MOST_KNOWN):
        assert rates.allows(number, "X", 1, 100, float(number))
        assert len(rates._buckets) <= MOST_KNOWN + 2


def control(number: int, connection: Connection, direction: Direction) -> Link:
    return Link(number, connection, direction, "control", source=Terminus(), target=Terminus())


class Line:
    """This router between A, which sends messages to C, and B, which leads to C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.router = RouterInMemory()
        self.sent: list[Link] = []
        monkeypatch.setattr(self.router.port, "send", lambda link, payload, settled: self.sent.append(link))
        self.network = InteriorNetwork(
            self.router.core,
            RoutingEngine("ME", instance=1, now=0.0),
            lambda: 0.0,
            lambda deadline: None,
            call_later=lambda delay, callback: None,
            regroup=lambda connection: None,
        )
        self.a, self.b = (self.router.neighbour(name) for name in "AB")
        self.router.neighbour("C", via=self.b)
        for number, hop in enumerate((self.a, self.b)):
            hop.connection.control_out = control(number, hop.connection, Direction.OUT)
        self.incoming = control(9, self.a.connection, Direction.IN)

    def say(self, origin: str) -> None:
        prefix = encode_annotations(0, None, f"0/{origin}", (f"0/{origin}",))
        message = Message(properties=Properties(to=control_address("C")), body={})
        self.network.control_message(self.a, self.incoming, prefix + encode_message(message))


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(monkeypatch)


def test_messages_beyond_the_rate_are_not_passed_on(line: Line) -> None:
    for _ in range(int(OF_ORIGIN.messages) + 10):
        line.say("A")
    assert len(line.sent) == OF_ORIGIN.messages
    assert line.network.rates.dropped == 10


def test_names_of_unknown_routers_share_one_rate(line: Line) -> None:
    for number in range(int(OF_ORIGIN.messages) + 10):
        line.say(f"X{number}")
    assert len(line.sent) == OF_ORIGIN.messages
    line.say("A")
    assert len(line.sent) == OF_ORIGIN.messages + 1


def test_a_neighbor_that_reads_slowly_is_not_disconnected_for_what_others_send(line: Line) -> None:
    link = line.b.connection.control_out
    assert link is not None
    line.say("A")
    link.parked_bytes = MOST_WAITING_BYTES
    line.say("A")
    assert line.sent == [link]
    assert line.network.rates.dropped == 1
