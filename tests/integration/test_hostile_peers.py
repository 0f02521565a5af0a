"""Peers that break the rules of SASL, routing and connecting: nobody else is harmed, and the log stays readable."""

from __future__ import annotations

import socket
import time

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.ports import free_port
from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    FLOW,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    SASL_RESPONSE,
    Listening,
    Neighbour,
    RawConnection,
    frame,
)
from tests.integration.support.routers import Router, Routers, connector, eventually, listener

from isthmus_router.message.types import Described, Symbol, UByte, UInt, ULong, encode
from isthmus_router.routing.messages import ALL_ROUTERS_ADDRESS

BEYOND_LONG = ULong(2**64 - 1)


def assert_serves(router: Router, clients: Clients, name: str) -> None:
    """A message passes through the router."""
    receiver = clients.connect(router.port).receiver(name, credit=10, accept=True)
    assert clients.connect(router.port).sender(name).await_credit().deliver("fine") == "accepted"
    assert receiver.bodies() == ["fine"]


# SASL


@pytest.mark.parametrize(
    "mechanisms",
    [
        pytest.param({}, id="all"),
        pytest.param({"saslMechanisms": "PLAIN", "authenticatePeer": True}, id="PLAIN"),
    ],
)
@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(frame(SASL_RESPONSE, [b"out of turn"]), id="response first"),
        pytest.param(frame(SASL_RESPONSE, [None]), id="null response first"),
        pytest.param(frame(SASL_INIT, [None, b"no mechanism"]), id="no mechanism"),
    ],
)
def test_sasl_frames_out_of_turn(
    routers: Routers, clients: Clients, mechanisms: dict[str, object], frames: bytes
) -> None:
    port = free_port()
    router = routers.start("A", listener(port, name="sasl", **mechanisms))
    with RawConnection(port) as raw:
        raw.send(SASL_HEADER, frames)
        assert raw.receive().endswith(frame(SASL_OUTCOME, [UByte(1)]))
    assert_serves(router, clients, "after")


# Routing


@pytest.fixture
def interior(routers: Routers) -> Router:
    """Interior router A; its listener for other routers is `routers`."""
    return routers.start("A", listener(free_port(), "inter-router", name="routers"), mode="interior")


def neighbour(router: Router, router_id: str, **options: dict[str, object]) -> Neighbour:
    """A hand-made neighbour of the router."""
    port = next(body["port"] for _, body in router.sections if body.get("name") == "routers")
    return Neighbour(port, router_id, router.id, **options)


def is_neighbour(router: Router, router_id: str) -> bool:
    return router_id in {row["id"] for row in router.status()["neighbors"]}


@pytest.mark.parametrize("number", ["cost", "cost in the open", "instance", "sequence"])
def test_numbers_that_cannot_be_passed_on(interior: Router, number: str) -> None:
    """What one neighbour claims must not cost another its connection."""
    properties: dict[str, object] = {}
    if number == "cost in the open":
        properties = {"qd.inter-router-cost": BEYOND_LONG}
    with neighbour(interior, "X", properties=properties) as hostile, neighbour(interior, "Y") as innocent:
        for peer in (hostile, innocent):
            peer.hello()
            if number != "cost in the open":
                peer.link_state({"A": 1})
        eventually(lambda: all(is_neighbour(interior, name) for name in "XY"), "both are neighbours")
        if number == "instance":
            hostile.link_state({"A": 1, "Z": 1}, 2, instance=BEYOND_LONG)
        elif number == "sequence":
            hostile.link_state({"A": 1, "Z": 1}, BEYOND_LONG)
        elif number == "cost":
            hostile.link_state({"A": BEYOND_LONG, "Z": BEYOND_LONG}, 2)
            hostile.ask_link_state()
            hostile.until(lambda payload: b"LSU" in payload, "an answer to what was said last")
        if number in ("instance", "sequence"):
            # All of the above is dealt with when this is.
            hostile.link_state({"A": 1, "Q": 1}, 3)
            innocent.until(lambda payload: b"LSU" in payload and b"Q" in payload, "X has another link")
        innocent.ask_link_state()
        innocent.until(lambda payload: b"LSU" in payload and b"Y" in payload, "the router's link state")
    assert "Traceback" not in interior.log


def test_a_neighbour_cannot_flood_the_log(interior: Router, clients: Clients) -> None:
    with neighbour(interior, "X") as hostile:
        hostile.hello()
        eventually(lambda: is_neighbour(interior, "X"), "X is a neighbour")
        for number in range(300):
            hostile.hello(instance=1000 + number % 2)
            hostile.hello(area="elsewhere")
            hostile.hello(id=f"X{number}")
            hostile.say("RA", ALL_ROUTERS_ADDRESS, id=f"X{number}", ls_seq=1, mobile_seq=0)
            hostile.hello(id="A", instance=5000 + number)
        hostile.ask_link_state()
        hostile.until(lambda payload: b"LSU" in payload, "the answer to what was said last")
    for text in ("router restarted", "control message refused", "too many routers", "duplicate router id"):
        assert 1 <= interior.log.count(f'"{text}"') <= 10, text
    interior.await_log("control message refused", '"event":"control.refused"')
    assert_serves(interior, clients, "after")


def test_two_routers_of_one_id_are_told(interior: Router, routers: Routers) -> None:
    port = next(body["port"] for _, body in interior.sections if body.get("name") == "routers")
    other = Routers(routers.folder / "other")
    other.folder.mkdir()
    try:
        namesake = other.start("A", connector(port, name="c"), mode="interior")
        eventually(lambda: "same router id" in namesake.connector_state("c")[1], "the connector tells")
        assert namesake.connector_state("c")[0] == "failed"
    finally:
        other.stop()


