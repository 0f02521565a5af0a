"""Which connections have their turns in a round of reading, and in which order."""

from __future__ import annotations

import select
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from tests.unit.amqp.rig import End, Peer, Rig

from isthmus_router.amqp.sockets import charges
from isthmus_router.amqp.sockets.limits import MOST_OPENING
from isthmus_router.core.roles import Role

HEADER = b"AMQP\x03\x01\x00\x00"
OPENING = 3 * MOST_OPENING


class Stranger(End):
    """One that says what the test gives it."""

    def _say(self) -> bool:
        return False

    def _hear(self, data: bytes) -> None:
        """Takes no note."""

    def says(self, data: bytes) -> None:
        """Send some bytes."""
        self.socket.send(data)

    @property
    def waits(self) -> bool:
        """Whether the router has not read what was sent."""
        poll = select.poll()
        poll.register(self.router_side.socket, select.POLLIN)
        return bool(poll.poll(0))


def strangers(rig: Rig) -> list[Stranger]:
    """Connections that have sent nothing."""
    return [Stranger(rig, f"stranger-{number}", Role.NORMAL) for number in range(OPENING)]


def test_few_handshakes_in_a_round(rig: Rig) -> None:
    client = rig.connect(Role.NORMAL)
    rig.settle_down()
    found = strangers(rig)
    for stranger in found:
        stranger.says(HEADER)
    for rounds in range(1, OPENING // MOST_OPENING + 1):
        client.session.sender(f"s{rounds}").open()
        client.socket.send(client.transport.peek(client.transport.pending()))
        client.transport.pop(client.transport.pending())
        links = len(client.router_side.links)
        assert rig.driver.poller.read() == MOST_OPENING + 1
        assert len(client.router_side.links) == links + 1, "handshakes do not delay a connection that is open"
        assert sum(stranger.waits for stranger in found) == OPENING - rounds * MOST_OPENING
    assert rig.driver.poller.read() == 0


def test_who_has_waited_longest_is_next(rig: Rig) -> None:
    """However much the others say."""
    found = strangers(rig)
    quiet, greedy = found[-1], found[:-1]
    for stranger in greedy:
        stranger.says(HEADER[:1])
    rig.driver.poller.read()
    quiet.says(HEADER)
    for number in range(1, 1 + OPENING // MOST_OPENING):
        for stranger in greedy:
            stranger.says(HEADER[number : number + 1])
        rig.driver.poller.read()
    assert not quiet.waits
    assert not any(stranger.router_side.closed for stranger in found)


CLIENTS = 6


def attaching(rig: Rig, whose: list[str]) -> list[Peer]:
    """Connections of these clients, each of which attaches a link."""
    peers = [rig.connect(Role.NORMAL) for _ in whose]
    names = {peer.router_side: name for peer, name in zip(peers, whose, strict=True)}
    with patch.object(charges, "client_of", names.__getitem__):
        rig.settle_down()
    for peer in peers:
        peer.router_side.costly = 0  # whatever the machine had to do so far
        peer.session.sender("s").open()
        peer.socket.send(peer.transport.peek(peer.transport.pending()))
        peer.transport.pop(peer.transport.pending())
    return peers


def attached(peers: list[Peer]) -> list[int]:
    """Which of them have had their turn."""
    return [number for number, peer in enumerate(peers) if peer.router_side.links]


def test_a_round_ends_when_its_time_is_over(rig: Rig) -> None:
    """Each of those that wait has its turn in one of the next rounds."""
    peers = attaching(rig, ["a"] * CLIENTS)
    for number in range(1, 1 + CLIENTS):
        assert rig.driver.poller.read(0.0) == 1
        assert len(attached(peers)) == number
    assert rig.driver.poller.read(0.0) == 0


def test_costly_connections_come_last_and_have_a_part_of_each_round(rig: Rig) -> None:
    peers = attaching(rig, ["a"] * CLIENTS)
    for peer in peers[:3]:
        peer.router_side.costly = 1
    for number in range(1, 4):
        assert rig.driver.poller.read(0.0) == 2
        assert len(attached(peers[3:])) == len(attached(peers[:3])) == number


@pytest.mark.parametrize("costly", [0, charges.COSTLY_TURNS], ids=["usual", "costly"])
def test_clients_take_turns_however_many_connections_they_have(rig: Rig, costly: int) -> None:
    peers = attaching(rig, ["a"] * CLIENTS + ["b"])
    for peer in peers:
        peer.router_side.costly = costly
    other = peers.pop()
    for _ in range(3):
        assert rig.driver.poller.read(0.0) == 1
    assert attached([other]) == [0]
    assert len(attached(peers)) == 2


class Clocks:
    """Elapsed time and CPU time."""

    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.charges = charges.Charges(lambda: self.now, lambda: self.used)

    def turn(self, side: SimpleNamespace, elapsed: float, used: float) -> None:
        """A connection has its turn, which takes so many seconds."""
        self.now += elapsed
        self.used += used
        self.charges.charge(cast("Any", side), elapsed)


def test_a_connection_is_costly_until_its_turns_have_been_short_for_a_while() -> None:
    clocks, costly, usual = Clocks(), SimpleNamespace(costly=0), SimpleNamespace(costly=0)
    for _ in range(2):
        clocks.charges.begin_round()
        clocks.turn(usual, 0.0001, 0.0001)
        clocks.turn(costly, 0.001, 0.001)
    assert (costly.costly, usual.costly) == (charges.COSTLY_TURNS, 0)
    for _ in range(charges.COSTLY_TURNS):
        assert costly.costly
        clocks.charges.begin_round()
        clocks.turn(costly, 0.0001, 0.0001)
    assert not costly.costly


def test_time_that_another_process_had_does_not_count() -> None:
    clocks, side = Clocks(), SimpleNamespace(costly=0)
    for _ in range(3):
        clocks.charges.begin_round()
        clocks.turn(side, 0.01, 0.0001)
    assert not side.costly
