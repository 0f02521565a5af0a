"""Frames of a router that the engine of a collector is given, and those that end the connection."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.support.raw import (
    ATTACH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    HEARTBEAT,
    OPEN,
    SASL_CHALLENGE,
    SASL_INIT,
    SASL_MECHANISMS,
    SASL_OUTCOME,
    TRANSFER,
    frame,
)

from isthmus_flowlog.collector.frames import (
    LEAST_HANDLES,
    LEAST_IDLE_MS,
    MOST_CHALLENGES,
    MOST_RETAINED,
    NAMED_AGAIN,
    NAMED_EACH,
    NOT_ASKED,
    Frames,
    Login,
    RefusedError,
)
from isthmus_router.message.types import Described, Encoded, Symbol, UByte, UInt, ULong, UShort

WINDOW = UInt(1000)
ACCEPTED = Described(ULong(0x24), [])
RECEIVER, SENDER = 5, 7
"""Handles of the router for a link on which the collector receives, and for one on which it sends."""
CREDIT, SENT = 3, 10


def begin(handle_max: int | None = None, *, to: int | None = 0) -> bytes:
    fields = [None if to is None else UShort(to), UInt(0), WINDOW, WINDOW]
    return frame(BEGIN, fields if handle_max is None else [*fields, UInt(handle_max)])


def attach(name: str, handle: int, *, receives: bool, count: int = 0, properties: Any = None) -> bytes:
    """`receives`: the collector does."""
    fields = [name, UInt(handle), not receives, None, None, None, None, None, None, UInt(count)]
    return frame(ATTACH, [*fields, None, None, None, properties])


def transfer(
    number: int | None, handle: int = RECEIVER, *, more: bool = False, aborted: bool = False
) -> bytes:
    known = None if number is None else UInt(number)
    fields = [UInt(handle), known, b"tag", UInt(0), True, more, None, None, None, aborted]
    return frame(TRANSFER, fields, b"payload")


def flow(count: int | None, handle: int = RECEIVER) -> bytes:
    known = None if count is None else UInt(count)
    return frame(FLOW, [UInt(0), WINDOW, UInt(0), WINDOW, UInt(handle), known, UInt(50)])


def disposition(first: int, last: int | None, *, of_receiver: bool = True, state: Any = ACCEPTED) -> bytes:
    fields = [of_receiver, UInt(first), None if last is None else UInt(last), True, state]
    return frame(DISPOSITION, fields)


def detach(handle: int, error: Any = None) -> bytes:
    return frame(DETACH, [UInt(handle), True, error])


@pytest.fixture
def frames() -> Frames:
    """Of a connection with a session and two links, on one of which `SENT` messages are on their way."""
    made = Frames()
    for data in (HEARTBEAT, frame(OPEN, ["router"]), begin()):
        assert made.admits(data)
    made.attached("in", receives=True)
    made.attached("out", receives=False)
    assert made.admits(attach("in", RECEIVER, receives=True, count=100))
    assert made.admits(attach("out", SENDER, receives=False))
    made.granted("in", CREDIT)
    for _ in range(SENT):
        made.sent()
    return made


def test_what_routers_send_is_admitted(frames: Frames) -> None:
    for data in (
        HEARTBEAT,
        frame(FLOW, [UInt(0), WINDOW, UInt(0), WINDOW]),
        flow(0, SENDER),
        transfer(50, more=True),
        flow(100),  # the router counts the message when all of it is sent
        transfer(50, more=True),
        transfer(None),
        transfer(51),
        flow(102),
        transfer(52, more=True),
        transfer(52, more=True, aborted=True),
        disposition(0, None),
        disposition(1, 9),
        disposition(9, 9, state=Described(ULong(0x25), [Described(ULong(0x1D), ["amqp:x", "x" * 20_000])])),
        detach(SENDER),
        detach(RECEIVER),
        frame(END, []),
        HEARTBEAT,
        frame(CLOSE, []),
    ):
        assert frames.admits(data)


def test_numbers_of_messages_begin_anew_behind_the_largest_one(frames: Frames) -> None:
    for number in (2**32 - 1, 0, 1):
        assert frames.admits(transfer(number))


def test_credit_is_for_messages_that_begin(frames: Frames) -> None:
    for number in range(CREDIT):
        assert frames.admits(transfer(number))
    frames.granted("in", 1)
    frames.granted("gone", 1)
    assert frames.admits(transfer(CREDIT, more=True))
    assert frames.admits(transfer(CREDIT))
    with pytest.raises(RefusedError, match="without credit"):
        frames.admits(transfer(CREDIT + 1))


def test_credit_that_the_router_gives_up_is_gone(frames: Frames) -> None:
    assert frames.admits(flow(100 + CREDIT))
    with pytest.raises(RefusedError, match="without credit"):
        frames.admits(transfer(0))


def test_handles_are_free_again_behind_a_detach(frames: Frames) -> None:
    assert frames.admits(detach(RECEIVER))
    frames.attached("in-2", receives=True)
    assert frames.admits(attach("in-2", RECEIVER, receives=True))
    with pytest.raises(RefusedError, match="without credit"):
        frames.admits(transfer(0))


def test_dispositions_about_messages_of_the_router_do_not_get_to_the_engine(frames: Frames) -> None:
    assert not frames.admits(disposition(0, 2**32 - 1, of_receiver=False, state="x" * 30_000))


def test_messages_are_named_a_few_times(frames: Frames) -> None:
    for _ in range(NAMED_AGAIN // SENT + NAMED_EACH):
        assert frames.admits(disposition(0, SENT - 1))
    with pytest.raises(RefusedError, match="name too many"):
        frames.admits(disposition(0, 0))
    frames.sent()
    assert frames.admits(disposition(SENT, SENT))


def test_a_large_state_is_for_few_messages(frames: Frames) -> None:
    for _ in range(700):
        frames.sent()
    assert frames.admits(disposition(0, 99, state="x" * 30_000))
    with pytest.raises(RefusedError, match="name too many"):
        frames.admits(disposition(0, 699, state="x" * 30_000))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(OPEN, ["router"]), "a second open"),
        (begin(), NOT_ASKED),
        (begin(to=None), NOT_ASKED),
        (frame(FLOW, [UInt(0), WINDOW, UInt(0), WINDOW], channel=1), "no session"),
        (attach("other", 9, receives=True), NOT_ASKED),
        (attach("in", 9, receives=True), NOT_ASKED),
        (transfer(0, SENDER), "on which the collector sends"),
        (transfer(0, 9), "a handle of no link"),
        (transfer(None), "delivery-id"),
        (frame(TRANSFER, [UInt(RECEIVER), UInt(0), b"x" * 33]), "a long tag"),
        (frame(TRANSFER, [UInt(RECEIVER), UInt(0), b"x", None, None, None, None, "x" * 5000]), "state"),
        (flow(0, 9), "a handle of no link"),
        (flow(100 + CREDIT + 1), "beyond the credit"),
        (flow(98), "beyond the credit"),
        (flow(None), "beyond the credit"),
        (flow(100 + 2**31), "beyond the credit"),
        (disposition(0, SENT), "has not sent"),
        (disposition(SENT, None), "has not sent"),
        (disposition(3, 2), "has not sent"),
        (frame(DISPOSITION, [True, None]), "no field 1"),
        (frame(DISPOSITION, [UInt(1), UInt(0)]), "no boolean"),
        (frame(DISPOSITION, [True, ULong(0)]), "no number"),
        (frame(DISPOSITION, [Encoded(b"\x56\x02"), UInt(0)]), "no boolean"),
        (detach(9), "a handle of no link"),
        (detach(RECEIVER, "x" * MOST_RETAINED), "a detach of"),
        (frame(0x19, []), "unknown performative"),
        (frame(0x40, []), "none of AMQP"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "none of AMQP"),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", "none of AMQP"),
        (b"\x00\x00\x00\x09\x02\x00\x00\x00\x40", "not according to AMQP"),
        (b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x13\x40", "no list"),
        (b"\x00\x00\x00\x0e\x02\x00\x00\x00\x00\x53\x13\xc0\x01\x63", "too many fields"),
        (b"\x00\x00\x00\x0f\x02\x00\x00\x00\x00\x53\x13\xc0\x02\x00\x40", "more or less"),
        (b"\x00\x00\x00\x0e\x02\x00\x00\x00\x00\x53\x13\xc0\x09\x00", "too many fields"),
        (b"\x00\x00\x00\x0e\x02\x00\x00\x00\x00\xa3\x01\x13\xc0\x01", "without a performative"),
    ],
)
def test_what_no_router_sends_is_refused(frames: Frames, data: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        frames.admits(data)


def test_the_end_of_a_session_and_of_a_connection_are_the_last_frames(frames: Frames) -> None:
    assert frames.admits(frame(END, []))
    for data in (frame(END, []), transfer(0), begin()):
        with pytest.raises(RefusedError):
            frames.admits(data)
    assert frames.admits(frame(CLOSE, []))
    for data in (HEARTBEAT, frame(CLOSE, [])):
        with pytest.raises(RefusedError, match="behind the close"):
            frames.admits(data)


def test_messages_of_one_link_follow_each_other(frames: Frames) -> None:
    assert frames.admits(transfer(7, more=True))
    with pytest.raises(RefusedError, match="before the end"):
        frames.admits(transfer(8))
    frames.attached("in-2", receives=True)
    frames.granted("in-2", 1)
    assert frames.admits(attach("in-2", 6, receives=True))
    with pytest.raises(RefusedError, match="not the next one"):
        frames.admits(transfer(7, 6))


def test_a_handle_is_that_of_one_link(frames: Frames) -> None:
    frames.attached("in-2", receives=True)
    with pytest.raises(RefusedError, match="another link"):
        frames.admits(attach("in-2", RECEIVER, receives=True))


@pytest.mark.parametrize("receives", [False, True])
def test_a_link_has_the_direction_that_the_collector_has_given_it(frames: Frames, receives: bool) -> None:
    frames.attached("new", receives=receives)
    with pytest.raises(RefusedError, match=NOT_ASKED):
        frames.admits(attach("new", 6, receives=not receives))


def test_an_attach_has_a_size_of_which_thousands_may_be_retained(frames: Frames) -> None:
    frames.attached("new", receives=True)
    with pytest.raises(RefusedError, match="an attach of"):
        frames.admits(attach("new", 6, receives=True, properties="x" * MOST_RETAINED))


def test_a_connection_begins_with_its_open() -> None:
    with pytest.raises(RefusedError, match="before the open"):
        Frames().admits(begin())
    frames = Frames()
    assert frames.admits(frame(OPEN, ["r", None, None, None, UInt(LEAST_IDLE_MS)]))
    with pytest.raises(RefusedError, match="no session"):
        frames.admits(frame(END, []))
    with pytest.raises(RefusedError, match="which is less than"):
        frames.admits(begin(LEAST_HANDLES - 2))
    assert frames.admits(begin(LEAST_HANDLES - 1))


def test_a_router_that_wants_a_frame_each_millisecond_is_refused() -> None:
    with pytest.raises(RefusedError, match="idle-time-out"):
        Frames().admits(frame(OPEN, ["r", None, None, None, UInt(1)]))


MECHANISMS = frame(SASL_MECHANISMS, [Symbol("SCRAM-SHA-256")])
OUTCOME = frame(SASL_OUTCOME, [UByte(0)])


def challenge(text: bytes) -> bytes:
    return frame(SASL_CHALLENGE, [text])


def test_a_login_is_over_with_its_outcome() -> None:
    login = Login()
    login.examine(MECHANISMS, "")
    for text in (b"r=abc,s=QUFB,i=4096", b"v=abc"):
        login.examine(challenge(text), "SCRAM-SHA-256")
        assert not login.is_over
    login.examine(OUTCOME, "SCRAM-SHA-256")
    assert login.is_over


@pytest.mark.parametrize("count", [b"10001", b"4294967296", b" 9", b"-1", b""])
def test_a_router_does_not_choose_how_long_the_collector_computes(count: bytes) -> None:
    login = Login()
    login.examine(MECHANISMS, "")
    login.examine(challenge(b"r=abc,s=QUFB,i=" + count), "GSSAPI")
    with pytest.raises(RefusedError, match="SCRAM"):
        login.examine(challenge(b"r=abc,s=QUFB,i=" + count), "SCRAM-SHA-256")


@pytest.mark.parametrize(
    "frames",
    [
        [OUTCOME],
        [challenge(b"x")],
        [MECHANISMS, MECHANISMS],
        [MECHANISMS, *[challenge(b"x")] * (MOST_CHALLENGES + 1)],
        [frame(SASL_INIT, [Symbol("PLAIN")])],
        [frame(OPEN, ["router"])],
        [HEARTBEAT],
        [b"\x00\x00\x00\x08\x02\x01\x00\x00"],
        [b"\x00\x00\x00\x09\x02\x01\x00\x00\x00"],
    ],
)
def test_a_login_out_of_turn_is_refused(frames: list[bytes]) -> None:
    login = Login()
    for data in frames[:-1]:
        login.examine(data, "")
    with pytest.raises(RefusedError):
        login.examine(frames[-1], "")
