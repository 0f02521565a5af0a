"""Which peers may send passwords as they are, without TLS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cproton_ffi import lib
from tests.integration.support.raw import SASL_HEADER, SASL_MECHANISMS, frame
from tests.unit.amqp.rig import SETTINGS

from isthmus_router.amqp.opening import is_local, name_client, password_hint, prepare_transport
from isthmus_router.message.types import Symbol


@pytest.mark.parametrize(
    ("address", "local"),
    [
        (("127.0.0.1", 1), True),
        (("127.9.9.9", 1), True),
        (("::1", 1, 0, 0), True),
        ("", True),
        (("10.0.0.1", 1), False),
        (("fe80::1%eth0", 1, 0, 2), False),
        (("::ffff:10.0.0.1", 1, 0, 0), False),
    ],
)
def test_only_loopback_addresses_are_of_this_machine(address: object, local: bool) -> None:
    assert is_local(address) is local


@pytest.mark.parametrize(
    ("changes", "offer", "local", "hinted"),
    [
        ({"password": "x"}, "PLAIN", False, True),
        ({"password": "x"}, "PLAIN", True, False),
        ({}, "PLAIN", False, False),
        ({"password": "x", "allow_plain_without_tls": True}, "PLAIN", False, False),
        ({"password": "x"}, "ANONYMOUS", False, False),
    ],
)
def test_a_password_that_is_not_sent_in_clear_text_is_explained(
    changes: dict[str, Any], offer: str, local: bool, hinted: bool
) -> None:
    """Where the peer offers PLAIN alone, and the router has a password that it does not use."""
    settings = replace(SETTINGS, **{"mechanisms": ("PLAIN", "ANONYMOUS"), "username": "x", **changes})
    transport, connection = lib.pn_transport(), lib.pn_connection()
    try:
        prepare_transport(transport, settings, incoming=False, local=local)
        name_client(connection, settings)
        lib.pn_connection_open(connection)
        lib.pn_transport_bind(transport, connection)
        data = SASL_HEADER + frame(SASL_MECHANISMS, [Symbol(offer)])
        lib.pn_transport_pending(transport)
        lib.pn_transport_push(transport, data, len(data))
        lib.pn_transport_pending(transport)
        assert ("allowPlainWithoutTls" in password_hint(transport, settings, local=local)) is hinted
    finally:
        lib.pn_transport_unbind(transport)
        lib.pn_decref(transport)
        lib.pn_decref(connection)
