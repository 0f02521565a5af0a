"""The links of one connection that are over, as long as the engine has deliveries of them.

The engine settles all deliveries of a link that is freed in one piece, and frees them with the next write. Others would
wait for that if a link has many. So the router settles them before, a number of them at a time, between other work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from cproton_ffi import lib

from isthmus_router.amqp.engine import Pointer
from isthmus_router.amqp.kernel.handles import handle, key
from isthmus_router.amqp.kernel.outgoing import is_sent

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.core.model import Link

AT_ONCE = 1000
"""Deliveries; to settle them and to write takes about a millisecond."""


class Freeing:
    """The unsettled deliveries of one connection's links that the router has closed, or that are over on both sides."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._unsettled: dict[Pointer, dict[Pointer, dict[Any, None]]] = {}
        """Deliveries that the router has not settled, of links that it has no more, by session and link."""
        self._over: set[Pointer] = set()
        """Those of the links that are freed as soon as few of their deliveries are unsettled."""

    def is_freeing(self, session: Pointer) -> bool:
        """Whether links of a session wait to be freed."""
        return not self._over.isdisjoint(self._unsettled.get(session, ()))

    def knows(self, link: Pointer, delivery: Pointer) -> bool:
        """Whether a delivery, of which the peer says something, is one that the router is to settle."""
        unsettled = self._unsettled.get(lib.pn_link_session(link), {})
        return link in self._over or key(delivery) in unsettled.get(link, ())

    def retain(self, link: Link) -> None:
        """The router is about to give up a link, and its deliveries with it."""
        if len(link.unsettled) > AT_ONCE and (link.routed or not link.incoming):
            self._retain(link, dict.fromkeys(link.unsettled))

    def _retain(self, link: Link, unsettled: dict[Any, None]) -> None:
        self._unsettled.setdefault(link.session, {})[link.io] = unsettled

    def _retained(self, session: Pointer, link: Pointer) -> dict[Any, None]:
        return self._unsettled.get(session, {}).get(link, {})

    def _forget(self, session: Pointer, link: Pointer) -> None:
        links = self._unsettled.get(session, {})
        if links.pop(link, None) is not None and not links:
            del self._unsettled[session]
        self._over.discard(link)

    def settle(self, link: Link, deliveries: Iterable[Any]) -> None:
        """This end has closed an OUT link; the engine would retain its deliveries until the peer has, too.

        A delivery that has not ended stays unsettled: the engine would send what there is as if that were all.
        """
        unsettled = dict.fromkeys(deliveries)
        self._settle_ended(link, unsettled)
        if unsettled:
            self._retain(link, unsettled)
            self._connection.driver.work(self._settle_in_steps(link, unsettled))

    def _settle_in_steps(self, link: Link, unsettled: dict[Any, None]) -> Iterator[None]:
        while (
            unsettled
            and not self._connection.closed
            and link.io not in self._over
            and self._retained(link.session, link.io) is unsettled
        ):
            self._settle_ended(link, unsettled)
            if not unsettled:
                self._forget(link.session, link.io)
            self._write()
            yield

    def _settle_ended(self, link: Link, unsettled: dict[Any, None]) -> None:
        sent = 0
        for delivery in _take(unsettled):
            sent += is_sent(delivery)
            if not lib.pn_delivery_partial(delivery):
                lib.pn_delivery_settle(delivery)
        self._connection.remains.settled(link, sent)

    def session_ended(self, session: Pointer) -> None:
        """The peer has ended a session: free those of its links that have many deliveries."""
        for link in list(self._unsettled.get(session, ())):
            if link not in self._over:
                self.free(session, link)

    def free(self, session: Pointer, link: Pointer) -> None:
        """A link is over on both sides: free it, at once if it has few deliveries."""
        unsettled = self._retained(session, link)
        if len(unsettled) <= AT_ONCE:
            self._free(session, link)
        else:
            self._over.add(link)
            self._connection.driver.work(self._free_in_steps(session, link, unsettled))

    def _free_in_steps(self, session: Pointer, link: Pointer, unsettled: dict[Any, None]) -> Iterator[None]:
        while not self._connection.closed:
            for delivery in _take(unsettled):
                lib.pn_delivery_settle(delivery)
            if not unsettled:
                self._free(session, link)
                return
            self._write()
            yield

    def _free(self, session: Pointer, link: Pointer) -> None:
        self._forget(session, link)
        receiver = bool(lib.pn_link_is_receiver(link))
        lib.pn_link_free(link)
        self._connection.remains.link_freed(session, link)
        self._connection.detached.link_freed(session, receiver=receiver)
        self._connection.driver.touch(self._connection)

    def _write(self) -> None:
        """The engine frees what is settled as it writes, which is a part of this step."""
        self._connection.driver.touch(self._connection)
        self._connection.driver.flush()


def _take(unsettled: dict[Any, None]) -> Iterator[Pointer]:
    """Take the first deliveries."""
    for number in list(islice(unsettled, AT_ONCE)):
        del unsettled[number]
        yield handle(number)
