"""Frames between members and between sites are taken only from the members and sites that may send them."""

from __future__ import annotations

import struct
from itertools import count

import pytest
from tests.unit.sites import properties
from tests.unit.sites.sites import Net, Node
from tests.unit.sites.world import World

from isthmus_router.groups.batch import GroupMessage, encode_message, make_batch
from isthmus_router.groups.frames import FrameError, Kind, encode_body, encode_frame
from isthmus_router.groups.identity import NOBODY, MemberId, MemberInfo, PhysicalAddress, member_id
from isthmus_router.groups.streams import wire
from isthmus_router.groups.unicast import MOST_STEP as MOST_CONNECTIONS
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.forwarding import CROSSED
from isthmus_router.relay.messages import BridgeKind, Unicast, pack, pack_unicast, unpack_unicast, view_fields
from isthmus_router.relay.site_acks import encode_site_acks
from isthmus_router.relay.site_table import Told, told_fields
from isthmus_router.relay.sites import SiteReport, SiteState
from isthmus_router.sites.member import MOST_REPAIR_BACKLOG
from isthmus_router.sites.port import MOST_ANSWERS

STRANGER = member_id(b"stranger" * 2)
REMOTE = member_id(b"remote--" * 2)
FAR = 1 << 40
HEAD = struct.Struct(">QQQ")
ACK = struct.Struct(">QQ")


@pytest.fixture
def net() -> Net:
    """Two sites of three; the first of each is the relay."""
    net = Net(World(1), {"nyc": 3, "sfo": 3})
    net.start_all()
    net.world.run(2.0)
    assert net.is_settled()
    return net


def give(node: Node, sender: MemberId, kind: Kind, body: bytes) -> str:
    """A frame as it comes from a connection with its sender; why it is malformed, if it is."""
    frame = encode_frame(kind, sender, NOBODY, body)
    try:
        node.member.on_frame(node.now, PhysicalAddress("10.9.9.9", 9), frame)
        return ""
    except FrameError as error:
        return str(error)
    finally:
        node.net.world.turned(node.process)


def forged(origin: MemberId, number: int, site: str = "nyc") -> bytes:
    text = encode_message(GroupMessage("", b""))
    return make_batch(origin, number, number - 1, site, None, [GroupMessage("topic", text)]).encoded


def following(node: Node, origin: MemberId) -> int:
    log = node.member.streams.log(origin)
    return log.next if log is not None else 0


def everything_arrives(net: Net, origin: Node, before: int = 0) -> None:
    """What an honest member sends reaches everybody, without a gap."""
    origin.publish(20)
    net.world.run(5.0)
    for node in net.nodes:
        assert len([1 for who, _, _ in node.deliveries if who == origin.id]) == before + 20, node
    properties.everything(net)


def of_streams(origin: MemberId, site: str, number: int) -> dict[Kind, bytes]:
    """Frames that speak for the stream of an origin."""
    return {
        Kind.BATCH: forged(origin, number, site),
        Kind.START: wire.encode_start(wire.Start(origin, FAR, FAR, site)),
        Kind.GAP: wire.encode_gap(wire.Gap(origin, 1, FAR, 0, site)),
    }


@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.START, Kind.GAP], ids=lambda kind: kind.name)
@pytest.mark.parametrize("who", ["stranger", "member"])
def test_nobody_speaks_for_the_stream_of_a_member(net: Net, who: str, kind: Kind) -> None:
    victim, target, liar = net.of("nyc")[1], net.of("nyc")[0], net.of("nyc")[2]
    victim.publish(3)
    net.world.run(1.0)
    sender = STRANGER if who == "stranger" else liar.id
    refused = target.member.refused
    malformed = [
        give(target, sender, kind, of_streams(victim.id, "nyc", following(target, victim.id) + n)[kind])
        for n in range(5)
    ]
    assert all(malformed) or target.member.refused == refused + 5
    everything_arrives(net, victim, 3)


