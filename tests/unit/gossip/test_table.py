"""The gossip router's table: entries are those of live connections, in any order of events, within its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from tests.unit.gossip.strategies import frames_of

from isthmus_router.gossip.binding import Binding
from isthmus_router.gossip.messages import (
    VERSION,
    Control,
    GetMembers,
    Heartbeat,
    Hello,
    Members,
    NotHere,
    Refused,
    Register,
    Suspect,
    Unregister,
    decode_control,
    encode_control,
    encode_message,
    is_message,
    payload_of,
)
from isthmus_router.gossip.table import SUSPECTS_AT_ONCE, Limits, Link, Table
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, PhysicalAddress

GROUP = "group"
ROUTER = b"r" * 16


def info(number: int, port: int = 1) -> MemberInfo:
    return MemberInfo(MemberId(bytes([number]) * 16), f"m{number}", (PhysicalAddress("host", port),))


A, B, C = info(1), info(2), info(3)


class Client:
    """A connection, and what came by it."""

    def __init__(
        self,
        table: Table,
        now: float = 0.0,
        *,
        greeted: bool = True,
        identity: str = "",
        names: tuple[str, ...] | None = None,
    ) -> None:
        """`names`: those of its verified certificate; None: the router does not verify any."""
        self.table = table
        self.heard: list[Control | bytes] = []
        self.pieces = 0
        """Times that the table has sent something."""
        self.answers: list[Sequence[bytes]] = []
        self.ended: str | None = None
        self.held_back = False
        table.opened(now, self, identity, names)
        if greeted:
            self.say(Hello(VERSION), now=now)
            assert self.heard.pop() == Hello(VERSION, ROUTER, table.limits.expiry, table.limits.most_bytes)

    def say(self, *messages: Control | bytes, now: float = 0.0) -> None:
        for message in messages:
            self.table.received(now, self, message if isinstance(message, bytes) else encode_control(message))

    def send(self, frame: bytes) -> None:
        assert self.ended is None
        self.pieces += 1
        for each in frames_of(frame):
            self.heard.append(payload_of(each) if is_message(each) else decode_control(each))

    def carry(self, group: bytes, frame: bytes, to: Sequence[Link]) -> None:
        for link in to:
            link.send(frame)

    def answer(self, frames: Sequence[bytes]) -> None:
        self.answers.append(frames)
        for frame in frames:
            self.send(frame)

    def close(self, reason: str) -> None:
        self.ended = reason

    def lost(self) -> None:
        self.table.closed(0.0, self)


@pytest.fixture
def table() -> Table:
    return Table(0.0, ROUTER)


def test_members_are_told_in_parts(table: Table) -> None:
    client = Client(table)
    for number in range(1, 121):
        Client(table).say(Register(GROUP, info(number)))
    for _ in range(2):
        client.say(GetMembers(GROUP))
        parts = [heard for heard in client.heard if isinstance(heard, Members)]
        assert [part.last for part in parts] == [False, False, True]
        assert [found for part in parts for found in part.infos] == [info(number) for number in range(1, 121)]
        client.heard.clear()


def test_answer_follows_every_change(table: Table) -> None:
    client = Client(table)
    for changed, expected in [
        (Register(GROUP, A), (A,)),
        (Register(GROUP, A._replace(name="renamed")), (A._replace(name="renamed"),)),
        (Register(GROUP, B), (A._replace(name="renamed"), B)),
        (Unregister(GROUP, A.id), (B,)),
        (Unregister(GROUP, B.id), ()),
    ]:
        client.say(changed, GetMembers(GROUP))
        assert client.heard.pop() == Members(GROUP, expected, True)


def test_answer_is_encoded_again_only_after_a_change(table: Table) -> None:
    client, other = Client(table, identity="one"), Client(table, identity="one")
    client.say(Register(GROUP, A), GetMembers(GROUP), Register(GROUP, A), GetMembers(GROUP))
    other.say(Register(GROUP, A), GetMembers(GROUP))
    assert client.answers[0] is client.answers[1] is other.answers[0]
    assert table.counters.taken_over == 1
    other.say(Register(GROUP, info(1, port=2)), GetMembers(GROUP))
    assert other.heard[-1] == Members(GROUP, (info(1, port=2),), True)


def test_client_that_takes_what_it_asked_for_is_not_silent(table: Table) -> None:
    client, silent = Client(table), Client(table)
    table.taking(table.limits.expiry, client)
    table.on_time(table.limits.expiry + 1)
    assert client.ended is None
    assert silent.ended
    silent.lost()
    table.taking(table.limits.expiry, silent)


def test_groups_do_not_mix(table: Table) -> None:
    a, b = Client(table), Client(table)
    a.say(Register("one", A))
    b.say(Register("two", B), GetMembers("one"))
    assert b.heard.pop() == Members("one", (A,), True)
    a.say(encode_message("one", B.id, A.id, b"over there"), encode_message("one", NOBODY, A.id, b"all"))
    assert a.heard == [NotHere("one", B.id)]
    a.say(encode_message("two", B.id, A.id, b"as a stranger"))
    assert b.heard == []
    assert table.counters.not_registered == 1
    a.lost()
    assert b.heard == []


def test_message_in_the_name_of_another_is_not_passed_on(table: Table) -> None:
    a, b = Client(table), Client(table)
    a.say(Register(GROUP, A))
    b.say(Register(GROUP, B), encode_message(GROUP, B.id, A.id, b"not mine"))
    assert a.heard == b.heard == []


def test_nobody_else_can_unregister_a_member(table: Table) -> None:
    a, b = Client(table), Client(table)
    a.say(Register(GROUP, A))
    b.say(Unregister(GROUP, A.id))
    assert table.members_of(GROUP) == (A,)


@pytest.mark.parametrize("frame", [Heartbeat(), Register(GROUP, A), encode_message(GROUP, B.id, A.id, b"")])
def test_nothing_goes_before_the_greeting(table: Table, frame: Control | bytes) -> None:
    client = Client(table, greeted=False)
    client.say(frame)
    assert table.members == 0
    assert client.heard == [] or isinstance(client.heard[0], Refused)


def test_silence(table: Table) -> None:
    limits = table.limits
    quiet, lively, mute = Client(table), Client(table), Client(table, greeted=False)
    quiet.say(Register(GROUP, A))
    lively.say(Register(GROUP, B))
    now = 0.0
    while now < limits.expiry + 5:
        now = table.deadline
        lively.say(Heartbeat(), now=now)
        table.on_time(now)
        assert (mute.ended is None) == (now < limits.greeting)
        assert (quiet.ended is None) == (now < limits.expiry)
    assert lively.ended is None
    assert Suspect(GROUP, A.id) in lively.heard
    assert table.counters.expired == 2


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(most_groups=2), "2 groups"),
        (Limits(most_members=2), "2 members"),
        (Limits(most_registrations=2), "2 registrations"),
    ],
)
def test_bounds(limits: Limits, reason: str) -> None:
    table = Table(0.0, ROUTER, limits)
    client = Client(table)
    client.say(Register("one", A), Register("two", B), Register("two", B._replace(name="again")))
    assert client.ended is None
    client.say(Register("three", C))
    assert client.ended is not None
    assert reason in client.ended
    assert table.members == table.groups == table.connections == 0


def test_what_comes_after_a_refusal_is_ignored(table: Table) -> None:
    client = Client(table)
    client.say(Suspect(GROUP, A.id), Register(GROUP, A))
    assert client.ended is not None
    client.lost()
    assert table.members == 0


@pytest.mark.parametrize("seed", range(80))
def test_any_order_of_events(seed: int) -> None:
    """Properties of A12, against a table that is kept in the simplest way."""
    random = Random(seed)
    table = Table(0.0, ROUTER)
    clients: list[Client] = []
    expected: dict[tuple[str, MemberId], Client] = {}
    for _ in range(300):
        group, member = random.choice(["one", "two"]), random.choice([A, B, C])
        key = group, member.id
        match random.randrange(8) if clients else 0:
            case 0:
                clients.append(Client(table))
            case 1 | 2:
                client = random.choice(clients)
                client.say(Register(group, member))
                expected[key] = client
            case 3:
                client = random.choice(clients)
                client.say(Unregister(group, member.id))
                if expected.get(key) is client:
                    del expected[key]
            case 4:
                client = clients.pop(random.randrange(len(clients)))
                gone = [at for at, owner in expected.items() if owner is client]
                before = {id(other): len(other.heard) for other in clients}
                client.lost()
                for at in gone:
                    del expected[at]
                for other in clients:
                    told = other.heard[before[id(other)] :]
                    groups = {name for (name, _), owner in expected.items() if owner is other}
                    assert sorted(map(str, told)) == sorted(
                        str(Suspect(*at)) for at in gone if at[0] in groups
                    )
            case _:
                sender, to = random.choice(clients), random.choice([A, B, C, None])
                for client in clients:
                    client.heard.clear()
                destination = NOBODY if to is None else to.id
                sender.say(encode_message(group, destination, member.id, b"x"))
                if expected.get(key) is not sender:
                    receivers = []
                elif to is None:
                    owners = (owner for (name, _), owner in expected.items() if name == group)
                    receivers = [owner for owner in dict.fromkeys(owners) if owner is not sender]
                else:
                    receivers = [owner] if (owner := expected.get((group, to.id))) else []
                assert {id(client) for client in clients if b"x" in client.heard} == set(map(id, receivers))
        for name in ("one", "two"):
            ids = {found.id for found in table.members_of(name)}
            assert ids == {member for at, member in expected if at == name}
        assert table.members == len(expected)
        assert table.connections == len(clients)


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes(seed: int) -> None:
    random = Random(seed)
    table = Table(0.0, ROUTER)
    frames = [
        encode_control(Register(GROUP, A)),
        encode_control(Unregister(GROUP, A.id)),
        encode_control(GetMembers(GROUP)),
        encode_message(GROUP, NOBODY, A.id, b"payload"),
    ]
    for _ in range(200):
        client = Client(table)
        for _ in range(10):
            frame = bytearray(random.choice(frames))
            frame[random.randrange(4, len(frame))] = random.randrange(256)
            client.say(bytes(frame))
        client.lost()
    assert table.members == table.connections == table.groups == 0


def test_nobody_takes_the_messages_of_a_member_that_somebody_else_has_registered(table: Table) -> None:
    victim, sender = Client(table, identity="a"), Client(table, identity="c")
    victim.say(Register(GROUP, A))
    sender.say(Register(GROUP, C))
    thief = Client(table, identity="b")
    thief.say(Register(GROUP, A))
    assert thief.heard == [Refused(f"member {A.id.hex()} is registered by another identity")]
    assert thief.ended is not None
    sender.say(encode_message(GROUP, A.id, C.id, b"secret"))
    assert victim.heard == [b"secret"]
    assert table.counters.taken_over == 0
    # The same identity connects again before its old connection is seen to end.
    again = Client(table, identity="a")
    again.say(Register(GROUP, A))
    assert again.ended is None
    again.lost()
    Client(table, identity="b").say(Register(GROUP, A))
    assert table.members == 2


def test_no_identity_fills_the_table_alone() -> None:
    table = Table(0.0, ROUTER, Limits(most_members=40, most_registrations=2))
    greedy = [Client(table, identity="greedy") for _ in range(10)]
    for number, client in enumerate(greedy):
        client.say(Register(GROUP, info(1 + 2 * number)), Register(GROUP, info(2 + 2 * number)))
    refusal = Refused("5 registrations by one identity")
    assert refusal in greedy[2].heard
    assert table.members <= 5
    other = Client(table, identity="other")
    other.say(Register(GROUP, info(200)))
    assert other.ended is None
    for client in greedy:
        client.lost()
    assert table.members == 1
    Client(table, identity="greedy").say(Register(GROUP, A))
    assert table.members == 2


def test_a_connection_that_is_not_read_stays_and_hears_of_the_router(table: Table) -> None:
    client = Client(table)
    client.held_back = True
    end = 10 * table.limits.expiry
    now = 0.0
    while now < end:
        now = table.deadline
        table.on_time(now)
        assert client.heard.pop() == Heartbeat()
    assert client.ended is None
    client.held_back = False
    while client.ended is None:
        now = table.deadline
        table.on_time(now)
    assert now >= end + table.limits.expiry


def test_one_identity_does_not_make_all_groups() -> None:
    table = Table(0.0, ROUTER, Limits(most_groups=16))
    greedy, other = Client(table, identity="greedy"), Client(table, identity="other")
    greedy.say(*(Register(f"group{number}", A) for number in range(2)))
    assert greedy.ended is None
    other.say(*(Register(f"other{number}", B) for number in range(2)))
    assert other.ended is None
    greedy.say(Register("other0", A))
    assert greedy.ended is None, "a group that is there"
    greedy.say(Register("one too many", A))
    assert greedy.ended == "2 groups by one identity"
    assert table.groups == 2


def test_a_group_counts_for_those_that_stay() -> None:
    table = Table(0.0, ROUTER, Limits(most_groups=16))
    first, second = Client(table, identity="first"), Client(table, identity="second")
    first.say(Register("one", A), Register("two", A))
    second.say(Register("one", B), Register("two", B))
    first.lost()
    second.say(Register("three", B))
    assert second.ended == "2 groups by one identity"
    assert not table.groups
    assert not table._groups_by_identity


class Crowd:
    """A group of many members, of which several connections are lost at the same time; work is done in steps."""

    def __init__(self, others: int, lost: int) -> None:
        self.table = Table(0.0, ROUTER)
        self.asked = 0
        self.table.on_work = self._on_work
        self.others = [Client(self.table) for _ in range(others)]
        self.lost = [Client(self.table) for _ in range(lost)]
        for number, client in enumerate([*self.others, *self.lost]):
            client.say(Register(GROUP, crowd(number)))
            client.pieces = 0

    def _on_work(self) -> None:
        self.asked += 1

    def lose(self) -> None:
        for client in self.lost:
            client.lost()

    def pieces(self) -> int:
        return sum(client.pieces for client in self.others)


def crowd(number: int) -> MemberInfo:
    return MemberInfo(MemberId((number + 1).to_bytes(16)), f"m{number}", (PhysicalAddress("host", 1),))


def test_connections_that_end_together_are_told_of_in_steps_and_in_one_piece() -> None:
    others, lost = 3 * SUSPECTS_AT_ONCE, 2 * SUSPECTS_AT_ONCE
    group = Crowd(others, lost)
    group.lose()
    assert group.asked == 1
    assert group.pieces() == 0
    steps = 0
    while True:
        before = group.pieces()
        more = group.table.work(1.0)
        assert group.pieces() - before <= SUSPECTS_AT_ONCE
        steps += 1
        if not more:
            break
    assert steps >= (others + lost) / SUSPECTS_AT_ONCE
    assert group.pieces() == others
    expected = [Suspect(GROUP, crowd(others + number).id) for number in range(lost)]
    assert all(client.heard == expected for client in group.others)
    assert not group.table.work(1.0)


def test_members_that_are_lost_while_others_are_told_of_are_told_of_after_them() -> None:
    group = Crowd(2 * SUSPECTS_AT_ONCE, 1)
    group.lose()
    group.table.work(1.0)
    group.table.work(1.0)
    last = group.others.pop()
    last.lost()
    while group.table.work(1.0):
        pass
    assert group.asked == 1
    size = 2 * SUSPECTS_AT_ONCE
    expected = [Suspect(GROUP, crowd(size).id), Suspect(GROUP, crowd(size - 1).id)]
    assert all(client.heard == expected for client in group.others)


@pytest.mark.parametrize("steps", range(5))
def test_nobody_hears_that_a_member_is_lost_after_it_has_registered_again(steps: int) -> None:
    group = Crowd(2 * SUSPECTS_AT_ONCE, 2)
    group.lose()
    for _ in range(steps):
        group.table.work(1.0)
    again = Client(group.table)
    size = 2 * SUSPECTS_AT_ONCE
    again.say(Register(GROUP, crowd(size)))
    told = [Suspect(GROUP, crowd(size).id) in client.heard for client in group.others]
    while group.table.work(1.0):
        pass
    assert [Suspect(GROUP, crowd(size).id) in client.heard for client in group.others] == told
    assert all(Suspect(GROUP, crowd(size + 1).id) in client.heard for client in group.others)
    assert group.table.counters.suspected == 2


RULE = Binding(("nyc", "*.nyc.example"), bind_names=True)
"""For certificates of a group."""
BOUND = RULE.group(GROUP)


def named(number: int, name: str) -> MemberInfo:
    return info(number)._replace(name=name)


@pytest.mark.parametrize(
    ("names", "member", "reason"),
    [
        (("nyc",), "nyc-0", ""),
        (("nyc-0.nyc.example",), "nyc-0", ""),
        (("payments-app",), "nyc-0", "certificate is for payments-app, not nyc, *.nyc.example"),
        (("payments-app",), "payments-app", "certificate is for payments-app, not nyc, *.nyc.example"),
        (("nyc-1.nyc.example",), "nyc-0", "certificate is for nyc-1.nyc.example, not for member nyc-0"),
        ((), "nyc-0", "certificate is for nobody, not nyc, *.nyc.example"),
        (None, "nyc-0", ""),
    ],
)
def test_registration_needs_a_certificate_that_fits_the_rule_of_its_group(
    table: Table, names: tuple[str, ...] | None, member: str, reason: str
) -> None:
    client = Client(table, names=names)
    client.say(Register(BOUND, named(1, member), RULE))
    assert (client.ended or "").startswith(reason)
    assert (client.ended is None) is (reason == "")
    assert len(table.members_of(BOUND)) == (reason == "")


@pytest.mark.parametrize(
    "rule", [Binding(), RULE._replace(bind_names=False), RULE._replace(peer_names=()), Binding(("any",))]
)
def test_group_with_a_rule_admits_nobody_under_a_weaker_one(table: Table, rule: Binding) -> None:
    intruder = Client(table, names=("any",))
    intruder.say(Register(BOUND, named(1, "any"), rule))
    assert intruder.ended == "the name of the group is not that of its rule for certificates"
    assert table.members_of(BOUND) == ()


def test_first_registration_of_an_id_under_no_rule_keeps_it_from_nobody(table: Table) -> None:
    """As after a restart of the router, where an intruder registers before the member does."""
    intruder = Client(table, identity="certificate payments-app", names=("payments-app",))
    intruder.say(Register(GROUP, named(1, "nyc-1")))
    member = Client(table, identity="certificate nyc-1", names=("nyc",))
    other = Client(table, identity="certificate nyc-0", names=("nyc",))
    member.say(Register(BOUND, named(1, "nyc-1"), RULE))
    other.say(Register(BOUND, named(2, "nyc-0"), RULE))
    for group in (GROUP, BOUND):
        intruder.say(encode_message(group, B.id, A.id, b"LEAVE"))
    intruder.lost()
    member.say(encode_message(BOUND, B.id, A.id, b"of the member"))
    assert other.heard == [b"of the member"]
    assert table.members_of(BOUND) == (named(1, "nyc-1"), named(2, "nyc-0"))


def test_order_and_case_of_names_do_not_make_another_group() -> None:
    assert Binding(("b", "A")).group(GROUP) == Binding(("a", "B")).group(GROUP)
    assert Binding(("a",)).group(GROUP) != Binding(("a",), bind_names=True).group(GROUP)
    assert Binding().group(GROUP) == GROUP
