"""Links and their deliveries: AMQP 1.0 sections 2.6, 2.7.3, 2.7.5 to 2.7.7, 3.2 and 3.5."""

from __future__ import annotations

import pytest
from tests.integration.support.by_hand import (
    ACCEPTED,
    RELEASED,
    ByHand,
    attach_frame,
    body,
    credit_frame,
    receive_from,
    send_to,
    transfer_frame,
)
from tests.integration.support.raw import (
    ATTACH,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    TRANSFER,
    frame,
)
from tests.integration.support.routers import Router

from isthmus_router.message.types import Described, Symbol, UByte, UInt, ULong


def test_an_attach_is_answered_in_kind(router: Router) -> None:
    """2.6.3: name, the other role, the same termini; 2.6.1: handles are each side's own."""
    with ByHand(router.port) as peer:
        answer = peer.attach(attach_frame("one", 17, receiver=True, source="x"))
        assert (answer.field(0), answer.field(2)) == ("one", False)
        assert answer.field(5).value[0] == "x"
        assert answer.field(9) is not None, "initial-delivery-count is a must for senders"
        answer = peer.attach(attach_frame("two", 4, receiver=False, target="y"))
        assert (answer.field(0), answer.field(2)) == ("two", True)
        assert answer.field(6).value[0] == "y"


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_settle_modes_are_agreed_on(router: Router, mode: int) -> None:
    """2.6.3: what the answer says is what is in force."""
    with ByHand(router.port) as peer:
        attach = attach_frame("modes", 0, receiver=True, source="m", settle_modes=(UByte(mode), UByte(0)))
        answer = peer.attach(attach)
        assert answer.field(3) == mode or mode == 0
        attach = attach_frame(
            "modes out", 1, receiver=False, target="m", settle_modes=(UByte(mode), UByte(0))
        )
        assert peer.attach(attach).field(3) == mode or mode == 2


@pytest.mark.parametrize(
    ("attach", "condition"),
    [
        (attach_frame("r", 0, receiver=False, target="nobody"), "amqp:not-found"),
        (attach_frame("r", 0, receiver=True, source="nobody"), "amqp:not-found"),
    ],
)
def test_a_refusal_is_an_answer_without_a_terminus_and_a_detach(
    router: Router, attach: bytes, condition: str
) -> None:
    """2.6.3: so the peer knows that the link never came to be. The session goes on."""
    with ByHand(router.port) as peer:
        answer = peer.attach(attach)
        assert answer.field(6 if answer.field(2) else 5) is None
        assert peer.expect_error(DETACH, condition).field(1) is True
        peer.send(frame(DETACH, [UInt(0), True]))
        peer.attach(receive_from("allowed"))


@pytest.mark.parametrize(
    "wrong",
    [
        transfer_frame(0, body("lost"), handle=44),
        frame(DETACH, [UInt(44), True]),
        credit_frame(44, 10),
    ],
    ids=["transfer", "detach", "flow"],
)
def test_a_handle_that_is_not_attached(router: Router, wrong: bytes) -> None:
    """2.8.17: unattached-handle, and nothing else of the session goes on."""
    with ByHand(router.port) as peer:
        peer.send(wrong)
        (ending,) = peer.expect(CLOSE)
        assert ending.field(0) is not None


def test_credit_is_absolute_and_can_be_taken_back(router: Router) -> None:
    """2.6.7: link-credit counts from the delivery-count that the flow names."""
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        peer.attach(receive_from("credit", credit=2))
        sender.attach(send_to("credit"))
        sender.await_credit()
        peer.send(credit_frame(0, 1))
        peer.round_trip()
        sender.send(*[transfer_frame(number, body(f"{number}")) for number in range(3)])
        assert peer.expect(TRANSFER)[0].payload.endswith(b"0")
        sender.round_trip()
        peer.round_trip()
        # Counted from 0, credit of 2 is credit for one more.
        peer.send(credit_frame(0, 2, next_incoming_id=1))
        assert peer.expect(TRANSFER)[0].payload.endswith(b"1")
        peer.round_trip()
        assert [one for one in peer.rest() if one.code == TRANSFER] == []


def test_a_drain_moves_the_count_of_the_link_on(router: Router) -> None:
    """2.6.7: what credit cannot be used is used up."""
    with ByHand(router.port) as peer:
        peer.attach(receive_from("dry", credit=7))
        window = [UInt(0), UInt(100), UInt(0), UInt(100)]
        peer.send(frame(FLOW, [*window, UInt(0), UInt(0), UInt(7), None, True]))
        while (answer := peer.expect(FLOW)[0]).field(5) != 7:
            pass
        assert answer.field(6) == 0


def test_deliveries_of_two_links_in_each_others_midst(router: Router) -> None:
    """2.7.5: parts of deliveries of different links mingle; those of one link do not."""
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        for handle, address in enumerate(("odd", "even")):
            peer.attach(receive_from(address, handle, credit=1))
            sender.attach(send_to(address, handle))
            sender.await_credit()
        whole = [body("odd" * 20), body("even" * 20)]
        sender.send(
            transfer_frame(0, whole[0][:10], handle=0, more=True),
            transfer_frame(1, whole[1][:20], handle=1, more=True),
            transfer_frame(None, whole[0][10:30], handle=0, more=True),
            transfer_frame(None, whole[1][20:], handle=1),
            transfer_frame(None, whole[0][30:], handle=0),
        )
        received = {0: b"", 1: b""}
        handles: dict[int, int] = {}
        open_deliveries = {0, 1}
        while open_deliveries:
            (part,) = peer.expect(TRANSFER)
            handle = handles.setdefault(part.field(0), len(handles))
            received[handle] += part.payload
            if not part.field(5):
                open_deliveries.discard(handle)
        assert sorted(received.values()) == sorted(whole)