@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.START, Kind.GAP], ids=lambda kind: kind.name)
@pytest.mark.parametrize("who", ["stranger", "member"])
def test_only_a_relay_speaks_for_the_stream_of_another_site(net: Net, who: str, kind: Kind) -> None:
    origin, target, liar = net.of("sfo")[1], net.of("nyc")[1], net.of("nyc")[2]
    origin.publish(3)
    net.world.run(1.0)
    sender = STRANGER if who == "stranger" else liar.id
    for n in range(5):
        give(target, sender, kind, of_streams(origin.id, "sfo", following(target, origin.id) + n)[kind])
    for body in of_streams(REMOTE, "sfo", 1).values():
        give(target, sender, kind, body)
    assert REMOTE not in target.member.streams.origins()
    everything_arrives(net, origin, 3)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind >= Kind.BATCH], ids=lambda kind: kind.name)
def test_a_stranger_is_told_nothing_and_changes_nothing(net: Net, kind: Kind) -> None:
    """Of messages; discovery and joining are for strangers."""
    target, victim = net.of("nyc")[:2]
    victim.publish(3)
    net.world.run(1.0)
    sent: list[bytes] = []
    resolver = target.member.resolver
    real = resolver.send
    resolver.send = lambda now, to, frame: sent.append(frame) if to == STRANGER else real(now, to, frame)  # type: ignore[method-assign]
    bodies = {
        **of_streams(victim.id, "nyc", 4),
        Kind.REPAIR: wire.encode_repair(wire.Repair(victim.id, 1, 9)),
        Kind.MISSING: wire.encode_missing(wire.Missing(victim.id, 1, FAR, FAR, 0)),
        Kind.POSITIONS: wire.encode_positions([(victim.id, FAR), (REMOTE, FAR)]),
        Kind.STABLE: wire.encode_stable([wire.Stable(victim.id, FAR, FAR, STRANGER)]),
        Kind.UNICAST: HEAD.pack(1, 1, 1) + encode_message(GroupMessage("", b"forged")),
        Kind.UNICAST_ACK: ACK.pack(1, 1),
        Kind.FORWARD: pack_unicast(Unicast(Kind.UNICAST, 0, STRANGER, net.of("sfo")[0].id, b"")),
        Kind.SITE_ACKS: encode_site_acks({"sfo": {victim.id: FAR}}),
    }
    refused = target.member.refused
    give(target, STRANGER, kind, bodies.get(kind, encode_body()))
    assert target.member.refused == refused + 1
    assert not sent
    assert not target.replies
    everything_arrives(net, victim, 3)


def test_a_member_that_claims_to_have_more_of_a_stream_is_not_asked_for_it(net: Net) -> None:
    """It could answer with batches of its own, or that they are lost."""
    relay, victim, liar = net.of("nyc")
    victim.publish(3)
    net.world.run(1.0)
    asked: list[bytes] = []
    real = liar.member.streams._repairs.on_repair
    liar.member.streams._repairs.on_repair = lambda *args: asked.append(args) or real(*args)  # type: ignore[method-assign,func-returns-value]
    for _ in range(20):
        give(relay, liar.id, Kind.POSITIONS, wire.encode_positions([(victim.id, FAR)]))
        lie = wire.Missing(victim.id, 1, FAR, FAR, 0)
        give(relay, liar.id, Kind.MISSING, wire.encode_missing(lie))
        net.world.run(0.2)
    assert not asked
    everything_arrives(net, victim, 3)


