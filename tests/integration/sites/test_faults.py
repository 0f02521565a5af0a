"""Routers of two sites end, by crash or in good order, while messages and requests pass between the sites.

Everything that was accepted arrives everywhere, once and in order, and requests across sites are answered. How long
the longest message took is printed: it was due when the fault was there, so that is the gap too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from proton import Message
from tests.integration.sites.support.stand import EVERYBODY, Flow, Listener, Requests, SiteRouter
from tests.integration.support.client import Clients, Sent
from tests.integration.support.routers import Router

MOST_SECONDS = 5.0
"""That a message may take on a machine with much else to do; alone it takes 0.1 s after a crash, and 0.03 s else."""
ROLES = {
    "sending relay": ("a",),
    "receiving relay": ("d",),
    "second in line of the sending site": ("b",),
    "second in line of the receiving site": ("e",),
    "plain member": ("f",),
    "both relays": ("a", "d"),
    "sending relay and the second in line": ("a", "b"),
}


@pytest.mark.parametrize("end", [Router.kill, Router.stop], ids=["killed", "stopped"])
@pytest.mark.parametrize("who", ROLES)
def test_routers_that_end(
    roles: dict[str, SiteRouter], who: str, end: Callable[[Router], None], request: pytest.FixtureRequest
) -> None:
    ending = [roles[role] for role in ROLES[who]]
    staying = [router for router in roles.values() if router not in ending]
    source = roles["c"]
    one, answering = [roles[role] for role in "def" if roles[role] in staying][-2:]
    requests = Requests(source, answering)
    to_one = Flow(source, [one], messages=500, rate=200, address=one.own_address)
    multicast = Flow(source, staying, messages=2_500)
    try:
        multicast.after(0.8)
        for router in ending:
            end(router)
        delays = multicast.end(request.node.name)
        to_one.end("to one member")
        requests.end()
    finally:
        multicast.stop()
        to_one.stop()
        requests.stop()
    assert max(delays.values()) < MOST_SECONDS


def test_router_of_the_sender(roles: dict[str, SiteRouter], clients: Clients) -> None:
    """What it has accepted before it is killed comes to everybody, and everybody gets the same."""
    origin = roles["c"]
    listeners = [Listener(clients, router) for router in roles.values() if router is not origin]
    with origin.host.inside():
        sender = clients.connect(origin.port).sender(EVERYBODY).await_credit()
    sent: list[Sent] = []

    def send() -> bool:
        while len(sent) < 20_000 and sender.credit and not sender.client.finished:
            stamp = struct.pack("=QQ", len(sent), 0)
            sent.append(sender.send(Message(body=stamp, inferred=True)))
        return sender.client.finished

    clients.background.append(send)
    clients.until(lambda: sum(each.outcome == "accepted" for each in sent) > 2_000, "some are accepted")
    origin.kill()
    clients.until(lambda: sender.client.finished, "the sender knows")
    accepted = [number for number, each in enumerate(sent) if each.outcome == "accepted"]

    def same() -> bool:
        heard = [listener.heard() for listener in listeners]
        return min(heard) == max(heard) > accepted[-1]

    clients.until(same, "everybody has the same")
    clients.round_trip()
    for listener in listeners:
        assert listener.heard() == len(listener.numbers)
        assert listener.numbers == list(range(len(listener.numbers)))
    print(f"accepted {len(accepted)} of {len(sent)}, received {len(listeners[0].numbers)}")
