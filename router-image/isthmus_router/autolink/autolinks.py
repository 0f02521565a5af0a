"""Auto-links: links that the router itself keeps attached to AMQP containers, such as brokers.

An auto-link is attached on every route-container connection that it is about, as soon as that is open, and again at
once when it returns. A link that the container refuses or detaches is attached again after a while: one second at
first, twice as long each time, half a minute at most.
The router attaches links one by one between other work (`turns.py`), and none on a connection that has ended.
An IN link produces to its address, and so has no credit before a consumer can be reached: the queue keeps its
messages. An OUT link consumes from its address once the container has answered.

Sans-IO; an observer of the core. Source: auto-links of the qdrouterd/skrouterd family.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain

from isthmus_router.autolink.turns import Turns
from isthmus_router.config.model import AutoLinkConfig
from isthmus_router.config.model import Direction as ConfiguredDirection
from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import CallLater, SessionClass
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition, Direction, LinkType, Terminus
from isthmus_router.policy.denied import detach_denied
from isthmus_router.policy.grant import Grant

log = logging.getLogger("ROUTER_CORE")

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 30.0
PROVEN_SECONDS = 10.0
"""A link that stayed attached this long was a success; one that is detached sooner adds to the delay."""
DETACHED = "detached by the container without a reason"

NOT_ALLOWED = Condition(UNAUTHORIZED, "this user may not have the auto-link any more")


class State(StrEnum):
    """What became of an auto-link, in management's words."""

    INACTIVE = "inactive"
    """There is no such connection, or the auto-link waits until it is attached for the first time."""
    ATTACHING = "attaching"
    ACTIVE = "active"
    FAILED = "failed"
    """Refused or detached; it will be tried again."""


class Attachment:
    """An auto-link on one connection."""

    __slots__ = ("auto_link", "connection", "delay", "last_error", "link", "state")

    def __init__(self, auto_link: AutoLink, connection: Connection) -> None:
        self.auto_link = auto_link
        self.connection = connection
        self.link: Link | None = None
        self.state = State.ATTACHING
        self.last_error: str | None = None
        """Why it is not attached, or was not when it was tried last."""
        self.delay = FIRST_RETRY_SECONDS
        """Seconds to the next attempt, when this one fails."""


@dataclass(slots=True, eq=False)
class AutoLink:
    """One `autoLink` section and its links."""

    config: AutoLinkConfig
    phase: int
    attachments: dict[Connection, Attachment] = field(default_factory=dict)

    def is_allowed(self, connection: Connection) -> bool:
        """Whether the policy allows the container to have the link.

        It does where the configuration names the connector or listener alone. Nobody verifies container ids, so a
        container chosen by its id has only links to addresses that it may use itself, if it has a policy.
        """
        grant: Grant | None = connection.grant
        if self.config.container_id is None or grant is None:
            return True
        return grant.may_have_auto_link(
            self.config.address, incoming=self.config.direction is ConfiguredDirection.IN
        )

    @property
    def state(self) -> State:
        """Of the link that is best off."""
        states = {attachment.state for attachment in self._present}
        return next((s for s in (State.ACTIVE, State.ATTACHING, State.FAILED) if s in states), State.INACTIVE)

    @property
    def link(self) -> Link | None:
        """The link that is attached; one of them if there are several."""
        return next((a.link for a in self._present if a.state is State.ACTIVE), None)

    @property
    def last_error(self) -> str | None:
        """Why a link of it is not attached."""
        return next((a.last_error for a in self._present if a.last_error), None)

    @property
    def _present(self) -> Iterator[Attachment]:
        """Those on connections that have not ended."""
        return (a for connection, a in self.attachments.items() if not connection.leaving)


class Container:
    """An open route-container connection, and the auto-links on it."""

    __slots__ = ("attachments", "connection", "failed", "missing")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.attachments: dict[AutoLink, Attachment] = {}
        self.missing: Iterator[AutoLink] = iter(())
        """Auto-links that are attached next, but for those that are here already."""
        self.failed: deque[Attachment] = deque()
        """Those to be attached again now."""