def test_requests_for_repair_are_answered_while_little_waits_for_the_member(net: Net) -> None:
    """Each answer is a copy, and a slow member can ask for very many."""
    target, origin, slow = net.of("nyc")
    origin.publish(3)
    net.world.run(1.0)
    body = wire.encode_repair(wire.Repair(origin.id, 1, 9))
    sent: list[bytes] = []
    real = target.member.resolver.send
    target.member.resolver.send = lambda now, to, frame: sent.append(frame) or real(now, to, frame)  # type: ignore[method-assign,func-returns-value]
    for waiting, answered in ((MOST_REPAIR_BACKLOG + 1, False), (MOST_REPAIR_BACKLOG, True)):
        of_member = {slow.id: waiting}
        target.backlog = lambda to, member, of=of_member: of.get(member, 0)  # type: ignore[misc,method-assign]
        sent.clear()
        give(target, slow.id, Kind.REPAIR, body)
        assert any(frame[0] in (Kind.BATCH, Kind.MISSING) for frame in sent) is answered
    everything_arrives(net, origin, 3)


def test_a_request_for_repair_is_answered_by_who_was_asked(net: Net) -> None:
    """The origin has crashed: what others have of it, they give to a member that lacks it."""
    relay, origin, last = net.of("nyc")
    stream = last.member.streams._streams[origin.id]
    sent = make_batch(origin.id, 1, 0, "nyc", None, [GroupMessage("topic", b"0000000001")])
    stream.target = 1
    stream.vouch(1)
    give(last, relay.id, Kind.BATCH, sent.encoded)
    assert following(last, origin.id) == 1
    stream.ask(relay.id, 1, 1)
    give(last, relay.id, Kind.BATCH, sent.encoded)
    assert following(last, origin.id) == 2


@pytest.mark.parametrize("kind", [Kind.BATCH, Kind.GAP, Kind.START], ids=lambda kind: kind.name)
def test_no_frame_of_a_relay_uses_up_the_numbers_of_a_stream(net: Net, kind: Kind) -> None:
    origin, target, relay = net.of("sfo")[1], net.of("nyc")[1], net.of("nyc")[0]
    origin.publish(3)
    net.world.run(1.0)
    body = {
        Kind.BATCH: forged(origin.id, FAR, "sfo"),
        Kind.GAP: wire.encode_gap(wire.Gap(origin.id, 1, FAR, 0, "sfo")),
        Kind.START: wire.encode_start(wire.Start(REMOTE, (1 << 61) + 1, 0, "sfo")),
    }[kind]
    assert give(target, relay.id, kind, body)
    everything_arrives(net, origin, 3)


def unicast(kind: Kind, source: MemberId, to: MemberId, *, hops: int = 0, connection: int = 1 << 31) -> bytes:
    """A forged FORWARD."""
    text = encode_message(GroupMessage("", b"forged"))
    body = HEAD.pack(connection, 1, 1) + text if kind is Kind.UNICAST else ACK.pack(1, 1)
    return pack_unicast(Unicast(kind, hops, source, to, body))


@pytest.mark.parametrize("hops", [0, 1, 3, CROSSED, CROSSED | 1])
@pytest.mark.parametrize(
    "kind", [Kind.UNICAST, Kind.UNICAST_ACK, Kind.UNICAST_LOST], ids=lambda kind: kind.name
)
@pytest.mark.parametrize("place", [0, 1])
def test_nobody_forwards_in_the_name_of_a_member_of_its_site(
    net: Net, place: int, kind: Kind, hops: int
) -> None:
    nyc = net.of("nyc")
    target, victim, liar = nyc[place], nyc[1 - place], nyc[2]
    net.world.pause(victim.process, 1.0)
    sent = target.send_to(victim.id, b"hello")
    assert "FORWARD" in give(target, liar.id, Kind.FORWARD, unicast(kind, victim.id, target.id, hops=hops))
    for to in (target.id, net.of("sfo")[1].id):
        give(target, liar.id, Kind.FORWARD, unicast(kind, victim.id, to, hops=hops))
    net.world.run(0.5)
    assert (sent.accepted, sent.failed, target.replies) == (None, None, [])
    net.world.run(4.0)
    assert sent.accepted is not None
    answer = victim.send_to(target.id, b"honest")
    net.world.run(1.0)
    assert answer.accepted is not None
    assert [text for _, text in target.replies] == [b"honest"]


