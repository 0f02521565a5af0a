"""Messages that are small and cost much: values that multiply, addresses of many tokens, sections without end, and
messages that thousands of receivers may have in turn."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from tests.integration.support.ports import free_port
from tests.integration.support.raw import ATTACH, DISPOSITION, TRANSFER, Neighbour, Symbol, frame
from tests.integration.support.routers import Router, Routers, address, eventually, listener
from tests.security.support.canary import Canary, Report, memory
from tests.security.support.frames import Flood, attach, begin, flow, opening
from tests.security.test_fairness_of_copies import at_least

from isthmus_router.core.terms import CAPABILITY_RESEND_RELEASED
from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import Described, Encoded, UInt, ULong

pytestmark = pytest.mark.timeout(600)

PIECE = 16_000
CONNECTIONS, MESSAGES = 10, 20
MOST_CPU_SECONDS = 0.12
"""Of one turn of the router's loop. Each attack took 0.2 to 2 s."""
MOST_GROWTH = 64 << 20
NULLS = b"\xe0\x02\xff\x40"
"""An array of 255 nulls, in four bytes."""


def transfers(handle: int, number: int, message: bytes, channel: int = 0, *, settled: bool = False) -> bytes:
    """A message of any size."""
    starts = range(0, len(message), PIECE)
    return b"".join(
        frame(
            TRANSFER,
            [UInt(handle), UInt(number), str(number).encode(), UInt(0), False, at + PIECE < len(message)],
            message[at : at + PIECE],
        )
        for at in starts
    )


def lists(element: bytes, size: int) -> bytes:
    """A list of so many bytes, of one element again and again."""
    count = size // len(element)
    return b"\xd0" + (count * len(element) + 4).to_bytes(4) + count.to_bytes(4) + element * count


def check(report: Report) -> None:
    report.check()
    assert report.most_cpu_seconds < MOST_CPU_SECONDS, report


def send_from_many(router: Router, message: bytes) -> None:
    """Clients with an anonymous sender each, which send at the same time messages that are rejected."""
    with ExitStack() as stack:
        floods = [stack.enter_context(Flood(router.port)) for _ in range(CONNECTIONS)]
        for flood in floods:
            flood.send(opening(), begin(), attach(0, "tx", None))
        eventually(at_least(router, "links", 'type="endpoint"', 2 + CONNECTIONS), "the links")
        data = b"".join(transfers(0, number, message) for number in range(MESSAGES))
        threads = [threading.Thread(target=flood.send, args=(data,)) for flood in floods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        rejected = at_least(router, "delivery_outcomes_total", 'outcome="rejected"', CONNECTIONS * MESSAGES)
        eventually(rejected, "the messages are rejected", 120)


def management_request(body: bytes, **properties: object) -> bytes:
    asks = {"operation": "QUERY", "entityType": "router", **properties}
    message = Message(properties=Properties(reply_to="temp.x"), application_properties=asks, body=None)
    return encode_message(message).removesuffix(b"\x40") + body


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: management_request(lists(NULLS, 3_900_000)),
        lambda: management_request(lists(b"\x45", 3_900_000)),
        lambda: management_request(b"\x40", operation="\N{LATIN SMALL LETTER SHARP S}" * 1_950_000),
    ],
    ids=["arrays", "empty-lists", "long-operation"],
)
def test_large_management_requests(
    either_kernel: Callable[[], Routers], request_of: Callable[[], bytes]
) -> None:
    router = either_kernel().add("A", management="basic").start()
    request = request_of()
    before = memory(router.pid)
    with Canary(router) as canary, Flood(router.port) as flood:
        flood.send(opening(), begin(), attach(0, "tx", "$management"))
        eventually(at_least(router, "links", 'type="endpoint"', 3), "the link")
        flood.send(transfers(0, 0, request))
        eventually(
            at_least(router, "delivery_outcomes_total", 'outcome="rejected"', 1), "it is rejected", 120
        )
        grown = memory(router.pid) - before
    check(canary.report)
    assert grown < MOST_GROWTH


