"""Decides on connections, and keeps them and their links to the policy in force.

Sans-IO. The driver asks `admit` for every connection before it answers the open, and tells when it is gone. Links are
decided on as a link handler of the core. A changed policy holds at once: connections and links that it no longer
allows are closed.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from isthmus_router.client_hosts import address_of, network_of
from isthmus_router.config.model import Configuration
from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.core.guard import MessageGuard
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import Condition
from isthmus_router.message.sections import SectionError
from isthmus_router.policy.counters import Denial, DenialCounters
from isthmus_router.policy.denied import detach_denied
from isthmus_router.policy.grant import RESOURCE_LIMIT, Grant
from isthmus_router.policy.names import CONNECTOR_GROUP
from isthmus_router.policy.rules import Group, Ruleset, Vhost

log = logging.getLogger("POLICY")

NOT_REVIEWED = Condition("amqp:internal-error", "the router cannot review what this connection may do")
NO_PEER_LINKS = Condition(
    UNAUTHORIZED, "the router has connected to this peer, and its connector does not allow links of the peer"
)
_OVER = object()

ANONYMOUS = "anonymous"
"""The user of connections that have not authenticated."""


@dataclass(frozen=True, slots=True)
class Applicant:
    """A connection that wants to open, as far as the policy looks at it."""

    connection_id: int
    role: Role
    incoming: bool
    user: str | None
    name: str
    """Of the peer's socket, `<address>:<port>`."""
    hostname: str | None
    """What the client's open frame calls the host it wants."""
    policy_vhost: str | None
    """What the listener or connector says instead."""
    may_attach: bool = True
    """Whether the peer of a connector may attach links of its own without a policy."""

    @property
    def address(self) -> str:
        """IP address of the peer."""
        return address_of(self.name)

    @property
    def host(self) -> str:
        """What counts as one host."""
        return network_of(self.address)


@dataclass(frozen=True, slots=True)
class Place:
    """The vhost and the group that a connection belongs to."""

    vhost: Vhost
    group: Group


