"""Values that cannot be decoded, in every field that holds one: they end the connection that they come by, alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.support.by_hand import (
    AMPLE,
    SOURCE,
    TARGET,
    ByHand,
    attach_frame,
    begin_frame,
    body,
    credit_frame,
    open_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.invalid import INVALID, SWALLOWED
from tests.integration.support.link_routes import CONTAINER, await_containers, link_route
from tests.integration.support.passwords import PASSWORD, use_database
from tests.integration.support.policies import ALICE, BOB, ENABLED, group, vhost
from tests.integration.support.ports import free_port
from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    SASL_OUTCOME,
    TRANSFER,
    RawConnection,
    frame,
)
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary, memory

from isthmus_router.message.types import Described, Encoded, Symbol, UInt, ULong, UShort

GROWTH_BYTES = 32 * 1024 * 1024
COORDINATOR = ULong(0x30)
SOURCE_FIELDS = {"properties": 5, "filter": 7, "outcomes": 9, "capabilities": 10}
TARGET_FIELDS = {"properties": 5, "capabilities": 6}
DECODE_ERROR = "amqp:decode-error"
NOT_DELIVERED = Described(ULong(0x27), [True, False])
STATES: dict[str, Callable[[Any], Described]] = {
    "rejected": lambda info: Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("a:b"), "why", info])]),
    "modified": lambda annotations: Described(ULong(0x27), [False, False, annotations]),
    "of a transaction": lambda state: Described(ULong(0x34), state),
}
EVERY = {**INVALID, **SWALLOWED}


@pytest.fixture(scope="module")
def attacked(either_kernel: Callable[[], Routers]) -> Router:
    """A router with listeners for clients, edges and containers, and a link route in both directions."""
    others = [listener(free_port(), role, name=role) for role in ("edge", "route-container")]
    routes = [link_route(direction=direction) for direction in ("in", "out")]
    router = either_kernel().add("A", *others, *routes, mode="interior")
    return router.start()


@pytest.fixture
def unharmed(attacked: Router) -> Iterator[Router]:
    """The router, which goes on with the work of others during the test, and does not grow by it."""
    before = memory(attacked.pid)
    with Canary(attacked) as canary:
        yield attacked
    canary.report.check()
    grown = memory(attacked.pid) - before
    assert grown < GROWTH_BYTES, f"{grown} bytes"


def port_of(router: Router, role: str) -> int:
    """Of the router's listener for `role`."""
    if role == "normal":
        return router.port
    return next(
        int(section["port"])
        for kind, section in router.sections
        if kind == "listener" and section.get("name") == role
    )


def terminus(code: ULong, address: str | None, fields: dict[int, Any], *, dynamic: bool = False) -> Described:
    """A source or target with more fields than the address, by their number."""
    listed = [address, None, None, None, dynamic or None, *[None] * 6]
    for number, value in fields.items():
        listed[number] = value
    return Described(code, listed)


def attach(
    address: str | None,
    *,
    receiver: bool = True,
    dynamic: bool = False,
    name: str = "link",
    **fields: Any,
) -> bytes:
    """An attach with `fields`: `properties`, or `source_...` and `target_...`."""
    parts = {
        side: {
            names[field.removeprefix(f"{side}_")]: value
            for field, value in fields.items()
            if field.startswith(side)
        }
        for side, names in (("source", SOURCE_FIELDS), ("target", TARGET_FIELDS))
    }
    source = terminus(SOURCE, address if receiver else None, parts["source"], dynamic=dynamic and receiver)
    target = terminus(
        TARGET, None if receiver else address, parts["target"], dynamic=dynamic and not receiver
    )
    listed: list[Any] = [name, UInt(0), receiver, None, None, source, target, None, None, UInt(0)]
    if "properties" in fields:
        listed += [None, None, None, fields["properties"]]
    return frame(ATTACH, listed)


def attach_fields() -> list[str]:
    """All fields of an attach that hold any value."""
    return [
        "properties",
        *(f"source_{name}" for name in SOURCE_FIELDS),
        *(f"target_{n}" for n in TARGET_FIELDS),
    ]


def expect_decode_error(peer: ByHand) -> None:
    """The router closes the connection for what it cannot decode."""
    peer.expect_error(CLOSE, DECODE_ERROR)


def outlives(peer: ByHand) -> None:
    """The router has dealt with what the peer has sent, whatever it made of it."""
    peer.send(frame(CLOSE, []))
    peer.receive()


