"""Auto-links in simulated time: attached, refused, detached, lost with their connection, and configured anew."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.autolink.autolinks import AutoLinks, State
from isthmus_router.config.model import AutoLinkConfig, Direction
from isthmus_router.core.configured import ConfiguredAddress
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import Condition
from isthmus_router.core.treatment import Treatment

REFUSAL = Condition("amqp:not-found", "no such queue")
_ids = itertools.count(1000)


class Shore:
    """A router with auto-links, containers that attach to it, and time."""

    def __init__(self) -> None:
        self.router = RouterInMemory()
        self.core = self.router.core
        self.core.configured.patterns.add_prefix(
            "orders", ConfiguredAddress(Treatment.BALANCED, egress_phase=1)
        )
        self.router.port.detach_link = self.detach  # type: ignore[method-assign]
        self.now = 0.0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self.detached: list[Link] = []
        self.auto_links = AutoLinks(self.core, self.call_later)

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.now + delay, next(_ids), callback))

    def detach(self, link: Link, condition: Condition | None = None) -> None:
        self.detached.append(link)
        self.core.link_closed(link)

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self.now, _, callback = heapq.heappop(self._timers)
            callback()
        self.now = end

    def connect(
        self, container: str = "shelf", endpoint: str = "broker", role: Role = Role.ROUTE_CONTAINER
    ) -> Connection:
        """A container's connection opens."""
        connection = Connection(
            next(_ids), role, incoming=False, name="peer", endpoint=endpoint, container=container
        )
        self.core.connection_opened(connection)
        return connection

    def lose(self, connection: Connection) -> None:
        """A connection ends; its links are forgotten before it is, as by the driver."""
        for link in list(connection.links):
            self.core.link_closed(link)
        self.core.connection_closed(connection)

    def refuse(self, link: Link) -> None:
        """The container closes the link with an error."""
        assert link.on_refused is not None
        link.on_refused(link, REFUSAL)
        self.core.link_closed(link)

    def answer(self, link: Link) -> None:
        """The container attaches its end."""
        assert link.on_answered is not None
        link.on_answered(link)


def config(direction: str = "out", address: str | None = "orders", **values: object) -> AutoLinkConfig:
    settings: dict[str, object] = {
        "name": None,
        "container_id": None,
        "connection": "broker",
        "external_address": None,
        "phase": None,
        **values,
    }
    return AutoLinkConfig(address=address, direction=Direction(direction), **settings)  # type: ignore[arg-type]


@pytest.fixture
def shore() -> Shore:
    return Shore()


def the_link(connection: Connection) -> Link:
    (link,) = connection.links
    return link


def states(shore: Shore) -> list[str]:
    return [auto_link.state.value for auto_link in shore.auto_links.all]


def test_an_out_link_consumes_once_it_is_answered(shore: Shore) -> None:
    shore.auto_links.configure([config(external_address="queue/orders")])
    assert states(shore) == ["inactive"]
    sender = shore.router.sender("orders")
    link = the_link(shore.connect())
    assert (link.incoming, link.target.address, link.source.address) == (False, "queue/orders", None)
    assert states(shore) == ["attaching"]
    assert sender not in shore.router.port.credit
    shore.answer(link)
    assert states(shore) == ["active"]
    assert shore.auto_links.all[0].link is link
    assert link.address is shore.core.addresses["Morders"]
    assert shore.router.port.credit[sender]


def test_an_in_link_produces_behind_the_waypoint(shore: Shore) -> None:
    shore.auto_links.configure([config("in", external_address="queue/orders")])
    link = the_link(shore.connect())
    assert (link.incoming, link.source.address, link.target.address, link.capacity) == (
        True,
        "queue/orders",
        None,
        0,
    )
    shore.answer(link)
    assert link.address is shore.core.addresses["M_$phase.1/orders"]
    assert link not in shore.router.port.credit
    receiver = shore.router.receiver("orders")
    assert (shore.router.port.credit[link], link.capacity) == (True, 250)
    assert link.route is not None
    assert link.route.sinks == [receiver]


