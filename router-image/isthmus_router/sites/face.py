"""The AMQP face of a member: senders' messages go to the group, messages of the group to receivers.

What arrives in one turn of the driver is published together. Senders are told `accepted` when the member says that
their messages are protected. While it has no room, messages wait here within a bound, and beyond it senders are not
read. Receivers are served each at its own pace; one that is too far behind is detached, so that it knows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from isthmus_router.core.address import Address, AddressClass, SettlingConsumer, normalise
from isthmus_router.core.model import Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.roles import Role
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import CAPABILITY_RELAY_GAPS, Condition, Outcome
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.message.rewriting import RESERVED, Annotation, annotated
from isthmus_router.message.sections import SectionError
from isthmus_router.sites.addresses import (
    GroupAddresses,
    ManyMembersError,
    NoSuchMemberError,
    may_be_answered,
)
from isthmus_router.sites.port import FaceSettings, SiteMember, SitePort
from isthmus_router.sites.receivers import Receivers
from isthmus_router.sites.state import StateTransfer
from isthmus_router.sites.state_messages import ANSWERS, STATE
from isthmus_router.sites.waiting import Pending, detach_senders

log = logging.getLogger("RELAY")

ORIGIN = "x-opt-isthmus.origin"
GAP = "x-opt-isthmus.gap"
MOST_PENDING_BYTES = 1024 * 1024
MOST_PENDING = 1_000
"""Messages that wait for room before senders are read no more."""
_NULL_BODY = b"\x00\x53\x77\x40"


@dataclass(slots=True)
class FaceCounters:
    """Since the face was made; messages, unless they say otherwise."""

    published: int = 0
    sent_to_one: int = 0
    refused: int = 0
    """Rejected, or dropped if pre-settled: too large, or not allowed."""
    returned: int = 0
    """Released or modified, or dropped if pre-settled: for a member that is not there, or no longer."""
    malformed: int = 0
    """Delivered as they were, without the annotation; dropped if they seem to bring one along."""
    unanswerable: int = 0
    """From one member to this one, for an address where nobody is or that is not for others."""
    lost: int = 0
    """In gaps."""


class RelayFace:
    """What clients see of one group at a router that is a member of it; the `SiteUser` of its port."""

    def __init__(self, core: RouterCore, settings: FaceSettings, site: SitePort, later: CallLater) -> None:
        """`later` calls back outside of any turn, and ends the turn then."""
        self.counters = FaceCounters()
        self.receivers = Receivers(core, later)
        self.addresses = GroupAddresses(settings.group, settings.own)
        self.state = StateTransfer(core, site, self.receivers, self.addresses, settings.own, later)
        self._core = core
        self._settings = settings
        self._site = site
        self._pending: list[GroupMessage] = []
        self._pending_bytes = 0
        self._deliveries: list[object | None] = []
        """Of each pending message; None: it was sent settled."""
        self._holds_back = False
        self._publishes_later = False
        self._goes_on = False
        """It will publish more outside of this turn, which has had its part."""
        self._later = later
        self._closed = False
        self._patterns: tuple[str, ...] = ()
        core.link_handlers.append(self._take_link)
        self.configure(settings)

    def configure(self, settings: FaceSettings) -> None:
        """These further addresses, that of the state and the bound of a message hold from now on; senders that are
        attached keep what they were told of the last one."""
        resized = settings.max_message_bytes != self._settings.max_message_bytes
        self._settings = settings
        everybody = self.addresses.everybody
        self.state.address = None if settings.state_address is None else normalise(settings.state_address)
        of_state = () if self.state.address is None else (self.state.address,)
        before, self._patterns = (
            self._patterns,
            (everybody, *self.addresses.own, f"{everybody}/#", *of_state, *settings.addresses),
        )
        for pattern in before:
            if pattern not in self._patterns:
                self._core.withdraw(pattern)
        for pattern in self._patterns:
            if resized or pattern not in before:
                self._core.offer(pattern, self._consumer)

    def close(self) -> Pending:
        """The router is this member no more: what could not be published. What ends later comes back."""
        self._closed = True
        self.receivers.finish()
        for pattern in self._patterns:
            self._core.withdraw(pattern)
        self.state.close()
        self._core.link_handlers.remove(self._take_link)
        pending = Pending(self._pending, self._deliveries)
        self._deliveries, self._pending, self._pending_bytes = [], [], 0
        return pending

    def detach_receivers(self) -> None:
        """They may miss something from now on."""
        reason = f"The router has left group {self._settings.group}: messages may be missing; attach the link again"
        for address in list(self._core.addresses.taken):
            if not self.addresses.is_of_one(address.name):
                for link in list(address.consumers):
                    if not link.connection.role.is_between_interiors:
                        self.receivers.detach(link, Condition("amqp:link:detach-forced", reason))

    def detach_senders(self) -> None:
        """Nothing that is sent here goes to other members any more."""
        detach_senders(self._core, self._settings.group)

    def take_over(self, pending: Pending) -> None:
        """What waited for a member, and who gave it."""
        self._pending = pending.messages + self._pending
        self._deliveries = pending.deliveries + self._deliveries
        self._pending_bytes = sum(len(message.payload) for message in self._pending)
        self._holds_back = True
        self._publish()

    # Links

    def _take_link(self, link: Link) -> bool:
        """Refuse links for which there is nobody; the rest is as with any address."""
        terminus = link.target if link.incoming else link.source
        role = link.connection.role
        if terminus.address is None or terminus.dynamic or role.is_between_interiors:
            return False
        address = normalise(terminus.address)
        refusal = None if link.incoming else self.state.refusal(link)
        problem = None if role.is_between_routers else self.addresses.of_no_group(address)
        if problem is not None:
            refusal = Condition("amqp:not-found", problem)
        if refusal is not None:
            self._core.refuse(link, refusal)
            return True
        if not self.addresses.is_of_one(address):
            return False
        if link.incoming:
            if role.is_between_routers:
                return False  # an edge's; each message is answered for itself
            try:
                _, to = self.addresses.member(address)
            except NoSuchMemberError as error:
                self._core.refuse(link, Condition("amqp:not-found", str(error)))
                return True
            refusal = _refusal_of_reply(to)
            if refusal is not None:
                self._core.refuse(link, refusal)
            return refusal is not None
        if address in self.addresses.own:
            return False
        self._core.refuse(link, self._not_received_here(address))
        return True

    def _not_received_here(self, address: str) -> Condition:
        """Why nobody receives at an address below the group's, which is not this member's."""
        own, everybody = self.addresses.own[0], self.addresses.everybody
        try:
            member, _ = self.addresses.member(address)
            why = f"{address} is for another member: attach at the router {member.name} of site {member.site}, or"
        except NoSuchMemberError as error:
            state = (
                "" if self.state.address else "; there is no state address, as relaySite has no stateAddress"
            )
            why = f"{error}{state}: attach"
        return Condition(
            "amqp:not-allowed", f"{why} to {everybody} for what all get, to {own} for what is for this member"
        )

    # From senders

    def _consumer(self, address: str) -> SettlingConsumer:
        take = self._take_for_one if self.addresses.is_of_one(address) else self._take
        if address == self.state.address:
            take = self._take_none
        return SettlingConsumer(partial(take, address), self._settings.max_message_bytes)

    def _take(self, address: str, payload: bytes, link: Link | None, delivery: object | None) -> bool:
        size = len(payload)
        if self._closed:  # a message in pieces, that began before
            return self._give_back(delivery)
        if size > self._settings.max_message_bytes:
            self._refuse_size(delivery, size)
            return True
        if not self._publishes_later:
            self._publishes_later = True
            self._core.port.at_end_of_turn(self._publish)
        self._pending.append(GroupMessage(address, payload))
        self._pending_bytes += size
        self._deliveries.append(delivery)
        if self._pending_bytes < MOST_PENDING_BYTES and len(self._pending) < MOST_PENDING:
            return True
        if self._site.room > 0 and not self._goes_on:
            self._publish()
            return True
        self._holds_back = True
        return False

    def _publish(self) -> None:
        """Send what waits, if the member has room for any; what has come while there was none in several steps."""
        self._publishes_later = False
        if self._goes_on or not self._pending or self._site.room <= 0:
            return
        count = self._count_of_step()
        messages, deliveries = self._pending[:count], self._deliveries[:count]
        del self._pending[:count], self._deliveries[:count]
        self._pending_bytes -= sum(len(message.payload) for message in messages)
        self.counters.published += count
        self._site.publish(messages, Pending(messages, deliveries).unsettled or None)
        if self._pending:
            self._goes_on = True
            self._later(0.0, self._go_on)
        elif self._holds_back:
            self._holds_back = False
            self._core.port.read_on()

    def _count_of_step(self) -> int:
        """Return how many of the pending messages are published in one step."""
        if self._pending_bytes < MOST_PENDING_BYTES:
            return min(len(self._pending), MOST_PENDING)
        size = 0
        for count, message in enumerate(self._pending[:MOST_PENDING], 1):
            size += len(message.payload)
            if size >= MOST_PENDING_BYTES:
                return count
        return min(len(self._pending), MOST_PENDING)

    def _go_on(self) -> None:
        self._goes_on = False
        if not self._closed:
            self._publish()

    def _take_for_one(self, address: str, payload: bytes, link: Link | None, delivery: object | None) -> bool:
        if self._closed:
            return self._give_back(delivery)
        if len(payload) > self._settings.max_message_bytes:
            self._refuse_size(delivery, len(payload))
            return True
        try:
            member, to = self.addresses.member(address)
        except ManyMembersError as error:
            self._refuse(delivery, Condition("amqp:not-found", str(error)))
            return True
        except NoSuchMemberError:  # it may only be out of reach
            return self._give_back(delivery)
        refusal = _refusal_of_reply(to)
        if to == STATE or (to.startswith(ANSWERS) and member.id == self._settings.own.id):
            refusal = self.state.answered(to, payload, delivery)
            if refusal is None:
                return True
        if refusal is not None:
            self._refuse(delivery, refusal)
            return True
        self.counters.sent_to_one += 1
        token = None if delivery is None else [delivery]
        source = None if link is None else link.connection.id
        self._site.send_to(member.id, GroupMessage(to, payload), token, source)
        return True

    def _take_none(self, address: str, payload: bytes, link: Link | None, delivery: object | None) -> bool:
        reason = f"{address} is for receivers that give the state; send to {self.addresses.everybody}"
        self._refuse(delivery, Condition("amqp:not-allowed", reason))
        return True

    def _give_back(self, delivery: object | None) -> bool:
        if delivery is None:
            self.counters.returned += 1
        else:
            self.failed([delivery], Outcome.RELEASED)
        return True

    def _refuse_size(self, delivery: object | None, size: int) -> None:
        most = self._settings.max_message_bytes
        reason = f"a message of {size} bytes; group {self._settings.group} takes {most} at most"
        self._refuse(delivery, Condition("amqp:link:message-size-exceeded", reason))

    def _refuse(self, delivery: object | None, condition: Condition) -> None:
        self.counters.refused += 1
        if delivery is not None:
            self._core.port.settle((delivery,), Outcome.REJECTED, condition)

    # From the member (SiteUser)

    def protected(self, token: object) -> None:
        assert isinstance(token, list)
        self._core.port.settle(token, Outcome.ACCEPTED)

    def failed(self, token: object, outcome: Outcome) -> None:
        assert isinstance(token, list)
        self.counters.returned += len(token)
        self._core.port.settle(token, outcome)

    def room_changed(self) -> None:
        self._publish()

    def behind(self, now: float) -> bool:
        return self.receivers.behind(now)

    def members_changed(self, members: Sequence[SiteMember]) -> None:
        self.addresses.members_changed(members)
        self.state.members_changed(members)

    def deliver(self, origin: SiteMember, messages: Sequence[GroupMessage], number: int) -> None:
        found: dict[str, list[bytes]] = {}
        for message in messages:
            found.setdefault(message.address, []).append(message.payload)
        for name, payloads in found.items():
            places = [
                address for place in self.state.places(name) if (address := self._with_receivers(place))
            ]
            if places and (told := self._told(origin, payloads)):
                for address in places:
                    self.state.give(address, told, origin.id, number)

    def received(self, sender: SiteMember, message: GroupMessage) -> None:
        if self.state.received(sender, message.address, message.payload):
            return
        payloads = self._told(sender, (message.payload,))
        if not payloads:
            return
        if not message.address:
            for name in self.addresses.own:
                address = self._with_receivers(name)
                if address is not None:
                    self.receivers.give(address, payloads)
            return
        to = normalise(message.address)
        if not may_be_answered(to) or not self._core.originate(to, payloads[0]):
            self.counters.unanswerable += 1
            log.info("no receiver for a message from a member", extra={"sender": sender.label, "address": to})

    def gap(self, origin: SiteMember, messages: int) -> None:
        self.counters.lost += messages
        found = {"site": origin.site, "origin": origin.name, "messages": messages}
        payload = Annotation(GAP, found).section + _NULL_BODY
        for address in list(self._core.addresses.taken):
            self.state.give(address, [payload], None, 0, CAPABILITY_RELAY_GAPS)
            if not self.addresses.is_of_one(address.name):
                self._end_ways_to_edges(address, messages)

    def _end_ways_to_edges(self, address: Address, messages: int) -> None:
        """Edges have one link for all of their receivers, whatever these want to be told: without it, they are
        detached (`sites/edge.py`)."""
        reason = f"{messages} messages to {address.name} are lost"
        links = (
            [link for link in address.consumers if link.connection.role is Role.EDGE] if address.edges else []
        )
        for link in links:
            self.receivers.detach(link, Condition("amqp:link:detach-forced", reason))

    def _with_receivers(self, name: str) -> Address | None:
        """An address of the group, if it has receivers here: others decide what they send, not where it goes."""
        address = self._core.addresses.get(AddressClass.MOBILE + name)
        if address is None or not address.consumers or address.handler.__class__ is not SettlingConsumer:
            return None
        return address

    def _told(self, origin: SiteMember, payloads: Sequence[bytes]) -> list[bytes]:
        """The messages as receivers here get them: they say where they come from and where replies go."""
        annotation = _origin_annotation(origin.label)
        remote = origin.site != self._settings.own.site
        prefix = self.addresses.reply_prefix(origin) if remote else None
        told: list[bytes] = []
        for payload in payloads:
            try:
                told.append(annotated(payload, annotation, prefix))
            except SectionError:
                self.counters.malformed += 1
                if RESERVED not in payload:
                    told.append(payload)
        return told


def _refusal_of_reply(to: str) -> Condition | None:
    """Why a sender may not send to `to` in the network of a member; its own receivers and the state have no address."""
    if not to or to == STATE or to.startswith(ANSWERS) or may_be_answered(to):
        return None
    reason = f"{to} is no temporary address: replies go through a group to addresses that a router made up (dynamic)"
    return Condition("amqp:unauthorized-access", reason)


@lru_cache(maxsize=1024)
def _origin_annotation(label: str) -> Annotation:
    return Annotation(ORIGIN, label)
