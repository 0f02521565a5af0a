"""Auto-links in simulated time: attached, refused, detached, lost with their connection, and configured anew."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.router_in_memory import RouterInMemory

from isthmus_router.autolink import turns
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

    def configure(self, configs: list[AutoLinkConfig]) -> None:
        """Have these auto-links, and attach what is to be attached."""
        self.auto_links.configure(configs)
        self.work()

    def work(self) -> None:
        """Carry out everything that is done in steps."""
        while self.router.port.step():
            pass

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
            self.work()
        self.now = end

    def connect(
        self, container: str = "shelf", endpoint: str = "broker", role: Role = Role.ROUTE_CONTAINER
    ) -> Connection:
        """A container's connection opens."""
        connection = self.open(container, endpoint, role)
        self.work()
        return connection

    def open(
        self,
        container: str = "shelf",
        endpoint: str = "broker",
        role: Role = Role.ROUTE_CONTAINER,
        client: str | None = None,
    ) -> Connection:
        """A container's connection opens, and what is done in steps has not begun."""
        connection = Connection(
            next(_ids),
            role,
            incoming=False,
            name="peer",
            endpoint=endpoint,
            container=container,
            client=client,
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
    shore.configure([config(external_address="queue/orders")])
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
    shore.configure([config("in", external_address="queue/orders")])
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
    shore.configure([auto_link])
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
    shore.configure([auto_link])
    assert [len(before.links), len(shore.connect(container, endpoint, role).links)] == [expected, expected]


def test_a_refused_link_is_attached_again_ever_later(shore: Shore) -> None:
    shore.configure([config()])
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
    shore.configure([config()])
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
    shore.configure([config()])
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
    shore.configure([config()])
    connection = shore.connect()
    shore.refuse(the_link(connection))
    shore.lose(connection)
    shore.run(100)
    assert states(shore) == ["inactive"]
    assert not connection.links


def test_several_containers_each_have_a_link(shore: Shore) -> None:
    shore.configure([config()])
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
    shore.configure([one, two])
    connection = shore.connect()
    before = set(connection.links)
    shore.configure([two, three])
    assert len(shore.detached) == 1
    assert not shore.detached[0].incoming
    kept = before - set(shore.detached)
    assert kept < connection.links
    assert states(shore) == ["attaching", "attaching"]
    shore.configure([])
    assert not connection.links
    shore.run(100)
    assert not connection.links


def test_another_phase_by_default_makes_another_link(shore: Shore) -> None:
    shore.configure([config("in", "plain")])
    connection = shore.connect()
    shore.answer(the_link(connection))
    shore.core.configured.patterns.add_prefix("plain", ConfiguredAddress(Treatment.BALANCED, egress_phase=1))
    shore.configure([config("in", "plain")])
    shore.answer(the_link(connection))
    assert set(shore.core.addresses) == {"M_$phase.1/plain"}


def test_without_an_address_messages_say_where_to(shore: Shore) -> None:
    shore.configure([config("in", None, external_address="queue")])
    link = the_link(shore.connect())
    shore.answer(link)
    assert shore.router.port.credit[link]
    receiver = shore.router.receiver("orders")
    assert shore.core.route_for(link, "orders").sinks == [receiver]


def many(number: int, **values: object) -> list[AutoLinkConfig]:
    return [config(address=f"plain/{count}", **values) for count in range(number)]


def test_links_are_attached_one_in_each_step(shore: Shore) -> None:
    shore.configure(many(9))
    connection = shore.open()
    for attached in range(1, 10):
        assert shore.router.port.step()
        assert len(connection.links) == attached
    shore.work()
    assert len(connection.links) == 9


def test_nothing_more_is_attached_when_the_connection_ends(shore: Shore) -> None:
    shore.configure(many(9))
    connection = shore.open()
    for _ in range(3):
        shore.router.port.step()
    shore.core.connection_lost(connection)
    shore.work()
    assert len(connection.links) == 3
    shore.lose(connection)
    shore.work()
    assert not connection.links
    assert set(states(shore)) == {"inactive"}


@pytest.mark.parametrize("answered", [True, False])
def test_nothing_is_attached_on_a_connection_whose_links_are_removed_in_steps(
    shore: Shore, caplog: pytest.LogCaptureFixture, *, answered: bool
) -> None:
    shore.configure(many(5))
    connection = shore.connect()
    links = sorted(connection.links, key=lambda link: link.id)
    for link in links:
        if answered:
            shore.answer(link)
    shore.core.connection_lost(connection)
    assert set(states(shore)) == {"inactive"}
    assert shore.core.open_connections == []
    for left, link in zip(reversed(range(5)), links, strict=True):
        shore.core.link_closed(link)
        shore.run(100)
        assert len(connection.links) == left
    shore.configure(many(7))
    assert not connection.links
    shore.core.connection_closed(connection)
    shore.run(100)
    assert not connection.links
    assert "not attached" not in caplog.text
    assert len(shore.connect().links) == 7


def test_a_refused_link_is_not_attached_again_on_a_connection_that_has_ended(shore: Shore) -> None:
    shore.configure(many(2))
    connection = shore.connect()
    for link in list(connection.links):
        shore.refuse(link)
    shore.run(0.5)
    shore.core.connection_lost(connection)
    shore.run(100)
    assert not connection.links
    assert set(states(shore)) == {"inactive"}


def test_refused_links_are_attached_again_one_in_each_step(shore: Shore) -> None:
    shore.configure(many(5))
    connection = shore.connect()
    for link in list(connection.links):
        shore.refuse(link)
    work, shore.work = shore.work, lambda: None  # type: ignore[method-assign]
    shore.run(1)
    assert not connection.links
    for attached in range(1, 6):
        shore.router.port.step()
        assert len(connection.links) == attached
    shore.work = work  # type: ignore[method-assign]


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many auto-links a client may have at once, and in each further second."""
    bounds = 20, 5
    monkeypatch.setattr(turns, "LEAST_AT_ONCE", bounds[0])
    monkeypatch.setattr(turns, "PER_SECOND", bounds[1])
    return bounds


def test_a_client_that_connects_again_and_again_waits_and_others_do_not(
    bounds: tuple[int, int], shore: Shore, caplog: pytest.LogCaptureFixture
) -> None:
    at_once, per_second = bounds
    shore.configure(many(4))
    attached = 0
    for second in range(10):
        for _ in range(30):
            connection = shore.open(client="host 10.0.0.1")
            shore.work()
            attached += len(connection.links)
            shore.lose(connection)
        assert attached <= at_once + second * per_second
        shore.run(1)
    assert attached >= at_once + 6 * per_second
    assert caplog.text.count("auto-links wait") == 1
    shore.open(client="host 10.0.0.1")
    connection = shore.open(client="host 10.0.0.2")
    shore.work()
    assert len(connection.links) == 4


def test_auto_links_that_wait_are_attached_in_the_end(bounds: tuple[int, int], shore: Shore) -> None:
    at_once, per_second = bounds
    shore.configure(many(4))
    connections = [shore.connect() for _ in range(10)]
    assert sum(len(connection.links) for connection in connections) == at_once
    shore.run(2)
    assert sum(len(connection.links) for connection in connections) == at_once + 2 * per_second
    shore.run(2)
    assert {len(connection.links) for connection in connections} == {4}


def test_a_connection_has_all_auto_links_without_a_pause(bounds: tuple[int, int], shore: Shore) -> None:
    shore.configure(many(3 * bounds[0]))
    for _ in range(2):
        connection = shore.connect()
        assert len(connection.links) == 3 * bounds[0]
        shore.lose(connection)


def test_clients_are_forgotten_when_nothing_counts_for_them(bounds: tuple[int, int], shore: Shore) -> None:
    shore.configure(many(4))
    for number in range(10):
        connection = shore.open(client=f"host 10.0.0.{number}")
        shore.work()
        shore.lose(connection)
    assert len(shore.auto_links.turns) == 10
    shore.run(2)
    assert not shore.auto_links.turns


STEPS = st.sampled_from(["connect", "end", "step", "lose", "answer", "refuse", "close", "configure", "wait"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 5)), max_size=60))
def test_any_order(steps: list[tuple[str, int]]) -> None:
    """Never two links of an auto-link on one connection, none on one that has ended, and in the end every link that is
    wanted."""
    shore = Shore()
    configs = [config(), config("in"), config("out", "plain"), config("in", "plain", phase=4)]
    shore.configure(configs)
    left: dict[Connection, int] = {}

    def links() -> Iterator[Link]:
        for connection in shore.core.open_connections:
            yield from sorted(connection.links, key=lambda link: link.id)

    for step, which in steps:
        open_links = list(links())
        connections = shore.core.open_connections
        ended = [connection for connection in shore.core.connections.values() if connection.leaving]
        if step == "connect" and len(connections) < 4:
            shore.connect()
        elif step == "lose" and connections:
            shore.lose(connections[which % len(connections)])
        elif step == "end" and connections:
            shore.core.connection_lost(connections[which % len(connections)])
        elif step == "step" and ended:
            connection = ended[which % len(ended)]
            if connection.links:
                shore.core.link_closed(next(iter(connection.links)))
            else:
                shore.core.connection_closed(connection)
        elif step == "configure":
            shore.configure(configs[: which % 5])
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
            assert len(connection.links) <= left.get(connection, len(configs))
            if connection.leaving:
                left[connection] = len(connection.links)
    shore.configure(configs)
    shore.run(100)
    for link in list(links()):
        shore.answer(link)
    for connection in shore.core.connections.values():
        assert len(connection.links) == left.get(connection, len(configs))
    expected = State.ACTIVE if shore.core.open_connections else State.INACTIVE
    assert {auto_link.state for auto_link in shore.auto_links.all} == {expected}
    for connection in list(shore.core.connections.values()):
        shore.lose(connection)
    assert not shore.core.addresses
