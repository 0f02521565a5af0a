"""Bridge sessions over messages that may be lost or late."""

from __future__ import annotations

from random import Random

import pytest

from isthmus_router.relay.over_network import (
    MOST_ACCEPTED,
    MOST_BACKLOG,
    Bridges,
    NetworkBridge,
    bridge_address,
    inbox_of,
)
from isthmus_router.relay.session import Dialler
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite

SFO = bridge_address("bridges", "trades", "sfo")


class End:
    """A router with its bridge: `NetworkPort` and `NetworkBridgeEvents`."""

    def __init__(self, network: Net, name: str) -> None:
        self.network = network
        self.bridge = NetworkBridge(name, self, self, Random(name))
        self.inbox = inbox_of(name)
        network.places[self.inbox] = self
        self.events: list[tuple[str, int, object]] = []
        self.awake = False

    def send(self, to: str, message: bytes) -> bool:
        if to not in self.network.places:
            return False
        self.network.under_way.append((to, message))
        return True

    def wake(self) -> None:
        self.awake = True

    def bridge_opened(self, session: int, names: tuple[str, ...]) -> None:
        self.events.append(("opened", session, names))

    def bridge_frame(self, session: int, frame: bytes) -> None:
        self.events.append(("frame", session, frame))

    def bridge_closed(self, session: int, reason: str) -> None:
        self.events.append(("closed", session, reason))

    def turn(self) -> None:
        if self.awake:
            self.awake = False
            self.bridge.tell()

    def take(self) -> list[tuple[str, int, object]]:
        events, self.events = self.events, []
        return events


class Net:
    """Addresses, and messages on the way to them."""

    def __init__(self) -> None:
        self.places: dict[str, End] = {}
        self.under_way: list[tuple[str, bytes]] = []
        self.a, self.b = End(self, "a"), End(self, "b")
        self.places[SFO] = self.b

    def run(self) -> None:
        while self.under_way or self.a.awake or self.b.awake:
            for end in (self.a, self.b):
                end.turn()
            messages, self.under_way = self.under_way, []
            for to, message in messages:
                self.places[to].bridge.on_message(message)

    def session(self) -> int:
        """A dials B, and has its answer; B's number."""
        self.a.bridge.dial(1, "sfo", Endpoint(SFO, 0))
        self.run()
        self.a.bridge.send(1, b"hello")
        self.run()
        (_, accepted, _), _ = self.b.take()
        self.b.bridge.send(accepted, b"ack")
        self.run()
        self.a.take()
        return accepted


@pytest.fixture
def net() -> Net:
    return Net()


def test_frames_both_ways(net: Net) -> None:
    net.a.bridge.dial(1, "sfo", Endpoint(SFO, 0))
    assert net.a.take() == [], "nothing is told before the call returns"
    net.run()
    assert net.a.take() == [("opened", 1, ())]
    net.a.bridge.send(1, b"hello")
    net.a.bridge.send(1, b"hello again")
    net.run()
    (opened, number, _), *frames = net.b.take()
    assert opened == "opened"
    assert number < 0
    assert frames == [("frame", number, b"hello"), ("frame", number, b"hello again")]
    net.b.bridge.send(number, b"ack")
    net.run()
    assert net.a.take() == [("frame", 1, b"ack")]
    del net.places[SFO]  # only to begin with
    net.a.bridge.send(1, b"batch")
    net.run()
    assert net.b.take() == [("frame", number, b"batch")]


def test_each_end_learns_that_the_other_has_closed(net: Net) -> None:
    number = net.session()
    net.b.bridge.close(number, "done")
    net.run()
    assert net.a.take() == [("closed", 1, "closed by the other end")]
    assert 1 not in net.a.bridge
    assert number not in net.b.bridge
    number = net.session()
    net.a.bridge.close(1, "done")
    net.run()
    assert net.b.take() == [("closed", number, "closed by the other end")]
    assert net.a.take() == [], "who closes is not told"


def test_who_has_forgotten_the_session_says_so(net: Net) -> None:
    net.session()
    again = End(net, "b")  # the same router, started anew
    net.b = again
    net.a.bridge.send(1, b"batch")
    net.run()
    assert net.a.take() == [("closed", 1, "closed by the other end")]
    assert again.take() == []


def test_no_way(net: Net) -> None:
    number = net.session()
    del net.places[net.a.inbox]
    net.b.bridge.send(number, b"batch")
    net.b.bridge.send(number, b"batch")
    net.run()
    assert net.b.take() == [("closed", number, f"no way to {net.a.inbox}")], "once"
    net.a.bridge.dial(2, "lon", Endpoint("bridges/trades/lon", 0))
    net.a.bridge.send(2, b"hello")
    net.run()
    assert net.a.take()[-1] == ("closed", 2, "no way to bridges/trades/lon")


