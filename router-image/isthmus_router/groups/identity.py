"""Who a member is (for as long as it is connected), what it is called, and where it is reached.

Source: the logical address design. A socket address is where a member is, never who it is: it changes with pods,
interfaces and NAT, and a restarted member takes over that of its former self.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple, NewType

MemberId = NewType("MemberId", bytes)
"""A UUID (16 bytes), fresh for each connect. That of a router contains a digest of its site, so that another site that
hears of the member cannot claim it."""

ID_BYTES = 16
NOBODY = MemberId(bytes(ID_BYTES))
"""As destination of a frame: whoever gets it."""
LONGEST_NAME_BYTES = 255
MOST_PHYSICAL_ADDRESSES = 16
_OF_SITE = 0x80
"""The version of a UUID that ends with the digest of a site."""
_DIGEST_BYTES = 4


def member_id(random: bytes, site: str | None = None) -> MemberId:
    """A UUID from 16 random bytes: with a site one of version 8, which only that site can have, else of version 4.

    Source: RFC 9562, 5.4 and 5.8.
    """
    octets = bytearray(random[:ID_BYTES])
    octets[6] = octets[6] & 0x0F | (0x40 if site is None else _OF_SITE)
    octets[8] = octets[8] & 0x3F | 0x80
    if site is not None:
        octets[-_DIGEST_BYTES:] = _digest(site)
    return MemberId(bytes(octets))


def can_be_of(member: MemberId, site: str) -> bool:
    """Whether the site may have a member of that id."""
    return not is_of_one_site(member) or member[-_DIGEST_BYTES:] == _digest(site)


def is_of_one_site(member: MemberId) -> bool:
    """Whether the id says which site the member is of."""
    return member[6] & 0xF0 == _OF_SITE


@lru_cache(maxsize=1024)
def _digest(site: str) -> bytes:
    return hashlib.sha256(site.encode()).digest()[:_DIGEST_BYTES]


def short(member: MemberId) -> str:
    """The first 8 hexadecimal digits, for logs."""
    return member[:4].hex()


class GroupName(NamedTuple):
    """Which members belong together: those of the same group and site, and of one domain."""

    group: str
    site: str
    domain: str
    """What has configured the site, "namespace/name": two of them with one group and site are there by mistake."""


class PhysicalAddress(NamedTuple):
    """Where a member is reached: by TCP, or through the gossip routers that it is registered with."""

    host: str
    """IP address or DNS name; of a tunnelled member its UUID in hexadecimal."""
    port: int
    tunnelled: bool = False

    def __str__(self) -> str:
        if self.tunnelled:
            return f"tunnel:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def tunnel_address(member: MemberId) -> PhysicalAddress:
    """Where a member is reached through the gossip routers that it is registered with."""
    return PhysicalAddress(member.hex(), 0, tunnelled=True)


class MemberInfo(NamedTuple):
    """What a member says of itself, or others say of it."""

    id: MemberId
    name: str
    """Logical name: for people, not unique."""
    addresses: tuple[PhysicalAddress, ...]
    """As the member announces them, best first; never read off a socket."""
