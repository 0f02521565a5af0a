"""What the AMQP face of a member asks of the member, and what the member tells it.

The face (`RelayFace`) turns what senders send into messages of the group and messages of the group into deliveries to
receivers. Order, repair, relaying and who is there are the member's. Calls of `SitePort` return at once and call back
later, if at all: not before they have returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from isthmus_router.core.terms import Outcome
from isthmus_router.groups.batch import GroupMessage
from isthmus_router.groups.identity import MemberId


class SiteMember(NamedTuple):
    """A member of the group, in this site or another."""

    id: MemberId
    site: str
    name: str

    @property
    def label(self) -> str:
        """What receivers are told."""
        return f"{self.site}/{self.name}"


@dataclass(frozen=True, slots=True)
class FaceSettings:
    """What the face is made for."""

    group: str
    own: SiteMember
    addresses: tuple[str, ...] = ()
    """Further addresses of the group besides `relay/<group>`; patterns have tokens `*` and `#`."""
    max_message_bytes: int = 1024 * 1024
    state_address: str | None = None
    """Where applications receive that give others the state."""


MOST_ANSWERS = 64


class SitePort(Protocol):
    """The member."""

    @property
    def room(self) -> int:
        """Bytes that may be published now; what is published beyond is taken all the same. `room_changed` tells when
        there is some again."""

    def publish(self, messages: Sequence[GroupMessage], token: object | None) -> None:
        """Send to everybody of the group, this member included, in this order; split into batches as it fits.

        Of a `token` the face is told once: `protected` when all of the messages are, or `failed`.
        """

    def send_to(
        self, member: MemberId, message: GroupMessage, token: object | None, source: object = None
    ) -> None:
        """Send to one member, here or in another site or this one itself. An empty address means its own receivers.

        The face gets one call for each `token`: `protected` when the member has the message, or `failed`. Each `source`
        may use a share of the memory for messages to single members.
        """

    def answer(self, member: MemberId, message: GroupMessage) -> None:
        """As `send_to`, what the member can do without: not while `MOST_ANSWERS` of these wait for it."""

    def positions(self) -> dict[MemberId, int]:
        """Per origin, the number up to which its batches are delivered here. Not to be asked while they are."""

    def awaits(self, origin: MemberId) -> bool:
        """Whether more of an origin may come: it is a member, or there is something of it here."""

    def in_contact(self, site: str) -> bool:
        """Whether all that is published from now on is kept until that site has it; or it is this one."""


class SiteUser(Protocol):
    """What the member tells its face. Whoever calls outside of a turn of the driver flushes it afterwards."""

    def protected(self, token: object) -> None:
        """What was sent with this token will survive this member: its senders are told `accepted`."""

    def failed(self, token: object, outcome: Outcome) -> None:
        """What was sent with this token is not taken any further. Its senders are told `released` if it has not left
        this member, `modified` if it may have arrived; they may send it again."""

    def room_changed(self) -> None:
        """There may be room where there was none."""

    def deliver(self, origin: SiteMember, messages: Sequence[GroupMessage], number: int) -> None:
        """Messages of one origin to everybody, in its order: the batch of that number."""

    def received(self, sender: SiteMember, message: GroupMessage) -> None:
        """A message to this member alone."""

    def gap(self, origin: SiteMember, messages: int) -> None:
        """So many messages of an origin are lost to this site."""

    def behind(self, now: float) -> bool:
        """Whether so much waits for a receiver that other sites are to send no more for now; not for one that takes
        nothing."""

    def members_changed(self, members: Sequence[SiteMember]) -> None:
        """Those of all sites, this member included."""
