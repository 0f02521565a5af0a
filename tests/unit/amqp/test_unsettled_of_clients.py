"""Unsettled deliveries of routed links are bounded for each client: its links wait at the bound, and others go on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from cproton_ffi import lib
from proton import Delivery, Link
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd

from isthmus_router.amqp import freeing
from isthmus_router.core import model
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Condition
from isthmus_router.linkroute.routing import LinkRouting

MOST, CREDIT, COUNT = 5, 50, 8
FRAME, WINDOW = 512, 2
FORCED = Condition("amqp:link:detach-forced", "detached by management")


@dataclass
class Path:
    """One routed link from end to end, on which `COUNT` deliveries have been sent."""

    sender: Link
    receiver: Link
    number: int = 0
    got: list[Delivery] = field(default_factory=list)

    def send(self, settled: bool = False, data: bytes = b"message") -> None:
        self.number += 1
        delivery = self.sender.delivery(str(self.number))
        self.sender.send(data)
        self.sender.advance()
        if settled:
            delivery.settle()

    def read(self) -> int:
        """How many deliveries the receiver has."""
        while (delivery := self.receiver.current) is not None:
            self.receiver.recv(delivery.pending)
            self.receiver.advance()
            self.got.append(delivery)
        return len(self.got)

    def settle(self, count: int) -> None:
        for _ in range(count):
            delivery = self.got.pop(0)
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()


class Harbor:
    """A router with a container and clients."""

    def __init__(self, rig: Rig, *, client_sends: bool) -> None:
        self.rig = rig
        self.client_sends = client_sends
        self.routing = LinkRouting(rig.core, lambda: 0.0, lambda *_: None)
        self.routing.configure([LINK_ROUTE])
        self.container = self.end("shelf", Role.ROUTE_CONTAINER)

    def end(self, name: str, role: Role = Role.NORMAL, client: str | None = None, **settings: Any) -> OwnEnd:
        end = OwnEnd(self.rig, name, role, **settings)
        self.rig.peers.append(end)
        self.rig.settle_down()
        end.router_side.core.client = client
        return end

    def path(self, client: OwnEnd, name: str) -> Path:
        """Attach a link; its receiver gives credit."""
        link = client.session.sender(name) if self.client_sends else client.session.receiver(name)
        (link.target if self.client_sends else link.source).address = "b2.orders"
        link.open()
        self.rig.settle_down()
        other = self.container.attached[-1]
        path = Path(link, other) if self.client_sends else Path(other, link)
        path.receiver.flow(CREDIT)
        self.rig.settle_down()
        return path

    def receiving(self, client: OwnEnd) -> OwnEnd:
        """The end that has the receivers of the client's links."""
        return self.container if self.client_sends else client

    def half(self, name: str, *, by_client: bool) -> model.Link:
        """Of the routed link with this name."""
        routed = next(routed for link, routed in self.routing.routed.items() if link.name == name)
        return routed.near if by_client else routed.far

    def detach(self, half: model.Link, *, silent: OwnEnd | None) -> None:
        """The router detaches a half, and one of the ends neither reads nor writes."""
        self.rig.driver.detach_link(half, FORCED)
        self.rig.driver.flush()
        self.settle_down(silent)

    def settle_down(self, silent: OwnEnd | None = None) -> None:
        """Move bytes and carry out long pieces of work until nothing is left to do for the others."""
        while sum(peer.turn() for peer in self.rig.peers if peer is not silent) or self.rig.driver.under_way:
            self.rig.loop.run_until_complete(asyncio.sleep(0))

    def allowance(self, end: OwnEnd) -> Any:
        core = end.router_side.core
        return self.rig.driver.forwarder.routed.allowances.of(core)

    def check(self, *ends: OwnEnd) -> None:
        """What is counted is what is unsettled."""
        allowance = self.allowance(ends[0])
        links = [
            link
            for link in self.routing.routed
            if link.incoming and link.allowance is allowance and link.partner is not None
        ]
        assert allowance.unsettled == sum(len(link.unsettled) for link in links)


