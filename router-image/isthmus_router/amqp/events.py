"""What proton's engine reports about a connection, and what follows from it in the core and the kernel."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from cproton_ffi import lib

from isthmus_router.amqp.checked import (
    LONG_TAG,
    MOST_ITEMS,
    MOST_ITEMS_OF_CLIENT,
    MOST_TAG_BYTES,
    check_state,
    condition_of,
    read_text,
)
from isthmus_router.amqp.engine import Pointer, set_condition, text
from isthmus_router.amqp.freeing import AT_ONCE
from isthmus_router.amqp.kernel.handles import key
from isthmus_router.amqp.opening import (
    PROPERTY_INSTANCE,
    limit_transport,
    read_open,
    retained_properties,
    send_open,
)
from isthmus_router.amqp.sessions import REFUSED_LINKS
from isthmus_router.amqp.terminus import read_attach
from isthmus_router.amqp.tls import protocol_and_cipher, user_from_certificate
from isthmus_router.client_hosts import address_of, network_of
from isthmus_router.core.mesh import PROPERTY_MESH_KEY, proven_mesh_id
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.roles import Role
from isthmus_router.core.terms import (
    CAPABILITY_RESEND_RELEASED,
    CAPABILITY_STREAMING_DELIVERIES,
    Condition,
    Direction,
)
from isthmus_router.credentials import REVOKED
from isthmus_router.message.types import ULong
from isthmus_router.policy.counters import Denial
from isthmus_router.policy.enforcer import Applicant
from isthmus_router.policy.grant import RESOURCE_LIMIT, Grant

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection

log = logging.getLogger("SERVER")

SHORTEST_IDLE_TIMEOUT_MS = 500
"""A peer that asks for heartbeats more often is refused (AMQP 1.0, 2.4.5).

The engine announces half of what it is set to: this is an idle time-out of one second, the shortest that routers have.
"""

LARGEST_MESSAGE = 2**63 - 1
LINKS_FOR_STREAMS = frozenset({Role.INTER_ROUTER_DATA, Role.EDGE})
"""Streams come in on links without an address here; on others they are told apart as they are attached."""

TO_ITSELF = Condition("amqp:not-allowed", "the router has connected to itself")
OPEN_TWICE = Condition("amqp:not-allowed", "the connection was opened twice")
NO_CHANNEL = Condition(RESOURCE_LIMIT, "as many sessions are open as both ends allow each other")
SESSION_TWICE = Condition("amqp:not-allowed", "a session was begun or ended twice")
"""The engine takes it, and goes on using the session when it is freed."""
NO_NODE = Condition("amqp:not-found", "the container's answer to the attach names no address")

PLAIN = frozenset({0, lib.PN_RECEIVED, lib.PN_ACCEPTED, lib.PN_RELEASED})
"""States of deliveries with nothing that varies in them."""

MANY_LINKS = 64
"""With more links than that, what is done with each of them is done in slices."""
AGAIN = object()
"""A handler's result: the event needs another slice."""
FULL_LINKS = 256
"""Beyond so many links of a client, each further one gets less credit."""

_LOCAL_UNINIT = 1
_LOCAL_CLOSED = 4