@pytest.mark.parametrize("role", ["normal", "edge"])
def test_values_in_attaches(unharmed: Router, role: str) -> None:
    port = port_of(unharmed, role)
    for field in attach_fields():
        for encoded in INVALID.values():
            for receiver in (True, False):
                with ByHand(port) as peer:
                    peer.send(attach("any", receiver=receiver, **{field: Encoded(encoded)}))
                    expect_decode_error(peer)


class LoggedIn(ByHand):
    """A client that has logged in with PLAIN."""

    def __init__(self, port: int, user: str) -> None:
        RawConnection.__init__(self, port)
        login = frame(SASL_INIT, [Symbol("PLAIN"), f"\0{user}\0{PASSWORD}".encode()])
        self.send(SASL_HEADER, login)
        (outcome,) = self.expect(SASL_OUTCOME)
        assert outcome.field(0) == 0
        self.send(AMQP_HEADER, open_frame(), begin_frame())
        self.expect(OPEN)
        self.expect(BEGIN)


def test_values_in_attaches_of_a_user_with_rights_to_one_address(
    either_kernel: Callable[[], Routers], passwords: Path
) -> None:
    """Also where the attach would be refused."""
    groups = {
        "all": group(ALICE),
        "restricted": group(BOB, sources="own", targets="own", allowDynamicSource=True),
    }
    router = either_kernel().add(
        "A", ENABLED, vhost(groups=groups), authenticatePeer=True, saslMechanisms="PLAIN"
    )
    use_database(router, passwords)
    router.start()
    before = memory(router.pid)
    with Canary(router, user=ALICE, password=PASSWORD) as canary:
        for field in attach_fields():
            for encoded in INVALID.values():
                for address in ("own", "orders"):
                    with LoggedIn(router.port, BOB) as peer:
                        peer.send(attach(address, **{field: Encoded(encoded)}))
                        expect_decode_error(peer)
        with LoggedIn(router.port, BOB) as peer:
            peer.attach(receive_from("own"))
    canary.report.check()
    grown = memory(router.pid) - before
    assert grown < GROWTH_BYTES, f"{grown} bytes"


def test_values_in_attaches_of_nodes_and_coordinators(unharmed: Router) -> None:
    for encoded in INVALID.values():
        for receiver in (True, False):
            field = "source_capabilities" if receiver else "target_properties"
            with ByHand(unharmed.port) as peer:
                peer.send(attach(None, receiver=receiver, dynamic=True, **{field: Encoded(encoded)}))
                expect_decode_error(peer)
        with ByHand(unharmed.port) as peer:
            coordinator = Described(COORDINATOR, [Encoded(encoded)])
            source = Described(SOURCE, [None])
            listed = ["link", UInt(0), False, None, None, source, coordinator, None, None, UInt(0)]
            peer.send(frame(ATTACH, listed))
            expect_decode_error(peer)


def test_values_in_attaches_of_routed_links(unharmed: Router) -> None:
    """A container serves the link route, and sees nothing of them."""
    with ByHand(port_of(unharmed, "route-container"), opened=open_frame(CONTAINER)) as container:
        await_containers(unharmed, 1, 0)
        for field in attach_fields():
            for encoded in INVALID.values():
                with ByHand(unharmed.port) as peer:
                    peer.send(attach("b2.x", **{field: Encoded(encoded)}))
                    expect_decode_error(peer)
        container.round_trip()
        assert [one.code for one in container.rest() if one.code in (ATTACH, CLOSE)] == []
    await_containers(unharmed, 0, 0)


@contextlib.contextmanager
def routed(router: Router) -> Iterator[tuple[ByHand, ByHand, str]]:
    """A client whose sending link is routed to a container: both, and the name of the link that it is to answer.

    The container has begun the session. Afterwards its connection is gone.
    """
    port = port_of(router, "route-container")
    with ByHand(port, opened=open_frame(CONTAINER), begun=b"") as container:
        await_containers(router, 1, 0)
        with ByHand(router.port) as client:
            client.send(attach_frame("link", 0, receiver=False, source="b2.x", target="b2.x"))
            (begun,) = container.expect(BEGIN)
            (asked,) = container.expect(ATTACH)
            container.send(frame(BEGIN, [UShort(begun.channel), UInt(0), AMPLE, AMPLE]))
            yield client, container, asked.field(0)
    await_containers(router, 0, 0)


def test_values_in_the_attaches_of_a_container(unharmed: Router) -> None:
    """It answers the attach of a routed link: the link of the client is detached, and that connection stays."""
    for field in attach_fields():
        for encoded in list(INVALID.values())[::3]:
            with routed(unharmed) as (client, container, name):
                container.send(attach("b2.x", name=name, **{field: Encoded(encoded)}))
                expect_decode_error(container)
                client.expect(DETACH)
                client.round_trip()


