"""What an edge and its interior tell each other: reserved addresses, and the messages sent to them.

A tracking message is an amqp-value list `[address key, bool]`, interior to edge: true when deliveries to the
mobile address can reach somebody, false when no longer. A mesh announcement is an application property
`meshid`, edge to interior. Source: the edge protocol of the skupper-router family.
"""

from __future__ import annotations

from isthmus_router.core.address import is_mobile
from isthmus_router.core.mesh import MESH_ID_LENGTH
from isthmus_router.message.control import BodyKind, Header, Message, decode_message, encode_message
from isthmus_router.message.types import Symbol

TRACKING_ADDRESS = "_$qd.edge_addr_tracking"
MESH_DISCOVERY_ADDRESS = "_$qd.mesh_discovery"

LONGEST_BYTES = 64 * 1024
"""No peer needs more for such a message; decoding megabytes of tiny values would hold up the whole router."""
_MESH_ID = "meshid"


class EdgeMessageError(ValueError):
    """A message between edge and interior is not what the protocol says."""


def encode_tracking(key: str, reachable: bool) -> bytes:
    """The message that deliveries to the mobile address `key` can, or can no longer, reach somebody."""
    return encode_message(Message(header=Header(durable=False), body=[key, reachable]))


def decode_tracking(payload: bytes) -> tuple[str, bool]:
    """(address key, reachable) of a tracking message. Raises EdgeMessageError."""
    body = _decode(payload).body
    if not isinstance(body, list) or len(body) != 2:
        raise EdgeMessageError("body is not a list of two")
    key, reachable = body
    if not isinstance(key, str) or not isinstance(reachable, bool):
        raise EdgeMessageError("body is not an address key and a boolean")
    if not is_mobile(key) or len(key) < 2:
        raise EdgeMessageError("not the key of a mobile address")
    return str(key), reachable


def encode_mesh_announcement(mesh_id: str) -> bytes:
    """The message by which an edge says to which mesh it belongs."""
    return encode_message(
        Message(
            header=Header(durable=False),
            application_properties={Symbol(_MESH_ID): mesh_id},
            body_kind=BodyKind.NONE,
        )
    )


def decode_mesh_announcement(payload: bytes) -> str:
    """The mesh id of an announcement. Raises EdgeMessageError."""
    mesh_id = _decode(payload).application_properties.get(_MESH_ID)
    if not isinstance(mesh_id, str) or len(mesh_id) != MESH_ID_LENGTH:
        raise EdgeMessageError(f"meshid is not a string of {MESH_ID_LENGTH} characters")
    return str(mesh_id)


def _decode(payload: bytes) -> Message:
    if len(payload) > LONGEST_BYTES:
        raise EdgeMessageError(f"longer than {LONGEST_BYTES} bytes")
    try:
        return decode_message(payload)
    except ValueError as error:
        raise EdgeMessageError(str(error)) from error