class Members:
    """Open connections of one vhost: their peers' names by connection, in all, by user and by host."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.by_user: dict[str, dict[int, str]] = {}
        self.by_host: dict[str, dict[int, str]] = {}

    def add(self, item: Admitted) -> None:
        """One more."""
        for names in (
            self.names,
            self.by_user.setdefault(item.user, {}),
            self.by_host.setdefault(item.applicant.host, {}),
        ):
            names[item.applicant.connection_id] = item.applicant.name

    def remove(self, item: Admitted) -> None:
        """One less."""
        number = item.applicant.connection_id
        self.names.pop(number, None)
        for groups, key in ((self.by_user, item.user), (self.by_host, item.applicant.host)):
            groups[key].pop(number, None)
            if not groups[key]:
                del groups[key]


@dataclass(slots=True)
class Admitted:
    """An open connection."""

    applicant: Applicant
    user: str
    place: Place | None
    """None: no vhost holds for it."""
    rules: Ruleset
    """By which it has its rights."""


class PolicyEnforcer:
    """The policy of one router."""

    def __init__(self, core: RouterCore, configuration: Configuration) -> None:
        self._core = core
        self._rules = Ruleset(configuration.policy, configuration.vhosts)
        self._open: dict[int, Admitted] = {}
        self._members: dict[str, Members] = {}
        self.clients = 0
        """Open connections of clients."""
        self.rights_changed: Callable[[Connection], Iterator[None]] | None = None
        """The steps to be taken when the rights of an open connection of a client have changed, or may have."""
        self.denials = DenialCounters()
        self.processed = 0
        """Connections of clients decided on."""
        self.approved: Counter[str] = Counter()
        """Connections admitted, by vhost."""
        core.link_handlers.insert(0, self._link_attached)

    # Connections

    def admit(self, applicant: Applicant) -> Grant | Condition | None:
        """What the connection may do, None if no policy holds for it, or why it must be refused."""
        client = self._is_client(applicant)
        self.processed += client
        user = applicant.user or ANONYMOUS
        most = self._rules.policy.max_connections
        if client and self.clients >= most:
            return self._refused(applicant, None, _too_many(most, "of clients"))
        place: Place | None = None
        if self._holds_for(applicant):
            vhost = self._vhost_of(applicant)
            found = self._place(vhost, applicant, user)
            if isinstance(found, Condition):
                return self._refused(applicant, vhost, found)
            excess = self._excess(found, user, applicant.host) if applicant.incoming else None
            if excess is not None:
                return self._refused(applicant, vhost, excess)
            place = found
            self.approved[place.vhost.name] += 1
        item = self._open[applicant.connection_id] = Admitted(applicant, user, None, self._rules)
        self.clients += client
        self._settle(item, place)
        return self._grant(applicant, place, user)

    def ended(self, connection_id: int) -> None:
        """The connection is gone, or was never opened."""
        item = self._open.pop(connection_id, None)
        if item is not None:
            self.clients -= self._is_client(item.applicant)
            self._settle(item, None)

    def renew(self, connection: Connection) -> Condition | None:
        """Give a connection its present rights, if the review of a changed policy has not reached it yet.

        Returns why it will be closed.
        """
        item = self._open.get(connection.id)
        return None if item is None or item.rules is self._rules else self._renew(item, connection)

    def _settle(self, item: Admitted, place: Place | None) -> None:
        """The connection belongs to `place` from now on."""
        if item.place is not None and item.applicant.incoming:
            self.members(item.place.vhost.name).remove(item)
        item.place = place
        if place is not None and item.applicant.incoming:
            self.members(place.vhost.name).add(item)

    @property
    def in_force(self) -> bool:
        """Whether clients of this router have rules."""
        return self._rules.policy.enable_vhost_policy

    def members(self, vhost: str) -> Members:
        """Open connections that belong to a vhost."""
        return self._members.setdefault(vhost, Members())

    def _is_client(self, applicant: Applicant) -> bool:
        return applicant.incoming and not applicant.role.is_between_routers

    def _holds_for(self, applicant: Applicant) -> bool:
        if not self._rules.policy.enable_vhost_policy:
            return False
        return applicant.policy_vhost is not None or self._is_client(applicant)

    def _vhost_of(self, applicant: Applicant) -> Vhost | None:
        return self._rules.vhost(applicant.policy_vhost or applicant.hostname or "")

    def _place(self, vhost: Vhost | None, applicant: Applicant, user: str) -> Place | Condition:
        if vhost is None:
            return Condition(UNAUTHORIZED, "no connection is allowed to this hostname")
        if not applicant.incoming:
            connector = vhost.groups.get(CONNECTOR_GROUP)
            if connector is None:
                return Condition(UNAUTHORIZED, "the policy vhost of the connector has no settings for it")
            return Place(vhost, connector)
        group = vhost.group_of(user)
        if group is None:
            return Condition(UNAUTHORIZED, "this user may not connect")
        if applicant.address not in group.remote_hosts:
            return Condition(UNAUTHORIZED, "this user may not connect from this host")
        return Place(vhost, group)

    def _excess(self, place: Place, user: str, host: str) -> Condition | None:
        members, group = self.members(place.vhost.name), place.group
        for limit, present, whose in (
            (place.vhost.config.max_connections, len(members.names), "to this hostname"),
            (group.max_connections_per_user, len(members.by_user.get(user, ())), "of this user"),
            (group.max_connections_per_host, len(members.by_host.get(host, ())), "from this host"),
        ):
            if present >= limit:
                return _too_many(limit, whose)
        return None

    def _refused(self, applicant: Applicant, vhost: Vhost | None, condition: Condition) -> Condition:
        self.denials.count(Denial.CONNECTION, vhost.name if vhost is not None else None)
        log.info(
            "connection refused",
            extra={
                "event": "connection.denied",
                "connection": applicant.connection_id,
                "peer": applicant.name,
                "user": applicant.user or ANONYMOUS,
                "vhost": vhost.name if vhost is not None else applicant.hostname,
                "reason": condition.description,
            },
        )
        return condition

    def _grant(self, applicant: Applicant, place: Place | None, user: str) -> Grant | None:
        if place is None or applicant.role.is_between_routers:
            return None  # what other routers attach is the traffic of their clients
        return Grant(place.vhost, place.group, user, self.denials)

    @property
    def vhosts(self) -> Iterable[Vhost]:
        """Those that are configured."""
        return self._rules.vhosts.values()

    # Links

    def _link_attached(self, link: Link) -> bool:
        """The link handler: takes a link that its client may not have, and limits the others."""
        if link.connection.role.is_between_routers:
            return False
        condition = self.renew(link.connection)
        grant: Grant | None = link.connection.grant
        if condition is None:
            condition = (
                self._ungoverned_refusal(link.connection)
                if grant is None
                else grant.attach_refusal(link, self._core.links_beside(link))
            )
        if condition is not None:
            if grant is not None:
                grant.denied(Denial.SENDER if link.incoming else Denial.RECEIVER)
            self._core.refuse(link, condition)
            return True
        if link.incoming:
            most = grant.max_message_size if grant is not None else self._rules.policy.max_message_size
            if most and not 0 < link.max_message_size < most:
                link.limit_size(most)
            link.guard = grant.guard(link) if grant is not None else None
        return False

    def _ungoverned_refusal(self, connection: Connection) -> Condition | None:
        """Why the peer may not have a link where no policy holds; None when it may."""
        item = self._open.get(connection.id)
        return None if item is None or item.applicant.may_attach else NO_PEER_LINKS

    # Changes

    def configure(self, configuration: Configuration) -> Iterator[None]:
        """Take over a changed policy: what it no longer allows is closed, with the condition as if it were new.

        Connections that open, and links that attach, have the new rules from now on. The returned steps review what is
        open. Limits on numbers count for what opens or attaches from now on; nobody is chosen to leave.
        """
        rules = Ruleset(configuration.policy, configuration.vhosts)
        if (rules.policy, [v.config for v in rules.vhosts.values()]) == (
            self._rules.policy,
            [v.config for v in self._rules.vhosts.values()],
        ):
            return iter(())
        self._rules = rules
        return self._review_all(list(self._open.values()))

    def _review_all(self, items: list[Admitted]) -> Iterator[None]:
        """The rights of all connections first. Then connections take turns, so that none has to wait for what another
        one has."""
        for item in items:
            connection = self._connection(item)
            if connection is not None and item.rules is not self._rules:
                with self._closing_in_doubt(connection):
                    condition = self._renew(item, connection)
                    if condition is not None:
                        self._core.port.close_connection(connection, condition)
            yield
        turns = deque(
            (connection, self._review(connection))
            for item in items
            if item.rules is self._rules
            and not item.applicant.role.is_between_routers
            and (connection := self._connection(item)) is not None
        )
        while turns:
            connection, review = turns.popleft()
            with self._closing_in_doubt(connection):
                if next(review, _OVER) is not _OVER:
                    turns.append((connection, review))
            yield

    @contextmanager
    def _closing_in_doubt(self, connection: Connection) -> Iterator[None]:
        """Close a connection of which the router cannot tell what it may still do, and go on with others."""
        try:
            yield
        except Exception:
            log.exception("rights not reviewed", extra={"connection": connection.id})
            self._core.port.close_connection(connection, NOT_REVIEWED)

    def _review(self, connection: Connection) -> Iterator[None]:
        """What a client has attached and created."""
        for link in list(connection.links):
            if link.by_peer and link in connection.links:
                self._review_link(link, connection.grant)
            yield
        if self.rights_changed is not None:
            yield from self.rights_changed(connection)

    def _connection(self, item: Admitted) -> Connection | None:
        """The connection, unless it has ended."""
        return self._core.connections.get(item.applicant.connection_id)

    def _renew(self, item: Admitted, connection: Connection) -> Condition | None:
        """Give an open connection the rights that it has by the present rules, or return why it must be closed."""
        applicant = item.applicant
        place: Place | None = None
        if self._holds_for(applicant):
            vhost = self._vhost_of(applicant)
            found = self._place(vhost, applicant, item.user)
            if isinstance(found, Condition):
                return self._refused(applicant, vhost, found)
            place = found
        item.rules = self._rules
        self._settle(item, place)
        connection.grant = self._grant(applicant, place, item.user)
        return None

    def _review_link(self, link: Link, grant: Grant | None) -> None:
        condition = self._ungoverned_refusal(link.connection) if grant is None else grant.refusal(link)
        if condition is None and link.incoming:
            guard = grant.guard(link) if grant is not None else None
            self._core.set_guard(link, guard)
            condition = _wrong_with_arriving(link, guard)
        if condition is not None:
            detach_denied(self._core.port, link, grant, condition)


def _wrong_with_arriving(link: Link, guard: MessageGuard | None) -> Condition | None:
    """Why the rest of a message that has begun to arrive, and names its address itself, may not be passed on."""
    if guard is None or link.routed or link.stream is None or link.stream.to is None:
        return None
    try:
        guard.check_address(link.stream.to.decode("utf-8", "replace"))
    except SectionError as error:
        return Condition(error.condition, str(error))
    return None


def _too_many(limit: int, whose: str) -> Condition:
    return Condition(RESOURCE_LIMIT, f"no more than {limit} connection{'' if limit == 1 else 's'} {whose}")
