"""What is told about links from looking at them once a second."""

from __future__ import annotations

from cproton_ffi import lib

from isthmus_router.amqp.activity import ActivityMonitor
from isthmus_router.core.model import Connection, Direction, Link, Terminus
from isthmus_router.core.roles import Role


def outgoing_link() -> Link:
    connection = Connection(1, Role.NORMAL, incoming=True, name="peer")
    link = Link(1, connection, Direction.OUT, "link", source=Terminus(), target=Terminus())
    link.io = lib.pn_sender(lib.pn_session(lib.pn_connection()), b"link")
    connection.links.add(link)
    return link


def test_the_settle_rate_is_an_average_of_seconds() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    rates = []
    for deliveries in (10, 20, 30, 40, 50, 60, 60, 60, 60, 60, 60):
        link.deliveries = deliveries
        monitor.look([link.connection])
        rates.append(link.activity.settle_rate)
    assert rates == [2, 4, 6, 8, 10, 10, 8, 6, 4, 2, 0]


def test_what_is_unsettled_does_not_count() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    link.deliveries = 10
    link.unsettled = dict.fromkeys(range(5))
    monitor.look([link.connection])
    assert link.activity.settle_rate == 1


def test_since_when_a_link_is_idle_and_without_credit() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    monitor.look([link.connection])
    assert monitor.last_delivery_seconds(link.connection) is None
    link.deliveries = 1
    for _ in range(4):
        monitor.look([link.connection])
    assert monitor.last_delivery_seconds(link.connection) == 3
    assert link.activity.out_of_credit == 1
