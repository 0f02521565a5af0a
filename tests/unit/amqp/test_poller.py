"""A round of reading deals with few connections that have not opened, and with every one that has."""

from __future__ import annotations

import select

from tests.unit.amqp.rig import End, Rig

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
