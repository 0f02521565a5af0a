"""The queue of messages for one receiver: fair, in order for each sender, and bounded."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus_router.gossip.queues import LEAST_COST, FairQueue

MOST = 1 << 14
LONG = 1 << 20


@dataclass(frozen=True, eq=False)
class Message:
    frame: bytes
    sender: str = ""

    @property
    def cost(self) -> int:
        return max(LEAST_COST, len(self.frame))


Queue = FairQueue[str, Message, str]


def put(queue: Queue, sender: str, *sizes: int) -> list[Message]:
    messages = [Message(bytes(size), sender) for size in sizes]
    for message in messages:
        queue.put(sender, message)
    return messages


def taken(queue: Queue, size: int = LONG) -> list[str]:
    return [message.sender for message in queue.take(size)]


def test_messages_of_one_sender_keep_their_order() -> None:
    queue = Queue(MOST)
    messages = put(queue, "one", 10, 3000, 1, 70)
    assert queue.take(LONG) == messages
    assert queue.take(LONG) == []


def test_a_message_passes_all_that_wait_of_another_sender() -> None:
    queue = Queue(MOST)
    put(queue, "flood", *[70] * 1000)
    assert taken(queue, 700) == ["flood"] * 10
    put(queue, "late", 1000)
    assert taken(queue, 1140) == ["late", "flood", "flood"]


@pytest.mark.parametrize("size", [1, 70, LEAST_COST])
def test_short_messages_count_as_512_bytes(size: int) -> None:
    queue = Queue(MOST)
    put(queue, "flood", *[size] * 1000)
    put(queue, "long", *[16 * LEAST_COST] * 10)
    shares = Counter[str]()
    while shares["long"] < 5:
        shares.update(taken(queue, 1))
    assert 4 * 16 <= shares["flood"] <= 5 * 16


def test_a_sender_that_has_one_long_message_at_a_time_has_no_more_than_others() -> None:
    """It is counted what it has had, although none of its messages waits then."""
    queue = Queue(MOST)
    put(queue, "steady", *[1000] * 1000)
    shares = Counter[str]()
    for _ in range(100):
        put(queue, "bursts", 10_000)
        for message in queue.take(5_000):
            shares[message.sender] += len(message.frame)
    assert shares["bursts"] <= shares["steady"] + 20_000


def test_a_sender_that_was_away_has_not_saved_turns() -> None:
    queue = Queue(MOST)
    put(queue, "back", 1000)
    put(queue, "steady", *[1000] * 1000)
    queue.take(500_000)
    put(queue, "back", *[1000] * 500)
    shares = Counter(taken(queue, 100_000))
    assert abs(shares["back"] - shares["steady"]) <= 1


def test_what_is_taken_has_so_many_bytes() -> None:
    queue = Queue(MOST)
    put(queue, "one", 400, 400, 400)
    assert len(queue.take(1)) == 1
    assert queue.take(0) == []
    assert len(queue.take(401)) == 2
    put(queue, "other", 5000)
    assert len(queue.take(LONG)) == 1


def test_a_sender_is_held_while_too_much_of_it_waits() -> None:
    queue = Queue(MOST)
    few = MOST // LEAST_COST - 1
    assert not any(queue.put("one", Message(b"1")) for _ in range(few))
    assert not queue.put("other", Message(b"1"))
    assert queue.put("one", Message(b"1"))
    queue.hold("one", "first connection")
    assert queue.put("one", Message(bytes(LONG)))  # a long message is never refused
    queue.hold("one", "second connection")
    queue.hold("one", "second connection")
    queue.take(1)
    queue.take(1)
    assert queue.released == []
    queue.take(LONG)
    assert sorted(queue.released) == ["first connection", "second connection"]


def test_all_that_are_held_are_released_when_the_receiver_is_gone() -> None:
    queue = Queue(MOST)
    messages = put(queue, "one", LONG, 1) + put(queue, "other", LONG)
    queue.hold("one", "first")
    queue.hold("other", "second")
    assert sorted(map(id, queue.clear())) == sorted(map(id, messages))
    assert queue.released == ["first", "second"]
    assert queue.take(LONG) == []
    assert not queue.put("one", Message(b"1"))


def test_senders_that_are_gone_take_no_memory() -> None:
    queue = Queue(MOST)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20_000):
            put(queue, f"sender {number}", 1)
            queue.take(LONG)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000


SENDERS = "abcd"
LONGEST = 4 * LEAST_COST
PUT = st.tuples(st.sampled_from(SENDERS), st.integers(1, LONGEST), st.integers(1, 16))
"""So many messages of a sender, all of one size."""
TAKE = st.integers(1, 40 * LEAST_COST)


@given(st.lists(PUT | TAKE, max_size=50))
def test_any_senders(steps: list[tuple[str, int, int] | int]) -> None:
    """The model has a list for each sender. Senders that always have messages get equal parts."""
    queue, model = Queue(MOST), {sender: list[Message]() for sender in SENDERS}
    held = set[str]()
    had, since = Counter[str](), dict[str, Counter[str]]()
    for step in steps:
        if isinstance(step, tuple):
            sender, size, count = step
            if not model[sender]:
                since[sender] = had.copy()
            for _ in range(count):
                message = Message(bytes(size), sender)
                model[sender].append(message)
                full = queue.put(sender, message)
                assert full == (sum(each.cost for each in model[sender]) >= MOST)
                if full:
                    queue.hold(sender, sender)
                    held.add(sender)
        else:
            some = queue.take(step)
            assert (sum(len(message.frame) for message in some[:-1])) < step
            for message in some:
                assert model[message.sender].pop(0) is message
                had[message.sender] += message.cost
                for sender, rest in model.items():
                    if rest and sender != message.sender:
                        # It has waited since then, and each other one has had about as much.
                        mine = had[sender] - since[sender][sender]
                        other = had[message.sender] - since[sender][message.sender]
                        assert other <= mine + 2 * LONGEST
            assert sum(len(message.frame) for message in some) >= step or not any(model.values())
        now_held = {sender for sender in held if sum(each.cost for each in model[sender]) >= MOST}
        assert set(queue.released) == held - now_held
        queue.released.clear()
        held = now_held
