"""The address configuration: which treatment addresses get, and which phase links and messages of clients are in."""

from __future__ import annotations

from dataclasses import dataclass

from isthmus_router.core.address import (
    AddressClass,
    address_key,
    is_mobile,
    normalise,
    split_phase,
    waypoint_phase,
    with_phase,
)
from isthmus_router.core.model import Link
from isthmus_router.core.patterns import PatternTree
from isthmus_router.core.treatment import Treatment


@dataclass(frozen=True, slots=True)
class ConfiguredAddress:
    """What an `address` section lays down for those that its prefix or pattern matches."""

    treatment: Treatment
    priority: int | None = None
    """Of all messages, whatever their header says."""
    ingress_phase: int = 0
    """The phase that clients send in."""
    egress_phase: int = 0
    """The phase that clients receive from."""
    resends: bool = False
    """What a receiver releases is sent to another one, whatever the sender's link says."""


_FLOW_RECORDS = {
    "mc/sfe.": ConfiguredAddress(Treatment.MULTICAST),
    "sfe.": ConfiguredAddress(Treatment.CLOSEST),
}
"""Addresses of flow records, whatever the default is, unless a section is about them."""


def is_of_flow_records(key: str) -> bool:
    """Whether an address is one at which routers and collectors of flow records meet."""
    return key[1:].startswith(tuple(_FLOW_RECORDS))


class ConfiguredAddresses:
    """The `address` sections of one router."""

    def __init__(self, router_id: str, *, edge: bool, default: Treatment) -> None:
        self.patterns: PatternTree[ConfiguredAddress] = PatternTree()
        self.default = default
        """Treatment of addresses that none is about."""
        self._router_id = router_id
        self._edge = edge

    def find(self, key: str) -> ConfiguredAddress | None:
        """What is laid down for a mobile address, in whatever phase."""
        name = split_phase(key[1:])[0]
        return self.patterns.find(name) or next(
            (rule for prefix, rule in _FLOW_RECORDS.items() if name.startswith(prefix)), None
        )

    def leave_out(self, address: str) -> bool:
        """Whether messages to the address are refused because no rule is about it, and that is the default."""
        key = self.key(address)
        return self.default is Treatment.UNAVAILABLE and is_mobile(key) and self.find(key) is None

    def has_phases(self, address: str) -> bool:
        """Whether clients send to the address, or receive from it, in another phase than 0."""
        found = self.patterns.find(normalise(address))
        return found is not None and (found.ingress_phase > 0 or found.egress_phase > 0)

    def key_for_link(self, link: Link, address: str) -> str:
        """The key of the address that a peer's link names. Routers say what phase they mean; clients may."""
        if link.connection.role.is_between_routers:
            return self.key(address)
        terminus = link.target if link.incoming else link.source
        phase = waypoint_phase(terminus.capabilities, incoming=link.incoming)
        if phase is None:
            return self.key_for_client(address, sends=link.incoming)
        return self.key(address, phase)

    def key_for_client(self, address: str, *, sends: bool) -> str:
        """The key of an address in the phase that clients send in, or receive from."""
        found = self.patterns.find(normalise(address))
        return self.key(address, 0 if found is None else found.ingress_phase if sends else found.egress_phase)

    def key(self, address: str, phase: int = 0) -> str:
        """The key of an address in that phase, unless the address names one or is of a class that has none."""
        key = address_key(address, self._router_id, edge=self._edge)
        name = key[1:]
        if not phase or not is_mobile(key) or name[:1] in {"_", "$"}:
            return key
        return AddressClass.MOBILE + with_phase(name, phase)
