"""Updates with many addresses are read in steps, in their order, within bounds."""

from __future__ import annotations

import time

import pytest
from tests.unit.routing.driver import LINK, Driver

from isthmus_router.core.treatment import Treatment
from isthmus_router.message.types import Encoded, encode
from isthmus_router.routing import actions as act
from isthmus_router.routing import updates, waiting
from isthmus_router.routing.linkstate import LinkState
from isthmus_router.routing.messages import (
    LONGEST_KEY,
    ControlMessageError,
    LinkStateUpdate,
    MobileAddress,
    MobileAddressRequest,
    MobileAddressUpdate,
    RouterAdvertisement,
    decode_control,
    encode_control,
)
from isthmus_router.routing.updates import READ_AT_ONCE_BYTES, large_update
from isthmus_router.routing.waiting import STEP

MANY = 1000


def addresses(*numbers: int) -> tuple[MobileAddress, ...]:
    return tuple(MobileAddress(f"Maddress.{number}", Treatment.BALANCED) for number in numbers)


def absolute(sequence: int, *numbers: int) -> MobileAddressUpdate:
    return MobileAddressUpdate("PEER", sequence, absolute=True, present=addresses(*numbers))


def change(sequence: int, *numbers: int, gone: tuple[int, ...] = ()) -> MobileAddressUpdate:
    keys = tuple(f"Maddress.{number}" for number in gone)
    return MobileAddressUpdate("PEER", sequence, absolute=False, present=addresses(*numbers), gone=keys)


def send(driver: Driver, message: MobileAddressUpdate) -> list[act.Action]:
    """Receive a message, and read nothing of it yet that is not read at once."""
    return driver.engine.on_message(LINK, encode_control(message, "x"), driver.now)


def known(driver: Driver) -> set[int]:
    """The addresses of the peer."""
    (node,) = (node for node in driver.engine._nodes if node.id == "PEER")
    return {int(key.rpartition(".")[2]) for key in node.mobile.addresses}


def finish(driver: Driver) -> list[act.Action]:
    actions = []
    while driver.engine.has_work(driver.now):
        actions += driver.engine.work(driver.now)
    return actions


@pytest.mark.parametrize(
    "message", [absolute(3, *range(MANY)), change(1, *range(MANY), gone=tuple(range(5000, 5900)))]
)
def test_a_large_update_is_read_as_a_small_one(message: MobileAddressUpdate) -> None:
    payload = encode_control(message, "x")
    reader = large_update(payload)
    assert reader is not None
    steps = 1
    while not reader.read(STEP):
        steps += 1
    assert steps >= MANY // STEP
    assert reader.update() == decode_control(payload, most=1_000_000) == message


def test_nothing_is_applied_before_all_is_read(pair: Driver) -> None:
    send(pair, absolute(1, *range(MANY)))
    pair.engine.work(pair.now)
    assert not known(pair)
    changed = [action for action in finish(pair) if isinstance(action, act.RemoteAddressesChanged)]
    assert known(pair) == set(range(MANY))
    assert max(len(action.added) for action in changed) <= STEP


def test_an_absolute_update_replaces_what_was_known(pair: Driver) -> None:
    pair.receive(absolute(1, *range(MANY)))
    pair.receive(absolute(2, *range(500, 500 + MANY)))
    assert known(pair) == set(range(500, 500 + MANY))


def test_updates_of_a_router_are_applied_in_their_order(pair: Driver) -> None:
    send(pair, absolute(1, *range(MANY)))
    send(pair, change(2, 7000, gone=(5,)))
    send(pair, change(3, *range(8000, 8000 + MANY)))
    send(pair, change(4, gone=(7000, 8001)))
    assert not known(pair)
    finish(pair)
    assert known(pair) == set(range(MANY)) - {5} | set(range(8000, 8000 + MANY)) - {8001}
    assert not pair.receive(RouterAdvertisement("PEER", 7, 1, 4)).sent_of(MobileAddressRequest)


def test_nothing_is_asked_for_that_is_being_read(pair: Driver) -> None:
    send(pair, change(1, *range(MANY)))
    actions = pair.engine.on_message(
        LINK, encode_control(RouterAdvertisement("PEER", 7, 1, 1), "x"), pair.now
    )
    assert not pair.take(actions).sent_of(MobileAddressRequest)
    finish(pair)
    assert known(pair) == set(range(MANY))


