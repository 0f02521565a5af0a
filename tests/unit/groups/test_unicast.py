"""Messages to one member: in order, exactly once, over a network that loses, repeats and reorders."""

from __future__ import annotations

import heapq
import random
import struct
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from isthmus_router.groups.frames import FrameError, Kind
from isthmus_router.groups.identity import MemberId, member_id
from isthmus_router.groups.unicast import NO_SUCH_MEMBER, Unicasts, UnicastSettings

SMALL = UnicastSettings(
    window_messages=8, window_bytes=100, queue_messages=20, queue_bytes=1_000, most_members=4
)


class Member:
    """Port and user of its unicasts."""

    def __init__(self, network: Network, index: int, settings: UnicastSettings) -> None:
        self.network = network
        self.id = member_id(bytes([index]) * 16)
        self.got: list[tuple[MemberId, bytes]] = []
        self.outcomes: list[tuple[object, bool, str]] = []
        self.sent: Counter[Kind] = Counter()
        self.unicasts = Unicasts(self.id, settings, self, self)
        network.members[self.id] = self

    def send(self, now: float, to: MemberId, kind: Kind, body: bytes) -> None:
        self.sent[kind] += 1
        self.network.carry(self.id, to, kind, body)

    def send_all(self, now: float, kind: Kind, body: bytes) -> None:
        raise AssertionError("a unicast to all")

    def received(self, now: float, sender: MemberId, message: bytes) -> None:
        self.got.append((sender, message))

    def outcome(self, now: float, token: object, delivered: bool, reason: str) -> None:
        self.outcomes.append((token, delivered, reason))

    def say(self, to: Member, text: str) -> bool:
        """A message whose token is its text; acknowledgements wait for the end of the turn."""
        return self.unicasts.send(self.network.now, to.id, text.encode(), text)

    def texts(self, sender: Member) -> list[str]:
        """That came from a member."""
        return [message.decode() for who, message in self.got if who == sender.id]


class Network:
    """What is between them."""

    def __init__(self, *, seed: int = 1, loss: float = 0, repeat: float = 0, delay: float = 0.001) -> None:
        self.random = random.Random(seed)
        self.loss, self.repeat, self.delay = loss, repeat, delay
        self.now = 10.0
        self.members: dict[MemberId, Member] = {}
        self.queue: list[tuple[float, int, MemberId, MemberId, Kind, bytes]] = []
        self.count = 0
        self.cut = False

    def carry(self, sender: MemberId, to: MemberId, kind: Kind, body: bytes) -> None:
        """A frame sets off."""
        for _ in range(2 if self.random.random() < self.repeat else 1):
            if not self.cut and self.random.random() >= self.loss:
                self.count += 1
                at = self.now + self.delay * (self.random.random() if self.loss or self.repeat else 1)
                heapq.heappush(self.queue, (at, self.count, sender, to, kind, body))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while True:
            due = [member.unicasts.deadline for member in self.members.values()]
            at = min([*due, *(self.queue[0][:1])] if self.queue else due)
            if at > end:
                break
            self.now = max(self.now, at)
            while self.queue and self.queue[0][0] <= self.now:
                _, _, sender, to, kind, body = heapq.heappop(self.queue)
                if member := self.members.get(to):
                    member.unicasts.on_frame(self.now, kind, sender, body)
                    member.unicasts.flush(self.now)
            for member in list(self.members.values()):
                if member.unicasts.deadline <= self.now:
                    member.unicasts.on_time(self.now)
                    assert member.unicasts.deadline > self.now
        self.now = end


def pair(network: Network, settings: UnicastSettings | None = None) -> tuple[Member, Member]:
    """Two members."""
    settings = settings or UnicastSettings()
    return Member(network, 1, settings), Member(network, 2, settings)