@pytest.mark.parametrize(
    ("auto_link", "phase"),
    [
        (config("in"), 1),
        (config("out"), 0),
        (config("in", phase=2), 2),
        (config("in", phase=0), 0),
        (config("out", phase=1), 1),
        (config("in", "plain"), 0),
        (config("out", "plain"), 0),
    ],
)
def test_phases(shore: Shore, auto_link: AutoLinkConfig, phase: int) -> None:
    shore.auto_links.configure([auto_link])
    link = the_link(shore.connect())
    shore.answer(link)
    assert shore.auto_links.all[0].phase == phase
    assert link.address is not None
    assert link.address.phase == phase


@pytest.mark.parametrize(
    ("auto_link", "container", "endpoint", "role", "expected"),
    [
        (config(), "any", "broker", Role.ROUTE_CONTAINER, 1),
        (config(), "any", "other", Role.ROUTE_CONTAINER, 0),
        (config(), "any", "broker", Role.NORMAL, 0),
        (config(connection=None, container_id="shelf"), "shelf", "any", Role.ROUTE_CONTAINER, 1),
        (config(connection=None, container_id="shelf"), "other", "any", Role.ROUTE_CONTAINER, 0),
        (config(container_id="shelf"), "other", "broker", Role.ROUTE_CONTAINER, 0),
        (config(container_id="shelf"), "shelf", "broker", Role.ROUTE_CONTAINER, 1),
    ],
)
def test_which_connections(
    shore: Shore, auto_link: AutoLinkConfig, container: str, endpoint: str, role: Role, expected: int
) -> None:
    before = shore.connect(container, endpoint, role)
    shore.auto_links.configure([auto_link])
    assert [len(before.links), len(shore.connect(container, endpoint, role).links)] == [expected, expected]


def test_a_refused_link_is_attached_again_ever_later(shore: Shore) -> None:
    shore.auto_links.configure([config()])
    connection = shore.connect()
    waited = []
    for _ in range(8):
        shore.refuse(the_link(connection))
        shore.run()
        assert states(shore) == ["failed"]
        assert shore.auto_links.all[0].last_error == "amqp:not-found: no such queue"
        started = shore.now
        while not connection.links:
            assert shore.now - started < 60
            shore.run(0.5)
        waited.append(shore.now - started)
    assert waited == [1, 2, 4, 8, 16, 30, 30, 30]
    shore.answer(the_link(connection))
    assert (states(shore), shore.auto_links.all[0].last_error) == (["active"], None)


def test_a_link_that_lasted_is_attached_again_soon(shore: Shore) -> None:
    shore.auto_links.configure([config()])
    connection = shore.connect()
    for lasted, wait in ((1, 1), (1, 2), (1, 4), (11, 1), (1, 2)):
        shore.answer(the_link(connection))
        shore.run(lasted)
        shore.core.link_closed(the_link(connection))
        assert "Morders" not in shore.core.addresses
        shore.run(wait - 0.1)
        assert shore.auto_links.all[0].last_error == "detached by the container without a reason"
        assert not connection.links
        shore.run(0.1)


def test_a_connection_that_returns_has_its_link_at_once(
    shore: Shore, caplog: pytest.LogCaptureFixture
) -> None:
    shore.auto_links.configure([config()])
    connection = shore.connect()
    shore.answer(the_link(connection))
    shore.lose(connection)
    shore.run(100)
    assert (states(shore), shore.auto_links.all[0].last_error) == (["inactive"], None)
    assert "not attached" not in caplog.text
    shore.answer(the_link(shore.connect()))
    assert states(shore) == ["active"]
    assert not connection.links


def test_one_that_waits_for_another_attempt_is_lost_with_its_connection(shore: Shore) -> None:
    shore.auto_links.configure([config()])
    connection = shore.connect()
    shore.refuse(the_link(connection))
    shore.lose(connection)
    shore.run(100)
    assert states(shore) == ["inactive"]
    assert not connection.links


