"""A client names all of its unsettled deliveries in each of many dispositions: the engine makes an event for each."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.certificates import Authority
from tests.integration.support.ports import free_port
from tests.integration.support.raw import DISPOSITION, TRANSFER, frame
from tests.integration.support.routers import Router, Routers, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import Flood, attach, begin, flow, opening

from isthmus_router.message.types import Described, UInt, ULong

LINKS, OF_A_LINK = 20, 240
"""A link has credit for 250."""
DELIVERIES = LINKS * OF_A_LINK
FRAMES = 140
FRAMES_OVER_TLS = 600
"""More than a record of 16 KiB has."""
MEBIBYTE = 1 << 20
SHOWN_SECONDS = 3.0
"""The frames are read within a small part of that."""
RECEIVED = Described(ULong(0x23), [UInt(0), ULong(0)])


def transfer(handle: int, number: int) -> bytes:
    """A small message, unsettled."""
    return frame(
        TRANSFER, [UInt(handle), UInt(number), number.to_bytes(4), UInt(0)], b"\x00\x53\x77\xa1\x01x"
    )


def name_all(state: Any, *, by_receiver: bool) -> bytes:
    """A disposition of every delivery, which stays unsettled."""
    return frame(DISPOSITION, [by_receiver, UInt(0), UInt(DELIVERIES), False, state])


def fill(router: Router, flood: Flood, *, credit: int, links: int = LINKS) -> None:
    """Have thousands of deliveries unsettled: the client receives what it sends, if it gives credit."""
    flood.send(opening(), begin(), attach(0, "rx", "fill", receiver=True), flow(0, credit) if credit else b"")
    flood.send(*(attach(number + 1, f"tx{number}", "fill") for number in range(links)))
    eventually(lambda: router.metric("links", 'type="endpoint"') >= links + 1, "the links", 60)
    before = taken(router)
    for link in range(links):
        first = link * OF_A_LINK
        flood.send(*(transfer(link + 1, number) for number in range(first, first + OF_A_LINK)))
        # The window of the session is 512 frames.
        eventually(lambda due=before + first + OF_A_LINK: taken(router) >= due, "the deliveries", 60)


def taken(router: Router) -> int:
    """Deliveries that have come, those of a canary included."""
    return int(router.metric("deliveries_total", 'direction="in"'))


def most_memory(router: Router, seconds: float) -> int:
    """The most that the router has within a time."""
    most, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, router.memory())
        assert most < 1 << 30, "the attack takes more than a gibibyte"
        time.sleep(0.01)
    return most


@pytest.fixture
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with a listener for clients; another one for each test, since memory is not given back."""
    return either_kernel().add("A").start()


@pytest.mark.parametrize("by_receiver", [True, False], ids=["receiver", "sender"])
def test_each_disposition_names_all_deliveries(attacked: Router, *, by_receiver: bool) -> None:
    with Canary(attacked) as canary:
        with Flood(attacked.port) as flood:
            fill(attacked, flood, credit=2 * DELIVERIES if by_receiver else 0)
            before = attacked.memory()
            flood.send(name_all(RECEIVED, by_receiver=by_receiver) * FRAMES)
            grown = most_memory(attacked, SHOWN_SECONDS) - before
            flood.leave()
        eventually(lambda: attacked.status()["counters"]["connectionCount"] == 2, "the attacker is gone", 180)
    canary.report.check()
    assert grown < 64 * MEBIBYTE, f"{grown / MEBIBYTE:.0f} MiB"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Issues the router's certificate."""
    return Authority(tmp_path, "ca")


def test_over_tls_the_client_is_dropped(routers: Routers, authority: Authority) -> None:
    """A record comes as a whole: its frames make more events than any honest client's."""
    port = free_port()
    section = listener(port, "normal", name="tls", sslProfile="tls", requireSsl=True)
    router = routers.start("A", authority.issue("router").profile(), section)
    tls = ssl.create_default_context(cafile=str(authority.file))
    with Canary(router) as canary, Flood(port, tls) as flood:
        fill(router, flood, credit=2 * DELIVERIES, links=LINKS // 2)
        flood.send(name_all(RECEIVED, by_receiver=True) * FRAMES_OVER_TLS)
        assert flood.closed.wait(60), "the router goes on with the client"
    canary.report.check()
    router.await_log("connection closed", "too many changes of deliveries")
