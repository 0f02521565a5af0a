"""Sources and targets between proton's form and the core's."""

from __future__ import annotations

from cproton_ffi import lib

from isthmus_router.amqp.engine import Pointer, capability, cstring, read_data, symbols, text, write_data
from isthmus_router.core.terms import Terminus
from isthmus_router.message.types import Described, Symbol, ULong

NODE_ADDRESS = "x-opt-qd.address"
DELETE_ON_CLOSE = Described(ULong(0x2B), [])


def read_terminus(pn: Pointer) -> Terminus:
    """The core's view of a remote `pn_terminus_t`."""
    kind = lib.pn_terminus_get_type(pn)
    address = text(lib.pn_terminus_get_address(pn))
    dynamic = bool(lib.pn_terminus_is_dynamic(pn))
    return Terminus(
        address=address or None,
        dynamic=dynamic,
        capabilities=symbols(lib.pn_terminus_capabilities(pn)),
        coordinator=kind == lib.PN_COORDINATOR,
        absent=kind == lib.PN_UNSPECIFIED,
        outlives=lib.pn_terminus_get_timeout(pn) > 0
        or lib.pn_terminus_get_expiry_policy(pn) == lib.PN_EXPIRE_NEVER,
        node_address=_node_address(pn) if dynamic else None,
    )


def _node_address(pn: Pointer) -> str | None:
    properties = read_data(lib.pn_terminus_properties(pn))
    found = properties.get(NODE_ADDRESS) if isinstance(properties, dict) else None
    return found if isinstance(found, str) else None


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
    """
    lib.pn_terminus_copy(local, remote)
    lib.pn_data_clear(lib.pn_terminus_filter(local))
    lib.pn_terminus_set_distribution_mode(local, lib.PN_DIST_MODE_UNSPECIFIED)
    lib.pn_terminus_set_durability(local, lib.PN_NONDURABLE)
    lib.pn_terminus_set_expiry_policy(local, lib.PN_EXPIRE_WITH_LINK)
    lib.pn_terminus_set_timeout(local, 0)
    if terminus.dynamic:
        write_data(lib.pn_terminus_properties(local), {Symbol("lifetime-policy"): DELETE_ON_CLOSE})
    if terminus.address is not None and text(lib.pn_terminus_get_address(remote)) != terminus.address:
        lib.pn_terminus_set_address(local, cstring(terminus.address))


def null_terminus(pn: Pointer) -> None:
    """The null terminus of a refused attach."""
    lib.pn_terminus_set_type(pn, lib.PN_UNSPECIFIED)
