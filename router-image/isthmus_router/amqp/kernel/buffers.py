"""Memory that deliveries retain in the engine.

A delivery has a buffer for what has arrived and is not read, or is to be sent and not written. The engine empties it
and never makes it smaller, until the delivery is settled and beyond: the router would hold 128 KiB for each message of
60 KB that a receiver has and does not settle. So large buffers are given back when they are empty.

Buffers are dear to enlarge, as the engine copies what is in them. So some that are given back become spare ones for
what is sent next, and the deliveries that were read last retain theirs, for more of the same delivery or for the one
that takes its place. A buffer is a ring. If what it holds is not at its beginning, the engine turns the whole ring
around byte by byte before it writes. That is so after a write that has left something, and when the engine has enlarged
a full buffer. So what is left is moved to the beginning, and full buffers are replaced by larger ones.

Source: `pn_delivery_t` and `pn_buffer_t` of qpid-proton, `core/engine-internal.h` and `core/buffer.c`.
"""

from __future__ import annotations

import ctypes
from itertools import islice
from typing import TYPE_CHECKING

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer, library

if TYPE_CHECKING:
    from isthmus_router.amqp.kernel.state import ConnectionState
    from isthmus_router.core.model import Link

RETAINED_BYTES = 4096
"""Capacity of a buffer that a delivery retains."""
WRITTEN_AT_ONCE = 256
"""Deliveries that are examined after each write, at least; half of them if there are more."""
MOST_RETAINED, MOST_SPARES = 128, 64
"""Large buffers of the process that deliveries retain though they hold little or nothing, and spare ones."""
SHRINKING = 4
"""A buffer that is not retained, and has room for this many times what it holds, is replaced by a smaller one."""
LARGEST_SPARE = 256 * 1024
"""The largest capacity of such a buffer, in bytes. While a message is passed on as it arrives, no more than
`STREAM_OUTGOING_HIGH` and `CHUNK_BYTES` of it wait in one."""

_buffer, _free, _capacity, _size, _append, _trim, _get = (
    library.pn_buffer,
    library.pn_buffer_free,
    library.pn_buffer_capacity,
    library.pn_buffer_size,
    library.pn_buffer_append,
    library.pn_buffer_trim,
    library.pn_buffer_get,
)
_buffer.restype, _buffer.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_free.restype, _free.argtypes = None, [ctypes.c_void_p]
for _of_buffer in (_capacity, _size):
    _of_buffer.restype, _of_buffer.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
_append.restype, _append.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
_trim.restype, _trim.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
_get.restype = ctypes.c_size_t
_get.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_char_p]
_record = library.pn_delivery_attachments
_record.restype, _record.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

_WORDS = 40
"""Words of a delivery that are searched. It has no fewer."""
_cast = ffi.cast
_spares: list[int] = []
_retained: dict[Pointer, ConnectionState] = {}


def _place() -> int:
    """Which word of a delivery points to its buffer: the one before that for its context. ImportError if not."""
    connection = lib.pn_connection()
    session = lib.pn_session(connection)
    link = lib.pn_sender(session, b"probe")
    tag = ffi.new("pn_bytes_t *")
    text = ffi.new("char[]", b"0")
    tag.start, tag.size = text, 1
    delivery = lib.pn_delivery(link, tag[0])
    lib.pn_link_send(link, bytes(3000), 3000)
    words = ffi.unpack(_cast("uintptr_t *", delivery), _WORDS)
    context = _record(int(_cast("uintptr_t", delivery)))
    place = words.index(context) - 1 if words.count(context) == 1 else -1
    another = _buffer(0) or 0
    right = (
        place > 0
        and words[place] % ffi.sizeof("void *") == 0
        # Allocators may separate sizes, as that of AddressSanitizer does; buffers are as large as one another.
        and abs(words[place] - another) < 2**32
        and (_size(words[place]), _capacity(words[place])) == (3000, 4096)
    )
    _free(another)
    lib.pn_link_free(link)
    lib.pn_session_free(session)
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)
    if not right:
        raise ImportError("the deliveries of the engine are laid out in another way than expected")
    return place


BUFFER_PLACE = _place()
"""Word of a delivery."""


START_PLACE = 3
"""32-bit word of a buffer that is the place of its first byte. A buffer begins with the pointer to its memory."""


def _check_layout() -> None:
    """Raise ImportError if the buffers of the engine are laid out in another way."""
    probe = _buffer(4096)
    data = bytes(range(1, 251)) * 12
    _append(probe, data, len(data))
    _trim(probe, 1000, 0)
    numbers = ffi.unpack(_cast("uint32_t *", probe) + START_PLACE - 1, 3)  # the first one is its capacity
    right = numbers == [4096, 1000, 2000] and bytes(ffi.buffer(_memory(probe) + 1000, 2000)) == data[1000:]
    _free(probe)
    if not right:
        raise ImportError("the buffers of the engine are laid out in another way than expected")


