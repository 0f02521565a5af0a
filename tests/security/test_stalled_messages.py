"""A client begins a message and never ends it: other messages for its receiver wait no longer than is configured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.integration.support.by_hand import (
    ByHand,
    attach_frame,
    body,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DETACH, TRANSFER
from tests.integration.support.routers import Routers, connector, listener

from isthmus_router.core.terms import CAPABILITY_STREAMING_DELIVERIES
from isthmus_router.message.types import Symbol

MESSAGES = 10
SECONDS = 2


@pytest.mark.parametrize("far", [False, True], ids=["here", "far"])
def test_a_message_without_an_end(either_kernel: Callable[[], Routers], *, far: bool) -> None:
    """Its sender is at the router of the receiver, or at another one."""
    routers, port = either_kernel(), free_port()
    near = routers.add("A", listener(port, "inter-router", name="routers"), mode="interior")
    other = routers.add("B", connector(port, name="to-A"), mode="interior")
    for router in (near, other):
        router.sections[0][1]["stalledMessageTimeoutSeconds"] = SECONDS
    routers.start_all()
    target = ["orders", *[None] * 5, Symbol(CAPABILITY_STREAMING_DELIVERIES)]
    with (
        ByHand(near.port) as receiver,
        ByHand((other if far else near).port) as evil,
        ByHand(near.port) as honest,
    ):
        receiver.attach(receive_from("orders", credit=1000))
        evil.attach(attach_frame("evil", 0, receiver=False, target=target))
        evil.await_credit()
        honest.attach(send_to("orders"))
        honest.await_credit()
        evil.send(transfer_frame(0, b"\x00\x53\x75\xb0\x00\x10\x00\x00xx", more=True))
        receiver.expect(TRANSFER)
        honest.send(*(transfer_frame(number, body("honest")) for number in range(MESSAGES)))
        aborted, *others = receiver.expect(TRANSFER, 1 + MESSAGES)
        assert aborted.field(9)
        assert [one.payload for one in others] == [body("honest")] * MESSAGES
        if not far:
            evil.expect_error(DETACH, "amqp:resource-limit-exceeded")
    near.await_log("message given up", "while other messages waited")
