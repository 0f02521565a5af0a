"""Messages that the router itself sends, such as those of address tracking: what waits of them is counted."""

from __future__ import annotations

import pytest
from tests.unit.amqp.rig import Rig

from isthmus_router.core.roles import Role

PAYLOAD = b"\x00\x53\x77\xa0\x64" + bytes(100)


@pytest.mark.parametrize("ends", ["credit", "detach"])
def test_what_waits_is_counted_until_it_leaves(rig: Rig, ends: str) -> None:
    peer = rig.connect(Role.EDGE)
    receiver = peer.session.receiver("r")
    receiver.source.address = "q"
    receiver.open()
    rig.settle_down()
    (link,) = [one for each in rig.core.connections.values() for one in each.links if one.name == "r"]
    connection = link.connection
    for _ in range(3):
        rig.driver.forwarder.send(link, PAYLOAD, settled=False)
    assert link.parked_bytes == connection.parked_bytes == 3 * len(PAYLOAD)
    if ends == "credit":
        receiver.flow(2)
        rig.settle_down()
        assert link.parked_bytes == len(PAYLOAD)
        receiver.flow(1)
    else:
        receiver.close()
    rig.settle_down()
    assert not link.parked_bytes
    assert not connection.parked_bytes