def test_several_containers_each_have_a_link(shore: Shore) -> None:
    shore.auto_links.configure([config()])
    connections = [shore.connect() for _ in range(3)]
    shore.refuse(the_link(connections[0]))
    shore.run()
    assert states(shore) == ["attaching"]
    shore.answer(the_link(connections[1]))
    shore.answer(the_link(connections[2]))
    assert states(shore) == ["active"]
    assert shore.auto_links.all[0].last_error == "amqp:not-found: no such queue"
    assert set(shore.core.addresses["Morders"].consumers) == {the_link(c) for c in connections[1:]}


def test_what_has_not_changed_goes_on(shore: Shore) -> None:
    one, two, three = config(), config("in"), config("out", "plain")
    shore.auto_links.configure([one, two])
    connection = shore.connect()
    before = set(connection.links)
    shore.auto_links.configure([two, three])
    assert len(shore.detached) == 1
    assert not shore.detached[0].incoming
    kept = before - set(shore.detached)
    assert kept < connection.links
    assert states(shore) == ["attaching", "attaching"]
    shore.auto_links.configure([])
    assert not connection.links
    shore.run(100)
    assert not connection.links


def test_another_phase_by_default_makes_another_link(shore: Shore) -> None:
    shore.auto_links.configure([config("in", "plain")])
    connection = shore.connect()
    shore.answer(the_link(connection))
    shore.core.configured.patterns.add_prefix("plain", ConfiguredAddress(Treatment.BALANCED, egress_phase=1))
    shore.auto_links.configure([config("in", "plain")])
    shore.answer(the_link(connection))
    assert set(shore.core.addresses) == {"M_$phase.1/plain"}


def test_without_an_address_messages_say_where_to(shore: Shore) -> None:
    shore.auto_links.configure([config("in", None, external_address="queue")])
    link = the_link(shore.connect())
    shore.answer(link)
    assert shore.router.port.credit[link]
    receiver = shore.router.receiver("orders")
    assert shore.core.route_for(link, "orders").sinks == [receiver]


STEPS = st.sampled_from(["connect", "lose", "answer", "refuse", "close", "configure", "wait"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 5)), max_size=60))
def test_any_order(steps: list[tuple[str, int]]) -> None:
    """Never two links of an auto-link on one connection, and in the end every link that is wanted."""
    shore = Shore()
    configs = [config(), config("in"), config("out", "plain"), config("in", "plain", phase=4)]
    shore.auto_links.configure(configs)

    def links() -> Iterator[Link]:
        for connection in shore.core.connections.values():
            yield from sorted(connection.links, key=lambda link: link.id)

    for step, which in steps:
        open_links = list(links())
        connections = list(shore.core.connections.values())
        if step == "connect" and len(connections) < 4:
            shore.connect()
        elif step == "lose" and connections:
            shore.lose(connections[which % len(connections)])
        elif step == "configure":
            shore.auto_links.configure(configs[: which % 5])
        elif step == "wait":
            shore.run(which * 3)
        elif open_links:
            link = open_links[which % len(open_links)]
            if step == "answer":
                shore.answer(link)
            elif step == "refuse":
                shore.refuse(link)
            elif step == "close":
                shore.core.link_closed(link)
        for connection in shore.core.connections.values():
            assert len(connection.links) <= len(configs)
    shore.auto_links.configure(configs)
    shore.run(100)
    for link in list(links()):
        shore.answer(link)
    for connection in shore.core.connections.values():
        assert len(connection.links) == len(configs)
    expected = State.ACTIVE if shore.core.connections else State.INACTIVE
    assert {auto_link.state for auto_link in shore.auto_links.all} == {expected}
    for connection in list(shore.core.connections.values()):
        shore.lose(connection)
    assert not shore.core.addresses
