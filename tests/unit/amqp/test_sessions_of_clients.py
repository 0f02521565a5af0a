"""Routed links of different clients share no session of a container that allows enough sessions."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import LINK_ROUTE, OwnEnd

from isthmus_router.amqp import client_sessions
from isthmus_router.amqp.client_sessions import ClientSessions, Sharer
from isthmus_router.core.roles import Role
from isthmus_router.linkroute.routing import LinkRouting

LARGE = b"x" * 60_000


class Container:
    """One that allows so many sessions and links in each."""

    def __init__(self, sessions: int, links: int = 1000) -> None:
        self.numbers = itertools.count()
        self.begun: set[int] = set()
        self.links: Counter[int] = Counter()
        self.sharers: dict[int, set[Sharer]] = {}
        self.most_links = links
        self.sessions = ClientSessions(
            self.begin,  # type: ignore[arg-type]
            lambda: sessions - len(self.begun),
            lambda session: self.links[session] < links,  # type: ignore[index]
        )

    def begin(self) -> int:
        number = next(self.numbers)
        self.begun.add(number)
        return number

    def attach(self, client: str, session: int | None = None, count: int = 1) -> list[int | None]:
        """The sessions of so many links."""
        sharer = Sharer(client, session)  # type: ignore[arg-type]
        taken: list[int | None] = []
        for _ in range(count):
            found: int | None = self.sessions.take(sharer)  # type: ignore[assignment]
            if found is not None:
                self.links[found] += 1
                self.sharers.setdefault(found, set()).add(sharer)
            taken.append(found)
        return taken

    def detach(self, session: int) -> None:
        self.links[session] -= 1
        self.sessions.link_gone(session)  # type: ignore[arg-type]

    def end_unused(self) -> None:
        for session in self.sessions.unused():
            self.sessions.remove(session)
            self.begun.remove(session)  # type: ignore[arg-type]

    @property
    def shared(self) -> list[int]:
        """Sessions with links of several clients."""
        return [session for session, sharers in self.sharers.items() if len(sharers) > 1]


@pytest.mark.parametrize("sessions", [50, 5_000, 60_000])
def test_many_links_of_one_client_leave_sessions_for_others(sessions: int) -> None:
    container = Container(sessions)
    container.attach("a", count=4 * sessions // 5)
    assert len(container.begun) <= sessions // 5
    for number in range(5):
        container.attach(f"b{number}", count=20)
    assert container.shared == []
    assert len(container.begun) < sessions


def test_a_client_with_few_links_has_a_session_for_each() -> None:
    container = Container(60_000)
    for number in range(20):
        assert len(set(container.attach(f"c{number}", count=3))) == 3


def test_links_of_one_client_are_spread_over_its_sessions() -> None:
    container = Container(10)
    container.attach("a", count=100)
    assert set(container.links.values()) == {50}


def test_a_client_may_use_up_what_is_there_if_its_sessions_have_no_room() -> None:
    container = Container(5, links=2)
    assert None not in container.attach("a", count=10)
    assert container.attach("a") == [None]
    assert container.attach("b") == [None]


def test_a_client_whose_sessions_are_full_takes_no_room_in_those_of_others() -> None:
    container = Container(2, links=2)
    container.attach("a")
    container.attach("b")
    assert container.attach("a", count=3)[1:] == [None, None]
    assert container.attach("b") != [None]
    assert container.shared == []


def test_clients_share_sessions_if_there_are_no_more() -> None:
    container = Container(2)
    for client in "abcd":
        assert container.attach(client) != [None]
    assert len(container.shared) == 2


def test_links_that_a_router_attaches_are_kept_apart_as_they_come() -> None:
    container = Container(60_000)
    own = [container.attach("edge", session, count=2) for session in range(1200)]
    assert container.shared == []
    assert len(own) == len({frozenset(sessions) for sessions in own})


def test_links_of_one_router_leave_sessions_for_those_of_others() -> None:
    container = Container(50)
    for session in range(100):
        container.attach("edge", session)
    assert len(container.begun) <= 25
    before = container.shared
    container.attach("other", 1)
    container.attach("client")
    assert container.shared == before


def test_sessions_of_links_that_are_gone_make_room() -> None:
    container = Container(4)
    first = [session for session in container.attach("a", count=4) if session is not None]
    for session in first:
        container.detach(session)
    container.end_unused()
    assert not container.begun
    assert not container.sessions
    assert container.attach("b") != [None]


def test_a_client_that_does_not_read_stops_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are so many routed links that some share a session."""
    monkeypatch.setattr(client_sessions, "SINGLE_SESSIONS", 4)
    LinkRouting(rig.core, lambda: 0.0, lambda *_: None).configure([LINK_ROUTE])
    container = OwnEnd(rig, "shelf", Role.ROUTE_CONTAINER)
    rig.peers.append(container)
    attacker, other = (OwnEnd(rig, name, Role.NORMAL, capacity=100_000) for name in ("attacker", "other"))
    rig.peers += [attacker, other]
    rig.settle_down()
    for number, client in enumerate((attacker, other)):
        client.router_side.core.client = f"user {number}"
    for name, client in [*((str(number), attacker) for number in range(8)), ("other", other)]:
        receiver = client.session.receiver(name)
        receiver.source.address = "b2.orders"
        receiver.flow(100)
        receiver.open()
        rig.settle_down()
    senders = {link.name.partition("@")[0]: link for link in container.attached}
    assert len({sender.session for sender in senders.values()}) < len(senders)
    for name in map(str, range(8)):
        for number in range(50):
            sender = senders[name]
            sender.delivery(str(number))
            sender.send(LARGE)
            sender.advance()
    rig.settle_down()
    sender = senders["other"]
    sender.delivery("one")
    sender.send(b"message")
    sender.advance()
    rig.settle_down()
    arrived = receiver.current
    assert arrived is not None
    assert arrived.pending == len(b"message")


