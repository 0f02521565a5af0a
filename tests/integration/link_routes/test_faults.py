"""Containers that are away, refuse and come back; hops that fail; several containers; longest prefixes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from proton import Condition, Endpoint, Terminus
from tests.integration.support.client import Client, Clients
from tests.integration.support.container import Container
from tests.integration.support.link_routes import (
    CONTAINER,
    LOST,
    NO_ROUTE,
    Shore,
    await_containers,
    link_route,
)
from tests.integration.support.ports import free_port
from tests.integration.support.routers import Routers, listener
from tests.integration.support.topology import Network

AT_ONCE_SECONDS = 2.0
"""To all of three routers, on a machine with much else to do."""


def both_links(client: Client, address: str = "b2.x") -> list[Any]:
    """A sender's and a receiver's link."""
    return [client.sender(address).link, client.receiver(address, credit=5).link]


def test_the_container_is_away_and_comes_back(clients: Clients, shore: Shore) -> None:
    """Attaches are refused with a reason that names the address, and the status counts them."""
    shore.await_containers()
    before = [row["refusals"] for row in shore["A"].status()["linkRoutes"]]
    client = clients.connect(shore["A"].port)
    for link in (client.sender("b2.a/b", wait=False).link, client.receiver("b2", wait=False).link):
        condition = client.refusal(link)
        assert condition.name == NO_ROUTE
        terminus = link.source if link.is_receiver else link.target
        assert f"{terminus.address!r}" in condition.description
        remote = link.remote_source if link.is_receiver else link.remote_target
        assert remote.type == Terminus.UNSPECIFIED
    rows = shore["A"].status()["linkRoutes"]
    assert [row["refusals"] for row in rows] == [count + 1 for count in before]
    assert {row["lastRefusal"]["address"] for row in rows} == {"b2.a/b", "b2"}
    container = shore.container(clients)
    both_links(client)
    container.close()
    shore.await_containers()
    shore.container(clients)
    both_links(client, "b2.y")


def test_what_a_container_refuses_is_told_where_it_is(clients: Clients, shore: Shore) -> None:
    shore.container(clients, "C", refusal=Condition("amqp:not-found", "no such queue"))
    client = clients.connect(shore["A"].port)
    before = sum(row["refusals"] for row in shore["C"].status()["linkRoutes"])
    for link in (client.sender("b2.x", wait=False).link, client.receiver("b2.x", wait=False).link):
        assert client.refusal(link).name == "amqp:not-found"
    rows = shore["C"].status()["linkRoutes"]
    assert sum(row["refusals"] for row in rows) == before + 2
    for row in rows:
        assert row["lastRefusal"]["address"] == "b2.x"
        assert row["lastRefusal"]["description"] == f"{CONTAINER}: amqp:not-found: no such queue"
    shore["C"].await_log("link refused by the container", "no such queue", CONTAINER)


def test_withdrawn_everywhere_at_once(clients: Clients, shore: Shore) -> None:
    for _ in range(3):
        container = shore.container(clients)
        container.drop()
        for router_id in "CBA":
            shore[router_id].await_status(
                lambda status: not any(row["destinations"] + row["remote"] for row in status["linkRoutes"]),
                "withdrawn",
                AT_ONCE_SECONDS,
            )


@pytest.mark.parametrize("clean", [True, False])
def test_the_container_goes(clients: Clients, shore: Shore, clean: bool) -> None:
    """Its links are detached with an error, closed, at the far end as well; the connection stays."""
    container = shore.container(clients)
    client = clients.connect(shore["A"].port)
    links = both_links(client)
    (container.close if clean else container.drop)()
    for link in links:
        assert client.refusal(link).name == LOST
        link.close()
    shore.await_links(clients)
    shore.container(clients)
    both_links(client, "b2.y")


@pytest.mark.parametrize("clean", [True, False])
def test_the_client_goes(clients: Clients, shore: Shore, clean: bool) -> None:
    container = shore.container(clients)
    client = clients.connect(shore["A"].port)
    both_links(client)
    (client.close if clean else client.drop)()
    for link in container.attached_links:
        clients.until(lambda one=link: one.state & Endpoint.REMOTE_CLOSED, "detached")  # type: ignore[misc]
        assert link.remote_condition.name == LOST
    shore.await_links(clients)


def test_the_session_of_a_client_ends(clients: Clients, shore: Shore) -> None:
    container = shore.container(clients)
    client = clients.connect(shore["A"].port)
    session = client.new_session()
    client.sender("b2.x", session=session)
    client.sender("b2.y")
    gone, stays = container.attached_links
    session.close()
    clients.until(lambda: gone.state & Endpoint.REMOTE_CLOSED, "detached")
    assert gone.remote_condition.name == LOST
    shore.await_links(clients, 1)
    assert stays.state & Endpoint.REMOTE_ACTIVE


def test_a_terminus_that_outlives_its_link_is_not_closed_by_a_loss(clients: Clients, shore: Shore) -> None:
    container = shore.container(clients)
    client = clients.connect(shore["A"].port)
    link = client.session.receiver("subscription")
    link.source.address = "b2.news"
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    link.open()
    clients.until(lambda: container.attached_links, "attached")
    client.attached(link)
    client.drop()
    (far,) = container.attached_links
    shore.await_links(clients)
    assert far.remote_condition.name == LOST
    assert not far.state & Endpoint.REMOTE_CLOSED, "detached, not closed"


def test_a_router_in_the_middle_is_killed(clients: Clients, routers: Routers) -> None:
    """Both ends are detached with an error; links find their way again when there is one."""
    shore = Shore(routers)
    container = shore.container(clients)
    client = clients.connect(shore["A"].port)
    links = both_links(client)
    shore["B"].kill()
    for link in links:
        assert client.refusal(link).name == LOST
        link.close()
    for link in container.attached_links:
        clients.until(lambda one=link: one.state & Endpoint.REMOTE_CLOSED, "detached")  # type: ignore[misc]
        assert link.remote_condition.name == LOST
    shore["C"].await_status(
        lambda status: not any(row["links"] for row in status["linkRoutes"]), "nothing is left"
    )
    assert client.refusal(client.sender("b2.x", wait=False).link).name == NO_ROUTE
    shore["B"].start()
    shore.converge()
    shore.await_containers("C")
    both_links(client, "b2.y")


# Several containers


class Several(Network):
    """A - B; two containers can attach at A, and more at B."""

    def __init__(self, routers: Routers) -> None:
        super().__init__(routers)
        self.line("A", "B")
        self.ports = {name: free_port() for name in ("one", "two", "far")}
        for name, port in self.ports.items():
            at = self["B" if name == "far" else "A"]
            at.sections.append(listener(port, "route-container", name=name))
            for direction in ("in", "out"):
                at.sections.append(link_route(direction=direction, connection=name))
        self.start()

    def container(self, clients: Clients, name: str) -> Container:
        container = Container(clients, self.ports[name], name)
        router = self["B" if name == "far" else "A"]
        router.await_status(
            lambda status: all(
                row["destinations"] for row in status["linkRoutes"] if row["connection"] == name
            ),
            f"{name} is there",
        )
        return container


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    """A network with several containers."""
    routers = Routers(tmp_path_factory.mktemp("several"))
    yield Several(routers)
    routers.stop()


def test_links_are_balanced_the_nearest_first_and_fail_over(clients: Clients, several: Several) -> None:
    one, two, far = (several.container(clients, name) for name in ("one", "two", "far"))
    await_containers(several["A"], 1, 1)
    client = clients.connect(several["A"].port)
    for number in range(10):
        client.sender(f"b2.{number}")
    assert [len(container.receivers) for container in (one, two, far)] == [5, 5, 0]
    beside = clients.connect(several["B"].port)
    beside.sender("b2.there")
    assert len(far.receivers) == 1
    one.drop()
    several["A"].await_status(
        lambda status: any(not row["destinations"] for row in status["linkRoutes"]), "one is gone"
    )
    clients.until(
        lambda: (
            sum(bool(sender.link.state & Endpoint.REMOTE_CLOSED) for sender in client.senders.values()) == 5
        ),
        "its links are detached",
    )
    for number in range(10, 14):
        client.sender(f"b2.{number}")
    assert len(two.receivers) == 9
    two.drop()
    several["A"].await_status(
        lambda status: not any(row["destinations"] for row in status["linkRoutes"]), "both are gone"
    )
    for number in range(20, 23):
        assert client.sender(f"b2.{number}").link.state & Endpoint.REMOTE_ACTIVE
    assert len(far.receivers) == 4


# Which link route


def test_the_longest_prefix_wins(clients: Clients, routers: Routers) -> None:
    ports = {name: free_port() for name in ("short", "long", "pattern")}
    listeners = [listener(port, "route-container", name=name) for name, port in ports.items()]
    pattern = ("linkRoute", {"pattern": "b2.*.special", "direction": "both", "connection": "pattern"})
    router = routers.start(
        "A",
        *listeners,
        link_route("b2", connection="short"),
        link_route("b2.queues", connection="long"),
        pattern,
        mode="interior",
    )
    containers = {name: Container(clients, port, name) for name, port in ports.items()}
    await_containers(router, 1, 0)
    client = clients.connect(router.port)
    cases = {
        "b2": "short",
        "b2.other": "short",
        "b2/queues": "long",
        "b2.queues.x": "long",
        "b2/queues/x/y": "long",
        "b2.queuesx": "short",
        "b2.x.special": "pattern",
    }
    for address, name in cases.items():
        client.sender(address)
        (link,) = [
            (name, receiver.link)
            for name, container in containers.items()
            for receiver in container.receivers.values()
            if receiver.link.remote_target.address == address
        ]
        assert link[0] == name, address
    for address in ("b2x", "b2x.y", "x.b2"):
        assert client.sender(address).link.state & Endpoint.REMOTE_ACTIVE
    assert sum(len(container.receivers) for container in containers.values()) == len(cases)


def test_external_prefixes(clients: Clients, routers: Routers) -> None:
    """The container's names have more, or less, in front of them than the network's; so have its answers."""
    ports = {name: free_port() for name in ("more", "less")}
    router = routers.start(
        "A",
        *[listener(port, "route-container", name=name) for name, port in ports.items()],
        link_route("more", connection="more", addExternalPrefix="outer/"),
        link_route("less", connection="less", delExternalPrefix="less/"),
        mode="interior",
    )
    more, less = (Container(clients, port, name) for name, port in ports.items())
    await_containers(router, 1, 0)
    client = clients.connect(router.port)
    for name, container, outside in (("more/x", more, "outer/more/x"), ("less/x", less, "x")):
        sender, receiver = client.sender(name), client.receiver(name)
        container.gets(outside)
        container.gives(outside)
        assert sender.link.remote_target.address == name
        assert receiver.link.remote_source.address == name


def test_one_container_of_a_listener_is_told_apart_by_its_id(clients: Clients, shore: Shore) -> None:
    stranger = Container(clients, shore.ports["C"], "someone else")
    container = shore.container(clients)
    both_links(clients.connect(shore["A"].port))
    assert (len(container.attached_links), stranger.attempts) == (2, 0)