def test_settled_may_be_said_in_any_part_of_a_delivery(router: Router) -> None:
    """2.7.5: once true in any of its transfers, the delivery is settled."""
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        peer.attach(receive_from("parts", credit=2))
        sender.attach(send_to("parts"))
        sender.await_credit()
        whole = body("in two parts")
        sender.send(
            transfer_frame(0, whole[:8], settled=False, more=True),
            transfer_frame(None, whole[8:], settled=True),
        )
        payload, settled = b"", False
        while True:
            (part,) = peer.expect(TRANSFER)
            payload += part.payload
            settled = settled or bool(part.field(4))
            if not part.field(5):
                break
        assert payload == whole
        assert settled
        sender.round_trip()
        assert [one for one in sender.rest() if one.code == DISPOSITION] == []


def test_an_empty_message(router: Router) -> None:
    """A delivery without a byte is passed on or rejected, and ends neither session nor connection."""
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        peer.attach(receive_from("empty", credit=2))
        sender.attach(send_to("empty"))
        sender.await_credit()
        sender.send(transfer_frame(0, b""), transfer_frame(1, body("next")))
        while not peer.expect(TRANSFER)[0].payload.endswith(b"next"):
            pass


def test_a_disposition_of_what_never_was(router: Router) -> None:
    """2.7.6: numbers of deliveries that are settled, or that nobody sent, mean nothing."""
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        peer.attach(receive_from("unknown", credit=2))
        sender.attach(send_to("unknown"))
        sender.await_credit()
        for first, last in ((5, 9), (100, 2**30), (2**32 - 1, None)):
            bounds = [UInt(first), None if last is None else UInt(last)]
            peer.send(frame(DISPOSITION, [True, *bounds, True, ACCEPTED]))
            peer.send(frame(DISPOSITION, [False, *bounds, True, RELEASED]))
        sender.send(transfer_frame(0, body("still")))
        (transfer,) = peer.expect(TRANSFER)
        peer.send(frame(DISPOSITION, [True, transfer.field(1), None, True, ACCEPTED]))
        assert sender.expect(DISPOSITION)[0].field(4).descriptor == 0x24


@pytest.mark.parametrize(("first", "last"), [(7, 3), (0, 2**31)])
def test_a_disposition_from_the_end_to_the_beginning(router: Router, first: int, last: int) -> None:
    with ByHand(router.port) as peer:
        peer.send(frame(DISPOSITION, [True, UInt(first), UInt(last), True, ACCEPTED]))
        assert peer.expect(CLOSE)[0].field(0) is not None


def test_one_disposition_for_many(router: Router) -> None:
    """2.7.6: a range settles each delivery in it, whoever sent it."""
    with ByHand(router.port) as peer, ByHand(router.port) as first, ByHand(router.port) as second:
        peer.attach(receive_from("many", credit=20))
        for sender in (first, second):
            sender.attach(send_to("many"))
            sender.await_credit()
            sender.send(*[transfer_frame(number, body("x")) for number in range(10)])
        numbers = [one.field(1) for one in peer.expect(TRANSFER, 20)]
        peer.send(frame(DISPOSITION, [True, min(numbers), max(numbers), True, RELEASED]))
        for sender in (first, second):
            settled: set[int] = set()
            while len(settled) < 10:
                (update,) = sender.expect(DISPOSITION)
                assert update.field(4).descriptor == 0x26
                end = update.field(1) if update.field(2) is None else update.field(2)
                settled |= set(range(update.field(1), end + 1))


def test_sections_by_symbol(router: Router) -> None:
    """3.2: a section may go by its symbol, as any described type may; it is passed on as it came."""
    message = b"\x00\xa3\x11amqp:amqp-value:*\xa1\x02hi"
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        peer.attach(receive_from("symbols", credit=1))
        sender.attach(send_to("symbols"))
        sender.await_credit()
        sender.send(transfer_frame(0, message))
        assert peer.expect(TRANSFER)[0].payload == message


def test_the_end_of_a_session_ends_its_links_and_not_the_connection(router: Router) -> None:
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        peer.attach(receive_from("gone", credit=5))
        sender.attach(send_to("gone"))
        sender.await_credit()
        peer.send(frame(END, [Described(ULong(0x1D), [Symbol("x:mine"), "because"])]))
        assert peer.expect(END)[0].field(0) is None
        assert [one for one in peer.settled_by_close() if one.code != FLOW] == []


def test_a_router_makes_up_an_address_and_tells_it(router: Router) -> None:
    """3.5.3: for a dynamic source the answer has the address, which others can send to."""
    dynamic = [None, None, None, None, True]
    with ByHand(router.port) as peer, ByHand(router.port) as sender:
        answer = peer.attach(attach_frame("dynamic", 0, receiver=True, source=dynamic) + credit_frame(0, 1))
        address = answer.field(5).value[0]
        assert address
        sender.attach(send_to(address))
        sender.await_credit()
        sender.send(transfer_frame(0, body("reply")))
        assert peer.expect(TRANSFER)[0].payload.endswith(b"reply")


def test_the_name_of_a_link_counts_in_each_direction(router: Router) -> None:
    """2.6.1."""
    with ByHand(router.port) as peer:
        assert peer.attach(attach_frame("same", 0, receiver=True, source="a")).code == ATTACH
        assert peer.attach(attach_frame("same", 1, receiver=False, target="b")).code == ATTACH
        peer.round_trip()
        assert [one for one in peer.rest() if one.code == DETACH] == []
