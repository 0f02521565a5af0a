"""Receivers of relayed addresses at one router: each gets all of it at its own pace, or is told that it does not."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from isthmus_router.core.address import Address
from isthmus_router.core.model import Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition
from isthmus_router.message.sections import RouterAnnotations

log = logging.getLogger("RELAY")


MANY = 10_000
MANY_BYTES = 8 * 1024 * 1024
"""Of messages that wait for a receiver, a tenth of what may; beyond that it is behind."""

STUCK_AFTER = 1.0
"""Seconds; nobody waits for a receiver that has taken nothing for so long."""


COPIES_AT_ONCE = 1_500
"""Made in one turn, which takes 15 ms. The rest has its turns afterwards."""
COPIES_THAT_WAIT = 400_000
"""While more wait, a receiver is behind."""
MOST_COPIES_THAT_WAIT = 4_000_000
MOST_BYTES_THAT_WAIT = 32 * 1024 * 1024
"""Beyond either, the oldest messages are copied at once: who sends so much although a receiver is behind waits as well.
Of an address with more receivers than that, the client with most of them loses its receivers instead."""
LINKS_AT_ONCE = 50
"""Between two looks at how much of a turn is left."""
COPIES_OF_A_DETACH, SKIPS_OF_A_COPY = 10, 50
"""What takes as long as one of the other."""


@dataclass(slots=True)
class ReceiverCounters:
    """Since the router began to serve receivers."""

    delivered: int = 0
    """Messages, each copy."""
    oversized: int = 0
    """Copies that their receivers do not take (max-message-size)."""
    detached: int = 0
    """Receivers that were too far behind, or whose messages took another way."""


@dataclass(slots=True)
class _Copies:
    """Messages, and the receivers that have not got them yet."""

    address: Address
    payloads: Sequence[bytes]
    links: list[Link]
    """The last one is the next."""


class Receivers:
    """Those attached to this router and, by one link for each edge, those of its edges."""

    def __init__(self, core: RouterCore, later: CallLater) -> None:
        """`later` calls back outside of any turn, and ends the turn then."""
        self.counters = ReceiverCounters()
        self._later = later
        self._copies: deque[_Copies] = deque()
        self._waiting = 0
        """Copies that have not been made yet."""
        self._waiting_bytes = 0
        """Of their messages, each counted once."""
        self._made = 0
        """Copies since `_go_on` was called last."""
        self._goes_on = False
        """It will be called again."""
        self._given_up: dict[Link, None] = {}
        """Receivers that get no more, until they are detached."""
        self._behind: dict[Link, tuple[int, float]] = {}
        """How many deliveries each had when it got one last, and when that was."""
        self._core = core

    def give(self, address: Address, payloads: Sequence[bytes], links: Sequence[Link] | None = None) -> None:
        """Deliver to all receivers of the address, or only to those on `links`; to the last of thousands not in this
        turn."""
        receivers = list(address.consumers if links is None else links)
        if self._given_up:
            receivers = [link for link in receivers if link not in self._given_up]
        if not payloads or not receivers:
            return
        receivers.reverse()
        self._copies.append(_Copies(address, payloads, receivers))
        self._waiting += len(payloads) * len(receivers)
        self._waiting_bytes += sum(map(len, payloads))
        if len(self._copies) == 1:
            self._make(COPIES_AT_ONCE - self._made)
        while self._is_too_much() and not self._given_up:
            self._make_room(self._copies[0])

    def _is_too_much(self) -> bool:
        return self._waiting > MOST_COPIES_THAT_WAIT or self._waiting_bytes > MOST_BYTES_THAT_WAIT

    def _make_room(self, first: _Copies) -> None:
        """Make the copies that have waited for longest, or give up receivers if there are too many of these copies."""
        size, before = len(first.payloads), len(first.links)
        consumers = first.address.consumers
        first.links = [link for link in first.links if link in consumers and _is_served(link)]
        self._waiting -= size * (before - len(first.links))
        if size * len(first.links) > max(COPIES_AT_ONCE, size * LINKS_AT_ONCE):
            self._give_up(first.address, first.links)
            return
        while first.links:
            self._make_first(COPIES_AT_ONCE)
        if self._copies and self._copies[0] is first:
            self._remove_first()

    def _remove_first(self) -> None:
        self._waiting_bytes -= sum(map(len, self._copies.popleft().payloads))

    def _give_up(self, address: Address, waiting: Sequence[Link]) -> None:
        """Detach all receivers of the client that has most of `waiting`: no turn has time for all their copies."""
        ((client, _),) = Counter(map(_client_of, waiting)).most_common(1)
        links = [link for link in address.consumers if _is_served(link) and _client_of(link) == client]
        self._given_up.update(dict.fromkeys(links))
        details = {"address": address.name, "receivers": len(links), "connection": links[0].connection.id}
        log.warning("receivers of a relayed address detached", extra=details)
        self._core.port.work(self._detach_in_steps(_too_far_behind(address)))

    def _detach_in_steps(self, condition: Condition) -> Iterator[None]:
        while self._given_up:
            link, _ = self._given_up.popitem()
            if link.address is not None and link in link.address.consumers:
                self.counters.detached += 1
                self._core.port.detach_link(link, condition)
            yield

    def finish(self) -> None:
        """Make all copies that wait."""
        while self._copies:
            self._make_first(self._waiting)

    def _go_on(self) -> None:
        self._goes_on = False
        self._made = 0
        self._make(COPIES_AT_ONCE)

    def _make(self, most: int) -> None:
        """Make about as many copies; for one receiver all of the same messages."""
        while self._copies and most > 0:
            most -= self._make_first(most)
        if not self._goes_on and (self._copies or self._made > COPIES_AT_ONCE // 10):
            self._goes_on = True
            self._later(0.0, self._go_on)

    def _make_first(self, most: int) -> int:
        """Make about as many copies of the first messages that wait, for a number of links. Return the time that this
        takes, in copies."""
        copies = self._copies[0]
        size = len(copies.payloads)
        count = min(most // size + 1, LINKS_AT_ONCE)
        links = copies.links[: -count - 1 : -1]
        del copies.links[-count:]
        if not copies.links:
            self._remove_first()
        self._waiting -= size * len(links)
        cost = self._give(copies.address, copies.payloads, links)
        self._made += cost
        return cost

    def _give(self, address: Address, payloads: Sequence[bytes], links: Sequence[Link]) -> int:
        """Return the time that this takes, in copies."""
        section: bytes | None = None
        copied = detached = 0
        for link in links:
            if not _is_served(link):
                continue
            if link not in address.consumers or link in self._given_up:
                continue  # it has left while its copies waited, or has too many that wait
            copied += 1
            if section is None and link.connection.annotates:
                section = self._core.planner.prefix(None, RouterAnnotations(to_override=address.name))
            fit = payloads
            most = link.max_message_size
            if most:
                fit = [payload for payload in payloads if len(payload) <= most]
                self.counters.oversized += len(payloads) - len(fit)
            self.counters.delivered += len(fit)
            if not self._core.port.deliver(link, fit, section or b""):
                detached += 1
                self.detach(link, _too_far_behind(address))
            elif _waits(link, MANY, MANY_BYTES):
                self._behind.setdefault(link, (-1, inf))
        skipped = len(links) - copied
        return copied * len(payloads) + detached * COPIES_OF_A_DETACH + -(-skipped // SKIPS_OF_A_COPY)

    def behind(self, now: float) -> bool:
        """Whether much waits for a receiver, and has not become much less, though it takes some. To be asked again
        and again."""
        found = self._waiting > COPIES_THAT_WAIT or self._waiting_bytes > MANY_BYTES
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


def _too_far_behind(address: Address) -> Condition:
    reason = f"The receiver is too far behind: too much of what comes to {address.name} waits for it"
    return Condition("amqp:resource-limit-exceeded", reason)


def _client_of(link: Link) -> Hashable:
    return link.connection.client or link.connection


def _is_served(link: Link) -> bool:
    """Other routers' members have the messages from the group."""
    return not link.connection.role.is_between_interiors and not link.proxy


def _waits(link: Link, messages: int, size: int) -> bool:
    return link.waiting > messages or link.parked_bytes > size
