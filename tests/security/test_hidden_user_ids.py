"""A `user-id` behind the body of a message that arrives in pieces, where some receivers find it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from proton import Message
from tests.integration.support.client import Client, Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import CONTAINER, await_containers, link_route
from tests.integration.support.links import Received, Receiver
from tests.integration.support.passwords import use_database
from tests.integration.support.policies import ALICE, BOB, ENABLED, group, login, refusal, vhost
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Router, Routers, address, listener

from isthmus_router.amqp.kernel.wide import MANY_RECEIVERS
from isthmus_router.message.sections import MOST_SECTIONS
from isthmus_router.message.structure import BYTES_OF_A_SECTION

DECODE_ERROR = "amqp:decode-error"
GROUPS = {
    "operators": group(ALICE, allowUserIdProxy=True, allowAnonymousSender=True),
    "shops": group(BOB, allowAnonymousSender=True),
    "brokers": group("anonymous"),
}
BODY = b"\0\x53\x75\xb0" + (200_000).to_bytes(4) + bytes(200_000)
FORGED = bytes(Message(user_id=b"admin", subject="pay").encode()).removeprefix(b"\0\x53\x70\x45")


def own(to: str | None = None) -> bytes:
    """The sections in front of the body of Bob's message."""
    return bytes(Message(user_id=BOB.encode(), address=to).encode())


@pytest.fixture(scope="module")
def containers() -> int:
    """The port for containers."""
    return free_port()


@pytest.fixture(scope="module")
def router(either_kernel: Callable[[], Routers], passwords: Path, containers: int) -> Router:
    """A router with users, whose containers need none."""
    router = either_kernel().add(
        "A",
        ENABLED,
        vhost(groups=GROUPS),
        address("all", "multicast"),
        listener(containers, "route-container", name="containers"),
        link_route(),
        authenticatePeer=True,
        saslMechanisms="PLAIN",
    )
    use_database(router, passwords)
    return router.start()


def whole(receivers: list[Receiver]) -> list[Received]:
    """What the receivers have got to the end."""
    return [item for receiver in receivers for item in receiver.received if not item.aborted]


def send(bob: Client, target: str | None, *pieces: bytes, settled: bool = False) -> str:
    """The condition with which a link ends whose delivery arrives in these pieces."""
    sender = bob.sender(target).await_credit()
    sent = sender.begin(pieces[0])
    for piece in pieces[1:]:
        bob.clients.round_trip()
        sender.more(piece)
    if settled:
        assert sent.delivery is not None
        sent.delivery.settle()
    else:
        sender.finish()
    condition, description = refusal(bob, sender.link)
    assert "out of order" in description
    return condition


FORGERIES = [
    pytest.param((own("orders") + BODY, FORGED), id="in a piece of its own"),
    pytest.param((own("orders") + BODY[:100_000], BODY[100_000:] + FORGED), id="at the end of a piece"),
    pytest.param((own("orders") + BODY + FORGED[:2], FORGED[2:]), id="cut in its descriptor"),
    pytest.param((own("orders") + BODY, BODY + BODY[:-10], bytes(10) + FORGED), id="behind other data"),
]


@pytest.mark.parametrize("pieces", FORGERIES)
@pytest.mark.parametrize("target", ["orders", None])
def test_behind_the_body_of_a_stream(
    clients: Clients, router: Router, target: str | None, pieces: tuple[bytes, ...]
) -> None:
    orders = login(clients, router, ALICE).receiver("orders", credit=10, accept=True)
    bob = login(clients, router, BOB)
    assert send(bob, target, *pieces) == DECODE_ERROR
    assert send(bob, target, *pieces, settled=True) == DECODE_ERROR
    assert bob.sender("orders").deliver(own() + BODY) == "accepted"
    assert len(whole([orders])) == 1


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(b"\0\x53\x73\xc0\x09\x01\x40\xa0\x05admin", id="beyond the elements of a list"),
        pytest.param(b"\0\x53\x70\xc0" + bytes((len(FORGED) + 1, 0)) + FORGED, id="in an empty list"),
        pytest.param(
            own() + b"\0\x53\x77\xc0" + bytes((len(FORGED) + 1, 0)) + FORGED,
            id="in an empty list of the body",
        ),
    ],
)
def test_where_only_some_receivers_find_it(clients: Clients, router: Router, forged: bytes) -> None:
    """A list states its size and how many elements it has, and some go by the one, some by the other."""
    orders = login(clients, router, ALICE).receiver("orders", credit=10, accept=True)
    sender = login(clients, router, BOB).sender("orders")
    assert sender.deliver(forged + b"\0\x53\x75\xa0\x01x") == "rejected"
    assert sender.deliver(own() + BODY) == "accepted"
    assert len(whole([orders])) == 1


def test_behind_the_body_of_a_stream_to_many(clients: Clients, router: Router) -> None:
    alice = login(clients, router, ALICE)
    receivers = [alice.receiver("all", credit=10, accept=True) for _ in range(MANY_RECEIVERS + 1)]
    bob = login(clients, router, BOB)
    assert send(bob, "all", own() + BODY, FORGED) == DECODE_ERROR
    assert send(bob, "all", own() + BODY + FORGED[:2], FORGED[2:]) == DECODE_ERROR
    assert bob.sender("all").deliver(own() + BODY) == "accepted"
    clients.until(lambda: len(whole(receivers)) >= len(receivers), "all have got it")
    assert {item.message.user_id for item in whole(receivers)} == {BOB.encode()}
    assert len(whole(receivers)) == len(receivers)


def test_behind_the_body_on_a_routed_link(clients: Clients, router: Router, containers: int) -> None:
    container = Container(clients, containers, CONTAINER)
    await_containers(router, 1, 0)
    bob = login(clients, router, BOB)
    for pieces in ((own() + BODY, FORGED), (own() + BODY[:1000], BODY[1000:] + FORGED)):
        assert send(bob, "b2.orders", *pieces) == DECODE_ERROR
    assert bob.sender("b2.orders").deliver(own() + BODY) == "accepted"
    assert [item.message.user_id for item in whole(list(container.receivers.values()))] == [BOB.encode()]


def test_a_large_message_of_many_sections(clients: Clients, router: Router) -> None:
    """Some libraries send each part that they are given as a section of its own."""
    login(clients, router, ALICE).receiver("orders", credit=10, accept=True)
    bob = login(clients, router, BOB)
    part = b"\0\x53\x75\xb0" + BYTES_OF_A_SECTION.to_bytes(4) + bytes(BYTES_OF_A_SECTION)
    assert bob.sender("orders").deliver(own() + part * (2 * MOST_SECTIONS)) == "accepted"