def deal_with_events(connection: AmqpConnection, found: int | None = None) -> bool:
    """Work off the engine's events in their order. An event whose handler raises stays at the head.

    False when some are left because the connection has done what it may before it is another one's turn.
    `found`: what the compiled kernel has just said of the one at the head.
    """
    collector = connection.collector
    peek, pop, event_delivery = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_delivery
    delivery_link, delivery_state = lib.pn_delivery_link, lib.pn_delivery_remote_state
    delivery_tag = lib.pn_delivery_tag
    links = connection.links
    forwarder = connection.driver.forwarder
    settlement = forwarder.settlement
    incoming = Direction.IN
    compiled = forwarder.compiled
    end = connection.driver.slice_end(monotonic())
    while True:
        if compiled is not None:
            if found is None:
                found = compiled.drain(collector, links, end)
            if found == compiled.EMPTY:
                forwarder.resume()
                return True
            if found == compiled.LATER:
                forwarder.resume()
                return False
            if found == compiled.DONE:
                if connection.closed:
                    return True  # closed by what was called
                pop(collector)
                found = None
                # What the compiled kernel leaves to Python can take as long as any event.
                if monotonic() >= end:
                    forwarder.resume()
                    return not peek(collector)
                continue
            found = None
        event = peek(collector)
        if not event:
            forwarder.resume()
            return True
        delivery = event_delivery(event)
        if delivery:
            pn_link = delivery_link(delivery)
            link = links.get(pn_link)
            state = delivery_state(delivery)
            if state not in PLAIN and link is not None:
                check_state(delivery, of_router=connection.settings.role.is_between_routers)
            if delivery_tag(delivery).size > MOST_TAG_BYTES:
                connection.break_off(LONG_TAG)
            elif link is None:
                if connection.freeing.knows(pn_link, delivery):
                    pass
                elif lib.pn_link_is_receiver(pn_link):
                    connection.detached.came(pn_link)
                else:
                    connection.detached.unknown(pn_link, None)
            elif link.routed:
                forwarder.routed.event(link, delivery)
            elif link.direction is not incoming:
                settlement.updated(link, delivery, state)
            elif (link.stream is not None and link.stream.pn == delivery) or key(
                delivery
            ) not in link.unsettled:
                forwarder.incoming(link, delivery, state)
            else:
                settlement.updated(link, delivery, state)
        else:
            kind = lib.pn_event_type(event)
            handler = _HANDLERS.get(kind)
            if handler is not None and handler(connection, event) is AGAIN:
                forwarder.resume()
                return False
        if connection.closed:
            return True  # closed by the event's handler
        pop(collector)
        if monotonic() >= end:
            forwarder.resume()
            return not peek(collector)


def _connection_remote_open(connection: AmqpConnection, event: Pointer) -> None:
    if lib.pn_connection_state(connection.pn) & _LOCAL_CLOSED:
        return  # given up before the peer answered: it must not be used, nor be offered to the peer
    if connection.opened:
        connection.break_off(OPEN_TWICE)
        return
    if connection.incoming and not _has_proven_itself(connection):
        connection.abort("the peer opened the connection before its handshakes were over")
        return
    user = _user_of(connection)
    if reason := connection.misnamed():
        refuse_peer(connection, reason)
        return
    if connection.is_revoked:
        refuse_peer(connection, REVOKED)
        return
    client = _client_of(connection, connection.settings.role, user)
    if (excess := connection.owner.excess(client)) is not None:
        _refuse_excess(connection, excess)
        return
    grant = _admission(connection, user)
    if isinstance(grant, Condition):
        connection.close(grant)
        return
    if connection.incoming:
        if grant is not None:
            limit_transport(connection.transport, grant)
        send_open(connection.pn, connection.settings, connection.id, connection.driver.core)
    idle_timeout = lib.pn_transport_get_remote_idle_timeout(connection.transport)
    if 0 < idle_timeout < SHORTEST_IDLE_TIMEOUT_MS:
        reason = f"an idle-time-out of {idle_timeout} ms is too short: at least {SHORTEST_IDLE_TIMEOUT_MS} ms"
        connection.close(Condition("amqp:invalid-field", reason))
        return
    role = connection.settings.role
    is_client = connection.incoming and not role.is_between_routers
    properties, offered = read_open(connection.pn, is_client=is_client)
    if properties.pop(PROPERTY_INSTANCE, None) == connection.driver.core.instance:
        connection.close(TO_ITSELF)
        return
    # Management shows the properties of connections, and what tells a peer from others is a secret.
    mesh_key = properties.pop(PROPERTY_MESH_KEY, None)
    if role is Role.INTER_ROUTER and properties.get("qd.inter-router-role") == int(Role.INTER_ROUTER_DATA):
        role = Role.INTER_ROUTER_DATA
        connection.settings = replace(connection.settings, role=role)
    remote_cost = properties.get("qd.inter-router-cost")
    connection.remote_cost = remote_cost if isinstance(remote_cost, int) and 0 < remote_cost < 1 << 31 else 1
    tls = connection.settings.tls
    ordinal = tls.ordinal if tls is not None and connection.tls_protocol else None
    group = _group_of(properties) if connection.incoming else (connection.settings.group_correlator, ordinal)
    connection.core = Connection(
        connection.id,
        role,
        incoming=connection.incoming,
        name=connection.peer,
        endpoint=connection.settings.name,
        container=text(lib.pn_connection_remote_container(connection.pn)) or "",
        cost=max(connection.settings.cost, connection.remote_cost),
        own_cost=connection.settings.cost,
        link_capacity=connection.settings.link_capacity,
        max_message_size=0 if role.is_between_routers else connection.settings.max_message_size,
        strip=connection.settings.strip_annotations,
        tls_ordinal=ordinal,
        group_correlator=group[0],
        group_ordinal=group[1] if group[0] is not None else None,
        user=user,
        proven_mesh_id=proven_mesh_id(mesh_key) if role is Role.EDGE else None,
        properties=retained_properties(properties),
        offered_capabilities=offered,
        access=connection.settings.access(authenticated=is_known(connection)),
        client=client,
        opened_at=monotonic(),
        io=connection,
    )
    connection.core.grant = grant
    connection.opened = True
    connection.driver.poller.share(connection)
    connection.driver.heartbeats.plan(connection, 0)
    connection.driver.touch(connection)
    log.info(
        "connection opened",
        extra={
            "connection": connection.id,
            "peer": connection.peer,
            "container": connection.core.container,
            "role": role.label,
            "dir": "in" if connection.incoming else "out",
            "user": connection.core.user,
            "tls": connection.tls_protocol,
        },
    )
    connection.owner.opened(connection)
    connection.driver.core.connection_opened(connection.core)


