"""The six control messages of the routing protocol, typed, and their encoding.

================================  ======  ==================================  =======================
message                           opcode  address                             sent to
================================  ======  ==================================  =======================
:class:`Hello`                    HELLO   ``amqp:/_local/qdhello``            one control link
:class:`RouterAdvertisement`      RA      ``amqp:/_topo/0/all/qdrouter``      every router
:class:`LinkStateRequest`         LSR     ``amqp:/_topo/0/<id>/qdrouter``     one router
:class:`LinkStateUpdate`          LSU     ``amqp:/_topo/0/<id>/qdrouter``     the router that asked
:class:`MobileAddressRequest`     MAR     ``amqp:/_topo/0/<id>/qdrouter.ma``  one router
:class:`MobileAddressUpdate`      MAU     ``_topo/0/all/qdrouter.ma``, or     every router, or
                                          as MAR                              the router that asked
================================  ======  ==================================  =======================

Every body is a map. HELLO, RA, LSR and LSU have string keys, MAR and MAU symbol keys; readers accept both,
and every integer width. The router annotation section is not part of what is encoded here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from isthmus_router.core.treatment import Treatment
from isthmus_router.message.control import Header, Message, Properties, decode_message, encode_message
from isthmus_router.message.types import DecodeError, Encoded, Int, Symbol, encode

from .linkstate import LinkState

AREA = "0"

HELLO_ADDRESS = "amqp:/_local/qdhello"
ALL_ROUTERS_ADDRESS = f"amqp:/_topo/{AREA}/all/qdrouter"
ALL_ROUTERS_MOBILE_ADDRESS = f"_topo/{AREA}/all/qdrouter.ma"

ROUTER_VERSION = 1
"""Protocol version of HELLO, RA, LSR and LSU."""
MOBILE_VERSION = 2
"""Protocol version of MAR and MAU."""

MAX_COST = Int.maximum
"""Of one link; what a router announces beyond that counts as this."""

MAX_PEERS = 128
"""In one link state, and of routers in one HELLO: no network has more routers."""
MAX_VALUES = 4096
"""In a control message, or in what is decoded at once of a large update of addresses."""
LONGEST_ID = 127
"""Bytes of a router id, as the configuration has it."""
LONGEST_KEY = 65_536
"""Characters of an address."""

LONGEST_MESH_ID = 64
"""Characters; the protocol has 15."""

_MAX_NUMBER = 2**63 - 1
"""Numbers are passed on as AMQP int or long."""


class ControlMessageError(ValueError):
    """A control message that cannot be used; the text says why."""


class UnsupportedVersionError(ControlMessageError):
    """A control message of a newer (or, for mobile addresses, an incompatible older) protocol version."""

    def __init__(self, router: str, version: int) -> None:
        super().__init__(f"{router} speaks protocol version {version}")
        self.router = router
        self.version = version


@dataclass(frozen=True, slots=True)
class MobileAddress:
    """What a router advertises about an address with consumers there; ``key`` is the hash key: ``Mfoo``."""

    key: str
    treatment: Treatment
    in_links: int = 0
    """Number of links there that produce to the address."""
    capacity: int | None = None
    """Credit of the links there that consume from it, if known."""
    mesh_id: str | None = None
    """Set if all consumers are in one mesh of edge routers."""


@dataclass(frozen=True, slots=True)
class Hello:
    opcode: ClassVar[str] = "HELLO"
    router: str
    instance: int
    seen: tuple[str, ...]
    """Routers heard lately by the sender."""
    version: int = ROUTER_VERSION


@dataclass(frozen=True, slots=True)
class RouterAdvertisement:
    opcode: ClassVar[str] = "RA"
    router: str
    instance: int
    link_state_sequence: int
    mobile_sequence: int
    version: int = ROUTER_VERSION


@dataclass(frozen=True, slots=True)
class LinkStateRequest:
    opcode: ClassVar[str] = "LSR"
    router: str
    version: int = ROUTER_VERSION


@dataclass(frozen=True, slots=True)
class LinkStateUpdate:
    opcode: ClassVar[str] = "LSU"
    router: str
    instance: int
    link_state: LinkState
    version: int = ROUTER_VERSION


@dataclass(frozen=True, slots=True)
class MobileAddressRequest:
    opcode: ClassVar[str] = "MAR"
    router: str
    have_sequence: int


@dataclass(frozen=True, slots=True)
class MobileAddressUpdate:
    """Absolute: ``present`` is the whole set. Differential: ``present`` came or changed, ``gone`` went."""

    opcode: ClassVar[str] = "MAU"
    router: str
    sequence: int
    absolute: bool
    present: tuple[MobileAddress, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddressSnapshot:
    """As an absolute MobileAddressUpdate, with the addresses encoded already (`encode_descriptors`)."""

    opcode: ClassVar[str] = MobileAddressUpdate.opcode
    router: str
    sequence: int
    present: bytes


ControlMessage: TypeAlias = (
    Hello
    | RouterAdvertisement
    | LinkStateRequest
    | LinkStateUpdate
    | MobileAddressRequest
    | MobileAddressUpdate
)


def control_address(router: str) -> str:
    """Where LSR and LSU for ``router`` are sent."""
    return f"amqp:/_topo/{AREA}/{router}/qdrouter"


def mobile_control_address(router: str) -> str:
    """Where MAR and absolute MAU for ``router`` are sent."""
    return f"{control_address(router)}.ma"


# --- encoding -----------------------------------------------------------------------------------------------


def encode_control(message: ControlMessage | AddressSnapshot, to: str) -> bytes:
    """The complete AMQP message, header to body, addressed ``to``."""
    match message:
        case Hello():
            fields: dict[str, object] = {
                "instance": _integer(message.instance),
                "seen": list(message.seen),
            }
            return _encode_router(message.opcode, to, message.router, fields)
        case RouterAdvertisement():
            fields = {
                "instance": _integer(message.instance),
                "ls_seq": _integer(message.link_state_sequence),
                "mobile_seq": _integer(message.mobile_sequence),
            }
            return _encode_router(message.opcode, to, message.router, fields)
        case LinkStateRequest():
            return _encode_router(message.opcode, to, message.router, {})
        case LinkStateUpdate():
            state = message.link_state
            fields = {
                "instance": _integer(message.instance),
                "ls_seq": _integer(state.sequence),
                "ls": {
                    "id": state.router,
                    "area": AREA,
                    "ls_seq": _integer(state.sequence),
                    "peers": {peer: _integer(cost) for peer, cost in state.peers.items()},
                },
            }
            return _encode_router(message.opcode, to, message.router, fields)
        case MobileAddressRequest():
            return _encode_mobile(message.opcode, to, message.router, {"have_seq": message.have_sequence})
        case MobileAddressUpdate():
            present = [_descriptor(address) for address in message.present]
            fields = {"mobile_seq": message.sequence}
            if message.absolute:
                fields["exist"] = present
            else:
                fields["add"] = present
                fields["del"] = [[key] for key in message.gone]
            return _encode_mobile(message.opcode, to, message.router, fields)
        case AddressSnapshot():
            fields = {"mobile_seq": message.sequence, "exist": Encoded(message.present)}
            return _encode_mobile(message.opcode, to, message.router, fields)


def encode_descriptors(addresses: Iterable[MobileAddress]) -> bytes:
    """The addresses as the elements of a list, one after the other."""
    return b"".join(encode(_descriptor(address)) for address in addresses)


def encode_list(elements: Sequence[bytes], count: int) -> bytes:
    """A list of `count` values, of which some are in each of the `elements`."""
    body = b"".join(elements)
    return b"\xd0" + struct.pack(">II", len(body) + 4, count) + body


def _encode_router(opcode: str, to: str, router: str, fields: Mapping[str, object]) -> bytes:
    return _encode(to, {"opcode": opcode}, {"id": router, "pv": Int(ROUTER_VERSION), "area": AREA, **fields})


def _encode_mobile(opcode: str, to: str, router: str, fields: Mapping[str, object]) -> bytes:
    body = {"id": router, "pv": MOBILE_VERSION, "area": AREA, **fields}
    return _encode(to, {Symbol("opcode"): opcode}, {Symbol(key): value for key, value in body.items()})


def _encode(to: str, application_properties: Mapping[str, object], body: Mapping[str, object]) -> bytes:
    return encode_message(
        Message(
            header=Header(durable=False),
            properties=Properties(to=to),
            application_properties=application_properties,
            body=body,
        )
    )


def _integer(value: int) -> int:
    """AMQP int where it fits, else long."""
    return Int(value) if value <= Int.maximum else value


def _descriptor(address: MobileAddress) -> list[object]:
    descriptor: list[object] = [
        address.key,
        int(address.treatment),
        address.in_links,
        address.capacity,
    ]
    if address.mesh_id is not None:
        descriptor.append(address.mesh_id)
    return descriptor


# --- decoding -----------------------------------------------------------------------------------------------


def decode_control(payload: bytes, *, most: int = MAX_VALUES) -> ControlMessage:
    """Read a complete message of at most `most` values, with or without router annotations.

    Raises ControlMessageError.
    """
    try:
        message = decode_message(payload, most=most)
    except DecodeError as error:
        raise ControlMessageError(str(error)) from error
    opcode = message.application_properties.get("opcode")
    body = message.body
    if not isinstance(opcode, str) or not isinstance(body, dict):
        raise ControlMessageError("no opcode, or the body is not a map")
    router = read_router_id(body)
    version = read_number(body, "pv")
    if read_text(body, "area") != AREA:
        raise ControlMessageError(f"{opcode} of another area")
    if opcode in ("MAR", "MAU"):
        # Version 1 (qpid-dispatch) has other descriptors, and other keys for the same addresses.
        if version != MOBILE_VERSION:
            raise UnsupportedVersionError(router, version)
    elif version > ROUTER_VERSION:
        raise UnsupportedVersionError(router, version)
    match opcode:
        case "HELLO":
            seen = tuple(item for item in _list(body, "seen") if isinstance(item, str))
            if len(seen) > MAX_PEERS:
                raise ControlMessageError(f"HELLO with {len(seen)} routers: at most {MAX_PEERS}")
            return Hello(router, read_number(body, "instance"), seen, version)
        case "RA":
            return RouterAdvertisement(
                router,
                read_number(body, "instance"),
                read_number(body, "ls_seq"),
                read_number(body, "mobile_seq"),
                version,
            )
        case "LSR":
            return LinkStateRequest(router, version)
        case "LSU":
            return LinkStateUpdate(router, read_number(body, "instance"), _link_state(body, router), version)
        case "MAR":
            return MobileAddressRequest(router, read_number(body, "have_seq"))
        case "MAU":
            return _mobile_update(body, router)
        case _:
            raise ControlMessageError(f"unknown opcode {opcode}")


def _field(body: Mapping[str, object], name: str) -> object:
    value = body.get(name)
    if value is None:
        raise ControlMessageError(f"field {name} is missing")
    return value


def read_text(body: Mapping[str, object], name: str) -> str:
    """A field that must be a string."""
    value = _field(body, name)
    if not isinstance(value, str):
        raise ControlMessageError(f"field {name} is not a string")
    return value


def read_router_id(body: Mapping[str, object]) -> str:
    """The id of the router that sends."""
    value = read_text(body, "id")
    if not value:
        raise ControlMessageError("field id is empty")
    _check_id(value)
    return value


def _check_id(router: str) -> None:
    if len(router) > LONGEST_ID or len(router.encode(errors="replace")) > LONGEST_ID:
        raise ControlMessageError(f"a router id is longer than {LONGEST_ID} bytes")


def read_number(body: Mapping[str, object], name: str) -> int:
    """A field that must be a number."""
    value = _field(body, name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        raise ControlMessageError(f"field {name} is not an unsigned number")
    return int(value)


def _list(body: Mapping[str, object], name: str) -> list[object]:
    value = _field(body, name)
    if not isinstance(value, list):
        raise ControlMessageError(f"field {name} is not a list")
    return value


def link_cost(announced: int) -> int:
    """The cost at which a link counts: below 1 would break the order in which paths are settled."""
    return min(max(1, announced), MAX_COST)


def _link_state(body: Mapping[str, object], router: str) -> LinkState:
    state = _field(body, "ls")
    if not isinstance(state, dict) or read_text(state, "id") != router:
        raise ControlMessageError("field ls is not the sender's link state")
    peers = _field(state, "peers")
    if not isinstance(peers, dict):
        raise ControlMessageError("field peers is not a map")
    if len(peers) > MAX_PEERS:
        raise ControlMessageError(f"link state with {len(peers)} peers: at most {MAX_PEERS}")
    costs: dict[str, int] = {}
    for peer in peers:
        if not isinstance(peer, str) or not peer:
            raise ControlMessageError("peer is not a router id")
        _check_id(peer)
        costs[peer] = link_cost(read_number(peers, peer))
    return LinkState(router, read_number(state, "ls_seq"), costs)


def _mobile_update(body: Mapping[str, object], router: str) -> MobileAddressUpdate:
    sequence = read_number(body, "mobile_seq")
    if body.get("exist") is not None:
        present = tuple(read_mobile_address(item) for item in _list(body, "exist"))
        return MobileAddressUpdate(router, sequence, absolute=True, present=present)
    present = tuple(read_mobile_address(item) for item in _list(body, "add"))
    gone = tuple(read_mobile_key(item) for item in _list(body, "del"))
    return MobileAddressUpdate(router, sequence, absolute=False, present=present, gone=gone)


def read_mobile_key(descriptor: object) -> str:
    """The key of an announced address."""
    if not isinstance(descriptor, list) or not descriptor:
        raise ControlMessageError("address descriptor is not a list")
    key = descriptor[0]
    if not isinstance(key, str) or not key:
        raise ControlMessageError("address descriptor without key")
    if len(key) > LONGEST_KEY:
        raise ControlMessageError(f"an address is longer than {LONGEST_KEY} characters")
    return key


def read_mobile_address(descriptor: object) -> MobileAddress:
    """An announced address. Trailing elements may be absent, and elements of an unexpected type count as absent."""
    key = read_mobile_key(descriptor)
    assert isinstance(descriptor, list)
    treatment, in_links, capacity, mesh_id, *_ = [*descriptor[1:], None, None, None, None]
    return MobileAddress(
        key,
        _treatment(treatment),
        in_links if isinstance(in_links, int) else 0,
        capacity if isinstance(capacity, int) else None,
        _mesh_id(mesh_id),
    )


def _treatment(value: object) -> Treatment:
    """A treatment this version does not know is taken as balanced, as for an address nobody configured."""
    try:
        return Treatment(value) if isinstance(value, int) else Treatment.BALANCED
    except ValueError:
        return Treatment.BALANCED


def _mesh_id(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) <= LONGEST_MESH_ID else None
