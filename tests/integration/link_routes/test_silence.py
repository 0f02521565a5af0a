"""A container that answers nothing: links of clients that are gone do not pile up."""

from __future__ import annotations

from tests.integration.support.client import Clients
from tests.integration.support.link_routes import Shore

LINKS = 50


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
