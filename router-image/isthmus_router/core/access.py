"""What the peer of a connection may use of the router itself: flow records and management.

A listener or connector says so. Addresses for routers alone are closed to every client, whatever is said here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from isthmus_router.core.address import AddressClass, Purpose, address_key, purpose
from isthmus_router.core.terms import Condition

UNAUTHORIZED = "amqp:unauthorized-access"

_SHOWN = 100
"""Characters of an address in a condition."""


class ManagementLevel(IntEnum):
    """What a peer may ask of `$management`; each level includes those below it."""

    NONE = 0
    BASIC = 1
    """Totals of this router and the schema."""
    READ = 2
    """Everything that can be read, of this router and, through it, of others."""
    WRITE = 3
    """Changes."""

    @property
    def label(self) -> str:
        """The name used in configuration."""
        return self.name.lower()

    @classmethod
    def from_label(cls, label: str) -> ManagementLevel:
        """The level with that configuration name; ValueError when there is none."""
        try:
            return cls[label.upper()]
        except KeyError:
            raise ValueError(f"no management level {label!r}") from None


def level_for_own_link_routes(*, container: bool, governed: bool) -> ManagementLevel:
    """What a client needs to create link routes for its own connection.

    A container (`container`: on a connection of role route-container) may create them, and where there is a policy
    (`governed`), it decides on every other client.
    """
    return ManagementLevel.BASIC if container or governed else ManagementLevel.WRITE


@dataclass(frozen=True, slots=True)
class Access:
    """The rights of one connection."""

    flow_records: bool = False
    management: ManagementLevel = ManagementLevel.BASIC

    def refusal(self, address: str, router_id: str) -> Condition | None:
        """Why a client of the router `router_id` may not use an address; None when it may."""
        match purpose(address):
            case Purpose.CLIENTS:
                return None
            case Purpose.FLOW_RECORDS:
                if self.flow_records:
                    return None
                why = "is for flow records; the listener's allowFlowRecords is not set"
            case Purpose.MANAGEMENT:
                own = address_key(address, router_id, edge=False)[0] in {
                    AddressClass.MOBILE,
                    AddressClass.LOCAL,
                }
                if self.management >= (ManagementLevel.BASIC if own else ManagementLevel.READ):
                    return None
                why = f"is for management; this connection has management: {self.management.label}"
            case _:
                why = "is for routers; clients may not use it"
        return Condition(UNAUTHORIZED, f"address {address[:_SHOWN]!r} {why}")
