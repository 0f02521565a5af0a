"""The border that the values of peers pass: each is decoded as a whole before anything of it is read, copied or sent.

The engine keeps a value as the bytes that a peer has sent, decodes it when it is first asked for, and reports no
failure. What it then has is a part of a tree, and to send a part on ends the process: its encoding has a negative
size. So no other module calls the functions of the engine that copy or encode values
(`tests/unit/amqp/test_checked.py`).

- `read_data` and `check_state` raise DecodeError, for which the connection of the event is closed.
- `copy_terminus` is for termini whose attach has been read by `terminus.read_attach`, which raises DecodeError.
- `copy_data` and `copy_condition` leave out a value that is not valid: an event of one connection may cause a copy
  from another one, whose own event closes that one.

Source: AMQP 1.0 part 1, 1.6 (encodings) and part 2, 2.8.7 (delivery-tag), 2.8.15 (`amqp:decode-error`).
"""

from __future__ import annotations

from typing import Any

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import NULL, Pointer, cstring, text
from isthmus_router.core.terms import Condition
from isthmus_router.message.types import DecodeError, decode_all

MOST_ITEMS = 1024
"""Values in one field, those in lists, maps and arrays included. The engine takes 72 bytes for each, and an array of
nulls has as many as it says, whatever its size."""
MOST_ITEMS_OF_CLIENT = 100
"""The same in a field of a frame of a client or a container. To read one takes 1 to 2 µs, and nothing else has its turn
before all fields of a frame are read."""
MOST_BYTES = 65_533
"""Of one field. The engine has room for 65,534 values, each of at least a byte but in such arrays, and then stops."""

MOST_TAG_BYTES = 32
"""Of a delivery tag. The engine keeps it as long as the delivery is unsettled, beside all bounds on bytes."""
LONG_TAG = Condition("amqp:invalid-field", f"a delivery tag has more than {MOST_TAG_BYTES} bytes")

MOST_ITEMS_OF_STATE = 256
"""In what belongs to the state of a delivery: one disposition gives it to thousands, and each has its own copy."""
MOST_ITEMS_OF_LASTING_STATE = 16
"""The same if the delivery is not settled with it, so that the engine keeps the state."""
MOST_DETAIL_BYTES = 1024
"""Of what belongs to a state that lasts, or that is copied to the other half of a delivery."""

_COMPOUND = frozenset((lib.PN_ARRAY, lib.PN_DESCRIBED, lib.PN_LIST, lib.PN_MAP))
_VALUES_PER_ITEM = 4
"""Nodes of the engine for each value that counts: of a described one also its descriptor, and what is around both."""
_STANDARD_STATES = range(lib.PN_RECEIVED, lib.PN_MODIFIED + 1)


def read_data(data: Pointer, most_items: int = MOST_ITEMS) -> Any:
    """The value in a `pn_data_t`, or None when it is empty. DecodeError if it is not valid or exceeds a limit."""
    if not data:
        return None
    if lib.pn_error_code(lib.pn_data_error(data)):
        raise DecodeError("the value ends too early", 0)
    size = lib.pn_data_encoded_size(data)
    if size == 0:
        return None
    if size < 0:
        raise DecodeError("the value is incomplete", 0)
    if size > MOST_BYTES:
        raise DecodeError(f"more than {MOST_BYTES} bytes in one field", 0)
    _check_structure(data, most_items)
    buffer = ffi.new("char[]", size)
    written = lib.pn_data_encode(data, buffer, size)
    return decode_all(ffi.unpack(buffer, max(written, 0)), most=most_items)


