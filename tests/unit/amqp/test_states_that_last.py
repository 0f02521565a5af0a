"""States of deliveries that stay unsettled: of clients, they are small. A router may pass on those of others."""

from __future__ import annotations

import pytest
from proton import Delivery
from tests.unit.amqp.rig import Rig

from isthmus_router.core.roles import Role

WHOLE = b"\x00\x53\x77\xa1\x01x"


@pytest.mark.parametrize("annotations", [{f"a{number}": None for number in range(20)}, {"a": "x" * 2000}])
@pytest.mark.parametrize(("role", "closed"), [(Role.NORMAL, True), (Role.EDGE, False)])
def test_large_state(rig: Rig, role: Role, closed: bool, annotations: dict[str, str | None]) -> None:
    taking, sending = rig.connect(role), rig.connect(Role.NORMAL)
    receiver = taking.session.receiver("r")
    receiver.source.address = "q"
    receiver.open()
    receiver.flow(10)
    sender = sending.session.sender("s")
    sender.target.address = "q"
    sender.open()
    rig.settle_down()
    sender.delivery("1")
    sender.send(WHOLE)
    sender.advance()
    rig.settle_down()
    (delivery,) = taking.deliveries["r"]
    delivery.local.annotations = annotations
    delivery.update(Delivery.MODIFIED)
    rig.settle_down()
    assert (taking.connection.remote_condition is not None) is closed
