"""The end of a connection: nothing of it stays in the core."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from itertools import islice

import pytest
from cproton_ffi import lib
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd

from isthmus_router.amqp import connection as amqp_connection
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.events import MANY_LINKS
from isthmus_router.core.model import Link
from isthmus_router.core.port import SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Direction, LinkType, Terminus
from isthmus_router.linkroute.routing import LinkRouting

FRAME = 16_384
MOST_BYTES = 1_000_000
HEAD = b"\x00\x53\x75\xb0\x7f\xff\xff\xff"
ADDRESS = "balanced/own"


def with_a_message_that_is_too_large(rig: Rig) -> OwnEnd:
    """A peer whose message waits for its own receiver; when that is gone, the message ends the link of its sender."""
    peer = OwnEnd(rig, "peer-0", Role.NORMAL, frame=FRAME, capacity=2 * FRAME, max_message_size=MOST_BYTES)
    rig.peers.append(peer)
    receiver, sender = peer.session.receiver("first"), peer.session.sender("second")
    receiver.source.address = sender.target.address = ADDRESS
    receiver.open()
    receiver.flow(10)
    rig.settle_down()
    sender.open()
    rig.settle_down()
    sender.delivery("too large")
    sender.send(HEAD + bytes(2 * MOST_BYTES))
    rig.settle_down()
    assert rig.core.counters.messages_too_large == 0  # as long as the receiver has no room
    return peer


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_sender_that_is_refused_when_its_receiver_is_gone(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    peer = with_a_message_that_is_too_large(rig)
    with caplog.at_level(logging.ERROR):
        peer.drop()
    assert rig.core.counters.messages_too_large == 1
    assert not errors(caplog)
    assert not rig.core.connections


def test_a_sender_that_is_refused_when_its_session_ends(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    peer = with_a_message_that_is_too_large(rig)
    with caplog.at_level(logging.ERROR):
        peer.session.close()
        rig.settle_down()
    assert rig.core.counters.messages_too_large == 1
    assert not errors(caplog)
    assert rig.core.connections


def test_a_detach_is_not_answered_while_the_links_of_the_container_are_forgotten(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    routing = LinkRouting(rig.core, lambda: 0.0, lambda *_: None)
    routing.configure([LINK_ROUTE])
    client, container = OwnEnd(rig, "client", Role.NORMAL), OwnEnd(rig, "shelf", Role.ROUTE_CONTAINER)
    rig.peers += [client, container]
    rig.settle_down()
    for number in range(MANY_LINKS + 1):
        link = client.session.sender(f"link {number}")
        link.target.address = f"b2.{number}"
        client.router_side.core.client = f"user {number}"  # those of one client share sessions
        link.open()
        rig.settle_down()
    far = [routed.far for routed in routing.routed.values() if routed.far.connection.container == "shelf"]
    with caplog.at_level(logging.ERROR):
        container.drop()
        assert any(rig.core.port.abandon_routed(link) for link in far)
        rig.work_off()
    assert not errors(caplog)
    assert not routing.routed


def test_a_connection_that_leaves_in_steps_when_the_router_stops(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads in which the engine's objects are freed are gone."""
    monkeypatch.setattr(amqp_connection, "FEW_FRAMES", 0)
    peer = OwnEnd(rig, "peer-0", Role.NORMAL)
    rig.peers.append(peer)
    rig.settle_down()
    for number in range(MANY_LINKS + 1):
        receiver = peer.session.receiver(f"{number}")
        receiver.source.address = ADDRESS
        receiver.open()
    rig.settle_down()
    with caplog.at_level(logging.ERROR):
        peer.drop()
        assert rig.driver.under_way
        rig.driver.end_work()
        rig.loop.run_until_complete(rig.loop.shutdown_default_executor())
        more = iter([None])
        rig.driver.work(more)
        rig.loop_goes_round()
    assert not errors(caplog)
    assert list(more), "nothing begins any more"


