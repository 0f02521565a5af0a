"""State transfer: an application that comes later gets the state of one that was there, and then what is not in it.

`StateGiver` is at the member of the one, `StateTaker` at that of the other; this is what joins them at each member.
"""

from __future__ import annotations

from collections.abc import Sequence

from isthmus_router.core.address import Address, AddressClass, SettlingConsumer
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.port import CallLater
from isthmus_router.core.router import RouterCore
from isthmus_router.core.terms import CAPABILITY_RELAY_STATE, Condition
from isthmus_router.groups.frames import FrameError
from isthmus_router.groups.identity import MemberId
from isthmus_router.sites.addresses import GroupAddresses
from isthmus_router.sites.port import SiteMember, SitePort
from isthmus_router.sites.receivers import Receivers
from isthmus_router.sites.state_giver import StateGiver
from isthmus_router.sites.state_messages import ANSWERS, STATE, Ask, No, decode_state
from isthmus_router.sites.state_taker import StateTaker


class StateTransfer:
    """Of one member; an observer of its core."""

    def __init__(
        self,
        core: RouterCore,
        site: SitePort,
        receivers: Receivers,
        addresses: GroupAddresses,
        own: SiteMember,
        later: CallLater,
    ) -> None:
        self.address: str | None = None
        """Where applications that give the state receive; None: there is no state transfer."""
        self.malformed = 0
        self._core = core
        self._receivers = receivers
        self._everybody = addresses.everybody
        self._own = own
        self._members: tuple[SiteMember, ...] = (own,)
        self._taker = StateTaker(site, receivers, lambda: self._members, later, core.port.work)
        prefix = addresses.reply_prefix(own)
        self._giver = StateGiver(site, receivers, self._place, self._taker.asking, later, prefix)
        core.observers.append(self)

    def close(self) -> None:
        """The router is no member any more."""
        self._taker.close()
        self._core.observers.remove(self)

    def refusal(self, link: Link) -> Condition | None:
        """Why a receiver cannot have what it wants."""
        if CAPABILITY_RELAY_STATE not in link.source.capabilities:
            return None
        if self.address is None:
            return Condition(
                "amqp:not-implemented", "relaySite has no stateAddress: there is no state to be had"
            )
        return None

    # Receivers

    def link_bound(self, link: Link) -> None:
        """Observer interface."""
        address = link.address
        if (
            not link.incoming
            and address is not None
            and CAPABILITY_RELAY_STATE in link.source.capabilities
            and address.handler.__class__ is SettlingConsumer
            and address.name in (self._everybody, self.address)
            and not link.connection.role.is_between_routers
        ):
            self._taker.begin(link, address)

    def link_unbound(self, link: Link) -> None:
        """Observer interface."""
        if not link.incoming:
            self._taker.link_gone(link)
            self._giver.link_gone(link)

    def connection_opened(self, connection: Connection) -> None:
        """Observer interface."""

    def connection_closed(self, connection: Connection) -> None:
        """Observer interface: its links were unbound before."""

    def reachability_changed(self, link: Link, reachable: bool) -> None:
        """Observer interface."""

    # Messages

    def places(self, name: str) -> tuple[str, ...]:
        """Where what is sent to an address of the group is received."""
        return (name, self.address) if self.address is not None and name == self._everybody else (name,)

    def give(
        self,
        address: Address,
        payloads: list[bytes],
        origin: MemberId | None,
        number: int,
        capability: str = "",
    ) -> None:
        """To receivers of the address that have the capability: at once, or behind the state that they wait for.

        `number`: of the batch in the stream of its origin.
        """
        asking = self._taker.asking
        if not capability and not asking:
            self._receivers.give(address, payloads)
            return
        links = [
            link for link in address.consumers if not capability or capability in link.source.capabilities
        ]
        if asking:
            self._taker.hold(address, origin, number, payloads, links)
            links = [link for link in links if link not in asking]
        self._receivers.give(address, payloads, links)

    # Other members

    def received(self, sender: SiteMember, address: str, payload: bytes) -> bool:
        """A message to this member; False: it is for somebody else."""
        if address == STATE:
            self._on_message(sender, payload)
        elif address.startswith(ANSWERS):
            self._giver.answered(address.removeprefix(ANSWERS), payload, None)
        else:
            return False
        return True

    def answered(self, address: str, payload: bytes, delivery: object | None) -> Condition | None:
        """From an application here, to this member; why it is rejected, if it is."""
        if address == STATE:
            return Condition("amqp:not-allowed", "Members of the group talk to each other there")
        return self._giver.answered(address.removeprefix(ANSWERS), payload, delivery)

    def members_changed(self, members: Sequence[SiteMember]) -> None:
        """Those of all sites: this one is asked first, then those near by."""
        own = self._own
        self._members = tuple(
            sorted(members, key=lambda member: (member.id != own.id, member.site != own.site))
        )
        self._giver.members_changed({member.id for member in members})
        self._taker.members_changed()

    def _on_message(self, sender: SiteMember, payload: bytes) -> None:
        try:
            message = decode_state(payload)
        except FrameError:
            self.malformed += 1
            return
        if isinstance(message, Ask):
            self._giver.asked(sender, message)
        elif isinstance(message, No):
            self._taker.refused(sender, message)
        else:
            self._taker.part(sender, message)

    def _place(self) -> Address | None:
        return None if self.address is None else self._core.addresses.get(AddressClass.MOBILE + self.address)