def _has_proven_itself(connection: AmqpConnection) -> bool:
    """Whether SASL and TLS are over, as far as the listener demands them.

    The engine acts on an open frame that comes in the place of a SASL frame, and does not look at either before it
    writes.
    """
    transport, settings = connection.transport, connection.settings
    if settings.authenticate_peer and not lib.pn_transport_is_authenticated(transport):
        return False
    return not settings.require_encryption or bool(lib.pn_transport_is_encrypted(transport))


def refuse_peer(connection: AmqpConnection, reason: str) -> None:
    """Close a connection whose peer's certificate has none of the `peerNames`, or is revoked."""
    connection.driver.refused_peers += 1
    log.warning(
        "peer refused",
        extra={
            "event": "peer.refused",
            "connection": connection.id,
            "peer": connection.peer,
            "listener": connection.settings.name,
            "role": connection.settings.role.label,
            "reason": reason,
        },
    )
    connection.close(Condition("amqp:unauthorized-access", reason))


def _refuse_excess(connection: AmqpConnection, reason: str) -> None:
    """Close a connection whose listener has as many as it may, or as many of its client."""
    connection.driver.excess_connections += 1
    log.warning(
        "connection refused",
        extra={
            "event": "connection.excess",
            "listener": connection.settings.name,
            "limit": connection.settings.max_connections,
            "connection": connection.id,
            "peer": connection.peer,
            "role": connection.settings.role.label,
            "reason": reason,
        },
    )
    connection.close(Condition(RESOURCE_LIMIT, reason))


def _user_of(connection: AmqpConnection) -> str | None:
    """Who the peer is, as authenticated by SASL or told by its certificate."""
    _read_security(connection)
    transport, uid_format = connection.transport, connection.settings.uid_format
    user = text(lib.pn_transport_get_user(transport))
    if connection.settings.tls is not None and uid_format and connection.tls_protocol:
        user = user_from_certificate(transport, uid_format) or user
        return connection.settings.user_names.get(user, user) if user else None
    return user


def is_known(connection: AmqpConnection) -> bool:
    """Whether the peer has proven who it is; SASL says nothing of servers that connectors reach."""
    return connection.incoming and connection.authenticated and connection.mechanism != "ANONYMOUS"


def _client_of(connection: AmqpConnection, role: Role, user: str | None) -> str | None:
    """Who the peer is where clients or routers share something; None for those to which connectors lead.

    An edge has many users, and many edges may show one certificate.
    """
    if not connection.incoming:
        return None
    if role is Role.EDGE:
        return f"edge {text(lib.pn_connection_remote_container(connection.pn)) or ''} of {user or ''}"
    if user and is_known(connection):
        return f"user {user}"
    return f"host {network_of(address_of(connection.peer))}"


def _admission(connection: AmqpConnection, user: str | None) -> Grant | Condition | None:
    """What the policy says of a connection that opens."""
    policy = connection.driver.policy
    if policy is None:
        return None
    applicant = Applicant(
        connection.id,
        connection.settings.role,
        incoming=connection.incoming,
        user=user,
        name=connection.peer,
        hostname=text(lib.pn_connection_remote_hostname(connection.pn)),
        policy_vhost=connection.settings.policy_vhost,
        may_attach=connection.settings.allow_peer_links,
    )
    return policy.admit(applicant)


