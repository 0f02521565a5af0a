"""Values that are not valid AMQP, or more than the engine holds, as bytes."""

from __future__ import annotations


def list_of(*items: bytes) -> bytes:
    """A list, which the engine reads as far as it can."""
    content = b"".join(items)
    return b"\xd0" + (len(content) + 4).to_bytes(4) + len(items).to_bytes(4) + content


def nested(depth: int) -> bytes:
    """Lists in lists."""
    value = b"\x45"
    for _ in range(depth):
        value = list_of(value)
    return value


INVALID = {
    "an array that is too short": bytes.fromhex("e00345527f"),
    "an array of more than the engine has room for": b"\xf0\x00\x00\x00\x05\x00\x00\xff\xff\x40",
    "an array of as many as there can be": b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40",
    "an array of 1,200 nulls": b"\xf0\x00\x00\x00\x05\x00\x00\x04\xb0\x40",
    "an array of an unknown type": bytes.fromhex("e00301460a"),
    "an array of descriptors": bytes.fromhex("e00401005301"),
    "an array with a described type that ends": bytes.fromhex("e0020100"),
    "an array with a descriptor behind its descriptor": bytes.fromhex("e007010053010053 44a00141"),
    "the same in a list": list_of(bytes.fromhex("e007010053010053 44a00141")),
    "a described value that has a described value": list_of(b"\x00\x53\x01\x00\x53\x02\x41", b"\x42"),
    "an array in a list that is too short": list_of(bytes.fromhex("e00345527f")),
    "a list that is too short": bytes.fromhex("c00305a161"),
    "a map of an odd number": bytes.fromhex("c10301a100"),
    "a map that is too short": bytes.fromhex("c1040450015001"),
    "a map in which a key is a list": bytes.fromhex("c103024545"),
    "a described value that ends": list_of(b"\x00\x53\x01"),
    "a string that is no UTF-8": b"\xa1\x02\xff\xff",
    "a symbol that is no ASCII": b"\xa3\x02\xff\xff",
    "a char beyond Unicode": list_of(b"\x73\xff\xff\xff\xff"),
    "lists in lists": nested(1000),
    "many values": list_of(*[b"\x40"] * 1025),
    "many arrays of nulls": list_of(*[b"\xe0\x02\xff\x40"] * 10),
    "a map with many values": b"\xd1\x00\x00\x10\x04\x00\x00\x08\x00"
    + b"".join(b"\x60" + key.to_bytes(2) + b"\x40" for key in range(1024)),
}
"""What the engine takes for a value, by the size in front, and cannot decode."""

SWALLOWED = {
    "a described value without a descriptor": b"\x00\xc0\x01\x00\x45",
    "described values in described values": b"\x00\x53\x01" * 4000 + b"\x45",
}
"""What the engine does not take for a value: it then reads no more of the frame, without an error."""