@pytest.fixture(params=[freeing.AT_ONCE, 1], ids=["at once", "in steps"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The router settles that many deliveries of an ended link in one step."""
    monkeypatch.setattr(freeing, "AT_ONCE", request.param)


@pytest.fixture(params=[True, False], ids=["client sends", "client receives"])
def harbor(request: pytest.FixtureRequest, rig: Rig, at_once: None) -> Harbor:
    """One for each direction."""
    return Harbor(rig, client_sends=request.param)


def sent(harbor: Harbor, *paths: Path, count: int = COUNT, settled: bool = False) -> list[int]:
    for path in paths:
        for _ in range(count):
            path.send(settled)
    return arrived(harbor, *paths)


def arrived(harbor: Harbor, *paths: Path) -> list[int]:
    """How many each receiver has in the end."""
    harbor.settle_down()
    found = [path.read() for path in paths]
    harbor.rig.settle_down()
    return found


def test_links_of_a_client_wait_at_its_bound_and_others_go_on(
    harbor: Harbor, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = harbor.end("one", client="user a"), harbor.end("two", client="user a")
    other = harbor.end("other", client="user b")
    first, second, third = harbor.path(one, "1"), harbor.path(two, "2"), harbor.path(other, "3")
    harbor.allowance(one).most = MOST
    assert sent(harbor, first, count=3) == [3]
    assert sent(harbor, second) == [2]
    assert sent(harbor, first) == [3]
    assert sent(harbor, third) == [COUNT]
    assert not one.over
    assert not two.over
    harbor.check(one, two)

    # Each delivery that is settled makes room for one, whichever link of the client waits for it.
    first.settle(1)
    assert sum(arrived(harbor, first, second)) == MOST
    expected = 3 + 2 * COUNT
    for _ in range(expected):
        for path in (first, second):
            path.settle(len(path.got) and 1)
            assert sum(arrived(harbor, first, second)) <= MOST
    while first.got or second.got:
        first.settle(len(first.got))
        second.settle(len(second.got))
        arrived(harbor, first, second)
    assert (first.receiver.credit, second.receiver.credit) == (CREDIT - 3 - COUNT, CREDIT - COUNT)
    harbor.check(one, two)
    assert harbor.allowance(one).unsettled == 0
    (record,) = (record for record in caplog.records if "wait until" in record.message)
    assert record.__dict__["client"] == "user a"


def test_settled_deliveries_do_not_count(harbor: Harbor) -> None:
    client = harbor.end("one", client="user a")
    path = harbor.path(client, "1")
    harbor.allowance(client).most = MOST
    assert sent(harbor, path, settled=True) == [COUNT]
    assert harbor.allowance(client).unsettled == 0
    assert sent(harbor, path) == [COUNT + MOST]


def test_clients_without_an_identity_are_bounded_for_each_connection(harbor: Harbor) -> None:
    one, other = harbor.end("one"), harbor.end("other")
    first, second = harbor.path(one, "1"), harbor.path(other, "2")
    harbor.allowance(one).most = MOST
    assert sent(harbor, first, second) == [MOST, COUNT]


@pytest.mark.parametrize("by_client", [True, False], ids=["client detaches", "container detaches"])
def test_deliveries_of_a_detached_link_count_until_it_is_freed(harbor: Harbor, by_client: bool) -> None:
    client = harbor.end("one", client="user a")
    first, second = harbor.path(client, "1"), harbor.path(client, "2")
    allowance = harbor.allowance(client)
    allowance.most = MOST
    assert sent(harbor, first, count=MOST) == [MOST]
    assert sent(harbor, second) == [0]
    (first.sender if by_client is harbor.client_sends else first.receiver).close()
    silent = harbor.container if by_client else client
    while sum(peer.turn() for peer in harbor.rig.peers if peer is not silent):
        pass
    assert allowance.unsettled == MOST
    # Now the silent end answers the detach.
    assert arrived(harbor, second) == [MOST]
    harbor.check(client)


def test_a_link_of_a_lost_connection_makes_room(harbor: Harbor) -> None:
    one, two = harbor.end("one", client="user a"), harbor.end("two", client="user a")
    first, second = harbor.path(one, "1"), harbor.path(two, "2")
    harbor.allowance(one).most = MOST
    assert sent(harbor, first) == [MOST]
    assert sent(harbor, second) == [0]
    one.drop()
    harbor.rig.loop_goes_round()
    assert arrived(harbor, second) == [MOST]
    harbor.check(two)


@pytest.mark.parametrize("by_client", [True, False], ids=["of client", "of container"])
def test_deliveries_of_a_half_that_the_router_detaches_count_while_the_engine_has_them(
    harbor: Harbor, by_client: bool
) -> None:
    """Those that the receiver has got are settled; those of the sender wait for its answer."""
    client = harbor.end("one", client="user a")
    path = harbor.path(client, "1")
    allowance = harbor.allowance(client)
    assert sent(harbor, path, count=MOST) == [MOST]
    half = harbor.half("1", by_client=by_client)
    harbor.detach(half, silent=client if by_client else harbor.container)
    assert lib.pn_link_unsettled(half.io) == allowance.unsettled == (MOST if half.incoming else 0)
    harbor.settle_down()
    assert allowance.unsettled == 0
    assert not client.router_side.closed
    assert not harbor.container.router_side.closed


@pytest.mark.parametrize("by_client", [True, False], ids=["of client", "of container"])
def test_a_session_that_ends_in_place_of_an_answer_makes_room(harbor: Harbor, by_client: bool) -> None:
    client = harbor.end("one", client="user a")
    path = harbor.path(client, "1")
    assert sent(harbor, path, count=MOST) == [MOST]
    silent = client if by_client else harbor.container
    harbor.detach(harbor.half("1", by_client=by_client), silent=silent)
    (path.sender if by_client is harbor.client_sends else path.receiver).session.close()
    harbor.settle_down()
    assert harbor.allowance(client).unsettled == 0


def test_deliveries_count_while_the_client_does_not_read_the_answer(harbor: Harbor) -> None:
    client = harbor.end("one", client="user a")
    path = harbor.path(client, "1")
    allowance = harbor.allowance(client)
    assert sent(harbor, path, count=MOST) == [MOST]
    client.router_side.dirty = True  # as if it were due to be written, so that it is not
    (path.sender if harbor.client_sends else path.receiver).close()
    harbor.rig.settle_down()
    assert not harbor.routing.routed
    assert allowance.unsettled == MOST
    client.router_side.dirty = False
    harbor.rig.driver.touch(client.router_side)
    harbor.rig.driver.flush()
    harbor.settle_down()
    assert allowance.unsettled == 0


def test_a_receiver_settles_while_the_router_detaches_the_link_of_a_lost_sender(harbor: Harbor) -> None:
    client = harbor.end("one", client="user a")
    path = harbor.path(client, "1")
    allowance = harbor.allowance(client)
    assert sent(harbor, path, count=MOST) == [MOST]
    receiving = harbor.receiving(client)
    (client if harbor.client_sends else harbor.container).drop()
    harbor.rig.loop.run_until_complete(asyncio.sleep(0))
    path.settle(MOST - 1)
    receiving.turn()
    harbor.settle_down()
    assert allowance.unsettled == 0
    assert not receiving.router_side.closed


def test_the_router_detaches_a_half_whose_peer_waits_for_the_answer_of_the_other(harbor: Harbor) -> None:
    client = harbor.end("one", client="user a")
    path = harbor.path(client, "1")
    assert sent(harbor, path, count=MOST) == [MOST]
    near = harbor.half("1", by_client=True)
    (path.sender if harbor.client_sends else path.receiver).close()
    client.turn()
    harbor.detach(near, silent=harbor.container)
    assert not client.router_side.sessions.receivers(near.session)
    harbor.settle_down()
    assert harbor.allowance(client).unsettled == 0


def test_a_delivery_of_which_only_a_part_has_come_is_not_completed(harbor: Harbor) -> None:
    client = harbor.end("one", client="user a")
    path = harbor.path(client, "1")
    path.sender.delivery("part")
    path.sender.send(b"the first part")
    harbor.rig.settle_down()
    out = next(link for link in harbor.routing.routed if not link.incoming)
    harbor.detach(out, silent=None)
    assert path.receiver.current.partial
    assert path.receiver.name in harbor.receiving(client).over
    assert harbor.allowance(client).unsettled == 0


def test_deliveries_that_wait_in_the_engine_of_a_detached_half_count(rig: Rig) -> None:
    harbor = Harbor(rig, client_sends=False)
    client = harbor.end("one", client="user a", capacity=FRAME * WINDOW, frame=FRAME)
    path = harbor.path(client, "1")
    for _ in range(COUNT):
        path.send(data=bytes(FRAME - 100))
    harbor.rig.settle_down()
    near = harbor.half("1", by_client=True)
    assert lib.pn_link_queued(near.io) == COUNT - WINDOW
    allowance = harbor.allowance(client)
    harbor.detach(near, silent=None)
    assert allowance.unsettled == COUNT - WINDOW
    assert not client.over
    # The client makes room in its session: the others come, and then the detach.
    for _ in range(COUNT):
        path.read()
        harbor.rig.settle_down()
    assert len(path.got) == COUNT
    assert "1" in client.over
    assert allowance.unsettled == 0