def _check_structure(data: Pointer, most_items: int) -> None:
    """Raise DecodeError for what the engine decodes wrongly, or for more values than that.

    - If the constructor of an array has a descriptor behind its descriptor, the engine takes the second one for an
      element. It encodes each element as the type of the array: a number as a string, whose bytes it reads from
      anywhere.
    - If the value that a descriptor describes has a descriptor itself, the engine takes what follows both for a part of
      the list or map before it.
    """
    around: list[tuple[int | None, bool, bool]] = []
    element, is_descriptor, is_described, count = None, False, False, 0
    lib.pn_data_rewind(data)
    while True:
        if lib.pn_data_next(data):
            count += 1
            if count > _VALUES_PER_ITEM * most_items:
                raise DecodeError(f"more than {most_items} values", 0)
            kind = lib.pn_data_type(data)
            if is_descriptor:
                is_descriptor = False
            elif element is not None and kind != element:
                raise DecodeError("an array has elements of different types", 0)
            elif is_described and kind == lib.PN_DESCRIBED:
                raise DecodeError("the value behind a descriptor has a descriptor itself", 0)
            if kind in _COMPOUND:
                around.append((element, is_descriptor, is_described))
                is_array, is_described = kind == lib.PN_ARRAY, kind == lib.PN_DESCRIBED
                element = lib.pn_data_get_array_type(data) if is_array else None
                is_descriptor = is_described or (is_array and lib.pn_data_is_array_described(data))
                lib.pn_data_enter(data)
        elif around:
            lib.pn_data_exit(data)
            element, is_descriptor, is_described = around.pop()
        else:
            break
    lib.pn_data_rewind(data)


def read_text(pointer: Pointer) -> str | None:
    """A string that a peer has sent, from the engine's `const char *`. DecodeError if it is no UTF-8."""
    try:
        return None if pointer == NULL else ffi.string(pointer).decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a string is no UTF-8", error.start) from error


def data_size(data: Pointer) -> int:
    """Bytes that a valid value takes in a frame."""
    return max(lib.pn_data_encoded_size(data), 0) if data else 0


def copy_data(source: Pointer, target: Pointer) -> None:
    """Copy a value, or nothing if it is not valid."""
    try:
        read_data(source)
    except DecodeError:
        return
    lib.pn_data_copy(target, source)


def copy_terminus(source: Pointer, target: Pointer) -> None:
    """Copy a `pn_terminus_t` as it is."""
    lib.pn_terminus_copy(target, source)


def condition_of(
    condition: Pointer, *, strict: bool = True, most_items: int = MOST_ITEMS
) -> tuple[str, str, Any] | None:
    """(name, description, info) of a `pn_condition_t`, or None when it is not set.

    For invalid info: DecodeError, or, unless `strict`, no info.
    """
    if condition == NULL or not lib.pn_condition_is_set(condition):
        return None
    try:
        info = read_data(lib.pn_condition_info(condition), most_items)
    except DecodeError:
        if strict:
            raise
        info = None
    return (
        text(lib.pn_condition_get_name(condition)) or "",
        text(lib.pn_condition_get_description(condition)) or "",
        info,
    )


def copy_condition(source: Pointer, target: Pointer) -> None:
    """Copy one `pn_condition_t` to another, with its info if that is valid."""
    if lib.pn_condition_is_set(source):
        lib.pn_condition_set_name(target, cstring(text(lib.pn_condition_get_name(source)) or ""))
        lib.pn_condition_set_description(
            target, cstring(text(lib.pn_condition_get_description(source)) or "")
        )
        copy_data(lib.pn_condition_info(source), lib.pn_condition_info(target))


def check_state(pn: Pointer, *, of_router: bool) -> None:
    """Check what belongs to the state that a peer has given a delivery. DecodeError if it is not valid or too large.

    `of_router`: the peer is a router or an edge, and may pass on the states of others.
    """
    state, remote = lib.pn_delivery_remote_state(pn), lib.pn_delivery_remote(pn)
    lasts = not of_router and not lib.pn_delivery_settled(pn)
    if state == lib.PN_REJECTED:
        condition = lib.pn_disposition_condition(remote)
        _check_detail(lib.pn_condition_info(condition), lasts=lasts)
        if lasts:
            _check_detail_bytes(len(text(lib.pn_condition_get_description(condition)) or ""))
    elif state == lib.PN_MODIFIED:
        _check_detail(lib.pn_disposition_annotations(remote), lasts=lasts)
    elif state and state not in _STANDARD_STATES:
        _check_detail(lib.pn_disposition_data(remote), lasts=lasts)


def _check_detail(data: Pointer, *, lasts: bool) -> None:
    read_data(data, MOST_ITEMS_OF_LASTING_STATE if lasts else MOST_ITEMS_OF_STATE)
    if lasts:
        _check_detail_bytes(data_size(data))


def _check_detail_bytes(size: int) -> None:
    if size > MOST_DETAIL_BYTES:
        raise DecodeError(
            f"{size} bytes in the state of an unsettled delivery: at most {MOST_DETAIL_BYTES}", 0
        )
