"""Unsettled deliveries of routed links are bounded for each client: its links wait at the bound, and others go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from proton import Delivery, Link
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd

from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting

MOST, CREDIT, COUNT = 5, 50, 8


@dataclass
class Path:
    """One routed link from end to end, on which `COUNT` deliveries have been sent."""

    sender: Link
    receiver: Link
    number: int = 0
    got: list[Delivery] = field(default_factory=list)

    def send(self, settled: bool = False) -> None:
        self.number += 1
        delivery = self.sender.delivery(str(self.number))
        self.sender.send(b"message")
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

    def end(self, name: str, role: Role = Role.NORMAL, client: str | None = None) -> OwnEnd:
        end = OwnEnd(self.rig, name, role)
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


@pytest.fixture(params=[True, False], ids=["client sends", "client receives"])
def harbor(request: pytest.FixtureRequest, rig: Rig) -> Harbor:
    """One for each direction."""
    return Harbor(rig, client_sends=request.param)


def sent(harbor: Harbor, *paths: Path, count: int = COUNT, settled: bool = False) -> list[int]:
    for path in paths:
        for _ in range(count):
            path.send(settled)
    return arrived(harbor, *paths)


def arrived(harbor: Harbor, *paths: Path) -> list[int]:
    """How many each receiver has in the end."""
    harbor.rig.settle_down()
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
    assert arrived(harbor, second) == [MOST]
    harbor.check(two)
