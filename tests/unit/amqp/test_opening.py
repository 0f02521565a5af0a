"""Which peers may send passwords as they are, without TLS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.amqp.rig import SETTINGS

from isthmus_router.amqp.opening import explain_login, is_local


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


NO_MECHANISM = "amqp:unauthorized-access: Authentication failed [mech=none]"


@pytest.mark.parametrize(
    ("reason", "changes", "local", "explained"),
    [
        (NO_MECHANISM, {"password": "x"}, False, True),
        (NO_MECHANISM, {"password": "x"}, True, False),
        (NO_MECHANISM, {}, False, False),
        (NO_MECHANISM, {"password": "x", "allow_plain_without_tls": True}, False, False),
        ("Authentication failed [mech=SCRAM-SHA-256]", {"password": "x"}, False, False),
    ],
)
def test_a_password_that_is_not_sent_in_clear_text_is_explained(
    reason: str, changes: dict[str, Any], local: bool, explained: bool
) -> None:
    found = explain_login(reason, replace(SETTINGS, **changes), local=local)
    assert found.startswith(reason)
    assert ("allowPlainWithoutTls" in found) is explained
