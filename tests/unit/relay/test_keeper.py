"""What a member keeps for other sites as it becomes a holder, is one, and is none any more."""

from __future__ import annotations

from typing import cast

import pytest

from isthmus_router.groups.batch import Batch, GroupMessage, make_batch
from isthmus_router.groups.identity import MemberId, MemberInfo
from isthmus_router.groups.streams.log import Log
from isthmus_router.groups.views import View, ViewId
from isthmus_router.relay.keeper import Keeper
from isthmus_router.relay.port import SiteStreams
from isthmus_router.relay.settings import RelaySettings, RemoteSite

OWN, A, B, C = (MemberId(bytes([65 + number]) * 16) for number in range(4))


def batch(origin: MemberId, number: int, *targets: str) -> Batch:
    return make_batch(origin, number, number - 1, "nyc", targets or None, [GroupMessage("a", b"x")])


class Rig:
    """The keeper of a member, and its streams."""

    def __init__(self, *, most: int = 100) -> None:
        self.logs = {origin: Log("nyc", 1, 0) for origin in (OWN, A, C)}
        self.logs[B] = Log("lon", 1, 0)
        self.ready = True
        self.asked: list[MemberId] = []
        sites = {"sfo": RemoteSite(), "lon": RemoteSite()}
        settings = RelaySettings("g", "nyc", "ns/nyc", sites, buffer_messages=most)
        streams = cast(SiteStreams, self)
        self.keeper = Keeper(OWN, settings, streams, lambda site, messages: None, lambda site: True)
        self.views = 0

    def origins(self) -> list[MemberId]:
        return list(self.logs)

    def log(self, origin: MemberId) -> Log | None:
        return self.logs.get(origin)

    def backfill(self, now: float, origin: MemberId, number: int) -> None:
        self.asked.append(origin)

    def view(self, *members: MemberId) -> None:
        self.views += 1
        infos = tuple(MemberInfo(member, "", ()) for member in members)
        self.keeper.view_installed(0.0, View(ViewId(self.views, members[0]), infos))

    def deliver(self, origin: MemberId, count: int, *targets: str) -> None:
        for _ in range(count):
            new = batch(origin, self.logs[origin].next, *targets)
            self.logs[origin].append(new)
            self.keeper.delivered(0.0, new)


def test_a_holder_keeps_count_of_all_origins_of_its_site_and_others_of_their_own() -> None:
    rig = Rig()
    rig.view(OWN, A, C)
    for origin in (OWN, A):
        rig.deliver(origin, 2)
    assert rig.keeper.buffer.messages == 4
    assert [rig.keeper.relayed(origin) for origin in (OWN, A)] == [0, 0]
    assert rig.keeper.relayed(B) == float("inf"), "it is of another site"
    rig.view(A, C, OWN)
    assert rig.keeper.buffer.messages == 2
    for origin in (OWN, A):
        rig.deliver(origin, 1)
    assert rig.keeper.buffer.messages == 3
    assert [rig.keeper.relayed(origin) for origin in (OWN, A)] == [0, float("inf")]


def test_what_a_new_holder_fetches_counts_when_all_of_it_is_there() -> None:
    rig = Rig(most=6)
    rig.view(A, C, OWN)
    rig.deliver(A, 5)
    fetched = list(rig.logs[A].batches(1))
    rig.logs[A].trim(4)
    rig.ready = False
    rig.view(A, OWN)
    assert rig.asked == [OWN, A, C]
    rig.deliver(A, 1)
    for number in (3, 4, 1, 2):
        assert rig.keeper.buffer.messages == 2
        rig.logs[A].insert(fetched[number - 1])
        rig.keeper.on_time(1.0)
    rig.ready = True
    rig.keeper.on_time(1.0)
    assert rig.keeper.buffer.messages == 6
    rig.deliver(A, 1)
    assert rig.keeper.relayed(A) == 1


def test_what_a_new_holder_finds_keeps_to_the_bound() -> None:
    rig = Rig(most=3)
    rig.view(A, C, OWN)
    rig.deliver(A, 5)
    rig.view(A, OWN)
    assert rig.keeper.buffer.messages == 3
    assert rig.keeper.relayed(A) == 2


def test_nothing_is_known_of_origins_whose_streams_are_forgotten() -> None:
    rig = Rig(most=2)
    rig.view(OWN, A)
    rig.deliver(A, 5)
    rig.keeper.acknowledge(0.0, "sfo", A, 4)
    del rig.logs[A]
    rig.keeper.on_time(1.0)
    assert rig.keeper.buffer.messages == 0
    assert A not in rig.keeper.buffer.origins()


@pytest.mark.parametrize(
    ("sfo", "lon", "held"), [(0, 0, 0), (2, 0, 2), (2, 1, 2), (1, 2, 2), (3, 0, 3), (4, 0, 3), (4, 5, 5)]
)
def test_what_another_site_has_is_held_elsewhere(sfo: int, lon: int, held: int) -> None:
    rig = Rig()
    rig.view(OWN)
    rig.deliver(OWN, 3)
    rig.deliver(OWN, 2, "lon")
    rig.keeper.acknowledge(0.0, "sfo", OWN, sfo)
    rig.keeper.acknowledge(0.0, "lon", OWN, lon)
    assert rig.keeper.elsewhere(0) == held


def test_each_site_has_but_what_is_for_it() -> None:
    rig = Rig()
    rig.view(OWN)
    rig.deliver(OWN, 2, "sfo")
    rig.deliver(OWN, 2)
    rig.keeper.acknowledge(0.0, "sfo", OWN, 3)
    rig.keeper.acknowledge(0.0, "lon", OWN, 4)
    assert (rig.keeper.elsewhere(0), rig.keeper.elsewhere(2)) == (3, 4)
