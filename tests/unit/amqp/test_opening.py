"""Which peers may send passwords as they are, without TLS."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from cproton_ffi import ffi, lib
from tests.integration.support.passwords import PASSWORD, REALM, user_database
from tests.integration.support.raw import SASL_HEADER, SASL_INIT, SASL_MECHANISMS, frame
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


@pytest.mark.parametrize(
    ("local", "allowed", "accepted"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_listeners_without_tls_accept_passwords_in_clear_text_from_this_machine_alone(
    tmp_path: Path, *, local: bool, allowed: bool, accepted: bool
) -> None:
    """Others are not offered PLAIN, and are refused with it though their password is right."""
    folder = user_database(tmp_path, "alice")
    # In a process of its own, as Cyrus SASL retains the folder of its first use.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        offered, outcome = pool.submit(log_in, folder, local=local, allowed=allowed).result(60)
    assert b"SCRAM-SHA-256" in offered
    assert (b"PLAIN" in offered) is accepted
    assert (outcome == lib.PN_SASL_OK) is accepted


def log_in(folder: Path, *, local: bool, allowed: bool) -> tuple[bytes, int]:
    """With PLAIN and the right password: what a listener without TLS offers, and the outcome."""
    settings = replace(
        SETTINGS,
        mechanisms=("PLAIN", "SCRAM-SHA-256"),
        allow_plain_without_tls=allowed,
        authenticate_peer=True,
        sasl_config_dir=str(folder),
        sasl_config_name="isthmus-test",
    )
    transport, connection = lib.pn_transport(), lib.pn_connection()
    prepare_transport(transport, settings, incoming=True, local=local)
    lib.pn_transport_bind(transport, connection)
    lib.pn_transport_push(transport, SASL_HEADER, len(SASL_HEADER))
    offered = sent(transport)
    login = frame(SASL_INIT, [Symbol("PLAIN"), f"\0alice@{REALM}\0{PASSWORD}".encode()])
    lib.pn_transport_push(transport, login, len(login))
    sent(transport)
    return offered, lib.pn_sasl_outcome(lib.pn_sasl(transport))


def sent(transport: Any) -> bytes:
    """What the listener has to send now."""
    size = lib.pn_transport_pending(transport)
    if size <= 0:
        return b""
    data = ffi.new("char[]", size)
    lib.pn_transport_peek(transport, data, size)
    lib.pn_transport_pop(transport, size)
    return bytes(ffi.buffer(data))
