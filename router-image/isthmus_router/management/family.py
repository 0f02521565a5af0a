"""The two families of type names: skupper-router's, and qpid-dispatch's with its forms of addresses.

A request is answered in the family of the type it names. qpid-dispatch puts the phase of a mobile address after the
class in its key (`M0orders`), and its tools take that character away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isthmus_router.core.address import AddressClass, split_phase
from isthmus_router.management.columns import AMQP_MANAGEMENT, OTHER_PREFIX, PREFIX
from isthmus_router.management.entity_types import EntityType


@dataclass(frozen=True, slots=True)
class Family:
    """How entities are named and shown."""

    prefix: str
    """Before the short name of a type."""
    phases: bool
    """Keys of mobile addresses have a phase."""

    def type_name(self, entity_type: EntityType) -> str:
        """The full name of a type."""
        return self.prefix + entity_type.name

    def bases_of(self, entity_type: EntityType) -> list[str]:
        """The full names of the types it extends, the nearest first."""
        bases = [self.prefix + name for name in entity_type.bases]
        return [AMQP_MANAGEMENT, *bases] if entity_type.name == "management" else bases

    def reader(self, entity_type: EntityType, name: str) -> Callable[[Any], object]:
        """How an attribute is read from a row; null when there is none of that name."""
        if name == "type":
            full_name = self.type_name(entity_type)
            return lambda row: full_name
        read = entity_type.columns.get(name)
        if read is None:
            return lambda row: None
        if self.phases and name in entity_type.address_keys:
            return lambda row: _with_phase(read(row))
        return read

    def attributes_of(self, entity_type: EntityType, row: object) -> dict[str, object]:
        """All attributes of a row."""
        return {name: self.reader(entity_type, name)(row) for name in entity_type.columns}


SKUPPER = Family(PREFIX, phases=False)
DISPATCH = Family(OTHER_PREFIX, phases=True)


def family_of(type_name: object) -> Family:
    """The family of the type that a request names; skupper-router's for short names, and when there is none."""
    return DISPATCH if isinstance(type_name, str) and type_name.startswith(OTHER_PREFIX) else SKUPPER


def _with_phase(key: object) -> object:
    if isinstance(key, str) and key[:1] == AddressClass.MOBILE:
        name, phase = split_phase(key[1:])
        return f"{key[0]}{phase}{name}"
    return key
