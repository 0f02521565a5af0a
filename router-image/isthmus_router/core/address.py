"""Addresses: how the text of a terminus or `to` field becomes the key under which routers agree on it.

A key is a class character and a name. Classes: `M` mobile, `L` local to this router, `T` topological (every
router), `R` next hop towards a router, `H` next hop towards an edge router.
Source: the router wire protocol's address hash (skupper-router family, no phase character).
"""

from enum import StrEnum

TEMPORARY_PREFIX = "temp."


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
