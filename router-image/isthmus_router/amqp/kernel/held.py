"""OUT links that found no room in their sessions, by session.

A session can have thousands of them, and its peer can let in one frame after the other. So after a write the links of a
session are asked only as long as there is room, in turn; many of them in steps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from isthmus_router.amqp.engine import Pointer
from isthmus_router.amqp.kernel.parking import count_unsettled, is_full

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.core.model import Link

AT_ONCE = 64
"""Links that go on in one step. Also links of a session that find no room in a row: after so many, the others wait for
the next write, if there will be one."""


class Held:
    """Those of one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._links: dict[Pointer, OrderedDict[Link, None]] = {}
        """In the order in which they found no room."""
        self._under_way = self._again = False
        """Whether links go on in steps, and whether there was a write meanwhile."""

    def __bool__(self) -> bool:
        return bool(self._links)

    def keep(self, links: Iterable[Link]) -> None:
        """These have found no room."""
        for link in links:
            self._links.setdefault(link.session, OrderedDict())[link] = None

    def forget(self, link: Link) -> None:
        """The link is gone, or goes on."""
        links = self._links.get(link.session)
        if links is not None:
            links.pop(link, None)
            if not links:
                del self._links[link.session]

    def written(self) -> None:
        """All has been written that could be: let links go on."""
        if self._connection.core is not None:
            count_unsettled(self._connection.core)
        first = self._connection.outgoing.written()
        if self._under_way:
            self._again = True
            return
        job = self._go_on(first)
        if next(job, self) is not self:
            self._under_way = True
            self._connection.driver.work(self._rest(job))

    def _rest(self, job: Iterator[None]) -> Iterator[None]:
        try:
            while not self._connection.closed and next(job, self) is not self:
                yield
        except Exception as error:
            self._connection.broken(error)
        finally:
            self._under_way = False
        if self._again and not self._connection.closed:
            self._again = False
            self._connection.driver.touch(self._connection)

    def _go_on(self, first: Iterable[Link]) -> Iterator[None]:
        for number, link in enumerate(self._in_turn(first), 1):
            self._connection.driver.forwarder.room(link)
            if number % AT_ONCE == 0:
                yield

    def _in_turn(self, first: Iterable[Link]) -> Iterator[Link]:
        for link in first:
            if link in self._links.get(link.session, ()) and not self._is_full(link.session):
                self.forget(link)
                yield link
        core = self._connection.core
        has_to_settle = core is not None and is_full(core)  # then there is another write when it does
        for session, links in list(self._links.items()):
            failures = 0
            for _ in range(len(links)):
                if (
                    not links
                    or self._is_full(session)
                    or (failures >= AT_ONCE and (has_to_settle or self._waits(session)))
                ):
                    break
                link = next(iter(links))
                self.forget(link)
                yield link
                failures = failures + 1 if link in self._connection.stalled else 0

    def _is_full(self, session: Pointer) -> bool:
        return self._connection.outgoing.is_full(session)

    def _waits(self, session: Pointer) -> bool:
        """Whether something waits in a session, so that there will be another write."""
        return any(self._connection.outgoing.waiting(session))
