"""Clients together attach more links than a container allows: those beyond are refused, and all others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest
from tests.integration.support.by_hand import ByHand, body, receive_from, send_to, transfer_frame
from tests.integration.support.links import TIMEOUT_SECONDS
from tests.integration.support.ports import free_port
from tests.integration.support.raw import ATTACH, DETACH, Arrived, await_input
from tests.integration.support.routers import Router, Routers, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import detach
from tests.security.support.small_container import SmallContainer

from isthmus_router.message.types import Described

LIMIT = "amqp:resource-limit-exceeded"
CLIENTS, LINKS = 4, 10


def started(routers: Routers, *more: tuple[str, dict[str, object]]) -> tuple[Router, int]:
    """A router with a link route to a container, and the port for that one."""
    port = free_port()
    route = ("linkRoute", {"prefix": "q", "direction": "both", "containerId": "broker"})
    return routers.start("A", listener(port, "route-container", name="brokers"), route, *more), port


class Client(ByHand):
    """Attaches receivers whose names end with their handles, and answers the router's detaches."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.attached: set[int] = set()
        """Handles of links that the router has answered with a source."""
        self.refused: dict[int, str] = {}
        """Conditions by handle."""
        self._named: dict[int, int] = {}
        """Handles of this end by those of the router."""

    def await_answers(self, handles: Iterable[int]) -> None:
        """Wait until the attaches of these links are accepted or refused."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        wanted = set(handles)
        while not wanted <= self.attached | self.refused.keys():
            assert time.monotonic() < deadline, (self.attached, self.refused)
            for one in self.rest():
                if one.code == DETACH:
                    handle = self._named[int(one.fields[0])]
                    self.refused[handle] = reason(one)
                    self.send(detach(handle))
                elif one.code == ATTACH:
                    handle = int(str(one.fields[0]).rpartition(" ")[2])
                    self._named[int(one.fields[1])] = handle
                    if one.field(5) is not None:
                        self.attached.add(handle)
            assert not self.ended
            await_input(self.socket, 1)


def reason(detached: Arrived) -> str:
    """The name of a detach's condition."""
    error = detached.field(2)
    assert isinstance(error, Described), detached
    return str(error.value[0])


@pytest.mark.parametrize(
    ("handle_max", "channel_max", "room"),
    [(2, 3, 3), (0, 0, 1), (4, 0, 5), (0, 20, 5), (1, 20, 10)],
    ids=str,
)
def test_clients_that_attach_more_links_than_a_container_allows(
    compiled_kernel: Callable[[], Routers], handle_max: int, channel_max: int, room: int
) -> None:
    """`room`: links, where 16 channels are left for other uses, and one session is shared if there are no more."""
    router, port = started(compiled_kernel())
    with (
        SmallContainer(port, handle_max=handle_max, channel_max=channel_max) as container,
        Canary(router, rate=50) as canary,
        ByHand(router.port) as first,
    ):
        first.attach(send_to("q/first"))
        first.await_credit()
        clients = [Client(router.port) for _ in range(CLIENTS)]
        for client in clients:
            client.send(*(receive_from(f"q/{handle}", handle) for handle in range(LINKS)))
        for client in clients:
            client.await_answers(range(LINKS))
        refused = [condition for client in clients for condition in client.refused.values()]
        assert refused == [LIMIT] * (CLIENTS * LINKS - (room - 1))
        assert len(container.links) == room

        first.send(transfer_frame(0, body("still here"), settled=True))
        container.wait(lambda: len(container.payloads) == 1)

        # The container gives up one link: there is room for one more, and not for two.
        if room == 1:
            first.send(detach(0))
            first.expect(DETACH)
        else:
            client = next(client for client in clients if client.attached)
            client.send(detach(client.attached.pop()))
            client.expect(DETACH)
        for handle in (LINKS, LINKS + 1):
            clients[0].send(receive_from("q/again", handle))
            clients[0].await_answers([handle])
        assert LINKS in clients[0].attached
        assert clients[0].refused[LINKS + 1] == LIMIT
        assert len(container.links) == room
        for client in clients:
            client.socket.close()
    assert container.most_links == room
    canary.report.check(at_least=5)


def test_links_go_to_a_container_that_has_room(compiled_kernel: Callable[[], Routers]) -> None:
    router, port = started(compiled_kernel())
    with (
        SmallContainer(port, handle_max=1, channel_max=0) as small,
        SmallContainer(port, handle_max=100, channel_max=0) as large,
        ByHand(router.port) as client,
    ):
        for handle in range(20):
            client.attach(receive_from(f"q/{handle}", handle))
        client.round_trip()
        assert not [one for one in client.rest() if one.code == DETACH]
        assert (len(small.links), len(large.links)) == (2, 18)