class AutoLinks:
    """The auto-links of a router."""

    def __init__(self, core: RouterCore, call_later: CallLater) -> None:
        self.core = core
        self.all: list[AutoLink] = []
        """In the order of the configuration."""
        self._by_link: dict[Link, Attachment] = {}
        self._by_place: dict[tuple[str | None, str | None], list[AutoLink]] = {}
        """By the connector or listener and the container that they name."""
        self._containers: dict[Connection, Container] = {}
        self.turns = Turns(core, call_later, self._attach_next)
        self._call_later = call_later
        core.observers.append(self)
        core.lost.append(self._connection_lost)

    def configure(self, configs: Iterable[AutoLinkConfig]) -> None:
        """Have these auto-links and no others; those that are the same as before go on undisturbed."""
        wanted = [(config, self._phase(config)) for config in configs]
        before = {(auto_link.config, auto_link.phase): auto_link for auto_link in self.all}
        for gone in before.keys() - set(wanted):
            self._remove(before[gone])
        self.all = [before.get(one) or AutoLink(*one) for one in wanted]
        self._by_place = {}
        for auto_link in self.all:
            place = auto_link.config.connection, auto_link.config.container_id
            if place != (None, None):
                self._by_place.setdefault(place, []).append(auto_link)
        self.turns.configured(len(self.all))
        for container in self._containers.values():
            self._attach_missing(container)

    def _phase(self, config: AutoLinkConfig) -> int:
        """As configured; else IN links are behind the first waypoint of an address that has phases."""
        if config.phase is not None:
            return config.phase
        incoming = config.direction is ConfiguredDirection.IN
        return int(
            incoming and config.address is not None and self.core.configured.has_phases(config.address)
        )

    def _remove(self, auto_link: AutoLink) -> None:
        attachments, auto_link.attachments = auto_link.attachments, {}
        for connection, attachment in attachments.items():
            self._containers[connection].attachments.pop(auto_link, None)
            link = self._release(attachment)
            if link is not None:
                self.core.port.detach_link(link)

    def _release(self, attachment: Attachment) -> Link | None:
        """Give up an attachment, and return the link to be detached, if there is one."""
        link, attachment.link = attachment.link, None
        if link is not None:
            del self._by_link[link]
        return link

    def examine(self, connection: Connection) -> Iterator[None]:
        """The steps to be taken when the rights of a container have changed, or may have."""
        container = self._containers.get(connection)
        if container is None:
            return
        for auto_link, attachment in list(container.attachments.items()):
            if self._is_current(attachment) and not auto_link.is_allowed(connection):
                del container.attachments[auto_link], auto_link.attachments[connection]
                link = self._release(attachment)
                if link is not None:
                    detach_denied(self.core.port, link, connection.grant, NOT_ALLOWED)
            yield
        if self._containers.get(connection) is container:
            self._attach_missing(container)

    def _attach_missing(self, container: Container) -> None:
        """Attach, in turn, the auto-links that belong on a connection and are not there."""
        name, endpoint = container.connection.container, container.connection.endpoint
        found = [
            self._by_place.get(place, ()) for place in ((endpoint, None), (endpoint, name), (None, name))
        ]
        container.missing = chain.from_iterable(found)
        if any(found) and not container.connection.leaving:
            self.turns.wait(container.connection)

    def _attach_next(self, connection: Connection) -> bool:
        """Attach the next auto-link on a connection; False if there is none."""
        container = self._containers[connection]
        while container.failed:
            attachment = container.failed.popleft()
            if self._is_current(attachment):
                self._attach(attachment)
                return True
        for auto_link in container.missing:
            if auto_link in container.attachments:
                continue
            attachment = Attachment(auto_link, connection)
            if auto_link.is_allowed(connection):
                container.attachments[auto_link] = auto_link.attachments[connection] = attachment
                self._attach(attachment)
            else:
                fields = {**_described(attachment), "event": "auto_link.withheld", "user": connection.user}
                log.warning("auto-link withheld", extra=fields)
            return True
        return False

    # Attaching

    def _attach(self, attachment: Attachment) -> None:
        config = attachment.auto_link.config
        incoming = config.direction is ConfiguredDirection.IN
        outside = Terminus(config.external_address or config.address)
        link = self.core.port.open_link(
            attachment.connection,
            Direction.IN if incoming else Direction.OUT,
            link_type=LinkType.ENDPOINT,
            source=outside if incoming else Terminus(),
            target=Terminus() if incoming else outside,
            session=SessionClass.ENDPOINT,
            capacity=0 if incoming else None,
        )
        link.auto_link = True
        link.on_answered = self._answered
        link.on_refused = self._refused
        attachment.link, attachment.state = link, State.ATTACHING
        self._by_link[link] = attachment

    def _answered(self, link: Link) -> None:
        """The container has attached its end."""
        attachment = self._by_link.get(link)
        if attachment is None or attachment.state is not State.ATTACHING:
            return
        attachment.state, attachment.last_error = State.ACTIVE, None
        self._call_later(PROVEN_SECONDS, lambda: self._proven(attachment, link))
        auto_link = attachment.auto_link
        log.info("auto-link attached", extra=_described(attachment))
        if link.incoming:
            link.set_capacity(link.connection.link_capacity)
        self.core.bind_auto_link(link, auto_link.config.address, auto_link.phase)

    def _proven(self, attachment: Attachment, link: Link) -> None:
        if attachment.link is link:
            attachment.delay = FIRST_RETRY_SECONDS

    def _refused(self, link: Link, condition: Condition) -> None:
        attachment = self._by_link.get(link)
        if attachment is not None:
            attachment.last_error = f"{condition.name}: {condition.description}".removesuffix(": ")

    def _detached(self, attachment: Attachment) -> None:
        """Try again, unless the connection is gone as well or the auto-link is not wanted any more."""
        if not self._is_current(attachment):
            return
        attachment.last_error = attachment.last_error or DETACHED
        delay, attachment.delay = attachment.delay, min(2 * attachment.delay, LAST_RETRY_SECONDS)
        log.warning(
            "auto-link not attached",
            extra={**_described(attachment), "reason": attachment.last_error, "retry_seconds": delay},
        )
        self._call_later(delay, lambda: self._retry(attachment))

    def _retry(self, attachment: Attachment) -> None:
        if self._is_current(attachment):
            self._containers[attachment.connection].failed.append(attachment)
            self.turns.wait(attachment.connection)

    @staticmethod
    def _is_current(attachment: Attachment) -> bool:
        connection = attachment.connection
        return not connection.leaving and attachment.auto_link.attachments.get(connection) is attachment

    # Observer of the core

    def connection_opened(self, connection: Connection) -> None:
        """Attach what belongs on it."""
        if connection.role is Role.ROUTE_CONTAINER:
            self._containers[connection] = container = Container(connection)
            self.turns.opened(connection)
            self._attach_missing(container)

    def _connection_lost(self, connection: Connection) -> None:
        """Nothing more is attached, and what is attached goes step by step."""
        if connection in self._containers:
            self.turns.leave(connection)

    def connection_closed(self, connection: Connection) -> None:
        """There is nothing to attach to until it returns."""
        container = self._containers.pop(connection, None)
        if container is not None:
            self.turns.closed(connection)
            for auto_link in container.attachments:
                del auto_link.attachments[connection]

    def link_unbound(self, link: Link) -> None:
        """Detached by the container, or gone with its connection."""
        attachment = self._by_link.pop(link, None)
        if attachment is None:
            return
        attachment.link, attachment.state = None, State.FAILED
        if link.connection.leaving:
            del attachment.auto_link.attachments[link.connection]
            del self._containers[link.connection].attachments[attachment.auto_link]
            return
        self._call_later(0.0, lambda: self._detached(attachment))  # when all is known of the connection

    def link_bound(self, link: Link) -> None:
        """Observer interface: nothing to do."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface: credit is the core's concern."""


def _described(attachment: Attachment) -> dict[str, object]:
    config, connection = attachment.auto_link.config, attachment.connection
    return {
        "address": config.address,
        "direction": str(config.direction),
        "phase": attachment.auto_link.phase,
        "external": config.external_address,
        "connection": connection.id,
        "container": connection.container,
    }
