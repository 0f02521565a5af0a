"""Where users may connect from."""

from __future__ import annotations

import pytest

from isthmus_router.policy.hosts import RemoteHosts, host_ranges


@pytest.mark.parametrize(
    ("entries", "host", "expected"),
    [
        (["*"], "192.0.2.1", True),
        ([], "192.0.2.1", False),
        (["192.0.2.1"], "192.0.2.1", True),
        (["192.0.2.1"], "192.0.2.2", False),
        (["192.0.2.1"], "::ffff:192.0.2.1", True),
        (["192.0.2.1-192.0.2.9"], "192.0.2.9", True),
        (["192.0.2.1-192.0.2.9"], "192.0.2.10", False),
        (["10.0.0.0/8"], "10.255.0.1", True),
        (["10.0.0.0/8"], "11.0.0.1", False),
        (["2001:db8::/32"], "2001:db8::1%eth0", True),
        (["::1"], "127.0.0.1", False),
        (["localhost"], "127.0.0.1", True),
        (["localhost"], "::1", True),
        (["10.0.0.0/8", "*"], "not an address", True),
        (["10.0.0.0/8"], "not an address", False),
    ],
)
def test_hosts(entries: list[str], host: str, expected: bool) -> None:
    assert (host in RemoteHosts(entries)) is expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("example.com", "other names are not looked up"),
        ("10.0.0.9-10.0.0.1", "greater address first"),
        ("10.0.0.1-::1", "mixes IPv4 and IPv6"),
        ("a-b", "is not a host"),
    ],
)
def test_entries_that_are_none(entry: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        host_ranges(entry)