@pytest.mark.parametrize("seed", range(40))
def test_in_order_and_once_whatever_the_network_does(seed: int) -> None:
    network = Network(seed=seed, loss=0.3, repeat=0.3, delay=0.05)
    settings = UnicastSettings(window_messages=1 + seed % 20, window_bytes=200)
    members = [Member(network, index + 1, settings) for index in range(3)]
    said: dict[tuple[Member, Member], list[str]] = {
        (a, b): [] for a in members for b in members if a is not b
    }
    for number in range(200):
        a, b = network.random.choice(list(said))
        assert a.say(b, f"{number}")
        said[a, b].append(f"{number}")
        network.run(network.random.random() * 0.02)
    network.run(100)
    for (a, b), texts in said.items():
        assert b.texts(a) == texts
    for member in members:
        mine = [text for (a, _), texts in said.items() if a is member for text in texts]
        assert Counter(member.outcomes) == Counter((text, True, "") for text in mine)


def test_acknowledgements_of_a_turn_are_one() -> None:
    network = Network()
    a, b = pair(network)
    for number in range(50):
        a.say(b, str(number))
    while network.queue:
        _, _, sender, _, kind, body = heapq.heappop(network.queue)
        b.unicasts.on_frame(network.now, kind, sender, body)
    b.unicasts.flush(network.now)
    assert b.sent == {Kind.UNICAST_ACK: 1}
    network.run(0.1)
    assert len(a.outcomes) == 50
    assert a.sent == {Kind.UNICAST: 50}


def test_what_waits_for_all_members_is_bounded_and_each_source_has_a_share() -> None:
    network = Network()
    settings = replace(SMALL, queue_bytes=20_000, together_bytes=100_000, most_members=100)
    sender = Member(network, 1, settings)
    ids = [member_id(bytes([number]) * 16) for number in range(2, 102)]
    network.cut = True

    def send(source: str, *, size: int = 9_700) -> int:
        """Of one message to each member: the bytes that are taken."""
        taken = (sender.unicasts.send(network.now, to, bytes(size), source, source) for to in ids)
        return sum(taken) * size

    assert [send(source) for source in "abcde"] == [48_500, 29_100, 9_700, 9_700, 0]
    assert send("e", size=100) == 100, "another one finds some room, whatever the others have"
    assert sender.unicasts._held_bytes <= settings.together_bytes
    for to in ids:
        sender.unicasts.gone(network.now, to, "gone")
    assert Counter(token for token, *_ in sender.outcomes) == {"a": 5, "b": 3, "c": 1, "d": 1, "e": 1}
    assert (sender.unicasts._held_bytes, sender.unicasts._held) == (0, {})
    assert send("e") == 48_500


def test_what_a_member_sends_to_itself_counts_as_well_until_the_turn_ends() -> None:
    network = Network()
    member = Member(network, 1, replace(SMALL, together_bytes=100_000))
    send = partial(member.unicasts.send, network.now, member.id, bytes(30_000), "", "a")
    assert [send() for _ in range(3)] == [True, True, False]
    member.unicasts.flush(network.now)
    assert send()


def test_window_and_queue_are_bounded() -> None:
    network = Network()
    a, b = pair(network, SMALL)
    network.cut = True
    accepted = [number for number in range(100) if a.say(b, str(number))]
    assert accepted == list(range(20))
    assert a.sent[Kind.UNICAST] == 8
    assert not a.say(b, "x" * 1_000)
    network.cut = False
    network.run(5)
    assert b.texts(a) == [str(number) for number in range(20)]
    assert a.say(b, "again")


def test_a_window_of_bytes_lets_one_large_message_through() -> None:
    network = Network()
    a, b = pair(network, SMALL)
    a.say(b, "x" * 500)
    a.say(b, "y")
    assert a.sent[Kind.UNICAST] == 1
    network.run(1)
    assert b.texts(a) == ["x" * 500, "y"]


