"""Links that the router closes while messages wait for the window of their session: these messages go on counting."""

from __future__ import annotations

from itertools import count

from cproton_ffi import lib
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import OwnEnd

from isthmus_router.amqp.kernel.outgoing import MOST_SHUT_IN
from isthmus_router.core.roles import Role

FRAME, WINDOW = 512, 2
MESSAGE = b"\x00\x53\x75\xb0\x00\x00\x01\x2c" + bytes(300)
LINKS, MESSAGES, AT_ONCE = 3, 4000, 40


def end(rig: Rig, name: str, **settings: int) -> OwnEnd:
    """A client that is connected."""
    client = OwnEnd(rig, name, Role.NORMAL, **settings)
    rig.peers.append(client)
    rig.settle_down()
    return client


def test_a_receiver_takes_its_own_links_over_in_another_session(rig: Rig) -> None:
    """It does not read the session of the former links, so that their detaches wait as well."""
    client, other = end(rig, "client", capacity=FRAME * WINDOW, frame=FRAME), end(rig, "other")
    sender = other.session.sender("sender")
    sender.target.address = "orders"
    sender.open()
    second = client.connection.session()
    client.begin(second)
    rig.settle_down()
    ids = count()
    waiting = []
    for name in map(str, range(LINKS)):
        receiver = client.session.receiver(name)
        receiver.source.address = "orders"
        receiver.open()
        receiver.flow(2 * MESSAGES)
        rig.settle_down()
        (out,) = (link for link in client.router_side.links.values() if link.name == name)
        for _ in range(MESSAGES // AT_ONCE):
            for _ in range(AT_ONCE):
                delivery = sender.delivery(str(next(ids)))
                sender.send(MESSAGE)
                sender.advance()
                delivery.settle()
            rig.settle_down()
        waiting.append(lib.pn_session_outgoing_bytes(out.session))
        taken_over = second.receiver(name)
        taken_over.source.address = "other"
        taken_over.open()
        rig.settle_down()
        assert out not in client.router_side.core.links
    assert "0" not in client.over
    assert waiting == [waiting[0]] * LINKS
    assert waiting[0] >= MOST_SHUT_IN // 2 * len(MESSAGE)
