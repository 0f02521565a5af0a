"""Messages that are passed on while they arrive, of which too little arrives while others wait for their receivers.

Nothing else can be sent on the link of a receiver in the middle of a message. So a sender that does not end its message
would hold back all others without end. Once a second the router examines the messages that are under way. A delivery
costs nothing for that, and a stream only its place in a table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from isthmus_router.amqp.kernel.delivery import Stream
from isthmus_router.amqp.kernel.wide import WideStream
from isthmus_router.core.model import Link
from isthmus_router.core.terms import Condition

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.forward import Forwarder

log = logging.getLogger("ROUTER")

DEFAULT_SECONDS = 60
LEAST_BYTES = 64 * 1024
"""Of a message, that have to arrive in this time."""
AT_ONCE = 64
"""Links that are examined in one step."""


class StalledStreams:
    """Those of one router process."""

    def __init__(self, forwarder: Forwarder) -> None:
        self._forwarder = forwarder
        self.seconds = DEFAULT_SECONDS
        """For which a message may hold others back though less than `LEAST_BYTES` of it arrive; 0: without end."""
        self._seen: dict[Link, tuple[int, int, int]] = {}
        """IN links on which a stream has begun: the number of the delivery, and how many bytes of it had arrived when
        it was last in order, by the router's clock."""
        self._under_way = False

    def watch(self, link: Link) -> None:
        """A stream has begun on an IN link."""
        if self.seconds:
            self._seen.setdefault(link, (0, 0, 0))

    def examine(self) -> Iterator[None]:
        """Give up the messages that hold others back; to be called every second, and carried out in steps."""
        if self._under_way or not self.seconds:
            return
        self._under_way = True
        try:
            for number, link in enumerate(list(self._seen), 1):
                stream = link.stream
                if stream.__class__ in {Stream, WideStream} and link in link.connection.links:
                    if self._is_stalled(link, stream):
                        yield from self._give_up(link, stream)
                else:
                    del self._seen[link]
                if number % AT_ONCE == 0:
                    yield
        finally:
            self._under_way = False

    def _is_stalled(self, link: Link, stream: Stream) -> bool:
        now = self._forwarder.settlement.now // 1_000_000
        delivery, size, since = self._seen[link]
        if (
            delivery != link.deliveries
            or stream.size - size >= LEAST_BYTES
            or not stream.up_to_date
            or not _holds_others_back(stream)
        ):
            self._seen[link] = link.deliveries, stream.size, now
            return False
        return now - since >= self.seconds

    def _give_up(self, link: Link, stream: Stream) -> Iterator[None]:
        """Receivers see the delivery aborted. A client's link is closed; another router learns the outcome.

        Links of other routers carry messages of many clients.
        """
        reason = (
            f"less than {LEAST_BYTES} bytes of a message came in {self.seconds} seconds, while other messages waited "
            "for its receiver"
        )
        log.warning(
            "message given up",
            extra={
                "event": "message.stalled",
                "connection": link.connection.id,
                "link": link.name,
                "reason": reason,
            },
        )
        if link.connection.role.is_between_routers:
            yield from self._forwarder.streams.give_up(stream)
        else:
            condition = Condition("amqp:resource-limit-exceeded", reason)
            self._forwarder.core.port.detach_link(link, condition)


def _holds_others_back(stream: Stream) -> bool:
    """Whether something waits for one of the receivers."""
    outs = stream.receivers if isinstance(stream, WideStream) else [branch.link for branch in stream.branches]
    return any(len(out.parked) > out.parked_dropped for out in outs)
