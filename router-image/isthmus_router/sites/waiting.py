"""A group's addresses at a router that is to be a member and is none at present: what is sent to them waits.

Without it they would be addresses as any other, from which messages go to somebody near, and to no other site.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from isthmus_router.core.address import AddressClass, SettlingConsumer, normalise
from isthmus_router.core.model import Link
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition, Outcome
from isthmus_router.groups.batch import GroupMessage


@dataclass(slots=True)
class Pending:
    """What senders have given and no member has taken."""

    messages: list[GroupMessage] = field(default_factory=list)
    deliveries: list[object | None] = field(default_factory=list)
    """Of each message; None: it was sent settled."""

    @property
    def unsettled(self) -> list[object]:
        """The deliveries that have to be settled."""
        return [delivery for delivery in self.deliveries if delivery is not None]


def detach_senders(core: RouterCore, group: str) -> None:
    """Nothing that is sent here goes to other members any more; before the addresses are withdrawn."""
    reason = f"The router is no member of group {group} any more"
    for connection in list(core.connections.values()):
        for link in [] if connection.role.is_between_routers else list(connection.links):
            if link.incoming and link.target.address is not None:
                address = core.addresses.get(AddressClass.MOBILE + normalise(link.target.address))
                if address is not None and address.handler.__class__ is SettlingConsumer:
                    core.port.detach_link(link, Condition("amqp:resource-deleted", reason))


class WaitingRoom:
    """Takes one more message of each sender, then reads it no further."""

    def __init__(
        self, core: RouterCore, group: str, addresses: Sequence[str], most_bytes: int, pending: Pending
    ) -> None:
        """`most_bytes`: of a message."""
        self._core = core
        self._group = group
        self._most_bytes = most_bytes
        self._pending = pending
        self._everybody = f"relay/{group}"
        self._patterns = (self._everybody, f"{self._everybody}/#", *addresses)
        for pattern in self._patterns:
            core.offer(pattern, self._consumer)

    def close(self) -> Pending:
        """A member takes over what waits; the senders are read again after that (`Port.read_on`)."""
        for pattern in self._patterns:
            self._core.withdraw(pattern)
        return self._pending

    def detach_senders(self) -> None:
        """The router is not to be a member any more."""
        detach_senders(self._core, self._group)

    def _consumer(self, address: str) -> SettlingConsumer:
        of_one = address.startswith(f"{self._everybody}/")
        return SettlingConsumer(self._return if of_one else partial(self._take, address), self._most_bytes)

    def _take(self, address: str, payload: bytes, link: Link | None, delivery: object | None) -> bool:
        if len(payload) > self._most_bytes:
            return self._return(payload, link, delivery)
        self._pending.messages.append(GroupMessage(address, payload))
        self._pending.deliveries.append(delivery)
        return False

    def _return(self, payload: bytes, link: Link | None, delivery: object | None) -> bool:
        if delivery is not None:
            self._core.port.settle((delivery,), Outcome.RELEASED)
        return True