def test_a_session_with_one_link_is_handed_over_and_others_are_not() -> None:
    container = Container(5)
    alone = container.attach("a")[0]
    first, *others = container.attach("b", count=8)
    assert first in others
    mine, yours = Sharer("b"), Sharer("c")
    assert container.sessions.hand_over(first, mine)  # type: ignore[arg-type]
    assert not container.sessions.hand_over(first, yours)  # type: ignore[arg-type]
    assert container.sessions.hand_over(alone, yours)  # type: ignore[arg-type]
    assert not container.sessions.hand_over(first, Sharer("a"))  # type: ignore[arg-type]
    container.attach("c", count=8)
    assert container.sharers[alone] >= {yours}  # type: ignore[index]
    assert first not in {session for session, sharers in container.sharers.items() if yours in sharers}


def test_a_client_takes_no_more_sessions_over_than_it_may_begin() -> None:
    """Others leave theirs behind, with idle links."""
    container = Container(50)
    taken = container.attach("a", count=50)
    most = len(container.begun)
    while len(container.begun) < 45:
        (left,) = container.attach(f"b{len(container.begun)}")
        assert not container.sessions.hand_over(left, Sharer("a"))  # type: ignore[arg-type]
    router = Container(50)
    behind = [router.attach("router", number)[0] for number in range(10)]
    assert router.sessions.hand_over(behind[0], Sharer("router", 50))  # type: ignore[arg-type]
    assert len(set(taken)) == most


def test_sessions_in_which_something_waits_are_shared_last() -> None:
    container = Container(4)
    waiting: set[int] = set()
    container.sessions = ClientSessions(
        container.begin,  # type: ignore[arg-type]
        lambda: 4 - len(container.begun),
        lambda _: True,
        of_router=7,
        waits=lambda session: session in waiting,  # type: ignore[operator]
    )
    taken = [container.attach("router", number)[0] for number in range(4)]
    assert len(set(taken)) == 4
    waiting.update(taken[:3])  # type: ignore[arg-type]
    assert container.attach("router", 5) == [taken[3]]
    waiting.update(taken[3:])  # type: ignore[arg-type]
    assert container.attach("router", 6)[0] in taken