def test_a_difference_that_does_not_follow_is_not_read(pair: Driver) -> None:
    actions = send(pair, change(5, *range(MANY)))
    assert not pair.engine.has_work(pair.now)
    assert pair.take(actions).sent_of(MobileAddressRequest)


def test_two_differences_with_one_number_lead_to_a_request(pair: Driver) -> None:
    pair.receive(change(1, *range(MANY)))
    assert not pair.receive(change(1, *range(MANY))).sent_of(MobileAddressRequest)
    assert pair.receive(change(1, *range(MANY, 2 * MANY))).sent_of(MobileAddressRequest)
    assert known(pair) == set(range(MANY))


def test_what_is_of_a_former_life_is_dropped(pair: Driver) -> None:
    send(pair, absolute(1, *range(MANY)))
    pair.engine.work(pair.now)
    pair.engine.on_message(LINK, encode_control(RouterAdvertisement("PEER", 8, 1, 0), "x"), pair.now)
    finish(pair)
    assert not known(pair)


def test_a_message_that_ends_too_soon_changes_nothing(pair: Driver) -> None:
    payload = encode_control(absolute(1, *range(MANY)), "x")
    pair.receive_bytes(payload[:-3])
    assert pair.events(act.MessageRefused)
    assert not known(pair)
    pair.receive(absolute(1, *range(MANY)))
    assert known(pair) == set(range(MANY))


INVALID = [
    None,
    [],
    [7],
    [""],
    ["M" + "x" * LONGEST_KEY],
    ["", [None] * 100],
    Encoded(bytes(encode(["Mno text"])).replace(b"no", b"\xff\xfe")),
]


