"""Which peers may send passwords as they are, without TLS."""

from __future__ import annotations

import pytest

from isthmus_router.amqp.opening import is_local


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
