"""Relayed addresses at an edge: what clients send goes to the interior, what comes from there to every receiver.

The edge has one link from the interior for all of its receivers of an address. When that is lost, or another one takes
its place, messages may be missing: receivers from before are detached at the next message, so that they know.
"""

from __future__ import annotations

from functools import partial

from isthmus_router.core.address import AddressClass, SettlingConsumer
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition, Outcome
from isthmus_router.sites.receivers import Receivers


class EdgeReceivers:
    """Those of an edge router; an observer of its core. `patterns`: of relayed addresses."""

    def __init__(
        self, core: RouterCore, call_later: CallLater, patterns: tuple[str, ...] = ("relay/#",)
    ) -> None:
        self.receivers = Receivers(core, call_later)
        self._core = core
        self._ways: dict[str, Link] = {}
        """By address: the link from the interior on which its messages came last, or one that was lost since."""
        core.observers.append(self)
        for pattern in patterns:
            core.offer(pattern, self._consumer)

    def _consumer(self, address: str) -> SettlingConsumer:
        return SettlingConsumer(partial(self._take, address), 0, from_uplink=True)

    def _take(self, name: str, payload: bytes, link: Link | None, delivery: object | None) -> bool:
        assert link is not None
        if delivery is not None:
            self._core.port.settle((delivery,), Outcome.ACCEPTED)
        address = self._core.addresses.get(AddressClass.MOBILE + name)
        if address is None or not self._is_the_way(name, link):
            return True
        self.receivers.give(address, (payload,))
        return True

    def _is_the_way(self, name: str, link: Link) -> bool:
        before = self._ways.get(name)
        if before is link:
            return True
        if before is not None and link.id < before.id:
            return False  # what was left on it has come by the new one as well, or is missing anyhow
        self._ways[name] = link
        if before is not None:
            reason = f"The way of messages to {name} has changed: some may be missing; attach the link again"
            for receiver in list(self._core.addresses[AddressClass.MOBILE + name].consumers):
                if not receiver.proxy and receiver.id < link.id:
                    self.receivers.detach(receiver, Condition("amqp:link:detach-forced", reason))
        return True

    def link_unbound(self, link: Link) -> None:
        """A link from the interior is lost while it has receivers here, or the last of them is gone."""
        if link.connection.role is Role.EDGE:
            name = link.source.address
            if link.incoming and name is not None and self._has_receivers(name):
                self._ways.setdefault(name, link)
        elif link.address is not None and not self._has_receivers(link.address.name):
            self._ways.pop(link.address.name, None)

    def _has_receivers(self, name: str) -> bool:
        address = self._core.addresses.get(AddressClass.MOBILE + name)
        return (
            address is not None
            and address.handler.__class__ is SettlingConsumer
            and any(not link.proxy for link in address.consumers)
        )

    def link_bound(self, link: Link) -> None:
        """Observer interface: what matters is which link messages come on."""

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface."""

    def connection_closed(self, connection: Connection) -> None:
        """Observer interface: its links were unbound before."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface."""