@pytest.mark.parametrize("links", [1, MANY_LINKS + 1], ids=["at once", "in steps"])
def test_an_error_of_the_router_while_a_connection_ends_stops_nothing_else(
    rig: Rig, links: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peer = OwnEnd(rig, "peer-0", Role.NORMAL)
    rig.peers.append(peer)
    rig.settle_down()
    for number in range(links):
        receiver = peer.session.receiver(f"{number}")
        receiver.source.address = ADDRESS
        receiver.open()
    rig.settle_down()

    def failing() -> None:
        raise RuntimeError("an error")

    monkeypatch.setattr(peer.router_side.markers, "end", failing)
    with caplog.at_level(logging.ERROR):
        peer.drop()
        rig.peers.clear()
        rig.work_off()
        rig.driver._second_passed()
    assert len(errors(caplog)) == 1
    assert not rig.core.connections
    assert not hasattr(peer.router_side, "sessions"), "the engine has freed it"


def test_links_are_freed_step_by_step(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """To free those of a client all at once takes a few milliseconds for each thousand."""
    gc.collect()
    others = links_in_memory()  # of other tests
    peer = OwnEnd(rig, "peer-0", Role.NORMAL)
    rig.peers.append(peer)
    rig.settle_down()
    for number in range(2 * MANY_LINKS):
        receiver = peer.session.receiver(f"{number}")
        receiver.source.address = ADDRESS
        receiver.open()
    rig.settle_down()
    assert links_in_memory() - others == 2 * MANY_LINKS
    jobs: list[Iterator[None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(Driver, "work", lambda _, job: jobs.append(job))
        peer.drop()
    (job,) = jobs
    list(islice(job, MANY_LINKS))
    assert links_in_memory() - others == MANY_LINKS
    rig.driver.work(job)
    rig.work_off()
    assert not hasattr(peer.router_side, "sessions"), "the engine has freed it"


def links_in_memory() -> int:
    return sum(isinstance(found, Link) for found in gc.get_objects())


@pytest.mark.parametrize("role", [Role.NORMAL, Role.EDGE], ids=lambda role: role.label)
def test_the_end_of_many_links_begins_without_a_look_at_each(
    rig: Rig, role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    stands = Link.stands.fget
    assert stands is not None

    def counted(link: Link) -> bool:
        nonlocal asked
        asked += 1
        return bool(stands(link))

    peer = OwnEnd(rig, "peer-0", role)
    rig.peers.append(peer)
    rig.settle_down()
    for number in range(MANY_LINKS + 1):
        receiver = peer.session.receiver(f"{number}")
        receiver.source.address = ADDRESS
        receiver.open()
    rig.settle_down()
    assert len(peer.router_side.links) > MANY_LINKS
    monkeypatch.setattr(Link, "stands", property(counted))
    peer.drop()
    assert asked == 0
    rig.work_off()
    assert not rig.core.connections


def test_a_thread_parts_the_engine_of_many_links_from_its_transport(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_connection, "FEW_FRAMES", 0)
    threads: dict[str, bool] = {}

    class Engine:
        def __getattr__(self, name: str) -> object:
            if name in {"pn_transport_unbind", "pn_connection_collect", "pn_connection_release"}:
                threads[name] = threading.current_thread() is not threading.main_thread()
            return getattr(lib, name)

    peer = OwnEnd(rig, "peer-0", Role.NORMAL)
    rig.peers.append(peer)
    rig.settle_down()
    connection = peer.router_side
    monkeypatch.setattr(amqp_connection, "lib", Engine())
    peer.drop()
    while hasattr(connection, "sessions"):
        rig.loop_goes_round()
    assert set(threads.values()) == {True}
    assert len(threads) == 3


def test_a_connection_has_a_list_of_its_links_that_stand(rig: Rig) -> None:
    peer = OwnEnd(rig, "peer-0", Role.EDGE)
    rig.peers.append(peer)
    rig.settle_down()
    connection = peer.router_side.core
    assert connection is not None

    def link(link_type: LinkType, target: str | None = None) -> Link:
        return rig.driver.open_link(
            connection,
            Direction.OUT,
            link_type=link_type,
            source=Terminus(),
            target=Terminus(target),
            session=SessionClass.ENDPOINT,
        )

    control, data, stream = (link(LinkType.CONTROL), link(LinkType.ROUTER), link(LinkType.ROUTER))
    proxies = [link(LinkType.ENDPOINT, target) for target in (None, "orders")]
    assert list(connection.standing) == [control, data, stream]
    stream.streaming = True
    stream.note_standing()
    for proxy in proxies:
        proxy.proxy = True
        proxy.note_standing()
    assert list(connection.standing) == [control, data, proxies[0]]
    rig.driver.detach_link(data)
    assert list(connection.standing) == [control, proxies[0]]
    peer.drop()
    assert not connection.standing
