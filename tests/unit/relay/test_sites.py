"""Sites in the full mesh, those that cannot be dialled, those that do not belong; views and goodbyes."""

from __future__ import annotations

import contextlib

import pytest
from tests.unit.relay.node import Node
from tests.unit.relay.world import DETECTION, World, load

from isthmus_router.groups.batch import GroupMessage, make_batch
from isthmus_router.groups.frames import FrameError, Kind, encode_frame
from isthmus_router.groups.identity import NOBODY, member_id
from isthmus_router.groups.streams.streams import MOST_UNKNOWN, UNKNOWN_SECONDS
from isthmus_router.groups.streams.user import StreamsSettings
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.forwarding import LITTLE_BACKLOG, MOST_OF_SITE, SHARE_SECONDS
from isthmus_router.relay.messages import (
    MOST_ORIGINS,
    BridgeKind,
    pack,
    pack_hello,
    pack_numbers,
    view_fields,
)
from isthmus_router.relay.session import Phase, Session
from isthmus_router.relay.settings import Endpoint, RelaySettings, RemoteSite, Window
from isthmus_router.relay.site_acks import encode_site_acks
from isthmus_router.relay.site_views import TELL_INTERVAL
from isthmus_router.relay.sites import SiteState

PASSED_ON = -1000
"""Number of a session that somebody has dialled."""


def test_every_member_of_every_site_gets_everything_once_and_in_order() -> None:
    world = World(1, {"nyc": 3, "sfo": 3, "lon": 2})
    world.run(1.0)
    load(world, list(world.live()), 20)
    world.run(1.0)
    world.check_complete(list(world.live()))
    world.check_views()
    batches = sum(node.sent_frames.count(BridgeKind.BATCH) for node in world.live())
    assert batches == 20 * 8 * 2  # each once to each other site


@pytest.mark.parametrize("relays", [2, 3])
def test_several_relays_share_the_origins(relays: int) -> None:
    world = World(2, {"nyc": 4, "sfo": 4}, relays=relays)
    world.run(1.0)
    origins = [world.join("nyc", f"origin{index}") for index in range(12)]
    world.run(1.0)
    load(world, origins, 20)
    world.run(1.0)
    senders = [node for node in world.sites["nyc"].nodes if BridgeKind.BATCH in node.sent_frames]
    assert len(senders) == relays
    assert sum(node.sent_frames.count(BridgeKind.BATCH) for node in senders) == 240
    world.crash(senders[0])
    load(world, origins, 60)
    world.run(5.0)
    world.check_complete(origins)
    world.check_views()


@pytest.mark.parametrize("relays", [1, 2])
def test_a_site_that_cannot_be_dialled_relays_over_the_sessions_it_dials(relays: int) -> None:
    world = World(3, {"nyc": 4, "sfo": 4}, cannot_be_dialled={"sfo"}, relays=relays)
    world.run(1.0)
    origins = [world.node("nyc2"), world.node("sfo2")]
    load(world, origins, 20)
    world.crash(world.node("nyc0"))
    load(world, origins, 20)
    world.run(4.0)
    world.crash(world.node("sfo0"))
    load(world, origins, 60)
    world.run(4.0)
    world.check_complete(origins)
    world.check_views()


def test_a_site_whose_relay_is_out_of_reach_is_reached_through_another_member() -> None:
    world = World(4, {"nyc": 3, "sfo": 3})
    world.unreachable = {"nyc0", "sfo0"}
    world.run(8.0)
    assert any(event == "session with another site" for node in world.live() for event, _ in node.events)
    origins = [world.node("nyc2"), world.node("sfo2")]
    load(world, origins, 20)
    world.run(1.0)
    world.check_complete(origins)
    world.check_views()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"group": "another"}, "group"),
        ({"sites": {"lon": RemoteSite((Endpoint("any.nyc", 1),))}}, "not lon"),
        (
            {"sites": {"nyc": RemoteSite((Endpoint("any.nyc", 1),), ("someone-else",))}},
            "certificate is for nyc",
        ),
    ],
)
def test_who_does_not_belong_is_refused_with_the_reason(other: dict[str, object], reason: str) -> None:
    world = World(5, {"nyc": 2, "sfo": 0})
    wrong = {
        "group": "g",
        "site": "sfo",
        "domain": "ns/sfo",
        "sites": {"nyc": RemoteSite((Endpoint("any.nyc", 1),))},
    }
    world.join("sfo", "wrong", settings=RelaySettings(**{**wrong, **other}))  # type: ignore[arg-type]
    world.run(3.0)
    told = [fields["reason"] for node in world.live() for event, fields in node.events if "refuse" in event]
    assert any(reason in str(text) for text in told), told
    assert not any(event == "session with another site" for node in world.live() for event, _ in node.events)
    world.node("nyc0").publish()
    world.run(1.0)
    assert not world.node("wrong").deliveries


