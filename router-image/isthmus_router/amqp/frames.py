"""What fits into a frame of a peer, where something is copied from another peer, whose frames may be larger.

The engine does not look: it sends a performative that is too large for the peer, which then closes the connection, and
a transfer whose performative leaves no room for a payload it goes on sending for ever.

Source: AMQP 1.0 part 2, 2.3 (frames; only the payload of a transfer is spread over several), 2.7.1 (max-frame-size).
"""

from __future__ import annotations

from cproton_ffi import ffi, lib

from isthmus_router.amqp.checked import condition_of, copy_condition, data_size
from isthmus_router.amqp.engine import Pointer, set_condition
from isthmus_router.amqp.terminus import size_of_values
from isthmus_router.core.terms import Condition
from isthmus_router.message.types import encode

OTHER_FIELDS = 144
"""Bytes: frame header, and all fields of a performative but those that are counted here; a tag has up to 32."""
UNLIMITED = 1 << 32
TOO_LARGE = Condition("amqp:frame-size-too-small", "Too large for a frame of the next connection")
ATTACH_TOO_LARGE = Condition(
    "amqp:frame-size-too-small", "The attach is too large for a frame on the way to the container"
)


def room(transport: Pointer) -> int:
    """Bytes of a frame that its peer reads, for what varies in size."""
    size: int = lib.pn_transport_get_remote_max_frame(transport)
    return (size or UNLIMITED) - OTHER_FIELDS


def room_of_delivery(pn: Pointer) -> int:
    """The same, for the state of a delivery."""
    connection = lib.pn_session_connection(lib.pn_link_session(lib.pn_delivery_link(pn)))
    return room(lib.pn_connection_transport(connection))


def attach_size(pn: Pointer, name: str, address: str | None) -> int:
    """Bytes, at most, of an attach as the peer of `pn` has sent it, but with this name and, if given, address."""
    most = len(name.encode()) + 5 + data_size(lib.pn_link_remote_properties(pn))
    for terminus in (lib.pn_link_remote_source(pn), lib.pn_link_remote_target(pn)):
        own = lib.pn_terminus_get_address(terminus)
        most += 64 + (len(ffi.string(own)) if own else 0)
        most += size_of_values(terminus)
    return most if address is None else most + len(address.encode())


def shorten(condition: Condition, most: int) -> Condition:
    """A condition of so many bytes at most: its info is left out, then the end of its description."""
    name, description, info = condition.name, condition.description, condition.info
    left = most - len(name) - 5
    if left < 0:
        return Condition("amqp:internal-error", "")
    if info is not None and len(encode(info)) + len(description.encode()) + 5 > left:
        info = None
    cut = description.encode()[: left - 5] if info is None else description.encode()
    return Condition(name, cut.decode(errors="ignore"), info)


def copy_outcome_condition(source: Pointer, target: Pointer, most: int) -> None:
    """Copy a `pn_condition_t`, as much of it as takes `most` bytes."""
    found = condition_of(source, strict=False)
    if found is None:
        return
    whole = Condition(*found)
    fitting = shorten(whole, most)
    if fitting == whole:
        copy_condition(source, target)
    else:
        set_condition(target, fitting.name, fitting.description, fitting.info)
