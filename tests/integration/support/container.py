"""A container to which routers attach links: it accepts, refuses and detaches them as the test wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proton import Condition, Endpoint, Event, Terminus
from tests.integration.support.client import Client, Clients, Receiver, Sender


class Container(Client):
    """Connects to a route-container listener and answers the attaches that come from there."""

    def __init__(
        self,
        clients: Clients,
        port: int,
        container: str,
        refusal: Condition | None = None,
        *,
        max_message_size: int = 0,
        names_nodes: bool = True,
        credit: int = 100,
        accept: bool = True,
        answers: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(clients, port, container=container, **options)
        self.refusal = refusal
        """With it, attaches are refused from now on."""
        self.max_message_size = max_message_size
        """Of messages that it takes."""
        self.names_nodes = names_nodes
        """Answers tell the termini that are there."""
        self.credit = credit
        """That links to it get at once."""
        self.accept = accept
        """Deliveries are accepted, and their credit renewed, as they come."""
        self.answers = answers
        """Attaches are answered at once; else they wait for `answer`."""
        self.answers_detach = True
        """Likewise detaches: else they wait for the test."""
        self.dress: Callable[[Any], None] | None = None
        """Called for each link before its attach is answered."""
        self.attempts = 0
        """Attaches so far."""
        self.attached_links: list[Any] = []
        """All links that were ever attached by the router."""
        clients.adopt(self)
        self.await_open()

    def deal_with(self, event: Event) -> None:
        """Answer an attach; the rest is as for any client."""
        link = getattr(event, "link", None)
        if event.type == Event.LINK_REMOTE_OPEN and link.state & Endpoint.LOCAL_UNINIT:
            self.attempts += 1
            self.attached_links.append(link)
            if self.answers:
                self.answer(link)
            return
        if event.type == Event.SESSION_REMOTE_OPEN and event.session.state & Endpoint.LOCAL_UNINIT:
            event.session.open()
        if event.type == Event.SESSION_REMOTE_CLOSE:
            event.session.close()
        if event.type in {Event.LINK_REMOTE_CLOSE, Event.LINK_REMOTE_DETACH}:
            if self.answers_detach and event.type == Event.LINK_REMOTE_CLOSE:
                link.close()
            elif self.answers_detach:
                link.detach()
            (self.senders if link.is_sender else self.receivers).pop(link.name, None)
            return
        if event.type != Event.LINK_FLOW or link.name in self.senders:
            super().deal_with(event)

    def answer(self, link: Any) -> None:
        """Answer an attach."""
        if self.refusal is not None:
            # Without the terminus that is the container's (AMQP 1.0, 2.6.3); the other one may be there.
            if link.is_sender:
                link.source.type = Terminus.UNSPECIFIED
                link.target.copy(link.remote_target)
            else:
                link.source.copy(link.remote_source)
                link.target.type = Terminus.UNSPECIFIED
            link.open()
            link.condition = self.refusal
            link.close()
            return
        if self.names_nodes:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
        if link.is_sender:
            self.senders[link.name] = Sender(self, link)
        else:
            link.max_message_size = self.max_message_size
            receiver = self.receivers[link.name] = Receiver(self, link)
            receiver.auto_accept = receiver.replenish = self.accept
        if self.dress is not None:
            self.dress(link)
        link.open()
        if link.is_receiver and self.credit:
            link.flow(self.credit)

    def gets(self, address: str) -> Receiver:
        """Wait for the link on which the router sends to `address`."""
        return self._find(self.receivers, lambda link: link.remote_target.address, address)

    def gives(self, address: str) -> Sender:
        """Wait for the link on which the router receives from `address`."""
        return self._find(self.senders, lambda link: link.remote_source.address, address)

    def _find(self, found: dict[str, Any], name_of: Any, address: str) -> Any:
        def matches() -> list[Any]:
            return [item for item in found.values() if name_of(item.link) == address]

        self.clients.until(matches, f"the router attaches {address}")
        return matches()[0]