@pytest.mark.parametrize("own_names", [(), ("members-of-nyc",)])
@pytest.mark.parametrize(
    ("certificate", "admitted"),
    [
        (("payments-app",), False),
        (("sfo",), False),
        (("sfo0.sfo",), False),
        ((), False),
        (("nyc0.nyc",), True),
    ],
)
def test_only_a_member_of_its_site_passes_on_the_session_of_another_site(
    own_names: tuple[str, ...], certificate: tuple[str, ...], admitted: bool
) -> None:
    world = World(6, {"nyc": 1, "sfo": 1}, own_certificate_names=own_names)
    world.run(1.0)
    nyc, sfo = world.node("nyc0"), world.node("sfo0")
    hello = sfo.relay.hello("nyc")._replace(via=bytes(nyc.id))
    nyc.relay.opened(world.now, PASSED_ON, certificate)
    nyc.relay.frame(world.now, PASSED_ON, pack_hello(BridgeKind.HELLO, hello))
    session = nyc.relay._bridge.sessions.get(PASSED_ON)
    assert (session is not None and session.phase is Phase.OPEN) == admitted


@pytest.mark.parametrize(("own_names", "name"), [((), "nyc"), (("members-of-nyc",), "members-of-nyc")])
def test_the_certificate_of_who_passes_a_session_on_may_be_for_the_whole_site(
    own_names: tuple[str, ...], name: str
) -> None:
    world = World(6, {"nyc": 1, "sfo": 1}, own_certificate_names=own_names)
    world.run(1.0)
    nyc, sfo = world.node("nyc0"), world.node("sfo0")
    hello = sfo.relay.hello("nyc")._replace(via=bytes(nyc.id))
    nyc.relay.opened(world.now, PASSED_ON, (name,))
    nyc.relay.frame(world.now, PASSED_ON, pack_hello(BridgeKind.HELLO, hello))
    assert nyc.relay._bridge.sessions[PASSED_ON].phase is Phase.OPEN


def test_a_second_site_of_the_same_name_is_refused() -> None:
    world = World(6, {"nyc": 2, "sfo": 2})
    world.run(1.0)
    taken = world.settings("sfo", "twin")
    twin = world.join(
        "twin",
        "twin",
        settings=RelaySettings("g", "sfo", "elsewhere/sfo", {"nyc": taken.sites["nyc"]}),
    )
    world.run(2.0)
    assert any("another site is named sfo" in site.refused for site in twin.relay.snapshot(world.now).sites)
    assert world.node("nyc0").relay.snapshot(world.now).sites[0].state is SiteState.UP


def test_a_site_that_names_the_relay_of_another_one_ends_no_session_of_it() -> None:
    world = World(6, {"nyc": 1, "sfo": 1, "lon": 1})
    world.run(1.0)
    nyc, sfo, lon = (world.node(name) for name in ("nyc0", "sfo0", "lon0"))
    sessions = nyc.relay._bridge.sessions
    before = {number for number, session in sessions.items() if session.site == "sfo"}
    of_lon = next(n for n, session in sessions.items() if session.site == "lon" and not session.dialled)
    assert any(number < 0 for number in before)
    hello = lon.relay.hello("nyc")._replace(relay=sfo.id)
    nyc.relay.frame(world.now, of_lon, pack_hello(BridgeKind.HELLO, hello))
    assert before <= sessions.keys()


def test_two_sites_that_have_the_own_name_tell_each_other() -> None:
    world = World(7, {"nyc": 1})
    twin = world.join(
        "twin",
        "twin",
        settings=RelaySettings("g", "nyc", "b/nyc", {"nyc": RemoteSite((Endpoint("any.nyc", 1),))}),
    )
    world.run(2.0)
    (site,) = twin.relay.snapshot(world.now).sites
    assert "both sites are named nyc" in site.refused
    elsewhere = RelaySettings("g", "nyc", "b/nyc", {"nyc": RemoteSite((Endpoint("nohost.example", 1),))})
    twin.relay.configure(world.now, elsewhere)
    (site,) = twin.relay.snapshot(world.now).sites
    assert site.refused == "", "what was dialled before says nothing about the new place"