def test_a_late_answer_of_another_relay_is_not_the_session(net: Net) -> None:
    net.a.bridge.dial(1, "sfo", Endpoint(SFO, 0))
    net.a.bridge.send(1, b"hello")
    net.run()
    number = net.b.take()[0][1]
    later = net.places[SFO] = End(net, "c")
    net.a.bridge.send(1, b"hello")
    net.run()
    other = later.take()[0][1]
    net.b.bridge.send(number, b"ack")
    net.run()
    later.turn()
    later.bridge.send(other, b"another ack")
    net.run()
    later.turn()
    assert net.a.take()[1:] == [("frame", 1, b"ack")]
    assert later.take() == [("closed", other, "closed by the other end")]


def test_backlog_is_what_is_not_known_to_have_arrived(net: Net) -> None:
    number = net.session()
    before = net.a.bridge.backlog(1)
    net.a.bridge.send(1, bytes(1_000))
    assert net.a.bridge.backlog(1) == before + 1_000
    net.under_way.clear()  # lost
    net.a.bridge.send(1, bytes(500))
    net.run()
    net.b.bridge.send(number, b"")
    net.run()
    assert net.a.bridge.backlog(1) == 0, "what was lost before is not under way either"


def test_a_session_whose_other_end_is_silent_holds_no_more_than_its_bound(net: Net) -> None:
    net.session()
    net.under_way.clear()
    frame = bytes(1 << 20)
    for _ in range(40):
        net.a.bridge.send(1, frame)
    assert len(net.under_way) * len(frame) <= MOST_BACKLOG + 2 * len(frame)
    assert net.a.bridge.dropped == 40 - len(net.under_way)


def test_bounded_sessions_of_others(net: Net) -> None:
    for number in range(1, MOST_ACCEPTED + 10):
        net.a.bridge.dial(number, "sfo", Endpoint(SFO, 0))
        net.a.bridge.send(number, b"hello")
    net.run()
    assert sum(event[0] == "opened" for event in net.b.take()) == MOST_ACCEPTED


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes(net: Net, seed: int) -> None:
    random = Random(seed)
    net.session()
    net.a.bridge.send(1, b"batch")
    ((_, good),) = net.under_way
    for _ in range(3_000):
        message = bytearray(good)
        for _ in range(random.randrange(1, 4)):
            message[random.randrange(len(message))] = random.randrange(256)
        net.b.bridge.on_message(bytes(message[: random.randrange(len(message) + 1)]))
    assert net.b.bridge.malformed > 1_000
    assert all(to.startswith("_topo/0/") and to.endswith("/$relay-bridge") for to, _ in net.under_way)


@pytest.mark.parametrize("router", ["x/y", "", "all/z/$management?"])
def test_nothing_is_sent_to_what_is_no_inbox(net: Net, router: str) -> None:
    stranger = End(net, router)
    stranger.bridge.dial(1, "sfo", Endpoint(SFO, 0))
    stranger.bridge.send(1, b"hello")
    net.run()
    assert net.b.bridge.malformed == 1
    assert net.b.take() == []


def test_sessions_of_both_kinds(net: Net) -> None:
    direct = Bridges(net.b.bridge, net.a.bridge)
    direct.dial(1, "sfo", Endpoint(SFO, 0))
    assert 1 in net.a.bridge
    direct.dial(2, "lon", Endpoint("lon", 7900))
    assert 2 not in net.a.bridge
    assert 2 in net.b.bridge
    direct.send(1, b"hello")
    assert direct.backlog(1) == 5
    assert direct.backlog(2) == 0
    direct.close(1, "")
    assert 1 not in net.a.bridge
    direct.splice(2, Endpoint(SFO, 0), b"")
    assert 2 not in net.b.bridge


def test_relays_of_a_site_at_an_address_are_dialled_nowhere_else() -> None:
    settings = RelaySettings("trades", "nyc", "")
    address, host = Endpoint(SFO, 0), Endpoint("sfo", 7900)
    dialler = Dialler("sfo", RemoteSite((address,)), settings)
    dialler.hint(0.0, (host, Endpoint("elsewhere", 0)))
    assert dialler.next()[0] == address
    dialler.redirected(0.0, (host,), 0.0)
    assert dialler.next()[0] == address
    dialler = Dialler("sfo", RemoteSite((host,)), settings)
    dialler.hint(0.0, (address, Endpoint("other", 7900)))
    assert [dialler.next()[0].host for _ in range(2)] == ["other", "sfo"]
