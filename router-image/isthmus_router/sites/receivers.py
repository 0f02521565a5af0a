"""Receivers of relayed addresses at one router: each gets all of it at its own pace, or is told that it does not."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition
from isthmus_router.message.sections import RouterAnnotations

log = logging.getLogger("RELAY")


MANY = 10_000
MANY_BYTES = 8 * 1024 * 1024
"""Of messages that wait for a receiver, a tenth of what may; beyond that it is behind."""

STUCK_AFTER = 1.0
"""Seconds; nobody waits for a receiver that has taken nothing for so long."""


@dataclass(slots=True)
class ReceiverCounters:
    """Since the router began to serve receivers."""

    delivered: int = 0
    """Messages, each copy."""
    oversized: int = 0
    """Copies that their receivers do not take (max-message-size)."""
    detached: int = 0
    """Receivers that were too far behind, or whose messages took another way."""


class Receivers:
    """Those attached to this router and, by one link for each edge, those of its edges."""

    def __init__(self, core: RouterCore) -> None:
        self.counters = ReceiverCounters()
        self._behind: dict[Link, tuple[int, float]] = {}
        """How many deliveries each had when it got one last, and when that was."""
        self._core = core

    def give(self, address: Address, payloads: Sequence[bytes], links: Sequence[Link] | None = None) -> None:
        """Deliver to all receivers of the address, or only to those on `links`."""
        section: bytes | None = None
        for link in list(address.consumers) if links is None else links:
            if link.connection.role.is_between_interiors or link.proxy:
                continue  # other routers' members have them from the group
            if section is None and link.connection.annotates:
                section = self._core.planner.prefix(None, RouterAnnotations(to_override=address.name))
            fit = payloads
            most = link.max_message_size
            if most:
                fit = [payload for payload in payloads if len(payload) <= most]
                self.counters.oversized += len(payloads) - len(fit)
            self.counters.delivered += len(fit)
            if not self._core.port.deliver(link, fit, section or b""):
                reason = (
                    f"The receiver is too far behind: too much of what comes to {address.name} waits for it"
                )
                self.detach(link, Condition("amqp:resource-limit-exceeded", reason))
            elif _waits(link, MANY, MANY_BYTES):
                self._behind.setdefault(link, (-1, inf))

    def behind(self, now: float) -> bool:
        """Whether much waits for a receiver, and has not become much less, though it takes some. To be asked again
        and again."""
        found = False
        for link, (deliveries, since) in list(self._behind.items()):
            if not _waits(link, MANY // 2, MANY_BYTES // 2):
                del self._behind[link]
                continue
            if link.deliveries != deliveries:
                since = now
                self._behind[link] = (link.deliveries, now)
            found = found or now < since + STUCK_AFTER
        return found

    def detach(self, link: Link, condition: Condition) -> None:
        """A receiver does not get all, and so gets no more."""
        self.counters.detached += 1
        log.warning(
            "receiver of a relayed address detached",
            extra={
                "connection": link.connection.id,
                "link": link.name,
                "condition": condition.name,
                "description": condition.description,
            },
        )
        self._core.port.detach_link(link, condition)


def _waits(link: Link, messages: int, size: int) -> bool:
    return link.waiting > messages or link.parked_bytes > size
