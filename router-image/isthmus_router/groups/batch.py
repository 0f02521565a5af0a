"""Batches: messages of one origin that travel as one, numbered by their origin for as long as it is connected.

A member that publishes is an *origin*; its batches have the numbers 1, 2, 3, ... and keep them everywhere: in its own
site, on the bridge and in other sites. So whoever has a batch can repair, replay or relay it, and whoever gets it
knows whether it had it before (docs/relay.md).

```
 origin (16) | number (8) | first message (8) | count (4) | site length (1) | targets (1) | addresses (2) |
 site | targets: length (1), name ... | addresses: length (2), text ... |
 count x payload length (4) | count x index of address (2) | payloads ...
```
`first message` counts the origin's messages in batches before, so that it can be told how many a gap has lost.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from isthmus_router.groups.frames import FrameError, check_numbers
from isthmus_router.groups.identity import MemberId

_FIXED = struct.Struct(">16sQQIBBH")
_SITE_LENGTH, _TARGETS = _FIXED.size - 4, _FIXED.size - 3
"""Where these bytes are."""
_ALL_SITES = 255
"""In place of the number of targets."""
_SITE_NAME = re.compile(rb"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""As the configuration allows it."""
MOST_MESSAGES = 1_000
"""That a member publishes in one batch."""
BATCH_BYTES = 64 * 1024
"""A batch is closed when its messages and addresses have so many; a single message may be longer."""
MOST_ACCEPTED_MESSAGES = 1_500
"""In a batch of another member: no batch takes long to deliver."""
MOST_ADDRESS_BYTES = 6 * BATCH_BYTES
"""Of all addresses in such a batch; members count characters."""
MOST_MESSAGE_BYTES = 16 * 1024 * 1024
"""Of a message in such a batch; more than the configuration of a site allows."""


class GroupMessage(NamedTuple):
    """One application message."""

    address: str
    """The AMQP address in the group that it was sent to."""
    payload: bytes
    """The AMQP message, from header to footer."""


class Batch:
    """Immutable; `encoded` is the whole as it travels behind a frame's header."""

    __slots__ = ("_at", "count", "encoded", "first", "number", "origin", "site")

    def __init__(
        self,
        origin: MemberId,
        number: int,
        first: int,
        count: int,
        site: str,
        encoded: bytes,
        at: int,
    ) -> None:
        """`at`: where the addresses begin."""
        self.origin = origin
        self.number = number
        self.first = first
        """Messages of the origin before this batch."""
        self.count = count
        self.site = site
        """Of the origin."""
        self.encoded = encoded
        self._at = at

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.encoded)

    @property
    def targets(self) -> tuple[str, ...] | None:
        """Sites that it is for; None: all. Everyone in the origin's own site gets it anyway.

        Decoded on demand: members retain many batches, and names take more memory than their bytes.
        """
        data = self.encoded
        if data[_TARGETS] == _ALL_SITES:
            return None
        return _targets(data[_FIXED.size + data[_SITE_LENGTH] : self._at])

    def is_for(self, site: str) -> bool:
        """Whether its messages go to that site."""
        targets = self.targets
        return targets is None or site in targets

    def messages(self) -> Iterator[GroupMessage]:
        """What it carries, in order."""
        data = self.encoded
        at = self._at
        addresses: list[str] = []
        (number,) = struct.unpack_from(">H", data, _FIXED.size - 2)
        for _ in range(number):
            (length,) = struct.unpack_from(">H", data, at)
            addresses.append(data[at + 2 : at + 2 + length].decode())
            at += 2 + length
        lengths = struct.unpack_from(f">{self.count}I", data, at)
        at += 4 * self.count
        indices = struct.unpack_from(f">{self.count}H", data, at)
        at += 2 * self.count
        for length, index in zip(lengths, indices, strict=True):
            yield GroupMessage(addresses[index], data[at : at + length])
            at += length

    def check(self) -> None:
        """Whether `messages` can be taken out, and are as few and as small as those of a member. Raises FrameError."""
        data, count = self.encoded, self.count
        at = first = self._at
        (number,) = struct.unpack_from(">H", data, _FIXED.size - 2)
        if not 1 <= number <= count <= MOST_ACCEPTED_MESSAGES:
            raise FrameError(f"batch of {count} messages with {number} addresses")
        try:
            for _ in range(number):
                (length,) = struct.unpack_from(">H", data, at)
                data[at + 2 : at + 2 + length].decode()
                at += 2 + length
            of_addresses = at - first
            lengths = struct.unpack_from(f">{count}I", data, at)
            indices = struct.unpack_from(f">{count}H", data, at + 4 * count)
        except (struct.error, UnicodeDecodeError) as error:
            raise FrameError(f"malformed batch: {error}") from error
        size = sum(lengths)
        if at + 6 * count + size != len(data):
            raise FrameError(f"batch of {len(data)} bytes whose messages say {at + 6 * count + size}")
        if max(indices) >= number:
            raise FrameError(f"batch with address {max(indices)} of {number}")
        longest = max(lengths)
        if longest > MOST_MESSAGE_BYTES or size - longest >= BATCH_BYTES or of_addresses > MOST_ADDRESS_BYTES:
            raise FrameError(
                f"batch of {size} bytes, {longest} of them in one message: no member sends so many"
            )


