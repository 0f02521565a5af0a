"""The links an edge opens on its active connection: four standing ones, proxies by address and direction.

A replaced uplink's links are not cut off with deliveries under way: they take no new ones, and stay until those
that they have are done, within a limit. So do out-proxies whose last producer is gone. What concerns the proxies of
all addresses is done in steps, if there are many.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator

from isthmus_router.core.address import AddressClass
from isthmus_router.core.configured import is_of_flow_records
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import CallLater, SessionClass
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import CAPABILITY_EDGE_DOWNLINK, Condition, Direction, LinkType, Terminus
from isthmus_router.edge.messages import (
    MESH_DISCOVERY_ADDRESS,
    TRACKING_ADDRESS,
    encode_mesh_announcement,
)
from isthmus_router.edge.steps import begin

log = logging.getLogger("ROUTER_CORE")

TRACKING_CREDIT = 32
TOLD_REFUSALS = 1000
"""Refusals that are logged, each kind once; an interior that invents ever new ones fills neither log nor memory."""
ROLE_REFUSALS = frozenset({"qd:connection-role", "qd:forbidden"})
"""What a listener of another role answers."""
FIRST_CHECK_SECONDS = 0.01
LAST_CHECK_SECONDS = 0.5
FINISH_SECONDS = 10.0
"""After that a link is detached though the peer has not given its credit back, or gives none for what waits. What is
unsettled is left alone, however long its receiver takes, and so is a stream."""
ANSWER_SECONDS = 10.0
"""An interior that has not answered the attach of a standing link by then does not serve its purpose."""
PROXIES_PER_STEP = 1024

_NOWHERE = Terminus()


class Uplink:
    """One connection's standing and proxy links, from activation until it is lost or has given way.

    `on_tracking` gets the messages of the tracking link; `fit` is called when all standing links are answered,
    `fitness_changed` when the connection's `problem` comes or goes.
    """

    def __init__(
        self,
        core: RouterCore,
        connection: Connection,
        on_tracking: Callable[[Link, bytes], None],
        call_later: CallLater,
        *,
        fit: Callable[[Uplink], None],
        fitness_changed: Callable[[], None],
    ) -> None:
        self.core = core
        self.connection = connection
        self._fit = fit
        self._fitness_changed = fitness_changed
        connection.problem = None
        if connection.container == core.id:
            self._spoil(f"the peer has the same router id as this router: {core.id}")
        self.discovery: Link | None = None
        self.anonymous: Link | None = None
        self.downlink: Link | None = None
        self.tracking: Link | None = None
        self.out_proxies: dict[str, Link] = {}
        """OUT links by address key: local producers' way to consumers elsewhere, bound while there are any."""
        self.in_proxies: dict[str, Link] = {}
        """IN links by address key: the way from producers elsewhere to local consumers."""
        self.finishing: dict[Link, float] = {}
        """Links no longer used, with the seconds they have left."""
        self._check_seconds = FIRST_CHECK_SECONDS
        self._is_checked = False
        """Whether these are looked at, or will be."""
        self._doubtful: dict[str, None] = {}
        """Keys of out-proxies that are to be unbound, as the tracking link that spoke of them is gone."""
        self._on_tracking = on_tracking
        self._call_later = call_later
        self._refusals: set[tuple[str | None, str]] = set()
        self._unanswered: set[Link] = set()
        """Standing links whose attach the interior has not answered yet."""
        self._gave_way = False

    def open_standing(self) -> None:
        """Open the standing links, those that are missing, and see to it that they are answered."""
        self._open_missing()
        asked = []
        for link in (self.discovery, self.anonymous, self.downlink, self.tracking):
            if link is not None and link.on_answered is None:
                link.on_answered = self._answered
                asked.append(link)
        self._unanswered.update(asked)
        self._call_later(ANSWER_SECONDS, lambda: self._look_for_answers(asked))

    def _answered(self, link: Link) -> None:
        """Late is better than never: what has given way meanwhile is worth another try."""
        self._unanswered.discard(link)
        if self._gave_way:
            self._finish(link)
        if self._unanswered:
            return
        if self.connection.problem == self._silence():
            self.connection.problem = None
            self._fitness_changed()
        if None not in (self.discovery, self.anonymous, self.downlink, self.tracking):
            self._fit(self)

    def _silence(self) -> str:
        return f"the peer {self.connection.container} does not answer the attach of an edge's links"

    def _look_for_answers(self, asked: list[Link]) -> None:
        if not self._unanswered.isdisjoint(asked) and self.connection.problem is None:
            self._spoil(self._silence())
            log.warning(
                "interior does not answer",
                extra={
                    "connection": self.connection.id,
                    "peer": self.connection.name,
                    "reason": self.connection.problem,
                },
            )

    def _spoil(self, problem: str) -> None:
        self.connection.problem = problem
        self._fitness_changed()

    def _open_missing(self) -> None:
        if self.discovery is None:
            self.discovery = self._open(
                Direction.OUT, target=Terminus(MESH_DISCOVERY_ADDRESS), session=SessionClass.EDGE_CORE
            )
            assert self.core.mesh_id is not None
            announcement = encode_mesh_announcement(self.core.mesh_id)
            self.core.port.send(self.discovery, announcement, settled=False)
        if self.anonymous is None:
            self.anonymous = self._open(Direction.OUT)
        if self.downlink is None:
            capabilities = frozenset((CAPABILITY_EDGE_DOWNLINK,))
            self.downlink = self._open(
                Direction.IN,
                link_type=LinkType.EDGE_DOWNLINK,
                source=Terminus(self.core.id, capabilities=capabilities),
                target=Terminus(capabilities=capabilities),
            )
        if self.tracking is None:
            self.tracking = self._open(
                Direction.IN,
                source=Terminus(TRACKING_ADDRESS),
                session=SessionClass.EDGE_CORE,
                capacity=TRACKING_CREDIT,
            )
            self.tracking.on_delivery = self._on_tracking

    def _open(
        self,
        direction: Direction,
        *,
        link_type: LinkType = LinkType.ENDPOINT,
        source: Terminus = _NOWHERE,
        target: Terminus = _NOWHERE,
        session: SessionClass = SessionClass.ENDPOINT,
        capacity: int | None = None,
    ) -> Link:
        link = self.core.port.open_link(
            self.connection,
            direction,
            link_type=link_type,
            source=source,
            target=target,
            session=session,
            capacity=capacity,
        )
        link.proxy = True
        link.note_standing()
        link.on_refused = self._on_refused
        return link

    # Proxies

    def add_out_proxy(self, key: str) -> None:
        """Local producers want to reach consumers elsewhere."""
        if key not in self.out_proxies:
            self.out_proxies[key] = self._open(
                Direction.OUT, target=Terminus(key[1:]), session=SessionClass.PROXY
            )

    def add_in_proxy(self, key: str) -> None:
        """Local consumers want to be reached from elsewhere."""
        if key not in self.in_proxies:
            self.in_proxies[key] = self._open(
                Direction.IN, source=Terminus(key[1:]), session=SessionClass.PROXY
            )

    def remove_out_proxy(self, key: str) -> None:
        """The last local producer is gone, or another uplink has taken over for it."""
        link = self.out_proxies.pop(key, None)
        if link is not None:
            self._finish(link)

    def remove_in_proxy(self, key: str) -> None:
        """The last local consumer is gone."""
        self._detach(self.in_proxies.pop(key, None))

    def finish_in_proxy(self, key: str) -> None:
        """Another uplink has taken over for the local consumers."""
        link = self.in_proxies.pop(key, None)
        if link is not None:
            self._finish(link)

    def bind(self, key: str) -> None:
        """Somebody consumes elsewhere: deliveries to the address may take its out-proxy, if it still exists."""
        self._doubtful.pop(key, None)
        link = self.out_proxies.get(key)
        if link is not None:
            self.core.bind_consumer(link, self.core.addresses.obtain(key))

    def unbind(self, key: str) -> None:
        """Nobody consumes elsewhere any more; what waits for credit of the interior will not get any."""
        link = self.out_proxies.get(key)
        if link is not None:
            self.core.unbind_consumer(link)
            self.core.port.release_parked(link)

    def count_addresses(self) -> Generator[None, None, tuple[int, int]]:
        """Return the number of addresses with a proxy in either direction, and of those with consumers elsewhere.

        It counts addresses of clients only (those of flow records are the routers' own), in steps.
        """
        proxied = bound = 0
        for at, key in enumerate(list(self.out_proxies), 1):
            link = self.out_proxies.get(key)
            if link is not None and not is_of_flow_records(key):
                proxied += 1
                bound += link.address is not None and link in link.address.consumers
            if at % PROXIES_PER_STEP == 0:
                yield
        for at, key in enumerate(list(self.in_proxies), 1):
            if key in self.in_proxies and key not in self.out_proxies and not is_of_flow_records(key):
                proxied += 1
            if at % PROXIES_PER_STEP == 0:
                yield
        return proxied, bound

    # The end of links

    def give_way(self) -> None:
        """Another uplink is active: end everything but the proxies.

        In-proxies serve until the new uplink has one for the address, out-proxies until the interior has spoken of them
        there.
        """
        self._gave_way = True
        tracking, self.tracking = self.tracking, None
        downlink, self.downlink = self.downlink, None
        anonymous, self.anonymous = self.anonymous, None
        discovery, self.discovery = self.discovery, None
        if tracking is not None and tracking not in self._unanswered:
            self._detach(tracking)
        for link in (anonymous, discovery, downlink):
            if link is not None and link not in self._unanswered:
                self._finish(link)

    def forget(self, link: Link) -> bool:
        """The link is gone, detached by the interior or with its connection; whether it was wanted."""
        self._unanswered.discard(link)
        if link in self.finishing:
            del self.finishing[link]
            return False
        if link is self.tracking:
            self.tracking = None
            # Nobody says any more what can be reached; the interior will tell all again on the next link.
            goes_on = bool(self._doubtful)
            self._doubtful.update(dict.fromkeys(self.out_proxies))
            if not goes_on:
                begin(self.core.port, self._unbind_doubtful())
        elif link is self.discovery:
            self.discovery = None
        elif link is self.anonymous:
            self.anonymous = None
        elif link is self.downlink:
            self.downlink = None
        else:
            proxies, terminus = (
                (self.in_proxies, link.source) if link.incoming else (self.out_proxies, link.target)
            )
            key = f"{AddressClass.MOBILE}{terminus.address}"
            if proxies.get(key) is not link:
                return False
            del proxies[key]
        return True

    def _unbind_doubtful(self) -> Iterator[None]:
        while self._doubtful and not self.connection.leaving:
            self.unbind(self._doubtful.popitem()[0])
            yield

    def _detach(self, link: Link | None) -> None:
        if link is not None and link in link.connection.links:
            self.core.port.detach_link(link)

    def _finish(self, link: Link) -> None:
        """Let nothing new take the link, and detach it when nothing is under way on it."""
        if link.incoming:
            link.stop_credit()
            self.core.port.drain(link)
        else:
            self.core.unbind_consumer(link)
        if self._idle(link):
            self._detach(link)
            return
        self.finishing[link] = FINISH_SECONDS
        if not self._is_checked:
            self._is_checked = True
            self._check_seconds = FIRST_CHECK_SECONDS
            self._call_later(self._check_seconds, self._check_idle)

    def _check_idle(self) -> None:
        begin(self.core.port, self._check())

    def _check(self) -> Iterator[None]:
        """Detach those of the links no longer used that are idle, and look at the others again later."""
        for link in list(self.finishing):
            left = self.finishing.get(link)
            if left is None:
                continue  # it has been detached since the first step
            late = left <= 0 and not link.unsettled
            if late or link not in link.connection.links or self._idle(link):
                del self.finishing[link]
                self._detach(link)
            elif link.stream is None:
                self.finishing[link] = left - self._check_seconds
            yield
        if self.finishing and not self.connection.leaving:
            self._check_seconds = min(2 * self._check_seconds, LAST_CHECK_SECONDS)
            self._call_later(self._check_seconds, self._check_idle)
        else:
            self._is_checked = False

    def _idle(self, link: Link) -> bool:
        if link.load() > 0 or link.stream is not None:
            return False
        return not link.incoming or not self.core.port.has_credit(link)

    def _on_refused(self, link: Link, condition: Condition) -> None:
        self._unanswered.discard(link)
        address = (link.source if link.incoming else link.target).address
        if (address, condition.name) in self._refusals:
            return
        if condition.name in ROLE_REFUSALS:
            self._spoil(
                f"the peer {self.connection.container} refuses edge links ({condition.name}): "
                "is its listener one of role edge?"
            )
        if len(self._refusals) >= TOLD_REFUSALS:
            return
        self._refusals.add((address, condition.name))
        log.warning(
            "interior closed a link of this edge",
            extra={
                "connection": self.connection.id,
                "peer": self.connection.name,
                "address": address,
                "condition": condition.name,
                "description": condition.description,
            },
        )
