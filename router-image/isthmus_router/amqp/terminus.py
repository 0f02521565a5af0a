"""Sources and targets between proton's form and the core's."""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from isthmus_router.amqp.checked import (
    MOST_ITEMS,
    MOST_ITEMS_OF_CLIENT,
    copy_terminus,
    data_size,
    read_data,
    read_text,
)
from isthmus_router.amqp.engine import Pointer, capability, cstring, text, write_data
from isthmus_router.core.terms import NO_CAPABILITIES, Terminus, known_capabilities
from isthmus_router.message.types import Array, Described, Symbol, ULong

NODE_ADDRESS = "x-opt-qd.address"
DELETE_ON_CLOSE = Described(ULong(0x2B), [])


def _free(connection: Pointer, engine: Any = lib) -> None:
    engine.pn_connection_release(connection)
    engine.pn_decref(connection)


_connection = ffi.gc(lib.pn_connection(), _free)
_link = lib.pn_sender(lib.pn_session(_connection), b"")
_source, _target = lib.pn_link_source(_link), lib.pn_link_target(_link)
"""Of a link that is never attached."""


MOST_LINK_PROPERTIES = 100
"""Values in the properties of a link. The engine keeps them decoded as long as the link is there, 72 bytes for each."""


def read_attach(pn: Pointer, *, of_router: bool) -> tuple[Terminus, Terminus, int]:
    """Return source, target and size of an attach that the peer of a link has sent.

    The size is that of its names and values in bytes. DecodeError if a part is not valid. `of_router`: the peer is a
    router or an edge, and may pass on the values of others.
    """
    properties = lib.pn_link_remote_properties(pn)
    read_data(properties, MOST_LINK_PROPERTIES)
    most = MOST_ITEMS if of_router else MOST_ITEMS_OF_CLIENT
    source = _read_terminus(lib.pn_link_remote_source(pn), _source, most)
    target = _read_terminus(lib.pn_link_remote_target(pn), _target, most)
    size = size_of_link(pn) + data_size(properties) + _size_of_parts(_source) + _size_of_parts(_target)
    return source, target, size


def name_size(pn: Pointer) -> int:
    """Bytes of the name of a link. An invalid attach may have none."""
    name = lib.pn_link_name(pn)
    return len(ffi.string(name)) if name else 0


def size_of_link(pn: Pointer) -> int:
    """Bytes of the names that the peer of a link has given it: its own, and those of its source and target."""
    names = (
        lib.pn_link_name(pn),
        lib.pn_terminus_get_address(lib.pn_link_remote_source(pn)),
        lib.pn_terminus_get_address(lib.pn_link_remote_target(pn)),
    )
    return sum(len(ffi.string(name)) for name in names if name)


def _read_terminus(remote: Pointer, scratch: Pointer, most: int) -> Terminus:
    """The core's view of a remote `pn_terminus_t`. It goes on having bytes, which take less: its copy is decoded."""
    copy_terminus(remote, scratch)
    capabilities = read_data(lib.pn_terminus_capabilities(scratch), most)
    properties = read_data(lib.pn_terminus_properties(scratch), most)
    read_data(lib.pn_terminus_filter(scratch), most)
    read_data(lib.pn_terminus_outcomes(scratch), most)
    kind = lib.pn_terminus_get_type(scratch)
    dynamic = bool(lib.pn_terminus_is_dynamic(scratch))
    node = properties.get(NODE_ADDRESS) if dynamic and isinstance(properties, dict) else None
    return Terminus(
        address=read_text(lib.pn_terminus_get_address(scratch)) or None,
        dynamic=dynamic,
        capabilities=capabilities_of(capabilities),
        coordinator=kind == lib.PN_COORDINATOR,
        absent=kind == lib.PN_UNSPECIFIED,
        outlives=lib.pn_terminus_get_timeout(scratch) > 0
        or lib.pn_terminus_get_expiry_policy(scratch) == lib.PN_EXPIRE_NEVER,
        node_address=node if isinstance(node, str) else None,
    )


def size_of_values(remote: Pointer) -> int:
    """Bytes of the values of a remote `pn_terminus_t` in a frame. It goes on having bytes, as above."""
    copy_terminus(remote, _source)
    return _size_of_parts(_source)


def _size_of_parts(scratch: Pointer) -> int:
    parts = (
        lib.pn_terminus_properties,
        lib.pn_terminus_capabilities,
        lib.pn_terminus_outcomes,
        lib.pn_terminus_filter,
    )
    return sum(data_size(part(scratch)) for part in parts)


def pass_on_terminus(remote: Pointer, local: Pointer) -> None:
    """Copy a terminus of one peer for another one. The engine encodes the values anew.

    It sends bytes as they came, and what it has decoded may have had wrong sizes.
    """
    size_of_values(remote)  # decodes the copy
    copy_terminus(_source, local)


def capabilities_of(value: Any) -> frozenset[str]:
    """Those that the router acts on, of a symbol or an array of them."""
    if isinstance(value, str):
        return known_capabilities((str(value),))
    if isinstance(value, Array):
        return known_capabilities(str(item) for item in value.elements)
    return NO_CAPABILITIES


def write_terminus(pn: Pointer, terminus: Terminus, kind: int) -> None:
    """Fill a local `pn_terminus_t` from nothing, for a link this router opens."""
    lib.pn_terminus_set_type(pn, kind)
    if terminus.address is not None:
        lib.pn_terminus_set_address(pn, cstring(terminus.address))
    if terminus.capabilities:
        write_data(lib.pn_terminus_capabilities(pn), capability(*sorted(terminus.capabilities)))


def answer_terminus(local: Pointer, remote: Pointer, terminus: Terminus) -> None:
    """Answer with the peer's terminus as it came, but for an address the router made up and what it does not do.

    It does not filter or browse, and nothing is left of a terminus, or of the node made for it, after its link
    (AMQP 1.0 part 3, 3.5.3 and 3.5.9: the answer tells what is in place).

    The engine decodes a value when it is asked for it, and then retains the memory, also of a value that is cleared. So
    the values are changed elsewhere, and those that nobody reads are copied as bytes.
    """
    copy_terminus(remote, _source)
    lib.pn_data_clear(lib.pn_terminus_filter(_source))
    if terminus.dynamic:
        write_data(lib.pn_terminus_properties(_source), {Symbol("lifetime-policy"): DELETE_ON_CLOSE})
    copy_terminus(_source, local)
    lib.pn_terminus_set_distribution_mode(local, lib.PN_DIST_MODE_UNSPECIFIED)
    lib.pn_terminus_set_durability(local, lib.PN_NONDURABLE)
    lib.pn_terminus_set_expiry_policy(local, lib.PN_EXPIRE_WITH_LINK)
    lib.pn_terminus_set_timeout(local, 0)
    if terminus.address is not None and text(lib.pn_terminus_get_address(remote)) != terminus.address:
        lib.pn_terminus_set_address(local, cstring(terminus.address))


def null_terminus(pn: Pointer) -> None:
    """The null terminus of a refused attach."""
    lib.pn_terminus_set_type(pn, lib.PN_UNSPECIFIED)
