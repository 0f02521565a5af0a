"""Clients of one router ask the management of another one without pause, and those of a third one ask it as well."""

from __future__ import annotations

import threading

from tests.integration.support.by_hand import transfer_frame
from tests.integration.support.client import Clients
from tests.integration.support.management import Manager
from tests.integration.support.ports import free_port
from tests.integration.support.raw import AMQP_HEADER, FLOW, OPEN, RawConnection, frame
from tests.integration.support.routers import Routers, connector, eventually, listener
from tests.security.support.canary import Canary
from tests.security.support.frames import attach, begin

from isthmus_router.message.control import Message, Properties, encode_message
from isthmus_router.message.types import UInt

TARGET = "_topo/0/A/$management"
LINKS = 20
REQUESTS = 20
AT_ONCE = 25


class Questions(threading.Thread):
    """A client that keeps to credit and windows, and asks as much as these allow."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.sent = 0
        self._port = port

    def run(self) -> None:
        request = encode_message(
            Message(
                properties=Properties(reply_to="nobody", message_id="m"),
                application_properties={"operation": "QUERY"},
                body={"attributeNames": []},
            )
        )
        counts, limits, window = [0] * LINKS, [0] * LINKS, 0
        with RawConnection(self._port) as connection:
            connection.send(AMQP_HEADER, frame(OPEN, ["questions", "localhost", UInt(65536)]), begin())
            connection.send(*(attach(number, f"s{number}", TARGET) for number in range(LINKS)))
            while not self.stopped.is_set():
                for one in connection.arrived():
                    if one.code == FLOW:
                        window = int(one.fields[0] or 0) + int(one.fields[1])
                        if len(one.fields) > 6 and one.fields[4] is not None:
                            limits[int(one.fields[4])] = int(one.fields[5] or 0) + int(one.fields[6] or 0)
                sent = 0
                for link in range(LINKS):
                    most = min(AT_ONCE, limits[link] - counts[link], window - self.sent)
                    for _ in range(max(most, 0)):
                        connection.send(transfer_frame(self.sent, request, handle=link))
                        self.sent += 1
                        counts[link] += 1
                        sent += 1
                if not sent:
                    self.stopped.wait(0.002)


def test_clients_of_another_router_get_their_answers(routers: Routers, clients: Clients) -> None:
    """All requests come to A by its only neighbor, B."""
    ports = [free_port(), free_port()]
    a = routers.start("A", listener(ports[0], "inter-router", name="routers"), mode="interior")
    b = routers.start(
        "B",
        connector(ports[0], name="to-A"),
        listener(ports[1], "inter-router", name="routers"),
        mode="interior",
        management="read",
    )
    c = routers.start("C", connector(ports[1], name="to-B"), mode="interior", management="read")
    questions = Questions(b.port)
    with Canary(a) as canary:
        manager = Manager(clients.connect(c.port), TARGET)
        assert manager.query("router", "id") == [{"id": "A"}]
        questions.start()
        try:
            eventually(lambda: a.log.count("request dropped") > 0, "more requests than may wait")
            for _ in range(REQUESTS):
                assert manager.query("router", "id") == [{"id": "A"}]
        finally:
            questions.stopped.set()
            questions.join()
    assert questions.sent > REQUESTS
    canary.report.check()