@pytest.mark.parametrize(
    "kind", [Kind.UNICAST, Kind.UNICAST_ACK, Kind.UNICAST_LOST], ids=lambda kind: kind.name
)
def test_only_a_relay_brings_messages_of_another_site(net: Net, kind: Kind) -> None:
    relay, target, liar = net.of("nyc")
    victim = net.of("sfo")[1]
    net.world.pause(victim.process, 1.0)
    sent = target.send_to(victim.id, b"hello")
    for hops in (0, CROSSED):
        for node in (target, relay):
            give(node, liar.id, Kind.FORWARD, unicast(kind, victim.id, target.id, hops=hops))
    net.world.run(0.5)
    assert (sent.accepted, sent.failed, target.replies) == (None, None, [])
    net.world.run(4.0)
    answer = victim.send_to(target.id, b"honest")
    net.world.run(1.0)
    assert sent.accepted is not None
    assert answer.accepted is not None
    assert [text for _, text in target.replies] == [b"honest"]


def test_no_frame_uses_up_the_numbers_of_connections(net: Net) -> None:
    relay, target = net.of("nyc")[:2]
    victim = net.of("sfo")[1]
    far = unicast(Kind.UNICAST, victim.id, target.id, hops=CROSSED, connection=MOST_CONNECTIONS + 1)
    assert "too far" in give(target, relay.id, Kind.FORWARD, far)
    answer = victim.send_to(target.id, b"honest")
    net.world.run(1.0)
    assert answer.accepted is not None


def test_only_a_relay_acknowledges_for_another_site(net: Net) -> None:
    _, target, liar = net.of("nyc")
    net.world.cut(["nyc"], ["sfo"])
    net.world.run(0.5)
    target.publish(3)
    net.world.run(0.2)
    give(target, liar.id, Kind.SITE_ACKS, encode_site_acks({"sfo": {target.id: 3}}))
    assert target.member.relay.elsewhere(0) == 0
    net.world.heal()
    net.world.run(10.0)
    assert all(len(node.deliveries) == 3 for node in net.nodes)


def test_nobody_acknowledges_what_was_not_published(net: Net) -> None:
    relay, target, _ = net.of("nyc")
    lie = encode_site_acks({"sfo": {target.id: 1 << 50}})
    assert "not published" in give(target, relay.id, Kind.SITE_ACKS, lie)
    everything_arrives(net, target)


def test_only_a_relay_tells_who_is_in_other_sites(net: Net) -> None:
    _, target, liar = net.of("nyc")
    view = View(ViewId(1 << 40, REMOTE), (MemberInfo(REMOTE, "sfo9", ()),))
    own = target.views[-1].id
    for epoch in (own, ViewId(own.number + 1, liar.id)):
        told = Told(epoch, 1 << 40, (), (SiteReport("sfo", SiteState.UP, (view,)),))
        give(target, liar.id, Kind.SITES, encode_body(*told_fields(told)))
        assert target.member.relay.site_of(REMOTE) is None


def session(relay: Node) -> int:
    """An open session of the relay with the other site."""
    return next(number for number, each in relay.member.relay._bridge.sessions.items() if each.site == "sfo")


def over_bridge(relay: Node, frame: bytes) -> None:
    relay.member.bridge_frame(relay.now, session(relay), frame)
    relay.net.world.turned(relay.process)


@pytest.mark.parametrize("kind", [Kind.UNICAST, Kind.UNICAST_ACK], ids=lambda kind: kind.name)
def test_a_site_sends_messages_of_its_own_members_only(net: Net, kind: Kind) -> None:
    relay, target, victim = net.of("nyc")
    net.world.pause(victim.process, 1.0)
    sent = target.send_to(victim.id, b"hello")
    for source in (victim.id, relay.id, target.id, STRANGER):
        over_bridge(relay, bytes((BridgeKind.UNICAST,)) + unicast(kind, source, target.id))
    net.world.run(0.5)
    assert (sent.accepted, sent.failed, target.replies) == (None, None, [])
    net.world.run(4.0)
    assert sent.accepted is not None


