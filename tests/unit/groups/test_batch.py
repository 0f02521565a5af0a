"""Batches of others: only those that a member publishes are accepted, so that none takes long to deliver."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import pytest

from isthmus_router.config.tables.relay import MOST_MESSAGE_BYTES as MOST_CONFIGURED
from isthmus_router.groups.batch import (
    BATCH_BYTES,
    MOST_ACCEPTED_MESSAGES,
    MOST_ADDRESS_BYTES,
    MOST_MESSAGE_BYTES,
    MOST_MESSAGES,
    GroupMessage,
    decode_batch,
    make_batch,
)
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import member_id
from isthmus_router.sites.filters import Filters

ORIGIN = member_id(b"o" * 16)


def encoded(messages: Sequence[GroupMessage]) -> bytes:
    return make_batch(ORIGIN, 1, 0, "nyc", None, messages).encoded


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([GroupMessage("a", b"")] * (MOST_ACCEPTED_MESSAGES + 1), id="messages"),
        pytest.param([GroupMessage("a", bytes(BATCH_BYTES // 2))] * 3, id="bytes"),
        pytest.param([GroupMessage("a", bytes(MOST_MESSAGE_BYTES + 1))], id="bytes of a message"),
        pytest.param(
            [GroupMessage(f"{number:060000}", b"") for number in range(1 + MOST_ADDRESS_BYTES // 60_000)],
            id="bytes of addresses",
        ),
    ],
)
def test_a_batch_that_no_member_publishes_is_refused(messages: list[GroupMessage]) -> None:
    with pytest.raises(FrameError, match="batch of"):
        decode_batch(encoded(messages))


def test_the_largest_messages_of_a_site_are_accepted() -> None:
    assert MOST_MESSAGE_BYTES >= MOST_CONFIGURED
    messages = [GroupMessage("a", bytes(BATCH_BYTES - 1)), GroupMessage("b", bytes(MOST_MESSAGE_BYTES))]
    assert list(decode_batch(encoded(messages)).messages()) == messages


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_published_is_accepted(seed: int) -> None:
    chance = random.Random(seed)
    sizes = chance.choice([(0,), (0, 1, 60), (20, 70_000), (40_000,), (1_000_000, 3)])
    names = chance.choice([("a",), ("a", "b/c"), tuple("\U0001f310" * length for length in range(1, 1_000))])
    count = 20 if max(sizes) > 10_000 else chance.choice([1, MOST_MESSAGES, 70_000])
    payloads = {size: bytes(size) for size in sizes}
    messages = [GroupMessage(chance.choice(names), payloads[chance.choice(sizes)]) for _ in range(count)]
    accepted = [
        message
        for _, part in Filters().batches(messages)
        for message in decode_batch(b"." + encoded(part), 1).messages()
    ]
    assert accepted == messages


def test_what_is_cut_or_changed_is_refused_before_its_messages_are_taken_out() -> None:
    chance = random.Random(1)
    whole = encoded([GroupMessage("a", b"one"), GroupMessage("bc", b"two"), GroupMessage("a", b"")])
    for size in range(len(whole)):
        with pytest.raises(FrameError):
            decode_batch(whole[:size])
    for _ in range(3_000):
        noisy = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            noisy[chance.randrange(len(noisy))] = chance.randrange(256)
        try:
            batch = decode_batch(bytes(noisy))
        except FrameError:
            continue
        assert len(list(batch.messages())) == batch.count


@pytest.mark.parametrize(
    "targets", [None, (), ("sfo",), ("a", "b-1", "x" * 63), tuple(f"s{n}" for n in range(254))]
)
def test_targets_survive_the_wire(targets: tuple[str, ...] | None) -> None:
    batch = make_batch(ORIGIN, 1, 0, "nyc", targets, [GroupMessage("a", b"1")])
    for each in (batch, decode_batch(b"header" + batch.encoded, 6)):
        assert each.targets == targets
        assert each.is_for("sfo") == (targets is None or "sfo" in targets)
        assert list(each.messages()) == [GroupMessage("a", b"1")]


@pytest.mark.parametrize("name", ["", "x" * 64, "SFO", "-a", "a b", "s\u00fcd", "\U0001f310"])
def test_a_batch_for_a_site_that_no_configuration_names_is_refused(name: str) -> None:
    batch = make_batch(ORIGIN, 1, 0, "nyc", ("sfo", name), [GroupMessage("a", b"1")])
    with pytest.raises(FrameError, match="no site can have"):
        decode_batch(batch.encoded)


def test_targets_of_retained_batches_take_no_memory_of_their_own() -> None:
    encoded = [
        make_batch(
            ORIGIN, number, 0, "nyc", tuple(f"{number}-{n}" for n in range(254)), [GroupMessage("a", b"")]
        ).encoded
        for number in range(1, 301)
    ]
    tracemalloc.start()
    batches = [decode_batch(each) for each in encoded]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert batches[299].is_for("300-7")
    assert used < 300 * 3_000