def make_batch(
    origin: MemberId,
    number: int,
    first: int,
    site: str,
    targets: tuple[str, ...] | None,
    messages: Sequence[GroupMessage],
) -> Batch:
    """A batch of at most `MOST_MESSAGES` messages; `targets` are fewer than 255 names."""
    index: dict[str, int] = {}
    indices = [index.setdefault(message.address, len(index)) for message in messages]
    count = len(messages)
    site_name = site.encode()
    head = [
        _FIXED.pack(
            origin,
            number,
            first,
            count,
            len(site_name),
            _ALL_SITES if targets is None else len(targets),
            len(index),
        ),
        site_name,
    ]
    for target in targets or ():
        name = target.encode()
        head += (bytes((len(name),)), name)
    at = sum(map(len, head))
    for address in index:
        text = address.encode()
        head += (len(text).to_bytes(2, "big"), text)
    payloads = [message.payload for message in messages]
    head += (struct.pack(f">{count}I", *map(len, payloads)), struct.pack(f">{count}H", *indices))
    return Batch(origin, number, first, count, site, b"".join(head + payloads), at)


def decode_batch(data: bytes, offset: int = 0) -> Batch:
    """The batch that `data` is from `offset` to its end, within the bounds of batches. Raises FrameError."""
    try:
        origin, number, first, count, site_length, target_count, _ = _FIXED.unpack_from(data, offset)
        at = offset + _FIXED.size
        site = data[at : at + site_length].decode()
        at += site_length
        if target_count != _ALL_SITES:
            first_target = at
            for _ in range(target_count):
                at += 1 + data[at]
            _check_targets(data[first_target:at])
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise FrameError(f"malformed batch: {error}") from error
    check_numbers(number, first)
    if number < 1:
        raise FrameError(f"batch number {number}")
    batch = Batch(MemberId(origin), number, first, count, site, data[offset:], at - offset)
    batch.check()
    return batch


@lru_cache(maxsize=64)
def _targets(names: bytes) -> tuple[str, ...]:
    """As they travel: the length of each, and its text."""
    return tuple(name.decode() for name in _split(names))


@lru_cache(maxsize=64)
def _check_targets(names: bytes) -> None:
    """Raises FrameError."""
    for name in _split(names):
        if not _SITE_NAME.fullmatch(name):
            raise FrameError(f"batch for a site whose name no site can have, of {len(name)} bytes")


def _split(names: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(names):
        end = at + 1 + names[at]
        yield names[at + 1 : end]
        at = end


def encode_message(message: GroupMessage) -> bytes:
    """A message for one member: length of its address (2), address, payload."""
    address = message.address.encode()
    return len(address).to_bytes(2, "big") + address + message.payload


def decode_message(data: bytes) -> GroupMessage:
    """Raises FrameError."""
    length = int.from_bytes(data[:2], "big")
    if len(data) < 2 + length:
        raise FrameError(f"message to one member of {len(data)} bytes, with an address of {length}")
    try:
        return GroupMessage(data[2 : 2 + length].decode(), data[2 + length :])
    except UnicodeDecodeError as error:
        raise FrameError(f"message to one member: {error}") from error
