"""What is told about links from looking at them once a second."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from cproton_ffi import lib

from isthmus_router.amqp.activity import AT_ONCE, PASSED_OVER, WINDOW_SECONDS, Activity, ActivityMonitor
from isthmus_router.amqp.kernel.delivery import Parked, queue_of
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, Terminus


def outgoing_link() -> Link:
    return a_link(Direction.OUT, lib.pn_sender)


def incoming_link() -> Link:
    return a_link(Direction.IN, lib.pn_receiver)


def a_link(direction: Direction, made_by: Callable[[Any, bytes], Any]) -> Link:
    connection = Connection(1, Role.NORMAL, incoming=True, name="peer", io=SimpleNamespace(stirred=False))
    link = Link(1, connection, direction, "link", source=Terminus(), target=Terminus())
    link.io = made_by(lib.pn_session(lib.pn_connection()), b"link")
    connection.links.add(link)
    return link


def a_second_passes(monitor: ActivityMonitor, link: Link) -> None:
    link.connection.io.stirred = True
    look_at(monitor, link.connection)


def look_at(monitor: ActivityMonitor, connection: Connection) -> None:
    for _ in monitor.look([connection]):
        pass


def test_the_settle_rate_is_an_average_of_seconds() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    rates = []
    for deliveries in (10, 20, 30, 40, 50, 60, 60, 60, 60, 60, 60):
        link.deliveries = deliveries
        a_second_passes(monitor, link)
        rates.append(link.activity.settle_rate)
    assert rates == [2, 4, 6, 8, 10, 10, 8, 6, 4, 2, 0]


def test_what_is_unsettled_does_not_count() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    link.deliveries = 10
    link.unsettled = dict.fromkeys(range(5))
    a_second_passes(monitor, link)
    assert link.activity.settle_rate == 1
    link.unsettled.clear()
    a_second_passes(monitor, link)
    assert link.activity.settle_rate == 2


def test_only_links_with_deliveries_of_late_are_looked_at() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    a_second_passes(monitor, link)
    assert link.activity is None
    link.deliveries = 5
    look_at(monitor, link.connection)
    assert monitor.busy == set(), "nothing was read or written on this connection"
    a_second_passes(monitor, link)
    assert monitor.busy == {link}
    for _ in range(WINDOW_SECONDS + 1):
        a_second_passes(monitor, link)
    assert monitor.busy == set()
    link.deliveries = 6
    a_second_passes(monitor, link)
    monitor.forget(link)
    assert monitor.busy == set()


def test_since_when_a_link_is_idle_and_without_credit() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    a_second_passes(monitor, link)
    assert monitor.last_delivery_seconds(link.connection) is None
    link.deliveries = 1
    for _ in range(4):
        a_second_passes(monitor, link)
    assert monitor.last_delivery_seconds(link.connection) == 3
    assert monitor.zero_credit_seconds(link, now=link.attached_at + 100) == 3
    lib.pn_link_flow(link.io, 1)
    monitor.credit_changed(link)
    assert link.activity.out_of_credit is None


def test_a_link_that_never_had_a_delivery_is_without_credit_since_its_attach() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    assert monitor.zero_credit_seconds(link, now=link.attached_at + 7.5) == 7


def starved(monitor: ActivityMonitor, link: Link, attached_for: float = 0) -> int:
    """Taken at second 0 of the kernel's clock plus those of the monitor."""
    return monitor.take_starved_seconds(link, link.attached_at + attached_for, monitor.second * 1_000_000)


def seconds_pass(monitor: ActivityMonitor, link: Link, count: int, deliveries_each: int = 0) -> None:
    for _ in range(count):
        link.deliveries += deliveries_each
        a_second_passes(monitor, link)


def test_a_sender_without_credit_is_starved_until_it_has_some() -> None:
    link, monitor = incoming_link(), ActivityMonitor()
    lib.pn_link_flow(link.io, 5)
    seconds_pass(monitor, link, 2)
    assert starved(monitor, link) == 0
    lib.pn_link_flow(link.io, -5)
    monitor.credit_changed(link)
    seconds_pass(monitor, link, 3)
    assert starved(monitor, link) == 3
    assert starved(monitor, link) == 0, "these are told"
    seconds_pass(monitor, link, 4)
    lib.pn_link_flow(link.io, 5)
    monitor.credit_changed(link)
    seconds_pass(monitor, link, 5)
    assert starved(monitor, link) == 4


