"""Addresses: how the text of a terminus or `to` field becomes the key under which routers agree on it.

A key is a class character and a name. Classes: `M` mobile, `L` local to this router, `T` topological (every
router), `R` next hop towards a router, `H` next hop towards an edge router.
Source: the router wire protocol's address hash (skupper-router family, no phase character).

A mobile address has phases 0 to 9: messages wait for consumers in the phase in which they are, and only what takes
them from one phase to another (a queue on a broker, a waypoint) joins them. Phase 0 has the plain name. The others
have a name of their own, `_$phase.1/orders`, in keys and wherever routers name an address to each other, so routers
that know no phases (skupper-router) carry them as addresses like any other. qpid-dispatch has the phase as a
character of every key instead, and shares no mobile address with this family.
"""

import re
from collections.abc import Iterable
from enum import StrEnum

TEMPORARY_PREFIX = "temp."
PHASE_PREFIX = "_$phase."
MAX_PHASE = 9
_WAYPOINT = re.compile(r"qd\.waypoint(?:[._]([1-9]))?")
_PHASED = re.compile(re.escape(PHASE_PREFIX) + r"([0-9])/(.+)", re.DOTALL)


class AddressClass(StrEnum):
    """First character of an address key."""

    MOBILE = "M"
    LOCAL = "L"
    TOPOLOGICAL = "T"
    ROUTER = "R"
    EDGE = "H"


def normalise(address: str) -> str:
    """`amqp://host/x`, `amqp:/x`, `/x`, `x/` and `x` all name `x`."""
    if address.startswith("amqp:"):
        address = address[5:]
        if address.startswith("//"):
            _, _, address = address[2:].partition("/")
    address = address.removeprefix("/")
    if len(address) > 1 and address[-1] in "./":
        address = address[:-1]
    return address


def address_key(address: str, router_id: str, *, edge: bool) -> str:
    """The key of `address` as the router `router_id` sees it.

    On an edge router, anything addressed to another router has the key `R` alone: the way there is the uplink.
    """
    name = normalise(address)
    if not name.startswith("_"):
        return AddressClass.MOBILE + name
    if name.startswith(PHASE_PREFIX):
        return AddressClass.MOBILE + with_phase(*split_phase(name))
    head, _, rest = name.partition("/")
    if head == "_local":
        return AddressClass.LOCAL + rest
    if head == "_topo":
        _area, _, rest = rest.partition("/")
        router, _, rest = rest.partition("/")
        if router == router_id:
            return AddressClass.LOCAL + rest
        if router == "all" and not edge:
            return AddressClass.TOPOLOGICAL + rest
        return AddressClass.ROUTER + ("" if edge else router)
    if head == "_edge":
        router, _, rest = rest.partition("/")
        if router == router_id:
            return AddressClass.LOCAL + rest
        return AddressClass.ROUTER if edge else AddressClass.EDGE + router
    return AddressClass.MOBILE + name


def is_mobile(key: str) -> bool:
    """Whether the key is of the class that clients name freely."""
    return key.startswith(AddressClass.MOBILE)


def with_phase(name: str, phase: int) -> str:
    """What routers call the address `name` in a phase."""
    return f"{PHASE_PREFIX}{phase}/{name}" if phase else name


def split_phase(name: str) -> tuple[str, int]:
    """The address's own name and the phase."""
    found = _PHASED.fullmatch(name)
    return (found[2], int(found[1])) if found else (name, 0)


def waypoint_phase(capabilities: Iterable[str], *, incoming: bool) -> int | None:
    """The phase of a link whose terminus claims to be a waypoint; None when it does not.

    `qd.waypoint` is the first one: it receives in phase 0 and sends in phase 1. `qd.waypoint.2` receives in phase 1
    and sends in phase 2, and so on; `_` will do for the `.`, as with qpid-dispatch. `incoming`: the link is one on
    which the waypoint sends to this router.
    """
    for capability in capabilities:
        found = _WAYPOINT.fullmatch(capability)
        if found:
            number = int(found[1] or 1)
            return number if incoming else number - 1
    return None
