"""The name of a SASL mechanism in lower case, which the engine takes as well, gives a client no more rights."""

from __future__ import annotations

import pytest
from tests.integration.support.by_hand import begin_frame, credit_frame, open_frame, transfer_frame
from tests.integration.support.ports import free_port
from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TRANSFER,
    RawConnection,
    frame,
)
from tests.integration.support.routers import Routers, listener

from isthmus_router.message.control import Message, Properties, decode_message, encode_message
from isthmus_router.message.types import Described, Symbol, UInt, ULong


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "anonymous", "Anonymous"])
def test_an_anonymous_client_may_not_read_connections(routers: Routers, mechanism: str) -> None:
    port = free_port()
    routers.start("A", listener(port, name="anyone"))
    with RawConnection(port) as client:
        client.send(SASL_HEADER)
        client.expect(SASL_MECHANISMS)
        client.send(frame(SASL_INIT, [Symbol(mechanism), b"x", "localhost"]))
        assert client.expect(SASL_OUTCOME)[0].fields[0] == 0
        client.send(AMQP_HEADER, open_frame(), begin_frame())
        client.expect(OPEN)
        client.expect(BEGIN)
        dynamic = Described(ULong(0x28), [None, UInt(0), None, None, True])
        client.send(
            frame(ATTACH, ["replies", UInt(0), True, None, None, dynamic, Described(ULong(0x29), [])])
        )
        replies = client.expect(ATTACH)[0].fields[5].value[0]
        management = Described(ULong(0x29), ["$management"])
        client.send(
            credit_frame(0, 10),
            frame(
                ATTACH,
                [
                    "requests",
                    UInt(1),
                    False,
                    None,
                    None,
                    Described(ULong(0x28), []),
                    management,
                    None,
                    None,
                    UInt(0),
                ],
            ),
        )
        client.expect(ATTACH)
        request = Message(
            properties=Properties(reply_to=replies, message_id=1),
            application_properties={"operation": "QUERY", "entityType": "connection"},
            body={"attributeNames": []},
        )
        client.send(transfer_frame(0, encode_message(request), handle=1, settled=True))
        response = decode_message(client.expect(TRANSFER)[0].payload)
    assert response.application_properties["statusCode"] == 403
