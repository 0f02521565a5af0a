"""Address proxy, edge side: keeps one link per used mobile address and direction to the interior.

Clients of an edge take part in the network through proxies. While clients here produce to an address there is
one out-proxy for it; it becomes a destination of the address when the interior says so (address tracking), so
that clients get credit only while somebody can receive. While clients here consume from it there is one
in-proxy, a plain consumer in the interior's eyes. What has no destination here goes to the anonymous uplink.
On a new uplink the proxies of all addresses are opened, in steps if there are many: each step does for one address what
is to be done by then, whatever has happened since the first one.

Source: the edge address proxy of the skupper-router family.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from isthmus_router.core.address import Address, normalise
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import RESERVED_PREFIX, Condition
from isthmus_router.edge.messages import EdgeMessageError, decode_tracking
from isthmus_router.edge.steps import begin
from isthmus_router.edge.uplink import Uplink

log = logging.getLogger("ROUTER_CORE")

GIVE_WAY_SECONDS = 2.0
"""How long proxies on a replaced uplink serve addresses of which the interior has not spoken on the new one."""
FIRST_REPAIR_SECONDS = 5.0
LAST_REPAIR_SECONDS = 60.0

RESERVED = Condition("amqp:not-allowed", "Reserved for links between routers")


@dataclass(slots=True)
class Demand:
    """Links of clients here that use an address."""

    producers: int = 0
    consumers: int = 0


class AddressProxy:
    """The proxies of an edge router.

    An observer and link handler of its core, and the user of the active uplink.
    """

    def __init__(self, core: RouterCore, call_later: CallLater) -> None:
        self.core = core
        self.uplink: Uplink | None = None
        self.demands: dict[str, Demand] = {}
        """By address key; an address nobody uses has none."""
        self.on_fitness_changed: Callable[[], None] | None = None
        """Called when the active connection turns out not to serve its purpose, or serves it after all."""
        self.on_uplink: Callable[[Connection], None] | None = None
        """Called when links are opened on the active connection."""
        self.messages_received = 0
        self.messages_invalid = 0
        self._call_later = call_later
        self._replaced: list[Uplink] = []
        self._candidate: Uplink | None = None
        """The active connection's, until the interior has answered its standing links."""
        self._repair_seconds = FIRST_REPAIR_SECONDS
        self._repairing: Uplink | None = None
        self._repairs = 0
        core.observers.append(self)
        core.link_handlers.append(self._refuse_reserved)

    def _refuse_reserved(self, link: Link) -> bool:
        """A client's link to such an address would be proxied; the interior would take it for the edge's own."""
        terminus = link.target if link.incoming else link.source
        if terminus.address is None or not normalise(terminus.address).startswith(RESERVED_PREFIX):
            return False
        self.core.refuse(link, RESERVED)
        return True

    # The active connection

    def uplink_established(self, connection: Connection) -> None:
        """Use `connection` from now on. One that is in use serves until this one has proven that it does."""
        self._give_up_candidate()
        if self.uplink is not None and self.uplink.connection is connection:
            return
        uplink = Uplink(
            self.core,
            connection,
            self._on_tracking,
            self._call_later,
            fit=self._fit,
            fitness_changed=self._fitness_changed,
        )
        if self.uplink is None:
            self._change_to(uplink)
        else:
            self._candidate = uplink
            uplink.open_standing()

    def _give_up_candidate(self) -> None:
        candidate, self._candidate = self._candidate, None
        if candidate is not None:
            candidate.give_way()

    def _fit(self, uplink: Uplink) -> None:
        """The interior has answered the standing links."""
        if uplink is self._candidate:
            self._candidate = None
            self._change_to(uplink)

    def _change_to(self, uplink: Uplink) -> None:
        """Open all links on an uplink, and give up those on the one it replaces, if any."""
        replaced, self.uplink = self.uplink, uplink
        uplink.connection.superseded = False
        self._repair_seconds = FIRST_REPAIR_SECONDS
        if replaced is not None:
            self._replaced.append(replaced)
        self._open_links(uplink)
        if replaced is not None:
            replaced.connection.superseded = True
            self._hand_over(replaced, replaced.anonymous, uplink.anonymous)
            if self.core.took_over is not None:
                self.core.took_over(uplink.connection, replaced.connection)
            replaced.give_way()

    def _fitness_changed(self) -> None:
        if self.on_fitness_changed is not None:
            self.on_fitness_changed()

    def uplink_lost(self, connection: Connection) -> None:
        """The active connection is gone, and its links with it."""
        if self._candidate is not None and self._candidate.connection is connection:
            self._candidate = None
        else:
            self.uplink = None

    def _open_links(self, uplink: Uplink) -> None:
        uplink.open_standing()
        begin(self.core.port, self._open_proxies(uplink))
        if self.core.uplink is not uplink.anonymous:
            self.core.set_uplink(uplink.anonymous)
        if self.on_uplink is not None:
            self.on_uplink(uplink.connection)

    def _open_proxies(self, uplink: Uplink) -> Iterator[None]:
        """Open those that are missing, as long as the uplink is in use. Those on replaced uplinks follow."""
        for key in list(self.demands):
            if uplink is not self.uplink:
                return  # another job opens them on the one that is in use now, if any
            demand = self.demands.get(key)
            if demand is not None:
                if demand.producers:
                    uplink.add_out_proxy(key)
                if demand.consumers:
                    uplink.add_in_proxy(key)
            for replaced in self._replaced:
                replaced.finish_in_proxy(key)
            yield
        if uplink is self.uplink:
            for replaced in self._replaced:
                self._end_later(replaced)

    def _end_later(self, replaced: Uplink) -> None:
        self._call_later(GIVE_WAY_SECONDS, lambda: begin(self.core.port, self._end(replaced)))

    def _end(self, replaced: Uplink) -> Iterator[None]:
        """What the interior has not spoken of by now has no consumers."""
        for key in list(replaced.out_proxies):
            replaced.remove_out_proxy(key)
            yield
        if replaced in self._replaced:
            self._replaced.remove(replaced)

    def _repair_later(self, uplink: Uplink) -> None:
        """The interior took away a link that is still wanted: try again after a while."""
        if self._repairing is not uplink:
            self._repairing = uplink
            self._repairs += 1
            self._call_later(self._repair_seconds, lambda: self._repair(uplink))
            self._repair_seconds = min(2 * self._repair_seconds, LAST_REPAIR_SECONDS)

    def _repair(self, uplink: Uplink) -> None:
        if self._repairing is uplink:
            self._repairing = None
        if uplink is self._candidate:
            uplink.open_standing()
        elif uplink is self.uplink:
            self._open_links(uplink)
            repairs = self._repairs
            self._call_later(LAST_REPAIR_SECONDS, lambda: self._end_repairs(repairs))

    def _end_repairs(self, repairs: int) -> None:
        """The last repair has held: the next link that is taken away is a new matter."""
        if self._repairs == repairs:
            self._repair_seconds = FIRST_REPAIR_SECONDS

    def _on_tracking(self, link: Link, payload: bytes) -> None:
        """The interior says whether an address can be reached through it."""
        uplink = self.uplink
        if uplink is None or link is not uplink.tracking:
            return
        try:
            key, reachable = decode_tracking(payload)
        except EdgeMessageError as error:
            if not self.messages_invalid:
                log.warning(
                    "tracking message ignored", extra={"connection": link.connection.id, "reason": str(error)}
                )
            self.messages_invalid += 1
            return
        self.messages_received += 1
        # The last producer may have gone, and its proxy with it, while the message was under way.
        if reachable:
            uplink.bind(key)
        else:
            uplink.unbind(key)
        new = uplink.out_proxies.get(key)
        if reachable and new is None:
            return  # said of an earlier one on the same connection; that on a replaced uplink serves until it is there
        for replaced in self._replaced:
            if reachable:
                self._hand_over(replaced, replaced.out_proxies.get(key), new)
            replaced.remove_out_proxy(key)

    def _hand_over(self, replaced: Uplink, old: Link | None, new: Link | None) -> None:
        """Keep the order of what the old link has sent and the new one will; not if nobody answers there any more."""
        if old is not None and new is not None and replaced.connection.problem is None:
            self.core.port.hand_over([(old, new)])

    # Local clients

    def link_bound(self, link: Link) -> None:
        """A client's link uses an address: the first one of its direction makes a proxy."""
        address = link.address
        if not _is_clients(link) or address is None or not address.is_mobile or _is_served_here(address):
            return
        self.use(address.key, produces=link.incoming)

    def use(self, key: str, *, produces: bool) -> None:
        """Somebody here, a client or the router itself, begins to produce to an address or to consume from it."""
        demand = self.demands.setdefault(key, Demand())
        if produces:
            demand.producers += 1
        else:
            demand.consumers += 1
        if self.uplink is None:
            return
        if produces:
            self.uplink.add_out_proxy(key)
        else:
            self.uplink.add_in_proxy(key)

    def link_unbound(self, link: Link) -> None:
        """A client's link is gone: the last one of its direction takes the proxy with it."""
        if not _is_clients(link):
            self._forget(link)
            return
        address = link.address
        if address is not None and not _is_served_here(address):
            self.end_use(address.key, produces=link.incoming)

    def end_use(self, key: str, *, produces: bool) -> None:
        """One of those who use an address does so no longer."""
        demand = self.demands.get(key)
        if demand is None:
            return
        if produces:
            demand.producers -= 1
            if demand.producers == 0:
                for uplink in self._uplinks():
                    uplink.remove_out_proxy(key)
        else:
            demand.consumers -= 1
            if demand.consumers == 0 and self.uplink is not None:
                self.uplink.remove_in_proxy(key)
                for replaced in self._replaced:
                    replaced.finish_in_proxy(key)
        if not demand.producers and not demand.consumers:
            del self.demands[key]

    def _uplinks(self) -> list[Uplink]:
        return [*self._replaced, self.uplink] if self.uplink is not None else self._replaced

    def _forget(self, link: Link) -> None:
        for uplink in (*self._uplinks(), self._candidate):
            if uplink is None or link.connection is not uplink.connection or not uplink.forget(link):
                continue
            if uplink in (self.uplink, self._candidate):
                self._repair_later(uplink)

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: credit is the core's concern."""

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface: the connection manager chooses the uplink."""

    def connection_closed(self, connection: Connection) -> None:
        """One that is to be replaced, or was, may be gone for good. Called again when the last of its links is."""
        if self._candidate is not None and self.uplink is not None and self.uplink.connection is connection:
            self.uplink = None
            candidate, self._candidate = self._candidate, None
            self._change_to(candidate)
        self._replaced = [uplink for uplink in self._replaced if uplink.connection is not connection]


def _is_served_here(address: Address) -> bool:
    """Whether the router itself consumes what clients send there."""
    return address.handler is not None and not address.handler.from_uplink


def _is_clients(link: Link) -> bool:
    """Whether the link belongs to a client, not to an interior router."""
    return link.connection.role is not Role.EDGE
