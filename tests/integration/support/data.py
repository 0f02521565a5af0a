"""Messages of any size, section by section."""

from __future__ import annotations

from proton import Message

KILO = 1024
MEGA = 1024 * 1024


def head(size: int, to: str | None = None) -> bytes:
    """The start of a message whose body is `size` bytes of data."""
    properties = Message(address=to).encode() if to else b""
    return properties + b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")
