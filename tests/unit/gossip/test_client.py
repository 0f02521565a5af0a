"""A member's side: what it tells routers, which one it sends by, and whom it takes for lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from isthmus_router.gossip.client import ClientSettings, Endpoint, GossipClient
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
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, PhysicalAddress

GROUP = "group"
ONE, TWO = Endpoint("one", 1), Endpoint("two", 2)
SETTINGS = ClientSettings()


def info(number: int) -> MemberInfo:
    return MemberInfo(MemberId(bytes([number]) * 16), f"m{number}", (PhysicalAddress("host", 1),))


A, B, C = info(1), info(2), info(3)


class World:
    """The client of A, with its port and user."""

    def __init__(self, *routers: Endpoint) -> None:
        self.said: list[tuple[Endpoint, Control | bytes]] = []
        self.connecting: list[Endpoint] = []
        self.closed: list[Endpoint] = []
        self.found: list[Sequence[MemberInfo]] = []
        self.frames: list[bytes] = []
        self.suspected: list[MemberId] = []
        self.reasons: list[str] = []
        self.client = GossipClient(GROUP, A, routers, self, self, Random(3), SETTINGS)
        self.client.start(0.0)

    def greet(self, router: Endpoint, now: float = 0.0, *, most_bytes: int = 10_000) -> None:
        self.client.connected(now, router)
        self.hear(router, Hello(VERSION, router.host.encode(), 15.0, most_bytes), now=now)

    def hear(self, router: Endpoint, *messages: Control | bytes, now: float = 0.0) -> None:
        for message in messages:
            frame = message if isinstance(message, bytes) else encode_control(message)
            self.client.on_frame(now, router, frame)

    def taken(self) -> list[tuple[Endpoint, Control | bytes]]:
        said, self.said = self.said, []
        return said

    # Port

    def connect(self, router: Endpoint) -> None:
        self.connecting.append(router)

    def send(self, router: Endpoint, frame: bytes) -> None:
        self.said.append((router, payload_of(frame) if is_message(frame) else decode_control(frame)))

    def close(self, router: Endpoint) -> None:
        self.closed.append(router)

    # User

    def members(self, now: float, infos: Sequence[MemberInfo]) -> None:
        self.found.append(infos)

    def frame(self, now: float, sender: MemberId, frame: bytes) -> None:
        self.frames.append(frame)

    def suspect(self, now: float, member: MemberId) -> None:
        self.suspected.append(member)

    def refused(self, now: float, router: Endpoint, reason: str) -> None:
        self.reasons.append(reason)


@pytest.fixture
def world() -> World:
    """Registered with two routers, of which both have B, and only the second has C."""
    world = World(ONE, TWO)
    for router, infos in ((ONE, (A, B)), (TWO, (A, B, C))):
        world.greet(router)
        world.hear(router, Members(GROUP, infos, True))
    world.said.clear()
    return world


def test_greets_registers_and_asks() -> None:
    world = World(ONE)
    assert world.connecting == [ONE]
    world.greet(ONE)
    assert world.taken() == [(ONE, Hello(VERSION)), (ONE, Register(GROUP, A)), (ONE, GetMembers(GROUP))]
    world.hear(ONE, Members(GROUP, (A, B), False), Members(GROUP, (C,), True))
    assert world.found == [[B, C]]
    assert world.client.registered == (ONE,)


def test_sticks_to_a_router_that_has_the_member(world: World) -> None:
    for _ in range(20):
        assert world.client.send(0.0, C.id, b"x")
        assert world.client.send(0.0, B.id, b"y")
    said = world.taken()
    assert {router for router, payload in said if payload == b"x"} == {TWO}
    assert len({router for router, payload in said if payload == b"y"}) == 1


def test_changes_the_router_where_the_member_is_not(world: World) -> None:
    world.client.send(0.0, B.id, b"x")
    ((first, _),) = world.taken()
    world.hear(first, NotHere(GROUP, B.id))
    world.client.send(0.0, B.id, b"x")
    ((second, _),) = world.taken()
    assert {first, second} == {ONE, TWO}
    world.client.closed(0.0, second)
    world.client.send(0.0, B.id, b"x")
    assert world.taken() == [(first, b"x")]


def test_member_that_no_router_is_known_to_have(world: World) -> None:
    unknown = info(4).id
    world.client.send(0.0, unknown, b"x")
    for _ in range(5):
        ((first, _),) = world.taken()
        world.hear(first, NotHere(GROUP, unknown))
        world.client.send(0.0, unknown, b"x")
        assert world.said[0][0] != first


def test_to_everybody_by_all_routers(world: World) -> None:
    assert world.client.send(0.0, NOBODY, b"x")
    assert world.taken() == [(ONE, b"x"), (TWO, b"x")]


def test_message_that_no_router_takes() -> None:
    world = World(ONE)
    assert not world.client.send(0.0, B.id, b"too early")
    world.greet(ONE, most_bytes=100)
    world.said.clear()
    assert not world.client.send(0.0, B.id, bytes(100))
    assert world.said == []
    assert world.client.dropped == 2


def test_only_what_is_meant_for_it_is_delivered(world: World) -> None:
    world.hear(
        ONE,
        encode_message(GROUP, A.id, B.id, b"to me"),
        encode_message(GROUP, NOBODY, B.id, b"to all"),
        encode_message(GROUP, C.id, B.id, b"to another"),
        encode_message("another", A.id, B.id, b"of another group"),
        encode_message(GROUP, NOBODY, A.id, b"from me"),
    )
    assert world.frames == [b"to me", b"to all"]


def test_suspect_when_all_that_had_it_have_lost_it(world: World) -> None:
    world.hear(ONE, Suspect(GROUP, B.id))
    assert world.taken() == [(TWO, GetMembers(GROUP))]
    world.hear(TWO, Members(GROUP, (A, B, C), True))
    assert world.suspected == []
    world.hear(TWO, Suspect(GROUP, B.id))
    assert world.taken() == [(ONE, GetMembers(GROUP))]
    assert world.suspected == []
    world.hear(ONE, Members(GROUP, (A,), True))
    assert world.suspected == [B.id]


def test_many_losses_are_one_question(world: World) -> None:
    world.hear(ONE, Suspect(GROUP, B.id), Suspect(GROUP, C.id))
    assert world.taken() == [(TWO, GetMembers(GROUP))]
    world.hear(TWO, Members(GROUP, (A,), True))
    assert world.suspected == [B.id, C.id]


def test_who_was_found_again_is_in_no_doubt_any_more(world: World) -> None:
    world.hear(ONE, Suspect(GROUP, B.id))
    world.hear(TWO, Members(GROUP, (A, B, C), True))
    world.client.ask(0.0)
    for router in (ONE, TWO):  # B has left
        world.hear(router, Members(GROUP, (A, C), True))
    assert world.suspected == []


def test_router_out_of_reach_may_still_have_it(world: World) -> None:
    world.client.ask(0.0)
    world.hear(ONE, Members(GROUP, (A, B), True))
    world.hear(TWO, Members(GROUP, (B,), False))
    world.client.closed(0.0, TWO)
    world.hear(ONE, Suspect(GROUP, B.id))
    assert world.suspected == []
    world.greet(TWO)
    world.hear(TWO, Members(GROUP, (A, C), True))
    assert world.found[-1] == [C]
    assert world.suspected == [B.id]


def test_router_that_goes_before_it_answers(world: World) -> None:
    world.hear(ONE, Members(GROUP, (A, B, C), True))
    world.hear(TWO, Suspect(GROUP, B.id), Suspect(GROUP, C.id))
    world.hear(ONE, Suspect(GROUP, C.id))
    world.client.closed(0.0, ONE)
    assert world.suspected == []
    world.hear(TWO, Members(GROUP, (A,), True))
    assert world.suspected == [C.id]


def test_of_itself_nothing_is_suspected(world: World) -> None:
    world.hear(ONE, Suspect(GROUP, A.id))
    world.hear(TWO, Suspect(GROUP, A.id))
    assert world.suspected == []


def test_pauses_grow_and_start_over() -> None:
    world = World(ONE)
    pauses: list[float] = []
    now = 0.0
    for _ in range(12):
        world.client.closed(now, ONE)
        pauses.append(world.client.deadline - now)
        now = world.client.deadline
        world.client.on_time(now)
    assert len(world.connecting) == 13
    assert SETTINGS.least_pause / 2 <= pauses[0] <= SETTINGS.least_pause
    assert SETTINGS.most_pause / 2 <= pauses[-1] <= SETTINGS.most_pause
    world.greet(ONE, now)
    world.hear(ONE, Refused("full"), now=now)
    assert world.client.deadline - now > SETTINGS.least_pause  # a greeting alone is no success
    now = world.client.deadline
    world.client.on_time(now)
    world.greet(ONE, now)
    world.hear(ONE, Members(GROUP, (A,), True), now=now)
    world.client.closed(now, ONE)
    assert world.client.deadline - now <= SETTINGS.least_pause
    assert world.reasons == ["full"]


def test_heartbeats_and_a_silent_router() -> None:
    world = World(ONE)
    world.greet(ONE)
    world.said.clear()
    for _ in range(5):
        now = world.client.deadline
        world.client.on_time(now)
        assert world.taken() == [(ONE, Heartbeat())]
        world.hear(ONE, Heartbeat(), now=now)
    heard = now
    while not world.closed:
        now = world.client.deadline
        world.client.on_time(now)
    assert heard + 3 * SETTINGS.heartbeat <= now <= heard + 4 * SETTINGS.heartbeat
    assert world.client.registered == ()


def test_no_greeting_in_time() -> None:
    world = World(ONE)
    world.client.connected(0.0, ONE)
    world.client.on_time(world.client.deadline)
    assert world.closed == [ONE]
    world.hear(ONE, Hello(VERSION, b"late", 15.0, 10_000))
    assert world.client.registered == ()


def test_one_router_by_two_names() -> None:
    world = World(ONE, TWO)
    world.greet(ONE)
    world.said.clear()
    world.client.connected(0.0, TWO)
    world.hear(TWO, Hello(VERSION, ONE.host.encode(), 15.0, 10_000))
    assert world.taken() == [(TWO, Hello(VERSION))]
    assert world.closed == [TWO]
    assert world.client.registered == (ONE,)
    world.client.on_time(SETTINGS.most_pause - 0.01)
    assert world.connecting == [ONE, TWO]
    world.client.on_time(SETTINGS.most_pause)
    assert world.connecting == [ONE, TWO, TWO]


@pytest.mark.parametrize("frame", [encode_control(Hello(VERSION + 1)), b"\0\0\0\1\x63", b"\0\0\0\2\2\xff"])
def test_router_that_makes_no_sense(frame: bytes) -> None:
    world = World(ONE)
    world.client.connected(0.0, ONE)
    world.hear(ONE, frame)
    assert world.closed == [ONE]
    assert len(world.reasons) == 1
    assert world.client.deadline < math.inf


def test_what_was_read_behind_a_refusal_is_ignored(world: World) -> None:
    world.hear(ONE, Refused("stopping"))
    again = world.client.deadline
    world.hear(ONE, Suspect(GROUP, B.id), b"\0\0\0\1\x63")
    assert world.reasons == ["stopping"]
    assert world.client.deadline == again
    assert world.said == []


def test_changed_addresses_are_registered(world: World) -> None:
    changed = A._replace(addresses=(PhysicalAddress("elsewhere", 1),))
    world.client.readdressed(0.0, changed)
    assert world.taken() == [(ONE, Register(GROUP, changed)), (TWO, Register(GROUP, changed))]


def test_group_whose_name_is_too_long() -> None:
    world = World()
    with pytest.raises(ValueError, match="255"):
        GossipClient("é" * 128, A, [ONE], world, world, Random(1))


def test_close(world: World) -> None:
    world.client.close(0.0)
    assert world.taken() == [(ONE, Unregister(GROUP, A.id)), (TWO, Unregister(GROUP, A.id))]
    assert world.closed == [ONE, TWO]
    assert world.client.deadline == math.inf
    assert not world.client.send(0.0, B.id, b"x")


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes(seed: int) -> None:
    random = Random(seed)
    frames = [
        encode_control(message)
        for message in (Members(GROUP, (A, B), True), Suspect(GROUP, B.id), NotHere(GROUP, B.id), Heartbeat())
    ]
    for _ in range(100):
        world = World(ONE)
        world.greet(ONE)
        for _ in range(5):
            frame = bytearray(random.choice([*frames, encode_message(GROUP, A.id, B.id, b"x")]))
            frame[random.randrange(4, len(frame))] = random.randrange(256)
            world.hear(ONE, bytes(frame))
        assert world.client.deadline < math.inf


def test_a_router_whose_long_frame_arrives_is_not_silent(world: World) -> None:
    now = 0.0
    while now < 4 * SETTINGS.heartbeat:
        now = world.client.deadline
        world.client.heard(now, ONE)
        world.client.on_time(now)
    assert ONE in world.client.registered
    assert TWO not in world.client.registered
    assert world.reasons == ["silent"]