def test_repeats_ever_less_often() -> None:
    network = Network()
    a, b = pair(network)
    network.cut = True
    a.say(b, "hello")
    network.run(0.21)
    assert a.sent[Kind.UNICAST] == 2
    network.run(20)
    assert 10 <= a.sent[Kind.UNICAST] <= 16


def test_a_changed_route_repeats_at_once() -> None:
    network = Network()
    a, b = pair(network)
    network.cut = True
    for number in range(100):
        a.say(b, str(number))
    network.run(0.1)
    network.cut = False
    a.unicasts.route_changed(network.now)
    network.run(0.01)
    assert b.texts(a) == [str(number) for number in range(100)]


def test_recovery_does_not_wait_for_the_timer_with_each_part() -> None:
    network = Network()
    a, b = pair(network)
    network.cut = True
    for number in range(1_000):
        a.say(b, str(number))
    network.run(0.19)
    network.cut = False
    network.run(0.1)
    assert len(b.got) == 1_000
    assert a.sent[Kind.UNICAST] < 2_100


def test_a_member_that_is_gone_fails_what_it_had_not_acknowledged() -> None:
    network = Network()
    a, b = pair(network, SMALL)
    a.say(b, "one")
    network.run(0.1)
    network.cut = True
    for number in range(12):
        a.say(b, str(number))
    a.unicasts.gone(network.now, b.id, "left")
    assert a.outcomes == [("one", True, ""), *((str(number), False, "left") for number in range(12))]
    network.cut = False
    network.run(1)
    assert b.texts(a) == ["one"]
    assert a.unicasts.deadline > network.now + 100


def test_what_is_sent_after_failure_is_not_taken_for_what_failed() -> None:
    network = Network(delay=0.5)
    a, b = pair(network)
    a.say(b, "late")
    a.unicasts.gone(network.now, b.id, "suspected")
    network.delay = 0.001
    a.say(b, "new")
    network.run(5)
    assert b.texts(a) == ["new"]
    assert a.outcomes == [("late", False, "suspected"), ("new", True, "")]


def test_a_relay_that_knows_no_such_member_fails_it() -> None:
    network = Network()
    a, b = pair(network)
    a.say(b, "hello")
    a.unicasts.on_frame(network.now, Kind.UNICAST_LOST, b.id, b"")
    assert a.outcomes == [("hello", False, NO_SUCH_MEMBER)]


def test_a_new_incarnation_sees_no_old_message() -> None:
    network = Network()
    a, b = pair(network)
    network.cut = True
    a.say(b, "old")
    del network.members[b.id]
    again = Member(network, 3, UnicastSettings())
    network.cut = False
    a.say(again, "new")
    network.run(5)
    assert again.texts(a) == ["new"]
    assert b.got == []


def frame(connection: int, number: int, size: int = 1) -> bytes:
    """Body of a UNICAST."""
    return struct.pack(">QQQ", connection, number, 1) + bytes(size)


def test_early_messages_are_bounded() -> None:
    network = Network()
    a, b = pair(network, SMALL)
    for number in range(50, 1, -1):
        b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, number))
    b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, 1))
    assert len(b.got) == 8
    for number in (11, 12, 13, 9):
        b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, number, 40))
    b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, 10, 40))
    assert len(b.got) == 12


def test_repetitions_take_no_room() -> None:
    network = Network()
    a, b = pair(network, SMALL)
    for number in (1, 2, 1, 2, 4, 3):
        b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, number, 50))
    assert len(b.got) == 4


def test_frames_of_an_earlier_connection_are_void() -> None:
    network = Network()
    a, b = pair(network)
    b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(2, 1))
    b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, 2))
    assert len(b.got) == 1
    network.cut = True
    a.say(b, "failed")
    a.unicasts.gone(network.now, b.id, "left")
    a.say(b, "new")
    a.unicasts.on_frame(network.now, Kind.UNICAST_ACK, b.id, struct.pack(">QQ", 1, 1))
    assert a.outcomes == [("failed", False, "left")]


