"""Frames, sessions and deliveries at the limits that the standard sets: windows, sizes, numbers that wrap, tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.support.client import Clients
from tests.integration.support.raw import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    FLOW,
    OPEN,
    TRANSFER,
    RawConnection,
    frame,
    value_section,
)
from tests.integration.support.routers import Router, eventually

from isthmus_router.message.types import Described, Symbol, UByte, UInt, ULong, UShort

LARGE = UInt(2**31 - 1)
WRAPS = 2**32
X = value_section(b"\xa1\x01x")


class RawClient(RawConnection):
    """A client that says exactly what a test wants said."""

    def __init__(self, router: Router, *, window: int = 2**31 - 1, next_outgoing: int = 0) -> None:
        super().__init__(router.port)
        self._kept: list[tuple[int, list[Any], bytes]] = []
        self.begun: set[int] = set()
        self.send(
            AMQP_HEADER,
            frame(OPEN, ["raw", None, UInt(65536), UShort(100)]),
            frame(BEGIN, [None, UInt(next_outgoing), UInt(window), LARGE]),
        )
        self.collect(BEGIN)

    def now(self, code: int) -> list[tuple[list[Any], bytes]]:
        """The frames of one kind that have arrived: (fields, payload) of each."""
        self._kept += self.frames()
        found = [(fields, payload) for seen, fields, payload in self._kept if seen == code]
        self._kept = [one for one in self._kept if one[0] != code]
        return found

    def collect(self, code: int, count: int = 1) -> list[tuple[list[Any], bytes]]:
        """Wait for that many frames of one kind; others are kept."""
        found: list[tuple[list[Any], bytes]] = []
        eventually(lambda: found.extend(self.now(code)) or len(found) >= count, f"{count} of 0x{code:x}")
        return found

    def attach(
        self, address: str, *, receiver: bool, count: int = 0, unsettled: Any = None, second: bool = False
    ) -> list[Any]:
        """Attach the one link, with handle 0; the fields of the answer. `second`: its receiver settles second."""
        source = Described(ULong(0x28), [address if receiver else None])
        target = Described(ULong(0x29), [None if receiver else address])
        mode = UByte(1) if second else None
        fields = ["one", UInt(0), receiver, None, mode, source, target, unsettled]
        fields += [unsettled is not None, None if receiver else UInt(count)]
        self.send(frame(ATTACH, fields))
        return self.collect(ATTACH)[0][0]

    def flow(self, *, seen: int, window: int, credit: int, count: int = 0) -> None:
        """Tell how much may come: `seen` transfers have."""
        numbers = [UInt(seen), UInt(window), UInt(0), LARGE, UInt(0), UInt(count), UInt(credit)]
        self.send(frame(FLOW, numbers))

    def transfer(
        self,
        number: int,
        payload: bytes = X,
        *,
        tag: bytes | None = None,
        more: bool = False,
        first: bool = True,
        aborted: bool = False,
        state: Any = None,
        message_format: int = 0,
    ) -> None:
        """A transfer frame of delivery `number`, modulo 2^32."""
        tag = number.to_bytes(8) if tag is None else tag
        start = [UInt(number % WRAPS), tag, UInt(message_format)] if first else [None, None, None]
        self.send(frame(TRANSFER, [UInt(0), *start, False, more, None, state, None, aborted], payload))

    def outcomes(self, count: int) -> list[tuple[int, Any]]:
        """Wait for the outcomes of that many deliveries: (number, state) each, in order of arrival."""
        found: list[tuple[int, Any]] = []
        while len(found) < count:
            for fields, _ in self.collect(DISPOSITION):
                assert fields[3] is True, "settled"
                first = int(fields[1])
                last = first if fields[2] is None else int(fields[2])
                length = (last - first) % WRAPS + 1
                found += [((first + step) % WRAPS, fields[4]) for step in range(length)]
        return found


def state_of(state: Any) -> int:
    assert isinstance(state, Described)
    return int(str(state.descriptor))


@pytest.fixture
def raw(router: Router) -> Iterator[RawClient]:
    """A client on the first session."""
    with RawClient(router) as client:
        yield client


@pytest.mark.parametrize("size", [10, 511, 512, 100_000])
def test_smallest_frames(clients: Clients, router: Router, size: int) -> None:
    """512 bytes is the least that both ends must be able to take, in both directions."""
    client = clients.connect(router.port, max_frame_size=512)
    receiver = client.receiver(f"frames/{size}", credit=10, accept=True)
    sender = client.sender(f"frames/{size}").await_credit()
    data = b"\0Su\xb0" + size.to_bytes(4) + bytes(size)
    assert sender.deliver(data) == "accepted"
    assert bytes(receiver.arrived()[0].data) == data


def test_smallest_windows(clients: Clients, router: Router) -> None:
    """One frame at a time, for small messages and large ones side by side."""
    client = clients.connect(router.port, max_frame_size=512, incoming_capacity=512)
    receiver = client.receiver("windows/small", credit=100, accept=True)
    sender = clients.connect(router.port).sender("windows/small").await_credit()
    sizes = [10, 5_000, 10, 200_000, 10]
    sent = [sender.send(b"\0Su\xb0" + size.to_bytes(4) + bytes(size)) for size in sizes]
    assert [sender.outcome(item) for item in sent] == ["accepted"] * 5
    assert [len(item.data) - 8 for item in receiver.arrived()] == sizes


def test_the_window_of_the_peer_is_kept(clients: Clients, router: Router) -> None:
    with RawClient(router, window=2) as raw:
        raw.attach("windows/kept", receiver=True)
        raw.flow(seen=0, window=2, credit=100)
        sender = clients.connect(router.port).sender("windows/kept").await_credit()
        for _ in range(10):
            sender.send("x")
        clients.round_trip()
        assert len(raw.collect(TRANSFER, 2)) == 2
        clients.round_trip()
        assert raw.now(TRANSFER) == []
        raw.flow(seen=2, window=3, credit=98, count=2)
        assert len(raw.collect(TRANSFER, 3)) == 3
        raw.flow(seen=5, window=100, credit=95, count=5)
        assert len(raw.collect(TRANSFER, 5)) == 5


@pytest.mark.parametrize("most", [2**31 - 1, 2**31, 2**32 - 1])
def test_as_much_as_numbers_hold(clients: Clients, router: Router, most: int) -> None:
    """Windows and credit of up to 2^32 - 1; small messages and large ones."""
    with RawClient(router, window=most) as raw:
        raw.attach(f"most/{most}", receiver=True)
        raw.flow(seen=0, window=most, credit=most)
        sender = clients.connect(router.port).sender(f"most/{most}").await_credit()
        for size in (10, 10, 200_000, 10):
            sender.send(b"\0Su\xb0" + size.to_bytes(4) + bytes(size))
        found = eventually(lambda: clients.step() or _deliveries(raw) == 4, "all four")
        assert found
        raw.flow(seen=0, window=most, credit=0, count=4)
        clients.round_trip()
        sender.send("none is allowed now")
        clients.round_trip()
        assert _deliveries(raw) == 4


def _deliveries(raw: RawClient) -> int:
    """Those that have begun to arrive so far; continuations repeat the number."""
    raw.begun |= {int(fields[1]) for fields, _ in raw.now(TRANSFER) if fields[1] is not None}
    return len(raw.begun)


@pytest.mark.parametrize("start", [0, 2**31 - 2, 2**32 - 2])
def test_delivery_ids_and_counts_wrap(clients: Clients, router: Router, start: int) -> None:
    receiver = clients.connect(router.port).receiver(f"wraps/{start}", credit=1000, accept=True)
    with RawClient(router, next_outgoing=start) as raw:
        raw.attach(f"wraps/{start}", receiver=False, count=start)
        (fields,) = eventually(
            lambda: [fields for fields, _ in raw.now(FLOW) if len(fields) > 6], "credit for the link"
        )
        credit, count = int(fields[6]), int(fields[5])
        assert (credit, count) == (250, start)
        for number in range(start, start + 200):
            raw.transfer(number)
        receiver.expect(200)
        clients.round_trip()
        found = raw.outcomes(200)
    assert [number for number, _ in found] == [number % WRAPS for number in range(start, start + 200)]
    assert {state_of(state) for _, state in found} == {0x24}


@pytest.mark.parametrize("tag", [b"", b"t", bytes(range(32))])
def test_tags(clients: Clients, router: Router, raw: RawClient, tag: bytes) -> None:
    """Of any length up to 32 bytes, and free again once the delivery is settled."""
    receiver = clients.connect(router.port).receiver(f"tags/{len(tag)}", credit=10, accept=True)
    raw.attach(f"tags/{len(tag)}", receiver=False)
    for number in range(2):
        raw.transfer(number, tag=tag)
        clients.until(lambda n=number: len(receiver.arrived()) == n + 1, "it arrives")
        clients.round_trip()
        assert [state_of(state) for _, state in raw.outcomes(1)] == [0x24]


def test_several_frames(clients: Clients, router: Router, raw: RawClient) -> None:
    """Later frames need repeat nothing; an aborted delivery is gone, with its credit given back."""
    receiver = clients.connect(router.port).receiver("frames/several", credit=1000, accept=True)
    raw.attach("frames/several", receiver=False)
    for batch in range(3):
        for number in range(200 * batch, 200 * (batch + 1), 2):
            raw.transfer(number, X[:3], more=True)
            raw.transfer(number, X[3:], first=False)
            raw.transfer(number + 1, X[:3], more=True)
            raw.transfer(number + 1, b"", first=False, aborted=True)
        receiver.expect(100 * (batch + 1))
        clients.round_trip()
    assert len(raw.outcomes(300)) == 300
    assert set(receiver.bodies()) == {"x"}
    assert len(receiver.received) == 300, "nothing of the aborted ones"


def test_a_transaction_that_nobody_has_declared(clients: Clients, router: Router, raw: RawClient) -> None:
    """There is no coordinator here: what belongs to a transaction must not be delivered outside of it."""
    receiver = clients.connect(router.port).receiver("transactions/none", credit=10, accept=True)
    raw.attach("transactions/none", receiver=False)
    raw.transfer(0, state=Described(ULong(0x34), [b"txn-1"]))
    raw.transfer(1, X[:3], more=True, state=Described(ULong(0x34), [b"txn-1"]))
    raw.transfer(1, X[3:], first=False)
    raw.transfer(2)
    clients.until(receiver.arrived, "the one outside")
    clients.round_trip()
    found = dict(raw.outcomes(3))
    assert [state_of(found[number]) for number in range(3)] == [0x25, 0x25, 0x24]
    error = found[0].value[0]
    assert str(error.value[0]) == "amqp:transaction:unknown-id"
    assert len(receiver.received) == 1


def test_a_transaction_on_a_link_whose_receiver_settles_second(
    clients: Clients, router: Router, raw: RawClient
) -> None:
    """What is refused waits for its sender to settle it, and the router goes on with what comes next."""
    receiver = clients.connect(router.port).receiver("transactions/second", credit=10, accept=True)
    raw.attach("transactions/second", receiver=False, second=True)
    for number in range(3):
        raw.transfer(number, state=Described(ULong(0x34), [b"txn-1"]))
    raw.transfer(3)
    clients.until(receiver.arrived, "the one outside")
    found: dict[int, int] = {}
    while len(found) < 4:
        for fields, _ in raw.collect(DISPOSITION):
            assert not fields[3], "settled"
            last = fields[1] if fields[2] is None else fields[2]
            found |= dict.fromkeys(range(fields[1], last + 1), state_of(fields[4]))
    assert [found[number] for number in range(4)] == [0x25, 0x25, 0x25, 0x24]
    raw.send(frame(DISPOSITION, [False, UInt(0), UInt(3), True]))
    raw.transfer(4)
    clients.until(lambda: len(receiver.received) == 2, "the next one")


def test_a_link_is_not_resumed(clients: Clients, router: Router, raw: RawClient) -> None:
    """Deliveries from before are unknown here: the answer has no unsettled map, and the link starts anew."""
    clients.connect(router.port).receiver("resume", credit=10, accept=True)
    answer = raw.attach("resume", receiver=False, unsettled={b"old": None})
    assert answer[7] is None
    raw.transfer(0)
    clients.until(lambda: raw.now(DISPOSITION), "an outcome")


def test_detach_is_answered_in_kind(router: Router, raw: RawClient) -> None:
    for closed in (False, True):
        raw.attach("detach", receiver=False)
        raw.send(frame(DETACH, [UInt(0), closed]))
        (fields, _), *_ = raw.collect(DETACH)
        assert bool(fields[1]) is closed if len(fields) > 1 else not closed


def test_a_receiver_that_says_nothing_of_its_container(clients: Clients, router: Router) -> None:
    """Properties and capabilities that the router does not know are no obstacle, and not answered."""
    with RawConnection(router.port) as raw:
        shown = {Symbol("com.example:thing"): [1, 2]}
        raw.send(
            AMQP_HEADER,
            frame(OPEN, ["", None, UInt(512), None, None, None, None, Symbol("x"), Symbol("y"), shown]),
            frame(BEGIN, [None, UInt(0), LARGE, LARGE, UInt(0), Symbol("x"), Symbol("y"), shown]),
        )
        source = Described(ULong(0x28), ["unknown"])
        attach = ["r", UInt(0), True, None, None, source, Described(ULong(0x29), []), None, None, None, None]
        raw.send(frame(ATTACH, [*attach, Symbol("offered"), Symbol("desired"), shown]))
        answer = raw.collect(ATTACH)[0][0]
        assert all(field is None for field in answer[11:])
        numbers = [UInt(0), LARGE, UInt(0), LARGE, UInt(0), UInt(0), UInt(5)]
        raw.send(frame(FLOW, numbers))
        clients.connect(router.port).sender("unknown").await_credit().send("x")
        clients.round_trip()
        assert len(raw.collect(TRANSFER)) == 1