def test_routing_messages_of_values_that_multiply(either_kernel: Callable[[], Routers]) -> None:
    """The arrays are within lists within an array: their sizes are skipped, their values are not."""
    port = free_port()
    sections = listener(port, "inter-router", name="routers")
    router = either_kernel().add("A", sections, mode="interior").start()
    inner = lists(NULLS, 60_000)[1:]
    array = Encoded(b"\xf0" + (len(inner) + 5).to_bytes(4) + (1).to_bytes(4) + b"\xd0" + inner)
    with Canary(router) as canary, Neighbour(port, "H", "A") as hostile:
        hostile.until(lambda _: "H" in {row["id"] for row in router.status()["neighbors"]}, "a neighbor")
        for _ in range(3):
            hostile.hello(x=array)
        router.await_log("more than", "values", timeout=60)
    check(canary.report)


def test_destinations_of_many_tokens(either_kernel: Callable[[], Routers]) -> None:
    router = either_kernel().add("A", address("multicast", "multicast")).start()
    message = encode_message(Message(properties=Properties(to="multicast" + "/a" * 30_000), body="x"))
    with Canary(router) as canary:
        send_from_many(router, message)
    check(canary.report)


def test_messages_of_many_sections(either_kernel: Callable[[], Routers]) -> None:
    router = either_kernel().add("A").start()
    message = b"\x00\x53\x72\x45" * 15_500 + encode_message(
        Message(properties=Properties(to="x/y"), body="x")
    )
    with Canary(router) as canary:
        send_from_many(router, message)
    check(canary.report)


SENDERS, OF_EACH, RECEIVERS = 20, 240, 3_000


def resending(handle: int) -> bytes:
    """A sender whose messages may go to another receiver when one has released them."""
    source = Described(ULong(0x28), [None])
    target = Described(ULong(0x29), ["many", *[None] * 5, Symbol(CAPABILITY_RESEND_RELEASED)])
    return frame(
        ATTACH, [f"tx{handle}", UInt(handle), False, None, None, source, target, None, None, UInt(0)]
    )


def test_released_messages_that_thousands_may_have(either_kernel: Callable[[], Routers]) -> None:
    router = either_kernel().add("A").start()
    message = b"\x00\x53\x77\xa1\x01x"
    with Flood(router.port) as senders, Flood(router.port) as receivers:
        receivers.send(opening(), begin(), attach(0, "rx", "many", receiver=True), flow(0, 1_000_000))
        eventually(at_least(router, "links", 'type="endpoint"', 1), "the receiver")
        senders.send(opening(), begin(), *map(resending, range(SENDERS)))
        eventually(at_least(router, "links", 'type="endpoint"', 1 + SENDERS), "the senders")
        number = 0
        for handle in range(SENDERS):
            senders.send(*(transfers(handle, number + more, message) for more in range(OF_EACH)))
            number += OF_EACH
            came = at_least(router, "deliveries_total", 'direction="out"', number)
            eventually(came, "the messages")
        receivers.send(*(attach(1 + at, f"rx{at}", "many", receiver=True) for at in range(RECEIVERS)))
        links = 1 + SENDERS + RECEIVERS
        eventually(at_least(router, "links", 'type="endpoint"', links), "the receivers", 120)
        released = Described(ULong(0x26), [])
        with Canary(router) as canary:
            receivers.send(frame(DISPOSITION, [True, UInt(0), UInt(number - 1), True, released]))
            receivers.send(attach(RECEIVERS + 1, "last", "last", receiver=True))
            eventually(at_least(router, "links", 'type="endpoint"', links + 3), "the last link", 120)
    check(canary.report)


def test_receivers_whose_largest_message_is_no_number_of_the_engine(
    either_kernel: Callable[[], Routers],
) -> None:
    """Some libraries say 2^64-1 for no limit. A message in pieces must arrive, and its sender stay connected."""
    router = either_kernel().add("A").start()
    source, target = Described(ULong(0x28), ["large"]), Described(ULong(0x29), [None])
    fields = ["rx", UInt(0), True, None, None, source, target, None, None, None, ULong(2**64 - 1)]
    message = b"\x00\x53\x75\xb0" + (300_000).to_bytes(4) + bytes(300_000)
    with Flood(router.port) as receiver, Flood(router.port) as sender:
        receiver.send(opening(), begin(), frame(ATTACH, fields), flow(0, 10))
        eventually(at_least(router, "links", 'type="endpoint"', 1), "the receiver")
        sender.send(opening(), begin(), attach(0, "tx", "large"))
        eventually(at_least(router, "links", 'type="endpoint"', 2), "the sender")
        sender.send(transfers(0, 0, message))
        eventually(at_least(router, "deliveries_total", 'direction="out"', 1), "the message")
        assert not sender.closed.is_set()
