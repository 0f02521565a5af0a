"""Large messages that wait for a receiver without credit: at another router, or behind a message that waits as well."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.integration.support.by_hand import ByHand, body, receive_from, send_to, transfer_frame
from tests.integration.support.ports import free_port
from tests.integration.support.raw import ATTACH, DETACH, FLOW, TRANSFER, frame
from tests.integration.support.routers import Routers, connector, eventually, listener
from tests.security.support.canary import Canary, memory
from tests.security.support.frames import Flood, attach, begin, detach, opening
from tests.security.test_costly_messages import PIECE, transfers
from tests.security.test_fairness_of_copies import at_least

from isthmus_router.message.types import UInt

pytestmark = pytest.mark.timeout(600)

CONNECTIONS, SESSIONS = 50, 3
HEAD = b"\x00\x53\x75\xb0\x7f\xff\xff\xff"
BYTES = 2_500_000
"""Of each message: less than the window that the first router gives each session."""
MOST_GROWTH = 192 << 20
RECEIVERS, TIMES = 100, 30
MOST_GROWTH_OF_CUT = 48 << 20
"""Where beginnings of messages that are cut off stay, 3,000 of them take 190 MiB."""


def unfinished(channel: int) -> list[bytes]:
    """The beginning of a message that does not end."""
    data = HEAD + bytes(BYTES)
    fields = [UInt(0), UInt(0), b"0", UInt(0), False, True]
    return [frame(TRANSFER, fields, data[at : at + PIECE], channel=channel) for at in range(0, BYTES, PIECE)]


def test_streams_for_a_receiver_of_another_router(either_kernel: Callable[[], Routers]) -> None:
    routers, port = either_kernel(), free_port()
    far = routers.add("A", listener(port, "inter-router", name="routers"), mode="interior")
    near = routers.add("B", connector(port, name="to-A"), mode="interior")
    routers.start_all()
    pieces = [unfinished(channel) for channel in range(SESSIONS)]
    with ExitStack() as stack:
        canary = stack.enter_context(Canary(near, receive_at=far))
        stack.enter_context(ByHand(far.port)).attach(receive_from("slow"))
        honest = stack.enter_context(ByHand(far.port))
        honest.attach(receive_from("honest", credit=10))
        floods = [stack.enter_context(Flood(near.port)) for _ in range(CONNECTIONS)]
        for flood in floods:
            flood.send(
                opening(), *(begin(n) + attach(0, f"tx{n}", "slow", channel=n) for n in range(SESSIONS))
            )
        links = 1 + CONNECTIONS * SESSIONS
        eventually(at_least(near, "links", 'type="endpoint"', links), "the senders")
        before = memory(far.pid)

        def attack(flood: Flood) -> None:
            for some in zip(*pieces, strict=True):
                flood.send(*some)
            flood.send(attach(1, "end", "slow"))

        threads = [threading.Thread(target=attack, args=(flood,)) for flood in floods]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        eventually(at_least(near, "links", 'type="endpoint"', links + CONNECTIONS), "all is read", 120)
        sender = stack.enter_context(ByHand(near.port))
        sender.attach(send_to("honest"))
        sender.await_credit()
        sender.send(transfers(0, 0, b"\x00\x53\x75\xb0" + (300_000).to_bytes(4) + bytes(300_000)))
        size = 0
        while size < 300_000:
            size += len(honest.expect(TRANSFER)[0].payload)
        grown = memory(far.pid) - before
        assert not any(flood.closed.is_set() for flood in floods)
    canary.report.check()
    assert grown < MOST_GROWTH, f"{grown >> 20} MiB"


def test_beginnings_behind_messages_that_wait(either_kernel: Callable[[], Routers]) -> None:
    router = either_kernel().start("A")
    addresses = [f"slow/{number}" for number in range(RECEIVERS)]
    attaches = [send_to(address, handle) for handle, address in enumerate(addresses)]
    with ExitStack() as stack:
        canary = stack.enter_context(Canary(router))
        receiver, sender = (stack.enter_context(ByHand(router.port)) for _ in range(2))
        receiver.send(*(receive_from(address, handle) for handle, address in enumerate(addresses)))
        receiver.expect(ATTACH, RECEIVERS)
        number = 0
        for round_ in range(TIMES + 1):
            sender.send(*attaches)
            sender.expect(ATTACH, RECEIVERS)
            sender.expect(FLOW, RECEIVERS)
            for handle in range(RECEIVERS):
                if round_ == 0:
                    sender.send(transfer_frame(number, body("x"), handle=handle))
                else:
                    sender.send(*beginning(number, handle))
                number += 1
            sender.send(*(detach(handle) for handle in range(RECEIVERS)))
            sender.expect(DETACH, RECEIVERS)
            if round_ == 1:
                before = memory(router.pid)
        grown = memory(router.pid) - before
    canary.report.check()
    assert grown < MOST_GROWTH_OF_CUT, f"{grown >> 20} MiB"


def beginning(number: int, handle: int) -> Iterator[bytes]:
    """75 KB of a message that does not end."""
    yield transfer_frame(number, HEAD + bytes(PIECE - len(HEAD)), handle=handle, more=True)
    for _ in range(4):
        yield transfer_frame(None, bytes(PIECE), handle=handle, more=True)