def test_a_site_has_no_members_of_another_one(net: Net) -> None:
    relay, target, _ = net.of("nyc")
    sfo = net.of("sfo")[0]
    infos = (sfo.member.info, target.member.info)
    view = View(ViewId(1 << 20, sfo.id), infos)
    malformed = relay.member.relay._bridge.malformed
    over_bridge(relay, pack(BridgeKind.VIEW, view_fields(view), []))
    assert relay.member.relay._bridge.malformed == malformed + 1
    assert relay.member.relay.site_of(target.id) is None
    everything_arrives(net, target)


def test_what_is_forwarded_is_a_message_to_one_member() -> None:
    for kind in Kind:
        frame = pack_unicast(Unicast(kind, 0, STRANGER, REMOTE, b""))
        allowed = kind in (Kind.UNICAST, Kind.UNICAST_ACK, Kind.UNICAST_LOST)
        assert allowed is not _malformed(frame)


def _malformed(frame: bytes) -> bool:
    try:
        unpack_unicast(frame)
    except FrameError:
        return True
    return False


def test_positions_of_unknown_origins_leave_room_for_streams(net: Net) -> None:
    target, liar = net.of("nyc")[0], net.of("nyc")[2]
    numbers = count(1)
    most = target.member.settings.streams.most_streams
    origins = [(member_id(next(numbers).to_bytes(16, "big")), 5) for _ in range(most)]
    give(target, liar.id, Kind.POSITIONS, wire.encode_positions(origins))
    assert target.member.streams.snapshot().streams <= most // 2 + 1


def test_few_answers_wait_for_a_member_that_acknowledges_none(net: Net) -> None:
    """The others are dropped, and messages of clients are not counted among them."""
    node, other, honest = net.named("nyc1"), net.named("sfo1"), net.named("sfo2")
    member = node.member
    other.process.alive = False
    for _ in range(MOST_ANSWERS + 10):
        member.answer(other.id, GroupMessage("", b"no"))
    assert member.unicasts.waiting == MOST_ANSWERS
    sent = node.send_to(other.id, b"client")
    member.answer(honest.id, GroupMessage("", b"no"))
    member.answer(node.id, GroupMessage("", b"no"))
    net.world.run(1.0)
    assert [text for _, text in honest.replies] == [text for _, text in node.replies] == [b"no"]
    assert sent.accepted is None
    net.world.run(60.0)
    assert not node.member.unicasts.waiting
    assert not member._answers
    assert sent.failed is not None


def test_answers_for_which_there_is_no_room_are_told_to_no_client(net: Net) -> None:
    node, other = net.named("nyc1"), net.named("sfo1")
    other.process.alive = False
    while node.member.unicasts.send(node.now, other.id, b"x" * 1000, None):
        pass
    node.member.answer(other.id, GroupMessage("", b"x" * 1000))
    node.member.flush(node.now)
    assert not node.member._answers


def test_a_site_that_changes_has_messages_to_its_own_members_repeated(net: Net) -> None:
    node, here, there = net.named("nyc1"), net.named("nyc2"), net.named("sfo1")
    for to in (here, there):
        to.process.alive = False
        node.send_to(to.id, b"hello")
    net.world.run(0.01)
    due = {to: out.due for to, out in node.member.unicasts._out.items()}
    node.member.site_changed(node.now, "sfo", SiteState.SUSPECT)
    assert {to: out.due for to, out in node.member.unicasts._out.items()} == due
    node.member.site_changed(node.now, "sfo", SiteState.UP)
    assert node.member.unicasts._out[here.id].due == due[here.id]
    assert node.member.unicasts._out[there.id].due == node.now