# Behind a connector


def serve_open(sock: socket.socket) -> None:
    """The listener's part up to the open frame."""
    assert sock.recv(len(SASL_HEADER)) == SASL_HEADER
    sock.sendall(SASL_HEADER + frame(SASL_MECHANISMS, [Symbol("ANONYMOUS")]))
    received = b""
    while AMQP_HEADER not in received:
        received += sock.recv(65536)
        if received and not received.endswith(AMQP_HEADER) and AMQP_HEADER not in received:
            sock.sendall(frame(SASL_OUTCOME, [UByte(0)]))
    sock.sendall(AMQP_HEADER + frame(OPEN, ["peer"]))


def test_a_peer_that_opens_and_closes_is_left_alone_longer_and_longer(routers: Routers) -> None:
    with Listening() as peer:
        routers.start("A", connector(peer.port, "normal", name="c"))
        times = []
        for _ in range(5):
            with peer.accept(timeout=20) as sock:
                times.append(time.monotonic())
                serve_open(sock)
                sock.sendall(frame(CLOSE, []))
                while sock.recv(65536):
                    pass
    assert times[4] - times[3] > 0.9, "after 0.25, 0.5 and 1 s it is 2 s, less half of it at most"


# Writers of the configuration file


def test_a_peer_that_does_not_speak_amqp_is_called_so(routers: Routers) -> None:
    with Listening() as peer:
        router = routers.start("A", connector(peer.port, "normal", name="web"))
        with peer.accept() as sock:
            waiting = ("connecting", "connected, but the peer has not opened yet: does it speak AMQP?")
            assert router.connector_state("web") == waiting
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            eventually(lambda: router.connector_state("web")[0] == "failed", "the connector has failed")
        assert router.connector_state("web")[1].startswith("the peer does not speak AMQP: ")


def test_an_empty_file_is_not_taken_for_a_configuration(routers: Routers, clients: Clients) -> None:
    """Writing in place empties the file for a moment; nobody must lose the connection over that."""
    router = routers.start("A")
    receiver = clients.connect(router.port).receiver("kept", credit=10, accept=True)
    sender = clients.connect(router.port).sender("kept").await_credit()
    router.config_path.write_text("\n")
    router.await_log("configuration refused", "is empty")
    assert sender.deliver("fine") == "accepted"
    assert receiver.bodies() == ["fine"]


# Credit


def test_a_sender_that_claims_to_have_sent_without_credit(router: Router, clients: Clients) -> None:
    """Its count of deliveries jumps by half the range: the credit that is left is a large negative number."""
    with RawConnection(router.port) as raw:
        window = [UInt(0), UInt(1000), UInt(0), UInt(1000)]
        raw.send(
            AMQP_HEADER,
            frame(OPEN, ["hostile"]),
            frame(BEGIN, [None, UInt(0), UInt(1000), UInt(1000)]),
            frame(ATTACH, ["s", UInt(0), False, None, None, None, None, None, None, UInt(0)]),
            frame(FLOW, [*window, UInt(0), UInt(2**31), UInt(0)]),
            frame(DETACH, [UInt(0), True]),
            frame(CLOSE, []),
        )
        received = raw.receive()
    assert received.endswith(frame(CLOSE, [])), received
    assert "internal error" not in router.log
    assert_serves(router, clients, "after")


# The log


def test_a_client_cannot_flood_the_log(router: Router, clients: Clients) -> None:
    attempts = 6000
    coordinator = Described(ULong(0x30), [])
    before = router.log.count('"link refused"')
    with RawConnection(router.port) as raw:
        raw.send(AMQP_HEADER, frame(OPEN, ["hostile"]), frame(BEGIN, [None, UInt(0), UInt(100), UInt(100)]))
        for number in range(attempts):
            attach = [f"{number}", UInt(0), False, None, None, None, coordinator, None, None, UInt(0)]
            raw.send(frame(ATTACH, attach), frame(DETACH, [UInt(0), True]))
        raw.send(frame(CLOSE, []))
        assert raw.receive().endswith(frame(CLOSE, []))
    router.await_log("connection closed")
    assert 2000 <= router.log.count('"link refused"') - before < attempts / 2
    assert_serves(router, clients, "after")


# Messages for the router itself


@pytest.mark.parametrize("descriptor", [[1], {"a": 1}, Described(ULong(1), [1]), 1.5, "no section", None])
def test_a_message_of_sections_that_are_none(router: Router, clients: Clients, descriptor: object) -> None:
    sender = clients.connect(router.port).sender("$management").await_credit()
    assert sender.deliver(encode(Described(descriptor, []))) == "accepted"
    assert_serves(router, clients, "after")
    assert "internal error" not in router.log


# Others on this machine


def test_a_taken_health_port_is_tried_again(routers: Routers) -> None:
    """As with listeners for AMQP: whoever had the port lets go of it, and probes are answered."""
    router = routers.start("A")
    port = free_port()
    with socket.create_server(("localhost", port)):
        router.sections.append(listener(port, name="second", http=True))
        router.configure()
        router.await_log("listener failed", "second")

    def listens() -> bool:
        try:
            socket.create_connection(("localhost", port), 1).close()
        except OSError:
            return False
        return True

    eventually(listens, "the listener is open after all")
