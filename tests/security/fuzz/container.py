"""The container of the link route, which keeps to the rules."""

from __future__ import annotations

from typing import Any

from proton import Delivery, Endpoint, Link, Message
from tests.unit.amqp.rig import Rig
from tests.unit.amqp.routed_ends import OwnEnd

from isthmus_router.core.roles import Role

SIZES = (10, 6_000, 30_000)
"""Of the messages on each link, in bytes, in turns."""
MOST_SENT = 6
OUTCOMES = (Delivery.ACCEPTED, Delivery.RELEASED, None)
"""Of what arrives, in turns; None: it stays unsettled."""


class Container(OwnEnd):
    """It reads what arrives, and sends small and large messages."""

    def __init__(self, rig: Rig) -> None:
        super().__init__(rig, "container", Role.ROUTE_CONTAINER)
        self.connection.container = "shelf"
        self._read = 0
        self._sent: dict[Any, list[Delivery]] = {}
        """By link."""

    def detached(self, link: Link) -> None:
        """What is said is the client's, and may be nothing that Python can hold, as a map with an array as its key."""

    def _events(self) -> None:
        super()._events()
        active = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
        self.attached = [link for link in self.attached if link.state == active]
        self._sent = {link: sent for link, sent in self._sent.items() if link in self.attached}
        for link in self.attached:
            if link.is_receiver:
                self._receive(link)
            else:
                self._send(link)

    def _receive(self, link: Any) -> None:
        link.flow(10 - link.credit)
        while (delivery := link.current) is not None:
            if delivery.pending and not delivery.aborted:
                link.recv(delivery.pending)
            if delivery.partial and not delivery.aborted:
                return
            link.advance()
            outcome = OUTCOMES[self._read % len(OUTCOMES)]
            self._read += 1
            if delivery.settled or delivery.aborted:
                delivery.settle()
            elif outcome is not None:
                delivery.update(outcome)
                delivery.settle()

    def _send(self, link: Any) -> None:
        sent = self._sent.setdefault(link, [])
        while link.credit > 0 and len(sent) < MOST_SENT:
            sent.append(link.delivery(str(len(sent))))
            link.send(Message(body=bytes(SIZES[len(sent) % len(SIZES)])).encode())
            link.advance()
        for delivery in sent:
            if delivery.settled:
                delivery.settle()