def test_values_in_opens(unharmed: Router) -> None:
    for role in ("normal", "edge", "route-container"):
        for field in range(3):  # offered and desired capabilities, properties
            for encoded in INVALID.values():
                values = [None] * 6 + [Encoded(encoded) if number == field else None for number in range(3)]
                with ByHand(port_of(unharmed, role), opened=open_frame(None, *values), begun=b"") as peer:
                    expect_decode_error(peer)


def test_values_in_states_of_receivers(unharmed: Router) -> None:
    """A sender learns that its message was not delivered when the receiver's connection is closed."""
    with ByHand(unharmed.port) as sender:
        sender.attach(send_to("states"))
        for number, (state, encoded) in enumerate(
            (state, encoded) for encoded in INVALID.values() for state in STATES.values()
        ):
            with ByHand(unharmed.port) as receiver:
                receiver.attach(receive_from("states", credit=1))
                if number == 0:
                    sender.await_credit()
                sender.send(transfer_frame(number, body("one")))
                receiver.expect(TRANSFER)
                disposition = [True, UInt(0), None, number % 2 == 0, state(Encoded(encoded))]
                receiver.send(frame(DISPOSITION, disposition))
                expect_decode_error(receiver)
            (outcome,) = sender.expect(DISPOSITION)
            assert outcome.field(4) == NOT_DELIVERED


def test_values_in_states_of_senders(unharmed: Router) -> None:
    for encoded in INVALID.values():
        for state in STATES.values():
            with ByHand(unharmed.port) as peer, ByHand(unharmed.port) as receiver:
                receiver.attach(receive_from("sent", credit=1))
                peer.attach(send_to("sent"))
                peer.await_credit()
                peer.send(transfer_frame(0, body("one"), more=True))
                peer.send(frame(DISPOSITION, [False, UInt(0), None, False, state(Encoded(encoded))]))
                expect_decode_error(peer)


def test_values_in_states_on_routed_links(unharmed: Router) -> None:
    for encoded in INVALID.values():
        for state in STATES.values():
            with routed(unharmed) as (client, container, name):
                container.send(attach_frame(name, 0, receiver=True, source="b2.x", target="b2.x"))
                client.expect(ATTACH)
                container.send(credit_frame(0, 1))
                client.await_credit()
                client.send(transfer_frame(0, body("one")))
                container.expect(TRANSFER)
                container.send(frame(DISPOSITION, [True, UInt(0), None, True, state(Encoded(encoded))]))
                expect_decode_error(container)
                client.expect(DETACH)
                client.round_trip()


def test_values_in_errors(unharmed: Router) -> None:
    """The error of a detach is read, and passed on over routed links; those of ends and closes are not."""
    for encoded in EVERY.values():
        error = Described(ULong(0x1D), [Symbol("a:b"), "why", Encoded(encoded)])
        with ByHand(unharmed.port) as peer:
            peer.attach(receive_from("errors"))
            peer.send(frame(DETACH, [UInt(0), True, error]))
            if encoded in INVALID.values():
                expect_decode_error(peer)
        for code in (END, CLOSE):
            with ByHand(unharmed.port) as peer:
                peer.send(frame(code, [error]))
                outlives(peer)


def test_values_that_nobody_reads(unharmed: Router) -> None:
    for encoded in EVERY.values():
        value = Encoded(encoded)
        unread = [
            frame(BEGIN, [None, UInt(0), AMPLE, AMPLE, None, value, value, value], channel=1),
            frame(FLOW, [UInt(0), AMPLE, UInt(0), AMPLE, None, None, None, None, None, None, value]),
            frame(ATTACH, ["link", UInt(0), True, None, None, None, None, value, None, None, None, value]),
            frame(ATTACH, [value, UInt(0), True]),
            frame(ATTACH, ["link", UInt(0), True, None, None, value, value]),
            frame(DETACH, [UInt(0), True, value]),
            frame(DISPOSITION, [True, UInt(0), None, True, value]),
            frame(TRANSFER, [UInt(0), value, value, value]),
            frame(CLOSE, [value]),
        ]
        for one in unread:
            with ByHand(unharmed.port) as peer:
                peer.send(attach("any"), one)
                outlives(peer)


def test_values_that_are_swallowed(unharmed: Router) -> None:
    for encoded in SWALLOWED.values():
        for field in attach_fields():
            for receiver in (True, False):
                with ByHand(unharmed.port) as peer:
                    peer.send(attach("any", receiver=receiver, **{field: Encoded(encoded)}))
                    outlives(peer)
