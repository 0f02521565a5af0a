"""More is sent than is kept for a site that is out of reach: what is dropped is counted, and told in its place."""

from __future__ import annotations

import os
import signal

from tests.integration.sites.support.relay_sites import RelaySites
from tests.integration.sites.support.stand import GAP
from tests.integration.support.client import Clients
from tests.integration.support.routers import Routers, eventually

KEPT = 100
BEFORE, MEANWHILE, AFTER = 50, 400, 50


def test_what_is_dropped_is_counted_and_told_in_its_place(routers: Routers, clients: Clients) -> None:
    sites = RelaySites()
    sites.site(
        "nyc",
        *(routers.add(f"nyc-{number}", mode="interior") for number in range(2)),
        bufferMessages=KEPT,
    )
    sfo = routers.add("sfo-0", mode="interior")
    sites.site("sfo", sfo)
    sites.direct("nyc", "sfo")
    routers.start_all()
    sites.formed()
    relay, near = sites.relay("nyc"), sites.other("nyc")
    receiver = clients.connect(sfo.port).receiver(
        "relay/trades", credit=1_000, accept=True, capability="isthmus.relay-gaps"
    )
    sender = clients.connect(near.port).sender("relay/trades")
    label = 'remote_site="sfo"'

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            assert sender.deliver(f"{number}") == "accepted"

    send(0, BEFORE)
    receiver.expect(BEFORE)
    eventually(lambda: near.metric("relay_lag_messages", label) == 0, "all is acknowledged")
    os.kill(sfo.pid, signal.SIGSTOP)
    try:
        eventually(
            lambda: near.status()["relay"]["remotes"][0]["state"] == "unreachable", "the site is out of reach"
        )
        send(BEFORE, MEANWHILE)
        assert near.metric("relay_lag_messages", label) <= KEPT
        assert near.metric("relay_lag_seconds", label) > 0
    finally:
        os.kill(sfo.pid, signal.SIGCONT)
    eventually(lambda: near.status()["relay"]["remotes"][0]["state"] == "up", "the site is back")
    # What is sent before that may push out what is on its way already.
    eventually(lambda: near.metric("relay_lag_messages", label) == 0, "it has what was kept")
    send(BEFORE + MEANWHILE, AFTER)
    total = BEFORE + MEANWHILE + AFTER

    numbers: list[int] = []
    lost = 0

    def heard() -> int:
        nonlocal lost
        numbers.clear()
        lost = 0
        for item in receiver.arrived():
            message = item.message
            gap = (message.annotations or {}).get(GAP)
            if gap is None:
                numbers.append(int(message.body))
            else:
                assert (gap["site"], gap["origin"]) == ("nyc", near.id)
                assert len(numbers) + lost == numbers[-1] + 1, "it is told where it was"
                lost += gap["messages"]
        return len(numbers) + lost

    clients.until(lambda: heard() >= total, "everything has come or is told to be lost")
    assert MEANWHILE - KEPT <= lost < MEANWHILE
    assert numbers == [*range(BEFORE), *range(BEFORE + lost, total)]
    for router in (relay, near):
        assert router.metric("relay_dropped_messages_total", label) == lost
        (remote,) = router.status()["relay"]["remotes"]
        assert remote["droppedMessages"] == lost
    assert relay.metric("relay_gap_messages_sent_total", label) == lost
    assert sfo.metric("relay_gap_messages_received_total", 'remote_site="nyc"') == lost
    assert sfo.metric("relay_lost_messages_total") == lost
