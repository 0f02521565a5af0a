"""What one end says may be too large for the frames of the other end, or of a router between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.support.by_hand import ByHand, attach_frame, body, credit_frame, open_frame
from tests.integration.support.link_routes import CONTAINER, NO_ROUTE, Shore
from tests.integration.support.raw import ATTACH, BEGIN, DETACH, DISPOSITION, TRANSFER, Arrived, frame
from tests.integration.support.routers import eventually

from isthmus_router.message.sections import LONGEST_ADDRESS_BYTES
from isthmus_router.message.types import Described, Symbol, UInt, ULong, UShort

TOO_SMALL = "amqp:frame-size-too-small"
LARGE = 16_384
SMALL = 512
WINDOW = [UInt(0), UInt(10_000), UInt(10_000)]


def _error(code: str, *more: Any) -> Described:
    return Described(ULong(0x1D), [Symbol(code), *more])


@pytest.fixture
def peers() -> Iterator[list[ByHand]]:
    """Connections by hand, dropped after the test."""
    made: list[ByHand] = []
    yield made
    for peer in made:
        peer.socket.close()


class Ends:
    """A link by hand between a client at A and a container whose frames are small, at `at`."""

    def __init__(self, peers: list[ByHand], shore: Shore, *, to_container: bool, at: str = "A") -> None:
        self.container = attach_container(peers, shore, at, SMALL)
        self.client = ByHand(shore["A"].port)
        peers.append(self.client)
        attach: dict[str, Any] = {"source": "b2.x", "target": "b2.x"}
        self.client.send(attach_frame("small", 0, receiver=not to_container, **attach))
        self.answer(receiver=to_container, **attach)
        self.client.expect(ATTACH)
        sender, receiver = (self.client, self.container) if to_container else (self.container, self.client)
        receiver.send(credit_frame(0, 10))
        sender.await_credit()

    def answer(self, **attach: Any) -> None:
        """The container answers the begin and the attach."""
        (begun,) = self.container.expect(BEGIN)
        (asked,) = self.container.expect(ATTACH)
        begin = frame(BEGIN, [UShort(begun.channel), *WINDOW])
        self.container.send(begin, attach_frame(asked.field(0), 0, **attach))


def attach_container(peers: list[ByHand], shore: Shore, at: str, max_frame_size: int) -> ByHand:
    """The only container of the network."""
    shore.await_containers()
    container = ByHand(shore.ports[at], opened=open_frame(CONTAINER, None, UInt(max_frame_size)), begun=b"")
    peers.append(container)
    shore.await_containers(at)
    return container


def transfer(state: Any = None) -> bytes:
    """The first transfer of a link."""
    return frame(TRANSFER, [UInt(0), UInt(0), b"tag", UInt(0), False, False, None, state], body("hello"))


def has_error(ending: Arrived, condition: str) -> bool:
    """Whether a detach gives this as its reason."""
    error = ending.field(2)
    return isinstance(error, Described) and str(error.value[0]) == condition


@pytest.mark.parametrize("part", ["name", "address", "properties", "filter"])
@pytest.mark.parametrize(
    ("at", "max_frame_size", "size"), [("A", SMALL, 600), ("C", LARGE, LARGE - 200)], ids=["here", "far"]
)
def test_an_attach_too_large_for_the_way_is_refused(
    peers: list[ByHand], either_shore: Shore, part: str, at: str, max_frame_size: int, size: int
) -> None:
    container = attach_container(peers, either_shore, at, max_frame_size)
    client = ByHand(either_shore["A"].port)
    peers.append(client)
    filling = "x" * size
    name = filling if part == "name" else "name"
    address = f"b2.{filling}" if part == "address" else "b2.x"
    filters = {Symbol("f"): filling} if part == "filter" else None
    source = Described(ULong(0x28), [address, *[None] * 6, filters])
    more = [None] * 6 + [{Symbol("p"): filling}] if part == "properties" else []
    client.send(frame(ATTACH, [name, UInt(0), True, None, None, source, None, *more]))
    (refused,) = client.expect(DETACH)
    expected = TOO_SMALL if len(address) <= LONGEST_ADDRESS_BYTES else "amqp:invalid-field"
    assert has_error(refused, expected), refused
    client.send(frame(DETACH, [UInt(0), True]))
    client.send(attach_frame("small", 1, receiver=True, source="b2.small"))
    container.expect(ATTACH)
    assert not container.ended


def test_an_answer_too_large_for_the_way_ends_the_link(peers: list[ByHand], either_shore: Shore) -> None:
    container = attach_container(peers, either_shore, "C", LARGE)
    client = ByHand(either_shore["A"].port)
    peers.append(client)
    client.send(attach_frame("n", 0, receiver=True, source="b2.x"))
    (begun,) = container.expect(BEGIN)
    (asked,) = container.expect(ATTACH)
    source = Described(ULong(0x28), ["b2.x"])
    properties = {Symbol("p"): "x" * (LARGE - 150)}
    attach = [asked.field(0), UInt(0), False, None, None, source, None, None, None, UInt(0), None, None, None]
    container.send(frame(BEGIN, [UShort(begun.channel), *WINDOW]), frame(ATTACH, [*attach, properties]))
    client.expect(DETACH)
    client.send(frame(DETACH, [UInt(0), True]))
    (detached,) = container.expect(DETACH)
    assert has_error(detached, "qd:routed-link-lost")
    container.send(frame(DETACH, [UInt(0), True]))
    eventually(lambda: not either_shore.links, "no link is routed")
    either_shore.await_containers("C")


@pytest.mark.parametrize("to_container", [True, False])
def test_why_a_link_is_detached_is_told_as_far_as_it_fits(
    peers: list[ByHand], either_shore: Shore, to_container: bool
) -> None:
    ends = Ends(peers, either_shore, to_container=to_container)
    error = _error("x:why", "y" * 2000, {Symbol("i"): "z" * 100})
    ends.client.send(frame(DETACH, [UInt(0), True, error]))
    (detached,) = ends.container.expect(DETACH)
    assert has_error(detached, "x:why")
    assert detached.field(2).value[1].startswith("y" * 300)
    assert detached.size <= SMALL


def test_why_a_delivery_is_rejected_is_told_as_far_as_it_fits(
    peers: list[ByHand], either_shore: Shore
) -> None:
    ends = Ends(peers, either_shore, to_container=False)
    ends.container.send(transfer())
    ends.client.expect(TRANSFER)
    rejected = Described(ULong(0x25), [_error("x:why", "y" * 2000)])
    ends.client.send(frame(DISPOSITION, [True, UInt(0), UInt(0), True, rejected]))
    (told,) = ends.container.expect(DISPOSITION)
    state = told.field(4)
    assert (state.descriptor, str(state.value[0].value[0])) == (0x25, "x:why")
    assert told.size <= SMALL


@pytest.mark.parametrize("kind", ["transfer", "disposition"])
def test_a_delivery_that_cannot_be_passed_on_ends_its_link(
    peers: list[ByHand], either_shore: Shore, kind: str
) -> None:
    """The engine would be busy with such a transfer for ever, and nothing else in the router would be done."""
    ends = Ends(peers, either_shore, to_container=True)
    state = Described(ULong(0x34), [b"t" * 600])
    if kind == "disposition":
        ends.client.send(transfer())
        ends.container.expect(TRANSFER)
        ends.client.send(frame(DISPOSITION, [False, UInt(0), UInt(0), False, state]))
    else:
        ends.client.send(transfer(state))
    (detached,) = ends.client.expect(DETACH)
    assert has_error(detached, TOO_SMALL), detached
    ends.client.send(frame(DETACH, [UInt(0), True]))
    (detached,) = ends.container.expect(DETACH)
    ends.container.send(frame(DETACH, [UInt(0), True]))
    eventually(lambda: not either_shore.links, "no link is routed")
    assert not ends.container.ended


def test_a_message_with_a_state_too_large_for_its_receiver_has_none(
    peers: list[ByHand], either_shore: Shore
) -> None:
    """Without a link route it is the same."""
    receiver = ByHand(either_shore["A"].port, opened=open_frame(None, None, UInt(SMALL)))
    sender = ByHand(either_shore["A"].port)
    peers += [receiver, sender]
    receiver.attach(attach_frame("r", 0, receiver=True, source="plain"))
    receiver.send(credit_frame(0, 10))
    sender.attach(attach_frame("s", 0, receiver=False, target="plain"))
    sender.await_credit()
    sender.send(transfer(Described(ULong(0x99), [b"t" * 600])))
    (arrived,) = receiver.expect(TRANSFER)
    assert arrived.field(7) is None


def test_a_refusal_shows_no_more_than_the_beginning_of_an_address(
    peers: list[ByHand], either_shore: Shore
) -> None:
    either_shore.await_containers()
    client = ByHand(either_shore["A"].port)
    peers.append(client)
    client.send(attach_frame("n", 0, receiver=True, source="b2." + "\u0080" * 4_000))
    (refused,) = client.expect(DETACH)
    assert has_error(refused, NO_ROUTE)
    assert refused.size < LARGE
