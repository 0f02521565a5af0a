"""The attaches and detaches of routed links: copied from one half to the other as they are.

What the engine does not show cannot be copied: offered and desired capabilities of the link, the default outcome of a
source, and the unsettled map of a link that is resumed.

Source: AMQP 1.0 part 2, 2.7.3 (attach) and 2.7.7 (detach), part 3, 3.5 (sources and targets).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from cproton_ffi import lib

from isthmus_router.amqp.checked import copy_data
from isthmus_router.amqp.client_sessions import Sharer
from isthmus_router.amqp.engine import Pointer, cstring, set_condition
from isthmus_router.amqp.frames import ATTACH_TOO_LARGE, TOO_LARGE, attach_size, room, shorten
from isthmus_router.amqp.terminus import null_terminus, pass_on_terminus
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.terms import Condition, Direction
from isthmus_router.linkroute.chain import LINK_LOST
from isthmus_router.policy.grant import RESOURCE_LIMIT

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.amqp.driver import Driver

log = logging.getLogger("SERVER")

NO_HANDLE = Condition(
    RESOURCE_LIMIT,
    "the container allows no more links on its connection (handle-max), or no more for this client (channel-max)",
)

_LOCAL_UNINIT = 1


class RoutedAttaches:
    """The part of the driver, as the port of its core, that is about routed links."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def route(self, link: Link, connection: Connection, name: str, address: str | None) -> Link | Condition:
        """As `Port.route_link`."""
        io: AmqpConnection = connection.io
        if attach_size(link.io, name, address) > room(io.transport):
            return ATTACH_TOO_LARGE
        session = io.sessions.of_routed(Sharer.of(link))
        if session is None:
            return NO_HANDLE
        direction = Direction.OUT if link.incoming else Direction.IN
        far = self._driver.new_link(connection, direction, name, source=link.source, target=link.target)
        create = lib.pn_sender if direction is Direction.OUT else lib.pn_receiver
        pn: Pointer = create(session, cstring(name))
        far.io, far.session, far.attached_at = pn, session, time.monotonic()
        link.routed = far.routed = True
        link.settles_second = False  # an affair of the ends
        link.allowance = far.allowance = self._driver.forwarder.routed.allowances.of(link.connection)
        link.partner, far.partner = far, link
        _copy_attach(link.io, pn, address, incoming=link.incoming)
        io.links[pn] = far
        io.sessions.link_here(far)
        connection.links.add(far)
        lib.pn_link_open(pn)
        self._driver.touch(io)
        return far

    def answer(self, link: Link, address: str | None) -> None:
        """As `Port.answer_routed`."""
        if link.partner is None:
            self._refuse(link, LINK_LOST)
            return
        if attach_size(link.partner.io, link.name, address) > room(link.connection.io.transport):
            self._refuse(link, TOO_LARGE)
            return
        _copy_attach(link.partner.io, link.io, address, incoming=link.incoming)
        most, own = lib.pn_link_max_message_size(link.io), link.max_message_size
        if own and link.incoming and not 0 < most < own:
            lib.pn_link_set_max_message_size(link.io, own)
        lib.pn_link_open(link.io)
        given_up = link.partner.answered
        link.answered = link.partner.answered = True
        self._driver.touch(link.connection.io)
        if given_up:
            self._driver.forwarder.routed.lost(link)

    def _refuse(self, link: Link, condition: Condition) -> None:
        """Answer the attach of a routed link without a terminus, and detach it."""
        null_terminus(lib.pn_link_target(link.io) if link.incoming else lib.pn_link_source(link.io))
        self._driver.detach_link(link, condition)

    def detach(self, link: Link, condition: Condition | None, *, closed: bool) -> None:
        """As `Port.detach_routed`."""
        pn = link.io
        if lib.pn_link_state(pn) & _LOCAL_UNINIT:
            null_terminus(lib.pn_link_target(pn) if link.incoming else lib.pn_link_source(pn))
            lib.pn_link_open(pn)
        if condition is not None:
            fitting = shorten(condition, room(link.connection.io.transport))
            set_condition(lib.pn_link_condition(pn), fitting.name, fitting.description, fitting.info)
        if not link.incoming:
            self._driver.forwarder.routed.cut_off(link)
        elif link.partner is not None:
            # Its receiver has detached. To read or settle what still comes would have the engine send a flow for a
            # handle that is no more, and the peer end the connection.
            if lib.pn_link_state(link.partner.io) & _LOCAL_UNINIT:
                link.answered = True  # `answer` sees that it is given up
            else:
                self._driver.forwarder.routed.lost(link.partner)
        if closed:
            lib.pn_link_close(pn)
        else:
            if link.incoming and lib.pn_link_get_drain(pn):
                # The engine would send its flow once more, which must not be before the peer's begin (`flow_waits`).
                lib.pn_link_set_drain(pn, False)
            lib.pn_link_detach(pn)
        link.connection.io.detached.closed(link)
        self._driver.touch(link.connection.io)

    def abandon(self, link: Link) -> bool:
        """As `Port.abandon_routed`."""
        io: AmqpConnection = link.connection.io
        if not io.sessions.end_of_routed(link.session):
            return False
        log.warning(
            "a detach is not answered: the session ends",
            extra={"connection": io.id, "container": link.connection.container, "link": link.name},
        )
        if io.links.pop(link.io, None) is not None:  # else it is forgotten with others of a lost connection
            self._driver.forget_link(link)
        return True

    def end(self, link: Link) -> None:
        """As `Port.end_routed`."""
        io: AmqpConnection = link.connection.io
        pn = link.io
        if io.links.pop(pn, None) is not None:
            self._driver.forget_link(link)
            io.detached.answered(pn)


def _copy_attach(source: Pointer, target: Pointer, address: str | None, *, incoming: bool) -> None:
    """Say with the link `target` what the peer of `source` has said. `incoming`: as seen from the client's link."""
    pass_on_terminus(lib.pn_link_remote_source(source), lib.pn_link_source(target))
    pass_on_terminus(lib.pn_link_remote_target(source), lib.pn_link_target(target))
    if address is not None:
        terminus = lib.pn_link_target(target) if incoming else lib.pn_link_source(target)
        lib.pn_terminus_set_address(terminus, cstring(address))
    properties = lib.pn_link_remote_properties(source)
    if properties:
        copy_data(properties, lib.pn_link_properties(target))
    lib.pn_link_set_snd_settle_mode(target, lib.pn_link_remote_snd_settle_mode(source))
    lib.pn_link_set_rcv_settle_mode(target, lib.pn_link_remote_rcv_settle_mode(source))
    lib.pn_link_set_max_message_size(target, lib.pn_link_remote_max_message_size(source))