def with_invalid(count: int, invalid: object, *, absolute: bool = True) -> bytes:
    """An update of as many addresses, with an invalid one in the middle."""
    items: list[object] = [[f"Maddress.{number}", 1] for number in range(count)]
    items.insert(count // 2, invalid)
    lists = {"exist": items} if absolute else {"add": items, "del": [invalid, ["Maddress.500"]]}
    body = {"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1 if absolute else 2, **lists}
    return b"\x00\x53\x74" + encode({"opcode": "MAU"}) + b"\x00\x53\x77" + encode(body)


@pytest.mark.parametrize("count", [10, MANY])
@pytest.mark.parametrize("invalid", INVALID, ids=range(len(INVALID)))
def test_invalid_addresses_do_not_keep_others_from_being_known(
    pair: Driver, count: int, invalid: object
) -> None:
    pair.receive_bytes(with_invalid(count, invalid))
    assert known(pair) == set(range(count))
    (refused,) = pair.events(act.MessageRefused)
    assert refused.reason.startswith("1 invalid addresses of PEER are skipped: ")
    assert pair.engine.refused_messages == 1
    assert not pair.receive(RouterAdvertisement("PEER", 7, 1, 1)).sent_of(MobileAddressRequest)


def test_differences_with_invalid_addresses_are_applied(pair: Driver) -> None:
    pair.receive(absolute(1, 500, 501))
    pair.receive_bytes(with_invalid(10, [""], absolute=False))
    assert known(pair) == {*range(10), 501}
    (refused,) = pair.events(act.MessageRefused)
    assert refused.reason.startswith("2 invalid addresses of PEER are skipped: ")
    assert not pair.receive(RouterAdvertisement("PEER", 7, 1, 2)).sent_of(MobileAddressRequest)


def test_an_update_with_many_invalid_addresses_is_refused(pair: Driver) -> None:
    items: list[object] = [["Mvalid"], *([7] * (updates.MOST_SKIPPED + 1))]
    body = {"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1, "exist": items}
    pair.receive_bytes(b"\x00\x53\x74" + encode({"opcode": "MAU"}) + b"\x00\x53\x77" + encode(body))
    (refused,) = pair.events(act.MessageRefused)
    assert "more than 1000 addresses are invalid" in refused.reason
    (node,) = (node for node in pair.engine._nodes if node.id == "PEER")
    assert not node.mobile.addresses


def test_updates_that_wait_are_bounded(pair: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = encode_control(absolute(1, *range(MANY)), "x")
    monkeypatch.setattr(waiting, "MOST_WAITING_BYTES", 3 * len(payload))
    refused = sum(
        isinstance(action, act.MessageRefused)
        for _ in range(10)
        for action in pair.engine.on_message(LINK, payload, pair.now)
    )
    assert refused == 7
    finish(pair)
    assert known(pair) == set(range(MANY))


def test_small_updates_behind_a_large_one_are_bounded(pair: Driver) -> None:
    send(pair, absolute(1, *range(MANY)))
    for number in range(2, 200):
        send(pair, change(number, number))
    assert pair.engine.refused_messages == 198 - (waiting.MOST_UPDATES - 1)


def test_updates_are_read_at_a_bounded_rate(pair: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A router that joins is read at once; one that goes on announcing waits."""
    monkeypatch.setattr(waiting, "SECONDS_OF_READING", 1.0)
    monkeypatch.setattr(waiting, "ADDRESSES_READ", 4 * MANY)
    for sequence in range(1, 4):
        send(pair, change(sequence, *range(sequence * MANY, (sequence + 1) * MANY)))
    finish(pair)
    assert len(known(pair)) == 2 * MANY
    assert pair.engine.next_deadline < pair.now + 1
    pair.now += 1
    finish(pair)
    assert len(known(pair)) == 3 * MANY


def test_addresses_beyond_those_of_a_router_are_refused(
    pair: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "MOST_ADDRESSES", 700)
    pair.receive(absolute(1, *range(MANY)))
    assert known(pair) == set(range(700))
    assert pair.engine.refused_addresses == MANY - 700


def test_other_messages_have_a_bounded_size(pair: Driver) -> None:
    long = {f"router{number:04d}" * 10: 1 for number in range(1000)}
    pair.receive(LinkStateUpdate("PEER", 7, LinkState("PEER", 2, {"ME": 1, **long})))
    (refused,) = pair.events(act.MessageRefused)
    assert "at most 65536" in refused.reason


@pytest.mark.parametrize(
    "body",
    [
        b"\xd1\xff\xff\xff\xff\x00\x00\x00\x02",
        encode(
            {"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1, "exist": [[f"M{n}"] for n in range(2000)]}
        )[:-9],
        encode({"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1, "exist": [None] * 20_000}),
        encode({"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1, "exist": [["M", [None] * 20_000]]}),
        encode({"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1, "exist": [[["M"] * 2000] * 20]}),
        encode({"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1, "more": "x" * 70_000, "exist": []}),
        encode({"id": "PEER", "pv": 2, "area": "0", "mobile_seq": 1, "more": [None] * 5000, "exist": []}),
        encode({f"{number}": number for number in range(3000)}),
        encode([None] * 20_000),
    ],
    ids=["beyond", "cut", "nulls", "values", "nested", "long", "list", "fields", "no-map"],
)
def test_large_updates_that_are_invalid(pair: Driver, body: bytes) -> None:
    properties = b"\x00\x53\x74" + encode({"opcode": "MAU"})
    payload = properties + b"\x00\x53\x77" + bytes(Encoded(body))
    assert len(payload) > READ_AT_ONCE_BYTES or body.startswith(b"\xd1\xff")
    pair.receive_bytes(payload.ljust(READ_AT_ONCE_BYTES + 1, b"\0"))
    assert pair.events(act.MessageRefused)
    assert not known(pair)


def test_a_step_is_short() -> None:
    """As CPU time of the fastest of several tries: the first step of a message of 200,000 values, and any other one."""
    payload = encode_control(absolute(1, *range(40_000)), "x")
    longest = []
    for _ in range(3):
        before = time.thread_time()
        reader = large_update(payload)
        assert reader is not None
        steps = [time.thread_time() - before]
        done = False
        while not done:
            before = time.thread_time()
            done = reader.read(STEP)
            steps.append(time.thread_time() - before)
        longest.append(sorted(steps)[-5])
    assert min(longest) < 0.01


def test_an_opcode_that_is_missing(pair: Driver) -> None:
    with pytest.raises(ControlMessageError):
        large_update(b"\x00\x53\x74" + encode({"x": "y" * 70_000}))
    assert large_update(b"\x00\x53\x77" + encode({})) is None