def test_early_messages_of_who_is_gone_are_dropped() -> None:
    network = Network()
    a, b = pair(network)
    b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, 2))
    b.unicasts.gone(0, a.id, "suspected")
    b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, 1))
    assert len(b.got) == 1
    b.unicasts.on_frame(0, Kind.UNICAST, a.id, frame(1, 2))
    assert len(b.got) == 2


def test_after_progress_repeats_are_quick_again() -> None:
    network = Network()
    a, b = pair(network)
    network.cut = True
    a.say(b, "one")
    network.run(10)
    network.cut = False
    network.run(5)
    network.cut = True
    a.say(b, "two")
    network.cut = False
    network.run(0.21)
    assert b.texts(a) == ["one", "two"]


def test_idle_connections_are_forgotten_without_harm() -> None:
    network = Network()
    a, b = pair(network, SMALL)
    a.say(b, "one")
    network.run(1_000)
    assert a.unicasts.deadline == b.unicasts.deadline == float("inf")
    a.say(b, "two")
    network.run(1)
    b.say(a, "three")
    network.run(1)
    assert b.texts(a) == ["one", "two"]
    assert a.texts(b) == ["three"]


def test_a_receiver_that_forgot_goes_on_where_it_was() -> None:
    network = Network()
    a, b = pair(network)
    a.say(b, "one")
    network.run(0.1)
    b.unicasts = Unicasts(b.id, UnicastSettings(), b, b)
    a.say(b, "two")
    network.run(0.1)
    assert b.texts(a) == ["one", "two"]
    assert a.outcomes[-1] == ("two", True, "")


def test_to_oneself() -> None:
    network = Network()
    a, _ = pair(network, SMALL)
    assert [a.say(a, str(number)) for number in range(21)] == [True] * 20 + [False]
    assert a.got == []
    network.run(0.001)
    assert len(a.texts(a)) == len(a.outcomes) == 20


def test_members_are_bounded() -> None:
    network = Network()
    a, b = pair(network, SMALL)
    others = [Member(network, index, SMALL) for index in range(10, 20)]
    assert sum(a.say(other, "x") for other in others) == 4
    for other in others:
        other.say(b, "y")
    network.run(0.05)
    assert len(b.got) == 4


@pytest.mark.parametrize("kind", [Kind.UNICAST, Kind.UNICAST_ACK])
def test_what_is_no_unicast_is_refused(kind: Kind) -> None:
    a, b = pair(Network())
    with pytest.raises(FrameError):
        a.unicasts.on_frame(0, kind, b.id, b"short")


@pytest.mark.parametrize(
    "numbers", [(1, 1, 0), (1, 1, 2), (1, 0, 0), (1 << 63, 1, 1), (1, 1 << 63, 1), (1, (1 << 64) - 1, 1)]
)
def test_numbers_that_cannot_be_are_refused_and_keep_no_others_waiting(numbers: tuple[int, int, int]) -> None:
    network = Network()
    a, b = pair(network)
    with pytest.raises(FrameError):
        a.unicasts.on_frame(0, Kind.UNICAST, b.id, struct.pack(">QQQ", *numbers))
    b.say(a, "one")
    network.run(0.1)
    assert a.texts(b) == ["one"]
    assert b.outcomes == [("one", True, "")]


def test_what_is_for_the_member_itself_fails_when_it_closes_like_the_rest() -> None:
    network = Network()
    one, other = (Member(network, index, UnicastSettings()) for index in (1, 2))
    assert one.say(one, "self")
    assert one.say(other, "other")
    one.unicasts.close(network.now)
    one.unicasts.flush(network.now)
    assert sorted(one.outcomes) == [
        ("other", False, "this member has left"),
        ("self", False, "this member has left"),
    ]
    assert not one.got