def _memory(buffer: int) -> Pointer:
    return _cast("char **", buffer)[0]


_check_layout()


def capacity(pn: Pointer) -> int:
    """Of the buffer of a delivery, in bytes."""
    return int(_capacity(_buffer_of(pn)))


def _buffer_of(pn: Pointer) -> int:
    return int(_cast("uintptr_t *", pn)[BUFFER_PLACE])


def equip(pn: Pointer, size: int) -> None:
    """Prepare the buffer of a delivery that is to send `size` bytes: a spare one for an empty small one, or room behind
    what it holds."""
    words = _cast("uintptr_t *", pn)
    before = words[BUFFER_PLACE]
    held = _size(before)
    if held:
        _straighten(before)
        if held + size > _capacity(before):
            _enlarge(pn, held, size)
    elif size > RETAINED_BYTES >= _capacity(before) and _spares:
        words[BUFFER_PLACE] = _spares.pop()
        _free(before)


def _straighten(buffer: int) -> None:
    """Move what a buffer holds to its beginning if it is in one piece."""
    words = _cast("uint32_t *", buffer)
    start, held = words[START_PLACE], _size(buffer)
    if 0 < start <= _capacity(buffer) - held:
        memory = _memory(buffer)
        ffi.memmove(memory, memory + start, held)
        words[START_PLACE] = 0


def _enlarge(pn: Pointer, held: int, size: int) -> None:
    """Give a delivery a buffer with room for `size` bytes behind the `held` ones if these are at its beginning."""
    words = _cast("uintptr_t *", pn)
    before = words[BUFFER_PLACE]
    if _cast("uint32_t *", before)[START_PLACE]:
        return
    larger = _buffer(max(held + size, 2 * _capacity(before)))
    if larger and not _append(larger, ctypes.c_char_p(int(_cast("uintptr_t", _memory(before)))), held):
        words[BUFFER_PLACE] = larger
        _free(before)
    elif larger:
        _free(larger)


def release(pn: Pointer) -> None:
    """Give the buffer of a delivery back if it is large and empty."""
    words = _cast("uintptr_t *", pn)
    before = words[BUFFER_PLACE]
    if _capacity(before) > RETAINED_BYTES and _size(before) == 0 and (empty := _buffer(0)):
        words[BUFFER_PLACE] = empty
        if len(_spares) < MOST_SPARES and _capacity(before) <= LARGEST_SPARE:
            _spares.append(before)
        else:
            _free(before)


def _reduce(pn: Pointer) -> None:
    """Give the buffer of a delivery back if it is empty, or replace it by a smaller one if it holds little."""
    before = _buffer_of(pn)
    held = _size(before)
    if held == 0:
        release(pn)
    if not 0 < held * SHRINKING <= _capacity(before) or _capacity(before) <= RETAINED_BYTES:
        return
    data = ctypes.create_string_buffer(held)
    smaller = _buffer(held)
    if smaller and _get(before, 0, held, data) == held and not _append(smaller, data, held):
        _cast("uintptr_t *", pn)[BUFFER_PLACE] = smaller
        _free(before)
    elif smaller:
        _free(smaller)


def retain(connection: ConnectionState, pn: Pointer) -> None:
    """Let a delivery that has been read, or waits to be, have its buffer, if it is not too large, in the place of
    another one."""
    size = capacity(pn)
    if size > LARGEST_SPARE:
        _reduce(pn)
    elif size > RETAINED_BYTES and pn not in _retained:
        _retained[pn] = connection
        if len(_retained) > MOST_RETAINED:
            oldest = next(iter(_retained))
            del _retained[oldest]
            _reduce(oldest)


def forget(connection: ConnectionState) -> None:
    """The deliveries of a connection are about to be freed."""
    for pn in [pn for pn, owner in _retained.items() if owner is connection]:
        del _retained[pn]


def release_written(out: Link, pn: Pointer) -> None:
    """Give the buffer of a delivery on an OUT link back, if it is large, once what it holds is written."""
    if capacity(pn) > RETAINED_BYTES:
        out.connection.io.unwritten[pn] = None


def advance(link: Link) -> None:
    """End the current delivery of a link: all of it has been read, or given to the engine."""
    pn = lib.pn_link_current(link.io)
    if pn == ffi.NULL:
        return
    lib.pn_link_advance(link.io)
    if link.incoming:
        retain(link.connection.io, pn)
    else:
        release_written(link, pn)


def written(deliveries: dict[Pointer, None]) -> None:
    """Give buffers back after a write; `deliveries` then has those that are to be examined after the next one.

    The engine keeps the memory of a delivery until the end of its connection, also for another one after it.
    """
    count = max(WRITTEN_AT_ONCE, len(deliveries) // 2)
    for pn in list(islice(deliveries, count)):
        del deliveries[pn]
        if _size(_buffer_of(pn)):
            _straighten(_buffer_of(pn))
            deliveries[pn] = None
        else:
            release(pn)
