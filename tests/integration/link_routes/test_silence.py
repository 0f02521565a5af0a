"""A container that answers nothing: links of clients that are gone do not pile up."""

from __future__ import annotations

from tests.integration.support.client import Clients
from tests.integration.support.link_routes import Shore
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER, BEGIN, HEARTBEAT, OPEN, RawConnection, frame
from tests.integration.support.routers import Routers, eventually, listener
from tests.security.support.frames import attach, begin, opening

from isthmus_router.message.types import UInt, UShort

LINKS = 50
MANY_LINKS = 1_100
CHANNELS = 8
TIMEOUT_SECONDS = 120.0


def test_detaches_that_are_not_answered_end_with_their_sessions(clients: Clients, shore: Shore) -> None:
    container = shore.container(clients, "C")
    client = clients.connect(shore["A"].port)
    for number in range(LINKS):
        client.receiver(f"b2.{number}", credit=1)
    container.answers_detach = False
    client.close()

    def left() -> list[int]:
        return [int(shore[router_id].metric("routed_links")) for router_id in "ABC"]

    clients.until(lambda: left() == [0, 0, 0], "nothing is left")
    shore["C"].await_log("a detach is not answered")
    container.answers_detach = True
    again = clients.connect(shore["A"].port).receiver("b2.again", credit=1)
    container.gives("b2.again").await_credit(1).send("still there")
    again.expect(1)


def test_links_that_share_sessions_do_not_pile_up(routers: Routers) -> None:
    """The container has few sessions, and lives as far as its heartbeats go: its connection is closed."""
    port = free_port()
    router = routers.start(
        "A",
        listener(port, "route-container", name="containers"),
        ("linkRoute", {"prefix": "b2", "direction": "out", "connection": "containers"}),
    )
    with RawConnection(port) as container:
        container.send(AMQP_HEADER, frame(OPEN, ["hung", "localhost", UInt(65536), UShort(CHANNELS)]))
        container.expect(OPEN)

        begun: list[int] = []

        def silent() -> None:
            """The container begins the sessions that the router begins, and answers nothing else."""
            for arrived in container.arrived():
                if arrived.code == BEGIN:
                    begun.append(arrived.channel)
                    window = [UInt(0), UInt(1000), UInt(1000)]
                    answer = frame(BEGIN, [UShort(arrived.channel), *window], channel=arrived.channel)
                    container.send(answer)
            container.send(HEARTBEAT)

        def links() -> int:
            if not container.ended:
                silent()
            return int(router.metric("routed_links"))

        with RawConnection(router.port) as client:
            client.send(opening(), begin(), attach(0, "link.0", "b2.0", receiver=True))
            # Before the container has begun a session, not all of them are attached.
            eventually(lambda: links() == 1 and begun and links() == 1, "the first session", TIMEOUT_SECONDS)
            for number in range(1, MANY_LINKS):
                client.send(attach(number, f"link.{number}", f"b2.{number}", receiver=True))
            eventually(lambda: links() == MANY_LINKS, "all are at the container", TIMEOUT_SECONDS)
        eventually(lambda: links() == 0, "nothing is left", TIMEOUT_SECONDS)
    router.await_log("1000 detaches are not answered")
