"""What one connection may do: its rules, resolved when it opens and again when the policy changes."""

from __future__ import annotations

from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.core.address import is_temporary, normalise, split_phase
from isthmus_router.core.guard import MessageGuard
from isthmus_router.core.model import Link
from isthmus_router.core.terms import (
    CAPABILITY_FALLBACK,
    CAPABILITY_WAYPOINT,
    COORDINATOR,
    Condition,
    Terminus,
)
from isthmus_router.policy.addresses import AddressRules
from isthmus_router.policy.counters import Denial, DenialCounters
from isthmus_router.policy.rules import Group, Vhost

RESOURCE_LIMIT = "amqp:resource-limit-exceeded"

_SHOWN = 100
"""Characters of an address in a condition."""


class Grant:
    """The rules of one connection of a client."""

    def __init__(self, vhost: Vhost, group: Group, user: str, counters: DenialCounters) -> None:
        self.vhost = vhost
        self.group = group
        self.user = user
        self.sources = group.sources.of(user)
        self.targets = group.targets.of(user)
        self._settings = group.config
        self._counters = counters

    @property
    def max_frame_size(self) -> int:
        """In bytes; 0: as the listener says."""
        return self._settings.max_frame_size or 0

    @property
    def max_session_window(self) -> int:
        """In bytes; 0: as the listener says."""
        return self._settings.max_session_window or 0

    @property
    def max_sessions(self) -> int:
        """0: as the listener says."""
        return self._settings.max_sessions or 0

    @property
    def max_message_size(self) -> int:
        """In bytes; 0: as the listener says."""
        return self.group.max_message_size

    @property
    def may_close_connections(self) -> bool:
        """Whether management closes connections for it."""
        return self._settings.allow_admin_status_update

    def may_take_links(self, pattern: str, incoming: bool) -> bool:
        """Whether the peer may create a link route of a pattern for itself. `incoming`: links of senders.

        Raises TooManyPatternsError where that would take too long to find out.
        """
        return self._settings.allow_dynamic_link_routes and self.covers(pattern, incoming)

    def covers(self, pattern: str, incoming: bool) -> bool:
        """Whether the peer may itself use what links to the addresses of a pattern carry.

        `incoming`: links of senders, from whose addresses it must be allowed to receive. To the addresses of links of
        receivers it must be allowed to send. Raises TooManyPatternsError where that would take too long to find out.
        """
        return (self.sources if incoming else self.targets).covers(pattern)

    def may_have_auto_link(self, address: str | None, incoming: bool) -> bool:
        """Whether the peer may itself send to, or receive from, the address of an auto-link; None: any address.

        `incoming`: the peer sends.
        """
        mine = self.targets if incoming else self.sources
        return mine.everything if address is None else mine.allows(address)

    def may_be_answered_at(self, address: str) -> bool:
        """Whether the router sends responses of management to `address` for it: it could send there itself."""
        if is_temporary(address):
            return True
        own = self._may_send_to(address)
        if not own:
            self.denied(Denial.MESSAGE)
        return own

    def _may_send_to(self, address: str) -> bool:
        return self.targets.allows(address) and (
            self._settings.allow_waypoint_links or not split_phase(normalise(address))[1]
        )

    def denied(self, kind: Denial) -> None:
        """Count that something was refused on the connection."""
        self._counters.count(kind, self.vhost.name)

    def attach_refusal(self, link: Link, others: int) -> Condition | None:
        """Why the client may not have `link`, which it attaches beside so many of its direction; None when it may."""
        config = self._settings
        limit, kind = (config.max_senders, "sender") if link.incoming else (config.max_receivers, "receiver")
        if others >= limit:
            number = f"{limit} {kind}{'' if limit == 1 else 's'}" if limit else f"{kind}s"
            words = f"no more than {number} on a connection" if limit else f"{number} are not allowed"
            return Condition(RESOURCE_LIMIT, f"{words} of this user")
        return self.refusal(link)

    def refusal(self, link: Link) -> Condition | None:
        """Why the client may not have, or no longer have, `link`; however many there are."""
        why = self._wrong_with_producer(link) if link.incoming else self._wrong_with_consumer(link)
        return Condition(UNAUTHORIZED, f"this user may not {why}") if why else None

    def _wrong_with_producer(self, link: Link) -> str | None:
        target = link.target
        if target.coordinator:
            # Without a link route the core refuses it, and says why.
            return None if self.targets.allows(COORDINATOR) else "coordinate transactions"
        if target.dynamic or not target.address:
            if not self._settings.allow_anonymous_sender:
                return "send without a target address"
            wrong = _first_denied(target, self.targets)
            return f"send to {_shown(wrong)}" if wrong is not None else None
        return self._wrong_capability(link.target.capabilities, target.address) or (
            None if self.targets.allows(target.address) else f"send to {_shown(target.address)}"
        )

    def _wrong_with_consumer(self, link: Link) -> str | None:
        source = link.source
        if source.dynamic:
            if not self._settings.allow_dynamic_source:
                return "have a dynamic source"
            wrong = _first_denied(source, self.sources)
            return f"receive from {_shown(wrong)}" if wrong is not None else None
        if not source.address:
            return "receive without a source address"
        return self._wrong_capability(source.capabilities, source.address) or (
            None if self.sources.allows(source.address) else f"receive from {_shown(source.address)}"
        )

    def _wrong_capability(self, capabilities: frozenset[str], address: str) -> str | None:
        config = self._settings
        if not config.allow_waypoint_links:
            if any(item.startswith(CAPABILITY_WAYPOINT) for item in capabilities):
                return "be a waypoint"
            if split_phase(normalise(address))[1]:
                return f"choose the phase of {_shown(address)}"
        if not config.allow_fallback_links and CAPABILITY_FALLBACK in capabilities:
            return "be a fallback destination"
        return None

    def guard(self, link: Link) -> MessageGuard | None:
        """What is to be looked at in the messages of an IN link; None: nothing."""
        user_id = None if self._settings.allow_user_id_proxy else self.user.encode()
        directed = bool(link.target.address) and link.connection.strips_in
        everything = self.targets.everything and self._settings.allow_waypoint_links
        allows = None if directed or everything else self._may_send_to
        if user_id is None and allows is None:
            return None
        return MessageGuard(allows, user_id, lambda: self.denied(Denial.MESSAGE))


def _first_denied(terminus: Terminus, rules: AddressRules) -> str | None:
    """An address that is denied, of those that a dynamic node is to have at the container to which it is routed."""
    if terminus.node_address is None:
        return None  # it is the router's to make, whatever address it comes with
    asked = (terminus.node_address, terminus.address)
    return next((address for address in asked if address and not rules.allows(address)), None)


def _shown(address: str) -> str:
    return repr(address if len(address) <= _SHOWN else address[:_SHOWN] + "...")