def test_a_sender_that_never_had_credit_is_starved_since_its_attach() -> None:
    link, monitor = incoming_link(), ActivityMonitor()
    monitor.second = 20
    assert starved(monitor, link, attached_for=7.9) == 7
    seconds_pass(monitor, link, 2)
    assert starved(monitor, link, attached_for=9.9) == 2


def test_a_busy_sender_that_is_seen_without_credit_each_time_is_not_starved() -> None:
    link, monitor = incoming_link(), ActivityMonitor()
    seconds_pass(monitor, link, 5, deliveries_each=100)
    assert starved(monitor, link) == 0
    seconds_pass(monitor, link, 2)
    assert starved(monitor, link) == 2


def test_a_receiver_without_credit_is_starved_while_messages_wait() -> None:
    link, monitor = outgoing_link(), ActivityMonitor()
    seconds_pass(monitor, link, 3)
    assert starved(monitor, link, attached_for=3) == 0, "nothing is there for it"
    record: Any = SimpleNamespace(arrived=4_000_000)
    waiting = Parked(queue_of(link), b"", record, None)
    link.parked.append(waiting)
    seconds_pass(monitor, link, 6)
    assert starved(monitor, link, attached_for=9) == 5, "it came in second 4"
    seconds_pass(monitor, link, 2)
    monitor.fed(link, monitor.second * 1_000_000)
    link.parked.clear()
    lib.pn_link_flow(link.io, 5)
    monitor.credit_changed(link)
    seconds_pass(monitor, link, 5)
    assert starved(monitor, link) == 2
    link.parked.append(waiting)
    link.boundless = True
    lib.pn_link_flow(link.io, -5)
    assert starved(monitor, link) == 0, "it does not need credit"


def many_links(count: int, deliveries: int) -> Connection:
    """A connection on which as many links have had deliveries that are not settled."""
    first = incoming_link()
    connection = first.connection
    connection.io.stirred = True
    for number in range(1, count):
        link = Link(number, connection, Direction.IN, "link", source=Terminus(), target=Terminus())
        link.io = first.io
        connection.links.add(link)
    for link in connection.links:
        link.deliveries = deliveries
        link.unsettled = dict.fromkeys(range(deliveries))
    return connection


def test_links_with_deliveries_are_looked_at_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client has as many of them as it likes, with deliveries that stay unsettled."""
    looks, connection, monitor = [], many_links(20 * AT_ONCE, 1), ActivityMonitor()
    usual = Activity.look
    monkeypatch.setattr(Activity, "look", lambda *those: looks.append(those) or usual(*those))
    for _ in range(2):
        before, most = len(looks), 0
        for _ in monitor.look([connection]):
            most, before = max(most, len(looks) - before), len(looks)
        assert 0 < most <= AT_ONCE
    assert len(looks) == 2 * len(connection.links)


def test_links_without_deliveries_are_passed_over_in_steps() -> None:
    connection = many_links(3 * AT_ONCE * PASSED_OVER, 0)
    assert len(list(ActivityMonitor().look([connection]))) == 3


def test_links_that_go_between_steps_are_not_looked_at() -> None:
    """The engine has freed them."""
    connection, monitor = many_links(2 * AT_ONCE * PASSED_OVER, 1), ActivityMonitor()
    job = monitor.look([connection])
    next(job)
    for link in list(connection.links):
        monitor.forget(link)
        connection.links.remove(link)
        link.io = None
    list(job)
    assert not monitor.busy


def test_a_look_that_takes_more_than_a_second() -> None:
    """The next one begins after it, and rates are averages of the seconds that have passed."""
    connection, monitor = many_links(2 * AT_ONCE, 0), ActivityMonitor()
    links = list(connection.links)
    for second in range(1, 20):
        for link in links:
            link.deliveries += 10
        connection.io.stirred = True
        if second % 2:
            job = monitor.look([connection])
            next(job)
        else:
            assert not list(monitor.look([connection]))
            list(job)
    assert monitor.second == 19
    assert {link.activity.settle_rate for link in links} <= {8, 9, 10, 11, 12}