def test_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(8, {"nyc": 1, "sfo": 1})
    newer = world.node("sfo0").relay
    hello = newer.hello
    monkeypatch.setattr(newer, "hello", lambda to_site: hello(to_site)._replace(version=2))
    world.run(2.0)
    (site,) = world.node("nyc0").relay.snapshot(world.now).sites
    assert "protocol version 2; 1 is spoken here" in site.refused


def test_a_change_of_relays_is_not_seen_as_the_loss_of_a_site() -> None:
    world = World(9, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    world.crash(world.node("nyc0"))
    world.run(4.0)
    for node in world.sites["sfo"].nodes:
        assert SiteState.UNREACHABLE not in [state for _, _, state in node.states], world.story(node.name)
        assert all(len(view.members) >= 5 for view in node.views[-2:])
    for node in world.sites["nyc"].live():
        assert min(len(view.members) for view in node.views[-2:]) >= 5
        assert SiteState.UNKNOWN not in [state for _, _, state in node.states][1:]
    world.check_views()


def test_a_site_is_no_suspect_while_another_session_with_its_relay_is_open() -> None:
    world = World(12, {"nyc": 1, "sfo": 1})
    world.run(1.0)
    dialled, accepted = (session for node, session in world.links if node == id(world.node("nyc0")))
    for session in (dialled, accepted):
        world.close(world.node("nyc0"), session)
        world.node("nyc0").relay.closed(world.now, session, "connection lost")
        world.run(1.0)
    for node in world.live():
        assert SiteState.SUSPECT not in [state for *_, state in node.states]


def test_a_site_that_is_gone_is_unreachable_after_the_grace() -> None:
    world = World(10, {"nyc": 2, "sfo": 3})
    world.run(1.0)
    at = world.now
    for name in ("nyc0", "nyc1"):
        world.crash(world.node(name))
    world.run(5.0)
    for node in world.live():
        states = [(time, state) for time, _, state in node.states if time > at]
        assert [state for _, state in states] == [SiteState.SUSPECT, SiteState.UNREACHABLE]
        assert 2.0 <= states[1][0] - at < 2.2
    world.check_views()


def test_the_last_member_says_goodbye_and_its_site_has_left_at_once() -> None:
    world = World(11, {"nyc": 1, "sfo": 3})
    world.run(1.0)
    origin = world.node("nyc0")
    load(world, [origin], 20)
    at = world.now
    world.leave(origin)
    world.run(1.0)
    world.check_complete([origin])
    for node in world.live():
        assert [state for _, _, state in node.states][-1] is SiteState.LEFT
        assert node.states[-1][0] - at < 0.1
    world.check_views()


def test_the_last_member_sends_what_waits_before_it_goes() -> None:
    world = World(11, {"nyc": 1, "sfo": 1}, window=Window(1_000))
    world.run(1.0)
    origin = world.node("nyc0")
    for _ in range(50):
        world.do(origin, lambda: origin.publish(size=100))
    world.leave(origin)
    world.run(2.0)
    world.check_complete([origin])


@pytest.mark.parametrize("name", ["nyc0", "sfo0"])
def test_a_relay_that_leaves_hands_over_without_a_replay(name: str) -> None:
    world = World(12, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    origin = world.node("nyc2")
    load(world, [origin], 20)
    world.run(0.1)
    world.leave(world.node(name))
    world.run(1.0)
    load(world, [origin], 20)
    world.run(1.0)
    world.check_complete([origin])
    batches = sum(node.sent_frames.count(BridgeKind.BATCH) for node in world.nodes())
    assert batches == 40
    assert all(SiteState.UNREACHABLE not in [state for _, _, state in node.states] for node in world.live())


@pytest.mark.parametrize("victim", ["sfo0", "sfo1"])
def test_of_a_site_that_cannot_be_dialled_another_relay_is_fed_when_one_is_gone(victim: str) -> None:
    world = World(12, {"nyc": 1, "sfo": 2}, relays=2, cannot_be_dialled={"sfo"})
    world.run(1.0)
    world.crash(world.node(victim))
    world.run(1.0)
    origin = world.node("nyc0")
    load(world, [origin], 10)
    world.run(1.0)
    world.check_complete([origin])


def test_a_relay_does_not_wait_for_a_site_whose_session_ends_as_it_leaves() -> None:
    world = World(12, {"nyc": 3, "sfo": 1})
    world.run(1.0)
    relay = world.node("nyc0")
    world.cut("nyc", "sfo", silent=True)
    load(world, [world.node("nyc1")], 3)
    relay.relay.leave(world.now)
    world.run(0.1)
    assert not relay.left
    world.cut("nyc", "sfo")
    world.run(0.1)
    assert relay.left


def test_a_member_does_not_wait_long_for_a_site_that_does_not_acknowledge_what_it_has_published() -> None:
    world = World(12, {"nyc": 3, "sfo": 1})
    world.run(1.0)
    member = world.node("nyc2")
    world.cut("nyc", "sfo", silent=True)
    load(world, [member], 3)
    member.relay.leave(world.now)
    world.run(0.1)
    assert not member.left
    world.run(2.0)
    assert member.left


def test_who_is_no_relay_any_more_has_no_sessions() -> None:
    """As after a partition of its site, in which it was the oldest of its part."""
    world = World(12, {"nyc": 2, "sfo": 2})
    world.run(1.0)
    nyc = world.sites["nyc"]
    nyc.nodes.reverse()
    world.install(nyc, 0.0)
    world.run(1.0)
    relays = [node.relay.snapshot(world.now).sites[0].relay for node in world.live()]
    assert relays == [world.node("sfo0").id, None, nyc.nodes[0].id, None]
    load(world, nyc.nodes, 10)
    world.run(0.2)
    world.check_complete(nyc.nodes)


def test_a_joiner_hears_what_other_sites_have_acknowledged() -> None:
    world = World(12, {"nyc": 2, "sfo": 1, "lon": 1})
    world.run(1.0)
    world.cut("nyc", "lon")
    origin, relay = world.node("nyc1"), world.node("nyc0")
    load(world, [origin], 20)
    world.run(2.0)
    world.join("nyc", "new")
    world.run(1.0)
    world.crash(relay)
    world.run(1.0)
    lags = {site.site: site.lag_messages for site in world.node("new").relay.snapshot(world.now).sites}
    assert lags == {"sfo": 0, "lon": 20}


def test_a_relay_that_leaves_under_load_is_not_held_up_by_it() -> None:
    world = World(16, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    origin, relay = world.node("nyc2"), world.node("nyc0")
    load(world, [origin], 20)
    world.leave(relay)
    load(world, [origin], 90, every=0.001)
    assert relay.left
    load(world, [origin], 20)
    world.run(2.0)
    world.check_complete([origin])


def test_a_joiner_knows_all_sites_before_it_gets_anything_of_them() -> None:
    world = World(13, {"nyc": 2, "sfo": 2})
    world.run(1.0)
    origin = world.node("nyc1")
    joiner = world.join("sfo", "joiner")
    known_then: list[bool] = []
    delivered = joiner.delivered
    joiner.delivered = lambda now, batch: (  # type: ignore[method-assign]
        known_then.append(joiner.relay.site_of(batch.origin) == "nyc"),
        delivered(now, batch),
    )
    load(world, [origin], 40)
    world.run(1.0)
    assert known_then
    assert all(known_then)
    world.check_views()
    names = {member.name for _, member in joiner.relay.global_view.members}  # type: ignore[union-attr]
    assert names == {"nyc0", "nyc1", "sfo0", "sfo1", "joiner"}


def test_an_answer_finds_its_way_after_the_relays_on_both_sides_have_changed() -> None:
    world = World(14, {"nyc": 4, "sfo": 4})
    world.run(1.0)
    origin, replier = world.node("nyc3"), world.node("sfo3")
    assert replier.relay.site_of(origin.id) == "nyc"
    for round_, names in enumerate([(), ("nyc0",), ("sfo0",), ("nyc1", "sfo1")]):
        for name in names:
            world.crash(world.node(name))
        world.run(4.0)
        assert replier.relay.forward(world.now, origin.id, Kind.UNICAST, bytes((round_,)))
        world.run(0.1)
        assert origin.unicasts[-1] == (Kind.UNICAST, replier.id, bytes((round_,)))
    assert len(origin.unicasts) == 4


def test_a_message_to_a_member_that_has_just_gone_comes_back() -> None:
    world = World(15, {"nyc": 3, "sfo": 3})
    world.run(1.0)
    gone, sender = world.node("nyc2"), world.node("sfo2")
    world.cut("nyc", "sfo", silent=True)
    world.crash(gone)
    world.run(2 * DETECTION)
    world.heal("nyc", "sfo")
    assert sender.relay.forward(world.now, gone.id, Kind.UNICAST, b"lost")
    world.run(0.1)
    assert sender.unicasts == [(Kind.UNICAST_LOST, gone.id, b"")]


def session_with(node: Node, site: str) -> Session:
    return next(
        item
        for item in node.relay._bridge.sessions.values()
        if item.site == site and item.phase is Phase.OPEN
    )


def test_a_site_that_claims_a_new_member_of_another_one_first_changes_nothing() -> None:
    """Each site hears of the members of all others; their messages must arrive, and not be taken for its own."""
    world = World(19, {"nyc": 2, "lon": 1, "par": 2})
    world.run(1.0)
    relay, lon = world.node("nyc0"), world.node("lon0")
    session = session_with(relay, "lon")
    new = world.join("par", "new")
    for claimed in (new, world.node("par1")):
        view = View(ViewId(100, lon.id), (lon.info, claimed.info))
        with pytest.raises(FrameError, match="whose id is of another site"):
            relay.relay.session_frame(
                world.now, session, BridgeKind.VIEW, pack(BridgeKind.VIEW, view_fields(view), [])
            )
        with pytest.raises(FrameError, match="whose id is of another site"):
            relay.relay.session_frame(
                world.now, session, BridgeKind.START, pack(BridgeKind.START, bytes(claimed.id), 1 << 60, 0)
            )
    world.run(1.0)
    load(world, [new], 5)
    world.run(1.0)
    world.check_complete([new])
    assert {relay.relay.site_of(node.id) for node in world.sites["par"].nodes} == {"par"}


def test_streams_that_a_site_makes_up_leave_places_for_members_of_other_sites() -> None:
    world = World(20, {"nyc": 2, "lon": 1, "par": 2})
    world.run(1.0)
    relay = world.node("nyc0")
    session = session_with(relay, "lon")
    refused = 0
    for _ in range(StreamsSettings().most_streams):
        origin = member_id(world.random.randbytes(16), "lon")
        try:
            relay.relay.session_frame(
                world.now, session, BridgeKind.START, pack(BridgeKind.START, bytes(origin), 1, 0)
            )
        except FrameError:
            refused += 1
    assert refused > StreamsSettings().most_streams // 2
    new = world.join("par", "new")
    world.run(1.0)
    load(world, [new], 5)
    world.run(1.0)
    world.check_complete([new])


def test_few_streams_are_searched_for_of_which_a_site_does_not_tell_the_beginning() -> None:
    world = World(21, {"nyc": 2, "lon": 1})
    world.run(1.0)
    relay = world.node("nyc0")
    session = session_with(relay, "lon")
    before = len(relay.streams._streams)
    for _ in range(1_000):
        origin = member_id(world.random.randbytes(16), "lon")
        batch = make_batch(origin, 5, 4, "lon", None, [GroupMessage("a", b"x")])
        with contextlib.suppress(FrameError):
            relay.relay.session_frame(
                world.now, session, BridgeKind.BATCH, bytes((BridgeKind.BATCH,)) + batch.encoded
            )
    assert len(relay.streams._streams) - before == MOST_UNKNOWN
    world.run(2 * UNKNOWN_SECONDS)
    assert [len(node.streams._streams) for node in world.sites["nyc"].nodes] == [before] * 2


def test_a_site_that_acknowledges_what_was_never_published_hides_no_other_site() -> None:
    world = World(17, {"nyc": 2, "lon": 1, "par": 1})
    world.run(1.0)
    relay, origin = world.sites["nyc"].nodes
    assert relay.relay.is_relay
    load(world, [origin], 5)
    world.run(1.0)
    session = next(item for item in relay.relay._bridge.sessions.values() if item.site == "lon")
    for step in range(50):
        lie = pack_numbers(BridgeKind.ACK, [(origin.id, (1 << 40) + step)])
        relay.relay.session_frame(world.now, session, BridgeKind.ACK, lie)
        load(world, [origin], 1)
        world.run(0.05)
    world.run(1.0)
    for node in (relay, origin):
        log = node.streams.log(origin.id)
        assert log is not None
        acked = node.relay._buffer.acked
        assert acked["par"][origin.id] == acked["lon"][origin.id] == log.next - 1


def test_what_a_relay_says_wrong_of_one_site_hides_nothing_of_others() -> None:
    world = World(18, {"nyc": 2, "lon": 1, "par": 1})
    world.run(1.0)
    relay, origin = world.sites["nyc"].nodes
    world.cut("nyc", "par")
    load(world, [origin], 3)
    body = encode_site_acks({"lon": {origin.id: 1 << 40}, "par": {origin.id: 2}})
    frame = encode_frame(Kind.SITE_ACKS, relay.id, origin.id, body)
    with pytest.raises(FrameError, match="has not published"):
        origin.relay.on_frame(world.now, Kind.SITE_ACKS, relay.id, frame)
    assert origin.relay._buffer.acked["par"][origin.id] == 2


def test_a_relay_makes_no_member_note_origins_without_a_stream() -> None:
    world = World(18, {"nyc": 2, "lon": 1})
    world.run(1.0)
    relay, member = world.sites["nyc"].nodes
    invented = [member_id(number.to_bytes(16)) for number in range(1, MOST_ORIGINS + 1)]
    load(world, [member], 1)
    before = dict(member.relay._buffer.acked["lon"])
    numbers = dict.fromkeys([*invented[1:], member.id], 1)
    frame = encode_frame(Kind.SITE_ACKS, relay.id, NOBODY, encode_site_acks({"lon": numbers}))
    member.relay.on_frame(world.now, Kind.SITE_ACKS, relay.id, frame)
    assert member.relay._buffer.acked["lon"] == before | {member.id: 1}
    numbers = dict.fromkeys([*invented, member.id], 2)
    frame = encode_frame(Kind.SITE_ACKS, relay.id, NOBODY, encode_site_acks({"lon": numbers}))
    with pytest.raises(FrameError, match="10001 origins"):
        member.relay.on_frame(world.now, Kind.SITE_ACKS, relay.id, frame)
    assert member.relay._buffer.acked["lon"] == before | {member.id: 1}


def test_a_site_has_little_wait_for_a_member_and_others_find_room() -> None:
    """The member reads more slowly than one site sends; what is not passed on is repeated by its source."""
    world = World(16, {"nyc": 2, "sfo": 2, "lon": 2})
    world.run(1.0)
    relay, member = world.sites["nyc"].nodes
    flooding, other = world.node("sfo1"), world.node("lon1")
    assert relay.relay.is_relay
    relay.backlogs[member.id] = LITTLE_BACKLOG
    body = bytes(MOST_OF_SITE // 4)
    for _ in range(12):
        flooding.relay.forward(world.now, member.id, Kind.UNICAST, body)
    other.relay.forward(world.now, member.id, Kind.UNICAST, b"first")
    world.run(0.2)
    sources = [source for _, source, _ in member.unicasts]
    assert (sources.count(flooding.id), sources.count(other.id)) == (4, 1)
    world.run(SHARE_SECONDS)
    flooding.relay.forward(world.now, member.id, Kind.UNICAST, b"later")
    world.run(0.2)
    assert member.unicasts[-1] == (Kind.UNICAST, flooding.id, b"later")
    for _ in range(4):
        flooding.relay.forward(world.now, member.id, Kind.UNICAST, body)
    world.run(0.2)
    relay.backlogs[member.id] = LITTLE_BACKLOG - 1
    flooding.relay.forward(world.now, member.id, Kind.UNICAST, b"again")
    world.run(0.2)
    assert member.unicasts[-1] == (Kind.UNICAST, flooding.id, b"again")


def test_members_are_told_of_views_at_a_bounded_rate_and_of_the_last_one() -> None:
    world = World(1, {"nyc": 2, "sfo": 2})
    world.run(1.0)
    (relay,) = [node.relay for node in world.sites["nyc"].nodes if node.relay._sites._known]
    session = next(item for item in relay._bridge.sessions.values() if item.phase is Phase.OPEN)
    known, before = relay._sites._known["sfo"], relay._sites._version
    members, number = known.views[0].members, known.views[0].id.number
    for step in range(100):
        view = View(ViewId(number + 1 + step, members[0].id), members)
        relay._sites.heard(world.now + step / 1000, session, view)
    assert relay._sites._version == before + 1
    assert relay._sites.deadline <= world.now + TELL_INTERVAL
    relay._sites.on_time(relay._sites.deadline)
    assert relay._sites._version == before + 2
    assert relay._sites.table.sites["sfo"].views[0].id.number == number + 100
