"""Three routers with a link route, a container at one of them, and a client's link that is routed there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.integration.support.by_hand import ByHand, attach_frame, open_frame
from tests.integration.support.client import Client, Clients, Receiver, Sender
from tests.integration.support.container import Container
from tests.integration.support.ports import free_port
from tests.integration.support.raw import ATTACH, BEGIN, FLOW, frame
from tests.integration.support.routers import Router, Routers, Section, listener
from tests.integration.support.topology import Network

from isthmus_router.message.types import UInt, UShort

CONTAINER = "shelf"
NO_ROUTE = "qd:no-route-to-dest"
LOST = "qd:routed-link-lost"


def link_route(prefix: str = "b2", direction: str = "both", **attributes: object) -> Section:
    """A `linkRoute` section for the container."""
    if not attributes.keys() & {"connection", "containerId"}:
        attributes["containerId"] = CONTAINER
    return ("linkRoute", {"prefix": prefix, "direction": direction, **attributes})


IN_AND_OUT = (link_route(direction="in"), link_route(direction="out"))


def await_containers(router: Router, here: int, elsewhere: int, prefix: str | None = None) -> None:
    """Wait until a router has so many containers of its own, and other routers that have some, for each link route.

    `prefix`: only for the link routes of this one.
    """
    router.await_status(
        lambda status: all(
            (row["destinations"], row["remote"]) == (here, elsewhere)
            for row in status["linkRoutes"]
            if prefix in (None, row["prefix"])
        ),
        f"{here} containers here, {elsewhere} routers that have some",
    )


class Shore(Network):
    """A - B - C; containers can attach to A and C."""

    def __init__(self, routers: Routers, *, common: Iterable[Section] | None = None) -> None:
        # One for each direction: what is announced of one that has both may come in two parts.
        super().__init__(routers, common=IN_AND_OUT if common is None else common)
        self.line("A", "B", "C")
        self.ports = {router_id: free_port() for router_id in "AC"}
        for router_id, port in self.ports.items():
            self[router_id].sections.append(listener(port, "route-container", name="containers"))
        self.start()

    def await_containers(self, *at: str) -> None:
        """Wait until the whole network knows where containers are, and that there are no others."""
        for router_id in "ABC":
            here = at.count(router_id)
            await_containers(self[router_id], here, len(set(at) - {router_id}))

    def container(self, clients: Clients, at: str = "C", **options: Any) -> Container:
        """A container attaches, the only one, and the whole network knows."""
        self.await_containers()  # those of the test before are gone
        container = Container(clients, self.ports[at], CONTAINER, **options)
        self.await_containers(at)
        return container

    @property
    def links(self) -> int:
        """Links that are routed to containers."""
        return sum(row["links"] for router_id in "ABC" for row in self[router_id].status()["linkRoutes"])

    def await_links(self, clients: Clients, count: int = 0) -> None:
        """Wait until that many links are routed to containers, and nothing is left of others."""
        clients.until(lambda: self.links == count, f"{count} links are routed")


class Chain:
    """A client at A, and the container that its links are routed to; the container does what the test does."""

    def __init__(self, clients: Clients, shore: Shore, at: str) -> None:
        self.clients = clients
        self.shore = shore
        self.at = at
        self.container = shore.container(clients, at, credit=0, accept=False)
        self.client: Client = clients.connect(shore["A"].port, container="buyer")
        self._count = 0

    def address(self) -> str:
        """One that no link had yet."""
        self._count += 1
        return f"b2.{self._count}"

    def round_trip(self) -> None:
        """Wait until what either end has said is known at the other: there and back, hop by hop.

        A link is attached and detached again along the same way, behind it.
        """
        self.clients.round_trip()
        address = self.address()
        answers, self.container.answers = self.container.answers, True
        link = self.client.sender(address).link
        self.container.gets(address)
        self.client.detach(link)
        self.container.answers = answers
        self.clients.round_trip()

    def to_container(self, **options: Any) -> tuple[Sender, Receiver]:
        """A link of the client's that sends: its two ends."""
        address = self.address()
        sender = self.client.sender(address, **options)
        return sender, self.container.gets(address)

    def from_container(self, **options: Any) -> tuple[Receiver, Sender]:
        """A link of the client's that receives: its two ends."""
        address = self.address()
        receiver = self.client.receiver(address, **options)
        return receiver, self.container.gives(address)

    def both_ways(self) -> list[tuple[Sender, Receiver]]:
        """A link in each direction: the end that sends, and the one that receives."""
        receiver, sender = self.from_container()
        return [self.to_container(), (sender, receiver)]

    def dressed(self, dress: Callable[[Any], None]) -> None:
        """Have the container answer with this done to its links."""
        self.container.dress = dress


class Wire:
    """A container and a client at one router, both by hand, with a routed link between them."""

    def __init__(self, router: Router, containers: int, *, to_container: bool) -> None:
        """`containers`: the port of the router for them."""
        await_containers(router, 0, 0)
        self.container = ByHand(containers, opened=open_frame(CONTAINER), begun=b"")
        await_containers(router, 1, 0)
        self.client = ByHand(router.port)
        self.sender, self.receiver = self.client, self.container
        if not to_container:
            self.sender, self.receiver = self.receiver, self.sender
        attach: dict[str, Any] = {"source": "b2.wire", "target": "b2.wire"}
        self.client.send(attach_frame("wire", 0, receiver=not to_container, **attach))
        (begun,) = self.container.expect(BEGIN)
        (asked,) = self.container.expect(ATTACH)
        self.container.send(
            frame(BEGIN, [UShort(begun.channel), UInt(0), UInt(10_000), UInt(10_000)]),
            attach_frame(asked.field(0), 0, receiver=to_container, **attach),
        )
        self.client.expect(ATTACH)

    def credit(self) -> int:
        """The next credit that the sender gets for its link, but for none."""
        while True:
            (flow,) = self.sender.expect(FLOW)
            if flow.field(4) is not None and flow.field(6):
                return int(flow.field(6))

    def close(self) -> None:
        """Both drop their connections."""
        for connection in (self.client, self.container):
            connection.socket.close()
