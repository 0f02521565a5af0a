"""What sessions may have waiting in the engine: each its share, and all of a connection a bound."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cproton_ffi import ffi, lib

from isthmus_router.amqp.kernel import outgoing
from isthmus_router.amqp.kernel.outgoing import (
    CONNECTION_OUTGOING_HIGH,
    FEW_SESSIONS,
    LEAST_SHARE,
    MOST_BEYOND,
    QUEUED_HIGH,
    SESSION_OUTGOING_HIGH,
    Outgoing,
    has_room,
)

MANY = 100
LARGE = SESSION_OUTGOING_HIGH - 1000


class OutLink(SimpleNamespace):
    """As much of a link as matters; each is equal to itself only."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Engine:
    """Sessions of one connection, with a link in each, of which nothing is ever written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pn = lib.pn_connection()
        self.turn = 0
        self.window = 0
        self.shut = False
        monkeypatch.setattr(outgoing, "_window", lambda session: self.window)
        monkeypatch.setattr(outgoing, "_is_shut", lambda session, deliveries: self.shut)
        self.links: dict[Any, list[Any]] = {}
        self.io = SimpleNamespace(
            outgoing_share=0,
            outgoing_shut_in=0,
            write_blocked=False,
            transport=lib.pn_transport(),
            outgoing=None,
        )
        self.io.outgoing = self.outgoing = Outgoing(
            self.io,
            lambda session: self.links[session],
            lambda session: False,
            lambda: self.turn,
            between_routers=False,
        )

    def session(self) -> Any:
        session = lib.pn_session(self.pn)
        self.links[session] = []
        self.outgoing.began(session)
        return self.link(session)

    def link(self, session: Any) -> Any:
        io = lib.pn_sender(session, b"%d" % len(self.links[session]))
        connection = SimpleNamespace(io=self.io)
        link = OutLink(
            io=io, session=session, connection=connection, incoming=False, stream=None, partner=None
        )
        self.links[session].append(link)
        return link

    def send(self, link: Any, size: int) -> bool:
        """Give the engine a delivery if there is room."""
        if not has_room(link, size):
            return False
        tag = ffi.new("pn_bytes_t *")
        text = ffi.new("char[]", b"t")
        tag.start, tag.size = text, 1
        lib.pn_delivery(link.io, tag[0])
        lib.pn_link_send(link.io, bytes(size), size)
        lib.pn_link_advance(link.io)
        return True

    def fill(self, links: list[Any], size: int) -> int:
        """Send on each link as long as there is room; the deliveries sent."""
        self.turn += 1
        return sum(self._fill(link, size) for link in links)

    def _fill(self, link: Any, size: int) -> int:
        sent = 0
        while self.send(link, size):
            sent += 1
        return sent

    def drop(self, link: Any) -> None:
        """The link is detached, and what it had to send is discarded."""
        self.links[link.session].remove(link)
        self.outgoing.link_gone(link)
        lib.pn_link_free(link.io)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    engine = Engine(monkeypatch)
    yield engine
    lib.pn_connection_release(engine.pn)
    lib.pn_decref(engine.pn)
    lib.pn_decref(engine.io.transport)


def test_a_session_alone_has_its_bound(engine: Engine) -> None:
    link = engine.session()
    assert engine.fill([link], 1000) == SESSION_OUTGOING_HIGH // 1000 + 1


def test_small_deliveries_count_as_such(engine: Engine) -> None:
    links = [engine.session() for _ in range(8)]
    sent = engine.fill(links, 1)
    assert sent <= CONNECTION_OUTGOING_HIGH // outgoing.DELIVERY_BYTES
    assert engine.fill([engine.session()], 1) <= QUEUED_HIGH + 1


@pytest.mark.parametrize("size", [10, 1000, 15_000, 100_000, LARGE])
def test_all_sessions_together_have_a_bound(engine: Engine, size: int) -> None:
    """Whatever the order in which sessions come and messages are sent."""
    links = []
    for _ in range(MANY):
        links.append(engine.session())
        engine.fill(links, size)
    waiting = sum(lib.pn_session_outgoing_bytes(session) for session in engine.links)
    shares = FEW_SESSIONS * SESSION_OUTGOING_HIGH + MANY * LEAST_SHARE
    assert waiting <= CONNECTION_OUTGOING_HIGH + shares + MOST_BEYOND * SESSION_OUTGOING_HIGH


def test_a_session_has_a_share_whatever_others_have(engine: Engine) -> None:
    engine.fill([engine.session() for _ in range(MANY)], 15_000)
    late = engine.session()
    assert engine.send(late, LEAST_SHARE - outgoing.DELIVERY_BYTES)


def test_a_large_message_that_leaves_at_once_is_sent(engine: Engine) -> None:
    engine.fill([engine.session() for _ in range(MANY)], LARGE)
    late = engine.session()
    assert not engine.send(late, LARGE)
    engine.outgoing.written()
    engine.window = 2**16
    assert engine.send(late, LARGE)
    assert not engine.send(late, LARGE)


def test_nothing_leaves_at_once_while_the_socket_is_full(engine: Engine) -> None:
    engine.fill([engine.session() for _ in range(MANY)], LARGE)
    engine.window, engine.io.write_blocked = 2**16, True
    engine.outgoing.written()
    assert not engine.send(engine.session(), LARGE)


def test_links_without_room_go_first_after_the_next_write(engine: Engine) -> None:
    engine.fill([engine.session() for _ in range(MANY)], LARGE)
    links = [engine.session() for _ in range(3)]
    for link in links[1:]:
        assert not engine.send(link, LARGE)
    assert [link for link in engine.outgoing.written() if link in links] == links[1:]
    assert engine.outgoing.written() == []


def test_what_is_discarded_with_a_link_does_not_count(engine: Engine) -> None:
    first = engine.session()
    assert engine.fill([first], 1000)
    second = engine.link(first.session)
    assert not engine.fill([second], 1000)
    engine.drop(first)
    assert engine.fill([second], 1000) == SESSION_OUTGOING_HIGH // 1000 + 1
    assert engine.outgoing.waiting(first.session)[0] <= SESSION_OUTGOING_HIGH + 1000


def test_what_is_discarded_does_not_count_while_a_streamed_message_waits(engine: Engine) -> None:
    """The message waits for the room that the discarded bytes seem to take."""
    first = engine.session()
    assert engine.fill([first], 1000)
    second = engine.link(first.session)
    second.stream = object()
    engine.drop(first)
    engine.turn += 1
    assert has_room(second, 1000)


def test_the_part_of_a_streamed_message_that_waits_counts(engine: Engine) -> None:
    first = engine.session()
    second = engine.link(first.session)
    second.stream = object()
    tag = ffi.new("pn_bytes_t *")
    text = ffi.new("char[]", b"t")
    tag.start, tag.size = text, 1
    lib.pn_delivery(second.io, tag[0])
    part = SESSION_OUTGOING_HIGH + 1
    lib.pn_link_send(second.io, bytes(part), part)
    assert not engine.fill([first], 1000)
    engine.outgoing.link_gone(first)
    engine.turn += 1
    assert engine.outgoing.waiting(first.session)[0] == part


def test_an_ended_session_leaves_its_room(engine: Engine) -> None:
    links = [engine.session() for _ in range(MANY)]
    engine.fill(links, 15_000)
    for link in links:
        engine.outgoing.ended(link.session)
    assert engine.io.outgoing_share == CONNECTION_OUTGOING_HIGH // FEW_SESSIONS


@pytest.mark.parametrize("sessions", [1, 10, 1000])
def test_few_deliveries_wait_for_closed_windows(engine: Engine, sessions: int) -> None:
    """The engine walks over all of them whenever it writes."""
    engine.shut = True
    links = [engine.session() for _ in range(sessions)]
    sent = engine.fill(links, 0)
    assert sessions <= sent <= outgoing.MOST_SHUT_IN
    assert all(engine.outgoing.is_full(link.session) for link in links)
    engine.outgoing.written()
    engine.shut = False
    assert not any(engine.outgoing.is_full(link.session) for link in links)
    assert engine.fill(links[:1], 0) > 0
