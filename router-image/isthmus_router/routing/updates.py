"""Updates of addresses (MAU) that are too large to be decoded at once, or have an invalid address, are read in steps.

A router that has many addresses announces them in one message. A few bytes of it can hold a value, so to decode a
large one takes seconds. Before that, only what stands around the lists of addresses is read. An address that cannot be
read is skipped, so that it does not keep others from being known.
"""

from __future__ import annotations

from typing import ClassVar

from isthmus_router.core.claims import MOST_ADDRESSES
from isthmus_router.message.sections import (
    IncompleteError,
    SectionError,
    section_at,
    skip_value,
    value_bounds,
)
from isthmus_router.message.types import DecodeError, decode

from .messages import (
    AREA,
    LONGEST_KEY,
    MAX_VALUES,
    MOBILE_VERSION,
    ControlMessageError,
    MobileAddress,
    MobileAddressUpdate,
    UnsupportedVersionError,
    read_mobile_address,
    read_mobile_key,
    read_number,
    read_router_id,
    read_text,
)

READ_AT_ONCE_BYTES = 4096
"""Of a control message that is decoded at once."""
MAX_BYTES = 64 * 1024
"""Of a control message other than an update of addresses: 128 ids of 127 bytes, each with a cost, take 18 KiB."""
MAX_ADDRESS_VALUES = 64
"""In what is announced of one address; the protocol has five."""

MAX_ADDRESS_BYTES = 4 * LONGEST_KEY + 1024
"""Of what is announced of one address."""
MOST_SKIPPED = 1000
"""Invalid addresses in an update. One with more is refused altogether."""

_APPLICATION_PROPERTIES, _VALUE = 0x74, 0x77
_MOST_SECTIONS, _MOST_FIELDS, _LONGEST_NAME = 16, 32, 300
_LISTS = ("exist", "add", "del")


def check_size(payload: bytes) -> None:
    """Raise ControlMessageError if a control message, which is none of addresses, is larger than any may be."""
    if len(payload) > MAX_BYTES:
        raise ControlMessageError(f"a control message of {len(payload)} bytes: at most {MAX_BYTES}")


class UpdateReader:
    """A large update of addresses. Its fields are known at once, its addresses after `read` has returned True."""

    opcode: ClassVar[str] = "MAU"

    def __init__(self, payload: bytes, body: int) -> None:
        """`body` is where the value of the body starts."""
        self.size = len(payload)
        self._payload = payload
        self._places: dict[str, tuple[int, int, int]] = {}
        """Of each list: where the next element starts, how many are left, where the list ends."""
        fields = self._fields(body)
        self.router = read_router_id(fields)
        version = read_number(fields, "pv")
        if read_text(fields, "area") != AREA:
            raise ControlMessageError("MAU of another area")
        if version != MOBILE_VERSION:
            raise UnsupportedVersionError(self.router, version)
        self.sequence = read_number(fields, "mobile_seq")
        self.absolute = "exist" in self._places
        if not self.absolute and not {"add", "del"} <= self._places.keys():
            raise ControlMessageError("field add or del is missing")
        if self.absolute:
            self._places = {"exist": self._places["exist"]}
        self.omitted = 0
        """Addresses beyond those that one router may have."""
        self.skipped = 0
        """Addresses that cannot be read."""
        self.first_problem = ""
        """Of these."""
        self._present: list[MobileAddress] = []
        self._gone: list[str] = []

    def _fields(self, body: int) -> dict[str, object]:
        """The fields of the body, without the lists of addresses, of which the places are noted."""
        payload, size = self._payload, self.size
        if body >= size or payload[body] not in (0xC1, 0xD1):
            raise ControlMessageError("the body is not a map")
        at, count, _ = value_bounds(payload, body, size)
        if count > 2 * _MOST_FIELDS:
            raise ControlMessageError(f"a body of {count // 2} fields: at most {_MOST_FIELDS}")
        fields: dict[str, object] = {}
        for _ in range(count // 2):
            name, length = decode(payload[at : at + _LONGEST_NAME], most=1)
            at += length
            end = skip_value(payload, at, size)
            if end > size:
                raise IncompleteError
            if name in _LISTS and isinstance(name, str) and payload[at] in (0x45, 0xC0, 0xD0):
                first, elements, _ = value_bounds(payload, at, size)
                self._places[str(name)] = first, elements, end
            elif end - at > MAX_BYTES:
                raise ControlMessageError("a field is too long")
            else:
                value = decode(payload[at:end], most=MAX_VALUES)[0]
                if isinstance(name, str):
                    fields[str(name)] = value
            at = end
        return fields

    def read(self, most: int) -> bool:
        """Read up to so many more addresses; whether that was all. Raises ControlMessageError."""
        for name in list(self._places):
            at, left, end = self._places.pop(name)
            while left and most:
                item = self._item(at, end)
                at, left, most = at + len(item), left - 1, most - 1
                self._take(name, item)
                if len(self._present) + len(self._gone) > MOST_ADDRESSES:
                    self.omitted, left = self.omitted + left + 1, 0
                    at = end
                    (self._gone if name == "del" else self._present).pop()
            if left:
                self._places[name] = at, left, end
                return False
            if at != end:
                raise ControlMessageError("the elements of a list do not fill its size")
        return True

    def _item(self, at: int, end: int) -> bytes:
        try:
            after = skip_value(self._payload, at, end)
        except (IncompleteError, SectionError) as error:
            raise ControlMessageError("a list ends before its last element") from error
        if after > end:
            raise ControlMessageError("a list ends before its last element")
        return self._payload[at:after]

    def _take(self, name: str, item: bytes) -> None:
        try:
            if len(item) > MAX_ADDRESS_BYTES:
                raise ControlMessageError(f"an address descriptor is longer than {MAX_ADDRESS_BYTES} bytes")
            value = decode(item, most=MAX_ADDRESS_VALUES)[0]
            if name == "del":
                self._gone.append(read_mobile_key(value))
            else:
                self._present.append(read_mobile_address(value))
        except (DecodeError, ControlMessageError) as error:
            self.first_problem = self.first_problem or str(error)
            self.skipped += 1
            if self.skipped > MOST_SKIPPED:
                raise ControlMessageError(
                    f"more than {MOST_SKIPPED} addresses are invalid: {self.first_problem}"
                ) from error

    def update(self) -> MobileAddressUpdate:
        """What has been read."""
        return MobileAddressUpdate(
            self.router,
            self.sequence,
            absolute=self.absolute,
            present=tuple(self._present),
            gone=tuple(self._gone),
        )


def large_update(payload: bytes) -> UpdateReader | None:
    """The reader of a message that is an update of addresses, None for another one. Raises ControlMessageError."""
    try:
        at, opcode = 0, None
        for _ in range(_MOST_SECTIONS):
            code, at = section_at(payload, at, len(payload))
            if code == _VALUE:
                return UpdateReader(payload, at) if opcode == "MAU" else None
            end = skip_value(payload, at, len(payload))
            if end > len(payload) or end - at > MAX_BYTES:
                raise ControlMessageError("a section is too long")
            if code == _APPLICATION_PROPERTIES:
                section = payload[at:end]
                properties = decode(section, most=MAX_VALUES)[0]
                opcode = properties.get("opcode") if isinstance(properties, dict) else None
            at = end
    except (IncompleteError, SectionError, DecodeError) as error:
        raise ControlMessageError(str(error) or "the message ends too soon") from error
    raise ControlMessageError("too many sections")
