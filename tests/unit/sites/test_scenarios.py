"""The scenarios that sites have to get through, each by its name, over whole members; and what is true of every run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.unit.sites.schedules import POINTS, finish
from tests.unit.sites.sites import Net, Node, Trap
from tests.unit.sites.world import World

from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.relay.sites import SiteState
from isthmus_router.sites.settings import MemberSettings

DETECTION = 3.2
"""Seconds until a member that says nothing is taken for dead, where no connection of it ends."""
KIB = 1024


def sites(seed: int = 1, *, start: bool = True, discovery: str = "hosts", **sizes: int) -> Net:
    """Two sites of three, or what is said."""
    net = Net(World(seed), sizes or {"nyc": 3, "sfo": 3}, discovery=discovery)
    if start:
        net.start_all()
    return net


def load(net: Net, name: str, seconds: float, *, every: float = 0.01, size: int = 0) -> None:
    """Whoever has the name publishes, from now on for so long; nobody does while it is down."""
    start = net.world.now

    def publish() -> None:
        for node in net.alive:
            if node.name == name:
                node.publish(size=size)

    for number in range(int(seconds / every)):
        net.world.at(start + number * every, publish)


def crash(net: Net, name: str) -> None:
    net.crash(net.named(name))


def relays(net: Net, site: str) -> list[Node]:
    return [node for node in net.of(site) if node.member.relay.is_relay]


def longest_wait(node: Node, sender: Node) -> float:
    """Seconds between two messages that follow each other."""
    times = [at for origin, _, at in node.deliveries if origin == sender.id]
    return max(later - earlier for earlier, later in pairwise(times))


def hosts(nodes: Iterable[Node]) -> list[str]:
    return [node.process.host.name for node in nodes]


@pytest.mark.parametrize("site", ["nyc", "sfo"])
def test_kill_the_relay_of_the_sender_or_of_the_receiver(site: str) -> None:
    net = sites()
    sender, receiver = net.of("nyc")[2], net.of("sfo")[2]
    load(net, sender.name, 2.0, every=0.001)
    net.world.run(0.7)
    net.crash(net.of(site)[0])
    net.world.run(4.0)
    assert longest_wait(receiver, sender) < 0.5
    finish(net)


@pytest.mark.parametrize("pause", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("order", [("nyc", "sfo"), ("sfo", "nyc")])
def test_kill_both_relays(order: tuple[str, str], pause: float) -> None:
    net = sites()
    load(net, net.of("nyc")[2].name, 2.0)
    net.world.run(0.7)
    for site in order:
        net.crash(net.of(site)[0])
        net.world.run(pause)
    net.world.run(4.0)
    finish(net)


@pytest.mark.parametrize("point", [f"{when} bridge HELLO" for when in ("before", "after")])
def test_kill_relay_and_standby(point: str) -> None:
    """The standby dies as it takes over; who has published it all lives."""
    net = sites()
    load(net, net.of("nyc")[2].name, 2.0)
    net.world.run(0.7)
    relay, standby = net.of("nyc")[:2]
    net.traps.append(Trap(lambda node: node is standby, point, 1, net.crash))
    net.crash(relay)
    net.world.run(5.0)
    assert not standby.alive
    finish(net)


@pytest.mark.parametrize("point", POINTS)
def test_kill_in_every_window(point: str) -> None:
    """The first time of the sender's relay, with one message; under load the fifth time of the receiver's."""
    for site, count in (("nyc", 1), ("sfo", 5)):
        net = sites()
        relay = net.of(site)[0]
        net.traps.append(Trap(lambda node, relay=relay: node is relay, point, count, net.crash))  # type: ignore[misc]
        load(net, net.of("nyc")[2].name, 0.01 if count == 1 else 0.4)
        net.world.run(1.0)
        net.traps.clear()
        finish(net)


def test_rolling_restart_in_traffic() -> None:
    """The newest first; each is back before the next one goes."""
    net = sites()
    for name in ("nyc0", "sfo0"):
        load(net, name, 30.0, every=0.02)
    for site in ("nyc", "sfo"):
        for node in reversed(net.of(site)):
            net.world.run(1.0)
            net.leave(node)
            net.world.run(0.5)
            assert not node.process.alive
            net.start(node.name)
            assert net.settled(10.0), net.describe()
    net.world.run(20.0)
    finish(net)


@pytest.mark.parametrize("times", [0.5, 1.0, 1.5, 3.0])
def test_false_suspicion(times: float) -> None:
    """A relay that slept wakes up as one of the past."""
    net = sites()
    load(net, "nyc2", 4.0)
    load(net, "sfo2", 4.0)
    net.world.run(0.5)
    net.world.pause(relays(net, "nyc")[0].process, times * DETECTION)
    net.world.run(12.0)
    assert len(relays(net, "nyc")) == 1
    finish(net)


def test_bridge_flap() -> None:
    net = sites()
    load(net, "nyc2", 20.0, every=0.02)
    load(net, "sfo1", 20.0, every=0.02)
    for _ in range(50):
        net.world.cut(["nyc"], ["sfo"])
        net.world.run(0.2)
        net.world.heal()
        net.world.run(0.2)
    finish(net)


def test_bridge_long() -> None:
    """What is kept for less time than the other site is away is gone, and told to be, to the message."""

    def change(settings: MemberSettings) -> MemberSettings:
        return replace(settings, relay=replace(settings.relay, buffer_seconds=3.0))

    net = Net(World(1), {"nyc": 3, "sfo": 3}, change=change)
    net.start_all()
    sender = net.named("nyc2")
    load(net, "nyc2", 12.0, every=0.02)
    net.world.run(1.0)
    net.world.cut(["nyc"], ["sfo"])
    net.world.run(8.0)
    net.world.heal()
    net.world.run(6.0)
    assert len(sender.sent) == 600
    for node in net.of("sfo"):
        numbers = {number for origin, number, _ in node.deliveries if origin == sender.id}
        lost = sorted(set(range(600)) - numbers)
        assert lost == list(range(lost[0], lost[-1] + 1))
        assert 200 < len(lost) == node.gaps[sender.id]
    finish(net, gaps_allowed=True)


def test_merge_of_a_site_whose_halves_both_reach_the_other() -> None:
    """Two relays by mistake, until there is one site again."""
    net = sites()
    for name in ("nyc0", "nyc2", "sfo2"):
        load(net, name, 10.0, every=0.05)
    net.world.run(0.5)
    first, *others = net.of("nyc")
    net.world.cut(hosts([first]), hosts(others))
    assert net.world.run(8.0, lambda: len(relays(net, "nyc")) == 2)
    net.world.run(1.0)
    net.world.heal()
    assert net.world.run(15.0, lambda: len(relays(net, "nyc")) == 1 and net.is_settled()), net.describe()
    finish(net, gaps_allowed=True)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("pause", [0.0, 0.01])
def test_same_address_reuse(rank: int, pause: float) -> None:
    """Another member where one has crashed, before anybody has noticed."""
    net = sites()
    old = net.of("nyc")[rank]
    other = net.of("nyc")[(rank + 1) % 3]
    load(net, other.name, 2.0)
    net.world.run(0.5)
    net.crash(old)
    net.world.run(pause)
    new = net.start(old.name)
    assert new.id != old.id
    assert new.process.address == old.process.address
    assert net.settled(10.0), net.describe()
    for node in net.alive:
        if node is not new:
            node.reply(new)
    net.world.run(3.0)
    assert len(new.replies) == 5
    finish(net)


@pytest.mark.parametrize("discovery", ["tunnel", "gossip"])
def test_gossip_routers_crash_one_after_the_other_and_return(discovery: str) -> None:
    net = sites(discovery=discovery)
    routers = net.gossip
    assert routers is not None
    load(net, "nyc2", 12.0, every=0.02)
    load(net, "sfo2", 12.0, every=0.02)
    views = {node: len(node.views) for node in net.alive}
    one, other = routers.endpoints
    net.world.run(1.0)
    routers.crash(one)
    net.world.run(3.0)
    routers.start(one)
    net.world.run(3.0)
    routers.crash(other)
    net.world.run(3.0)
    routers.start(other)
    net.world.run(3.0)
    assert {node: len(node.views) for node in net.alive} == views
    finish(net)


def test_gossip_routers_crash_together_and_return() -> None:
    """Who has nothing but them hears of nobody while they are gone."""
    net = sites(discovery="tunnel")
    routers = net.gossip
    assert routers is not None
    load(net, "nyc2", 3.0)
    net.world.run(1.0)
    for endpoint in routers.endpoints:
        routers.crash(endpoint)
    net.world.run(10.0)
    for endpoint in routers.endpoints:
        routers.start(endpoint)
    finish(net, gaps_allowed=True)


def test_three_sites_in_a_triangle_lose_a_relay() -> None:
    net = sites(nyc=2, sfo=2, lon=2)
    for name in ("nyc1", "sfo1", "lon1"):
        load(net, name, 2.0, every=0.02)
    net.world.run(1.0)
    net.crash(net.of("sfo")[0])
    net.world.run(4.0)
    finish(net)


def test_three_sites_in_a_chain_lose_the_relay_between() -> None:
    """Sites that do not reach each other get nothing of each other by a third, until they do."""
    net = sites(nyc=2, sfo=2, lon=2)
    for name in ("nyc1", "sfo1", "lon1"):
        load(net, name, 3.0, every=0.02)
    net.world.run(0.5)
    net.world.cut(["nyc"], ["lon"])
    net.world.run(0.5)
    net.crash(net.of("sfo")[0])
    net.world.run(4.0)
    end, middle, sender = net.named("lon1"), net.named("sfo1"), net.named("nyc1")
    assert sum(origin == sender.id for origin, _, _ in middle.deliveries) == 150
    assert sum(origin == sender.id for origin, _, _ in end.deliveries) < 50
    finish(net)


def test_slow_site() -> None:
    """One that does not read holds up nobody else."""
    net = sites(nyc=2, sfo=2, lon=2)
    for node in net.of("sfo"):
        node.behind = lambda now: True  # type: ignore[method-assign]
    sender, receiver = net.named("nyc1"), net.named("lon1")
    load(net, "nyc1", 4.0, every=0.008, size=16 * KIB)
    net.world.run(4.5)
    assert sum(origin == sender.id for origin, _, _ in receiver.deliveries) == 500
    assert longest_wait(receiver, sender) < 0.05
    for node in net.of("sfo"):
        assert len(node.deliveries) < 500
        del node.behind  # type: ignore[attr-defined]
    finish(net)


def test_late_site() -> None:
    """It gets what is kept for it, in order, and what follows."""
    net = sites(start=False)
    for number in range(3):
        net.start(f"nyc{number}")
    net.world.run(3.0)
    sender = net.named("nyc1")
    for _ in range(100):
        sender.publish(100)
        net.world.run(0.01)
    for number in range(3):
        net.start(f"sfo{number}")
    assert net.settled(10.0), net.describe()
    sender.publish(100)
    net.world.run(5.0)
    for node in net.of("sfo"):
        numbers = [number for _, number, _ in node.deliveries]
        assert numbers[-100:] == list(range(10_000, 10_100))
        assert numbers == list(range(numbers[0], 10_100))
    finish(net)


@pytest.mark.parametrize("site", ["nyc", "sfo"])
def test_large_messages_arrive_whole_or_not_at_all(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = sites()
    sizes: set[int] = set()
    deliver = Node.deliver

    def seen(node: Node, origin: object, messages: list[GroupMessage], number: int) -> None:
        sizes.update(len(message.payload) for message in messages)
        deliver(node, origin, messages, number)  # type: ignore[arg-type]

    monkeypatch.setattr(Node, "deliver", seen)
    load(net, "nyc2", 1.0, every=0.02, size=128 * KIB)
    net.world.run(0.5)
    net.crash(net.of(site)[0])
    net.world.run(4.0)
    assert sizes == {128 * KIB + 10}
    finish(net)


@pytest.mark.parametrize("ends", [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0)])
def test_asymmetric_cut_within_a_site(ends: tuple[int, int]) -> None:
    """One hears the other, but not the other way round; everybody else hears both."""
    net = sites(nyc=3, sfo=2)
    for name in ("nyc0", "nyc1", "nyc2", "sfo1"):
        load(net, name, 8.0, every=0.05)
    net.world.run(0.5)
    one, other = (net.of("nyc")[rank] for rank in ends)
    net.world.cut(hosts([one]), hosts([other]), both=False)
    net.world.run(10.0)
    finish(net, gaps_allowed=True)


def _restarted(net: Net, names: list[str]) -> None:
    for name in names:
        net.start(name)
    assert net.settled(15.0), net.describe()


@pytest.mark.parametrize("seconds_between", [0.0, 0.0007, 0.015, 0.3])
def test_a_whole_site_that_leaves_has_acknowledged_what_it_gave_to_receivers(seconds_between: float) -> None:
    """So those that attach to the new members do not get it again."""
    net = sites()
    load(net, "nyc2", 8.0, every=0.002)
    net.world.run(1.0)
    old = {node.name: node for node in net.of("sfo")}
    for node in old.values():
        net.leave(node)
        net.world.run(seconds_between)
    net.world.run(2.0)
    _restarted(net, list(old))
    net.world.run(5.0)
    for node in net.of("sfo"):
        assert node.deliveries
        assert node.deliveries[0][1] > max(one.deliveries[-1][1] for one in old.values())
    finish(net, gaps_allowed=True)


@pytest.mark.parametrize("seed", range(3))
def test_a_whole_site_that_starts_again_begins_as_one_though_names_are_known_late(seed: int) -> None:
    """Else the first to meet a relay of another site has what was kept for all."""
    net = sites(seed, discovery="dns")
    load(net, "nyc2", 20.0, every=0.01)
    net.world.run(1.0)
    old = {node.name: node for node in net.of("sfo")}
    for node in old.values():
        net.leave(node)
    net.world.run(2.0)
    names = net.world.names
    known, names["sfo.members"] = names["sfo.members"], ()
    for name in old:
        net.start(name)
        net.world.run(0.5)
    net.world.run(4.0)
    names["sfo.members"] = known
    assert net.settled(5.0), net.describe()
    net.world.run(12.0)
    last = max(one.deliveries[-1][1] for one in old.values())
    for node in net.of("sfo"):
        assert node.deliveries[0][1] == last + 1
    finish(net)


def test_a_site_that_starts_without_some_of_its_members_does_not_wait_for_ever() -> None:
    net = sites(start=False)
    for name in ("nyc0", "nyc1", "nyc2", "sfo0", "sfo1"):
        net.start(name)
    net.world.run(10.0)
    assert not relays(net, "sfo")
    net.world.run(1.5)
    (relay,) = relays(net, "sfo")
    net.crash(relay)
    net.world.run(0.5)
    assert relays(net, "sfo"), "it has begun: the next one does not wait"
    finish(net)


@pytest.mark.parametrize("leave", [False, True])
def test_all_members_of_the_receiving_site_are_deleted_and_return(leave: bool) -> None:
    net = sites()
    asker = net.named("nyc2")
    load(net, "nyc2", 12.0, every=0.02)
    net.world.run(1.0)
    old = net.of("sfo")
    end: Callable[[Node], None] = net.leave if leave else net.crash
    for node in old:
        end(node)
    to_nobody = asker.send_to(old[0].id, b"anybody?")
    net.world.run(6.0)
    assert to_nobody.failed is Outcome.MODIFIED
    _restarted(net, [node.name for node in old])
    for node in net.of("sfo"):
        before = len(node.deliveries)
        asker.reply(node)
        node.reply(asker)
        net.world.run(1.0)
        assert len(node.deliveries) > before
        assert len(node.replies) == 1
    assert len(asker.replies) == 3
    net.world.run(5.0)
    finish(net, gaps_allowed=True)


@pytest.mark.parametrize(
    ("seconds_between", "backwards"), [(0.0, True), (0.002, False), (0.015, True), (0.06, False), (0.3, True)]
)
def test_a_whole_site_that_leaves_sends_what_it_has_and_says_goodbye(
    seconds_between: float, *, backwards: bool
) -> None:
    net = sites()
    load(net, "nyc2", 8.0, every=0.002)
    net.world.run(1.0)
    nodes = net.of("nyc")
    sender = net.named("nyc2")
    for node in reversed(nodes) if backwards else nodes:
        net.leave(node)
        net.world.run(seconds_between)
    net.world.run(1.0)
    for node in net.of("sfo"):
        got = [number for origin, number, _ in node.deliveries if origin == sender.id]
        assert got == list(range(len(got)))
        assert {sent.number for sent in sender.sent if sent.accepted is not None} <= set(got)
        assert node.member.relay.snapshot(node.now).sites[0].state is SiteState.LEFT
    finish(net)


@pytest.mark.parametrize(
    ("order", "seconds_between"),
    [((0, 1, 2), 0.03), ((0, 1, 2), 0.25), ((1, 0, 2), 0.07), ((2, 0, 1), 0.03), ((2, 0, 1), 0.25)],
    ids=str,
)
def test_a_whole_site_that_leaves_over_a_slow_bridge_sends_all_that_was_accepted(
    order: tuple[int, ...], seconds_between: float
) -> None:
    net = sites()
    nodes = net.of("nyc")
    for one in hosts(nodes):
        for other in hosts(net.of("sfo")):
            for ends in ((one, other), (other, one)):
                net.world.between(*ends).delay = 0.1
    for node in nodes:
        load(net, node.name, 8.0, every=0.005)
    net.world.run(2.0)
    for rank in order:
        net.leave(nodes[rank])
        net.world.run(seconds_between)
    net.world.run(3.0)
    for node in net.of("sfo"):
        for sender in nodes:
            got = [number for origin, number, _ in node.deliveries if origin == sender.id]
            accepted = {sent.number for sent in sender.sent if sent.accepted is not None}
            assert accepted <= set(got), f"{sender.name}: {sorted(accepted - set(got))}"
            assert got == list(range(len(got)))
    finish(net)