def _group_of(properties: dict[str, object]) -> tuple[str | None, int | None]:
    """Correlation id and ordinal of the connecting router's group, as far as its open frame has them."""
    correlator, ordinal = properties.pop("qd.group-correlator", None), properties.get("qd.group-ordinal")
    return (
        correlator if isinstance(correlator, str) else None,
        ordinal if isinstance(ordinal, ULong) else None,
    )


def _read_security(connection: AmqpConnection) -> None:
    transport = connection.transport
    connection.tls_protocol, connection.tls_cipher = (
        protocol_and_cipher(transport) if connection.settings.tls is not None else (None, None)
    )
    # The engine and Cyrus take a client's `anonymous` for `ANONYMOUS`.
    connection.mechanism = (text(lib.pn_sasl_get_mech(lib.pn_sasl(transport))) or "").upper() or None
    connection.authenticated = bool(lib.pn_transport_is_authenticated(transport))


def _connection_remote_close(connection: AmqpConnection, event: Pointer) -> None:
    condition = condition_of(lib.pn_connection_remote_condition(connection.pn))
    if not connection.close_reason:
        connection.close_reason = (
            ": ".join(filter(None, ("closed by peer", *condition[:2]))) if condition else "closed by peer"
        )
    lib.pn_connection_close(connection.pn)
    connection.driver.touch(connection)
    connection.leave_core()


def _session_remote_open(connection: AmqpConnection, event: Pointer) -> object:
    if not connection.opened and not connection.close_reason:
        connection.abort("the peer began a session before it opened the connection")
        return None
    session = lib.pn_event_session(event)
    begun_here = not lib.pn_session_state(session) & _LOCAL_UNINIT
    is_answered = begun_here or connection.sessions.may_answer(session)
    if not begun_here and is_answered and connection.sessions.lacks_channel():
        if connection.sessions.waits_for_channel():
            connection.waits_for_write = True
            return AGAIN
        connection.break_off(NO_CHANNEL)
        return None
    if not connection.sessions.peer_began(session):
        connection.break_off(SESSION_TWICE)
        return None
    if begun_here:
        connection.session_answered(session)
        return None
    connection.sessions.bound(session)
    if not is_answered:
        return None
    grant: Grant | None = connection.core.grant if connection.core is not None else None
    if grant is not None and 0 < grant.max_sessions < connection.sessions.count:
        grant.denied(Denial.SESSION)
        plural = "" if grant.max_sessions == 1 else "s"
        reason = f"no more than {grant.max_sessions} session{plural} on a connection of this user"
        set_condition(lib.pn_session_condition(session), RESOURCE_LIMIT, reason, None)
        lib.pn_session_open(session)
        lib.pn_session_close(session)
        connection.driver.touch(connection)
        return None
    if connection.answers.due(session):
        lib.pn_session_open(session)
        connection.driver.touch(connection)
    return None


def _session_remote_close(connection: AmqpConnection, event: Pointer) -> object:
    if connection.leaving:
        return None
    session = lib.pn_event_session(event)
    if not connection.sessions.has_begun(session):
        connection.break_off(SESSION_TWICE)
        return None
    if not connection.detached.may_end(session):
        connection.waits_for_write = True
        return AGAIN
    connection.detached.session_ended(session)
    connection.freeing.session_ended(session)
    links = connection.sessions.some_links(session, MANY_LINKS + 1)
    for link in links:
        pn = link.io
        if connection.links.get(pn) is link:  # the end of one can be that of another
            if not _may_go(connection, link):
                return AGAIN
            _forget(connection, pn, link)
            # The engine would free all of them when it frees the session.
            connection.freeing.free(session, pn)
    if len(links) > MANY_LINKS or connection.freeing.is_freeing(session):
        return AGAIN
    if not connection.sessions.may_end():
        connection.waits_for_write = True
        return AGAIN
    connection.session_ended(session)
    connection.sessions.end(session)
    connection.owes()
    return None


def _session_final(connection: AmqpConnection, event: Pointer) -> None:
    connection.sessions.finished(lib.pn_event_session(event))