def early(member: Member, sender: MemberId, number: int, size: int) -> None:
    """Message `number` of a sender whose first one is missing."""
    body = struct.pack(">QQQ", 1, number, 1) + bytes(size)
    member.unicasts.on_frame(0.0, Kind.UNICAST, sender, body)


def test_messages_of_all_senders_that_wait_for_earlier_ones_are_bounded() -> None:
    settings = UnicastSettings(early_bytes=100_000)
    member = Member(Network(), 1, settings)
    others = [member_id(number.to_bytes(16, "big")) for number in range(100, 200)]
    for sender in others:
        early(member, sender, 2, 10_000)
    held = [incoming for incoming in member.unicasts._in.values() if incoming.early]
    assert len(held) == 9
    late = others[-1]
    for number in (1, 2):  # in order they need no room
        early(member, late, number, 10_000)
    assert [sender for sender, _ in member.got] == [late, late]
    early(member, others[0], 1, 10)
    assert [sender for sender, _ in member.got[2:]] == [others[0]] * 2
    early(member, others[50], 2, 10_000)
    assert member.unicasts._in[others[50]].early, "there is room again"
    for sender in others:
        member.unicasts.gone(0.0, sender, "")
    assert member.unicasts._early_bytes == 0


def test_many_empty_messages_that_wait_for_earlier_ones_are_bounded() -> None:
    member = Member(Network(), 1, UnicastSettings(early_bytes=100_000))
    for sender in (member_id(number.to_bytes(16, "big")) for number in range(100, 105)):
        for number in range(2, 1_000):
            early(member, sender, number, 0)
    assert sum(len(incoming.early) for incoming in member.unicasts._in.values()) < 400


def test_senders_that_have_gone_give_way_to_new_ones() -> None:
    member = Member(Network(), 1, SMALL)
    first, *others = (member_id(number.to_bytes(16, "big")) for number in range(100, 106))
    for sender in (first, *others[:3]):
        early(member, sender, 1, 1)
    early(member, others[3], 1, 1)
    assert others[3] not in member.unicasts._in
    member.unicasts.gone(0.0, first, "")
    early(member, others[3], 1, 1)
    assert others[3] in member.unicasts._in
    assert first not in member.unicasts._in


def test_much_that_is_not_acknowledged_is_repeated_in_steps_when_a_route_changes() -> None:
    network = Network()
    sender = Member(network, 1, UnicastSettings())
    others = [Member(network, index, UnicastSettings()) for index in range(2, 202)]
    network.cut = True
    for other in others:
        for number in range(100):
            sender.say(other, str(number))
    network.run(0.1)
    sender.sent.clear()
    unicasts = sender.unicasts
    unicasts.route_changed(network.now, [other.id for other in others[:100]])
    assert not sender.sent
    steps = 0
    while unicasts.deadline <= network.now:
        before = sender.sent[Kind.UNICAST]
        unicasts.on_time(network.now)
        assert sender.sent[Kind.UNICAST] - before < 600
        steps += 1
    assert 1 < steps <= 10
    assert sender.sent[Kind.UNICAST] == 100 * 8, "to those alone"
    network.cut = False
    unicasts.route_changed(network.now)
    while unicasts.deadline <= network.now:
        unicasts.on_time(network.now)
    network.run(0.05)
    assert all(other.texts(sender) == list(map(str, range(100))) for other in others)


def test_a_member_that_fails_before_its_turn_to_be_repeated_to_is_passed_over() -> None:
    network = Network()
    sender = Member(network, 1, UnicastSettings())
    others = [Member(network, index, UnicastSettings()) for index in range(2, 202)]
    network.cut = True
    for other in others:
        for number in range(10):
            sender.say(other, str(number))
    sender.unicasts.route_changed(network.now)
    sender.unicasts.on_time(network.now)
    for other in others:
        sender.unicasts.gone(network.now, other.id, "left")
    sender.sent.clear()
    sender.unicasts.on_time(network.now)
    assert not sender.sent
    assert sender.unicasts.deadline > network.now
