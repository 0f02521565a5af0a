"""Where a relay dials another site."""

from __future__ import annotations

import pytest

from isthmus_router.relay.session import Dialler
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite

FIRST, SECOND, RELAY = (Endpoint(host, 7900) for host in ("first", "second", "relay"))


@pytest.fixture
def dialler() -> Dialler:
    return Dialler("sfo", RemoteSite((FIRST, SECOND)), RelaySettings("trades", "nyc", ""))


def test_through_another_member_if_the_relay_is_out_of_reach(dialler: Dialler) -> None:
    assert dialler.next() == (FIRST, False)
    dialler.redirected(0.0, (RELAY,), 0.5)
    assert dialler.next() == (RELAY, False)
    dialler.failed(0.0, "connecting takes too long", 0.5)
    assert dialler.next() == (SECOND, True)


def test_not_through_a_member_that_does_not_know_the_relay(dialler: Dialler) -> None:
    """While views change, nobody may know: that says nothing about who can be reached."""
    dialler.next()
    dialler.redirected(0.0, (), 0.5)
    assert dialler.next() == (SECOND, False)
    dialler.redirected(0.0, (RELAY,), 0.5)
    assert dialler.next() == (RELAY, False)
    dialler.redirected(0.0, (), 0.5)
    assert dialler.next() == (FIRST, False)