def _link_remote_open(connection: AmqpConnection, event: Pointer) -> None:
    pn = lib.pn_event_link(event)
    session = lib.pn_link_session(pn)
    if not connection.sessions.has_begun(session):
        connection.break_off(SESSION_TWICE)
        return
    of_router = connection.settings.role.is_between_routers
    own = connection.links.get(pn)
    if own is not None:  # it answers an attach of ours; without termini it announces that a detach follows
        source, target, _ = read_attach(pn, of_router=of_router)
        if own.routed:
            own.source, own.target = source, target
            own.on_answered(own)  # type: ignore[misc]
            return
        if own.direction is Direction.OUT and not own.connection.role.is_between_routers:
            _read_receiver(pn, own)
        if own.on_answered is not None and _is_attached(pn, own):
            if own.auto_link and not _names_a_node(pn, own):
                own.on_refused(own, NO_NODE)  # type: ignore[misc]
            else:
                own.on_answered(own)
        return
    if not lib.pn_link_state(pn) & _LOCAL_UNINIT:
        return  # one of ours, given up before the answer came
    too_many, excess = connection.sessions.peer_attached(lib.pn_link_session(pn), pn)
    if too_many is not None and excess > 2 * REFUSED_LINKS:
        connection.abort(too_many.description)
        return
    if connection.sessions.has_refused_too_much():
        connection.abort("the peer attached links after it had been closed for their sizes")
        return
    if connection.core is None:
        return
    if lib.pn_session_state(session) & _LOCAL_CLOSED or not connection.sessions.is_answerable(session):
        return  # on a session that was refused, or is not answered
    if too_many is not None and excess > REFUSED_LINKS:
        connection.close(too_many)
        return
    source, target, size = read_attach(pn, of_router=of_router)
    too_large = connection.sessions.attach_read(session, pn, size)
    if too_large is not None and connection.sessions.has_refused_too_much():
        connection.close(too_large)
        return
    too_many = too_many or too_large
    direction = Direction.IN if lib.pn_link_is_receiver(pn) else Direction.OUT
    link = connection.driver.new_link(
        connection.core,
        direction,
        read_text(lib.pn_link_name(pn)) or "",
        source=source,
        target=target,
    )
    link.io = pn
    link.by_peer = True
    link.session = lib.pn_link_session(pn)
    if too_many is not None:
        connection.driver.core.refuse(link, too_many)
        return
    if direction is Direction.IN:
        link.limit_size(connection.core.max_message_size)
        if not link.connection.role.is_between_routers:
            links = max(len(connection.links) + 1, FULL_LINKS)
            link.set_capacity(max(link.capacity * FULL_LINKS // links, 1))
        link.resends = CAPABILITY_RESEND_RELEASED in link.target.capabilities
        link.begins_early = CAPABILITY_STREAMING_DELIVERIES in link.target.capabilities or (
            connection.core.role in LINKS_FOR_STREAMS and link.target.address is None
        )
        link.settles_second = lib.pn_link_remote_rcv_settle_mode(pn) == lib.PN_RCV_SECOND
    else:
        _read_receiver(pn, link)
        link.drained = True  # until there is credit
    connection.links[pn] = link
    connection.sessions.link_here(link)
    connection.driver.core.link_attached(link)
    if link.routed:
        link.drained = False
    elif link.incoming:
        link.paused = connection.core is not None and connection.core.crowded


def _read_receiver(pn: Pointer, link: Link) -> None:
    """What the receiver of an OUT link wants of deliveries."""
    # A receiver without a limit may say 2^64-1.
    link.max_message_size = min(lib.pn_link_remote_max_message_size(pn), LARGEST_MESSAGE)
    mode = lib.pn_link_remote_snd_settle_mode(pn)
    link.sends_settled = mode == lib.PN_SND_SETTLED
    link.sends_unsettled = mode == lib.PN_SND_UNSETTLED


def _is_attached(pn: Pointer, link: Link) -> bool:
    """Whether the peer's terminus is there; some routers answer with source and target exchanged."""
    source, target = (
        lib.pn_terminus_get_type(terminus) != lib.PN_UNSPECIFIED
        for terminus in (lib.pn_link_remote_source(pn), lib.pn_link_remote_target(pn))
    )
    if link.connection.role.is_between_routers:
        return bool(source or target)
    return bool(source if link.incoming else target)


def _names_a_node(pn: Pointer, link: Link) -> bool:
    """Whether the peer's terminus has an address, if it was asked for one."""
    asked, answer = (
        (link.source, lib.pn_link_remote_source(pn))
        if link.incoming
        else (link.target, lib.pn_link_remote_target(pn))
    )
    return asked.address is None or bool(text(lib.pn_terminus_get_address(answer)))


def _link_remote_detach(connection: AmqpConnection, event: Pointer) -> object:
    """The peer may attach the link again, and finds nothing left of it: a new link with the old name."""
    if connection.leaving:
        return None
    pn = lib.pn_event_link(event)
    link = connection.links.get(pn)
    if link is not None and (link.auto_link or link.on_detached is not None):
        return _link_remote_close(connection, event)
    if link is not None:
        if not _may_go(connection, link):
            return AGAIN
        _forget(connection, pn, link)
    lib.pn_link_detach(pn)
    connection.detached.answered(pn)
    connection.owes(pn)
    connection.driver.touch(connection)
    return None


def _link_remote_close(connection: AmqpConnection, event: Pointer) -> object:
    if connection.leaving:
        return None
    pn = lib.pn_event_link(event)
    link = connection.links.get(pn)
    if link is not None and not _may_go(connection, link):
        return AGAIN
    of_router = connection.settings.role.is_between_routers
    most = MOST_ITEMS if of_router else MOST_ITEMS_OF_CLIENT
    condition = condition_of(lib.pn_link_remote_condition(pn), most_items=most)
    if link is not None and link.on_detached is not None:
        closed = lib.pn_event_type(event) == lib.PN_LINK_REMOTE_CLOSE
        connection.driver.forwarder.routed.detached(
            link, None if condition is None else Condition(*condition), closed=closed
        )
        connection.owes(pn)
        return None
    if link is not None:
        if condition is not None:
            log.info(
                "link closed by peer",
                extra={
                    "connection": connection.id,
                    "link": link.name,
                    "condition": condition[0],
                    "description": condition[1],
                },
            )
            if link.on_refused is not None:
                link.on_refused(link, Condition(condition[0], condition[1]))
        _forget(connection, pn, link)
    lib.pn_link_close(pn)
    connection.detached.answered(pn)
    connection.driver.touch(connection)
    connection.owes(pn)
    return None


def _link_flow(connection: AmqpConnection, event: Pointer) -> None:
    pn = lib.pn_event_link(event)
    link = connection.links.get(pn)
    if link is None:
        return
    if link.routed:
        connection.driver.forwarder.routed.flow(link)
    elif link.direction is Direction.OUT:
        if link.parked:
            connection.driver.activity.fed(link, connection.driver.forwarder.settlement.now)
        connection.driver.forwarder.parking.flow(link)
    elif not link.replenish_on_arrival and lib.pn_link_credit(pn) > _most_credit(link):
        connection.driver.forwarder.overdrawn(link)
        return
    else:
        connection.driver.forwarder.settlement.given_back(link)
    connection.driver.activity.credit_changed(link)


def _most_credit(link: Link) -> int:
    """What an IN link of a client may ever have: one whose delivery-counts wrap around would give itself more.

    A link that gets no further credit has capacity 0, and some left.
    """
    return max(link.capacity, link.connection.link_capacity)


def _transport_error(connection: AmqpConnection, event: Pointer) -> None:
    connection.note_transport_error()


def _transport_closed(connection: AmqpConnection, event: Pointer) -> None:
    connection.driver.touch(connection)
    connection.finish()


def _may_go(connection: AmqpConnection, link: Link) -> bool:
    """Settle some of what a link that its sender gives up has unsettled, if that is much; whether it may go now."""
    if link.routed or not link.incoming or len(link.unsettled) <= AT_ONCE:
        return True
    connection.driver.forwarder.settlement.cut_off_some(link, AT_ONCE)
    return False


def _forget(connection: AmqpConnection, pn: Pointer, link: Link) -> None:
    """A link is gone: settle what was under way, then tell the core."""
    del connection.links[pn]
    if link.incoming and not link.routed:
        connection.driver.forwarder.settlement.sender_left(link)
    connection.driver.forget_link(link)


_HANDLERS: dict[int, Callable[[AmqpConnection, Pointer], object]] = {
    lib.PN_CONNECTION_REMOTE_OPEN: _connection_remote_open,
    lib.PN_CONNECTION_REMOTE_CLOSE: _connection_remote_close,
    lib.PN_SESSION_REMOTE_OPEN: _session_remote_open,
    lib.PN_SESSION_REMOTE_CLOSE: _session_remote_close,
    lib.PN_SESSION_FINAL: _session_final,
    lib.PN_LINK_REMOTE_OPEN: _link_remote_open,
    lib.PN_LINK_REMOTE_DETACH: _link_remote_detach,
    lib.PN_LINK_REMOTE_CLOSE: _link_remote_close,
    lib.PN_LINK_FLOW: _link_flow,
    lib.PN_TRANSPORT_ERROR: _transport_error,
    lib.PN_TRANSPORT_CLOSED: _transport_closed,
}
