"""Buffers of the engine's deliveries: large ones are given back when they are empty."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cproton_ffi
import pytest
from cproton_ffi import ffi, lib

from isthmus_router.amqp.kernel import buffers, drain
from isthmus_router.amqp.kernel.buffers import (
    BUFFER_PLACE,
    LARGEST_SPARE,
    MOST_RETAINED,
    MOST_SPARES,
    RETAINED_BYTES,
    START_PLACE,
    WRITTEN_AT_ONCE,
    capacity,
)

BOTH = pytest.mark.parametrize("kernel", [buffers, drain], ids=["python", "compiled"])
_library = ctypes.CDLL(cproton_ffi.__file__)
_clear, _append, _trim = _library.pn_buffer_clear, _library.pn_buffer_append, _library.pn_buffer_trim
_clear.restype, _clear.argtypes = None, [ctypes.c_void_p]
_append.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
_trim.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
LARGE = bytes(10 * RETAINED_BYTES)


@pytest.fixture
def link() -> Iterator[Any]:
    """One that sends; nothing of it is written."""
    connection = lib.pn_connection()
    session = lib.pn_session(connection)
    link = lib.pn_sender(session, b"sender")
    yield link
    lib.pn_link_free(link)
    lib.pn_session_free(session)
    lib.pn_connection_release(connection)
    lib.pn_decref(connection)


def delivery(link: Any, number: int, data: bytes) -> Any:
    """One that holds this."""
    tag, text = ffi.new("pn_bytes_t *"), ffi.new("char[]", str(number).encode())
    tag.start, tag.size = text, len(str(number))
    pn = lib.pn_delivery(link, tag[0])
    lib.pn_link_send(link, data, len(data))
    lib.pn_link_advance(link)
    return pn


def empty(pn: Any) -> None:
    """As if all of it had been written."""
    _clear(ffi.cast("uintptr_t *", pn)[BUFFER_PLACE])


@BOTH
def test_a_buffer_that_is_in_use_stays(link: Any, kernel: Any) -> None:
    pn = delivery(link, 0, LARGE)
    kernel.release(pn)
    assert lib.pn_delivery_pending(pn) == len(LARGE)
    assert capacity(pn) >= len(LARGE)


@BOTH
def test_written_ones_are_given_back_and_others_wait(link: Any, kernel: Any) -> None:
    found = []
    for number in range(2 * WRITTEN_AT_ONCE + 10):
        found.append(delivery(link, number, LARGE))
    keys = found if kernel is buffers else [drain.key(pn) for pn in found]
    for pn in found[::2]:
        empty(pn)
    left = dict.fromkeys(keys)
    for _ in range(4):
        kernel.written(left)
    assert sorted(map(str, left)) == sorted(map(str, keys[1::2]))
    assert all(capacity(pn) <= RETAINED_BYTES for pn in found[::2])
    assert all(capacity(pn) >= len(LARGE) for pn in found[1::2])


@BOTH
def test_a_buffer_can_be_used_again(link: Any, kernel: Any) -> None:
    pn = delivery(link, 0, LARGE)
    empty(pn)
    kernel.release(pn)
    assert capacity(pn) == 0
    again = delivery(link, 1, LARGE)
    assert lib.pn_delivery_pending(again) == len(LARGE)


@BOTH
def test_a_delivery_gets_a_buffer_that_another_one_gave_back(link: Any, kernel: Any) -> None:
    first = delivery(link, 0, LARGE)
    empty(first)
    kernel.release(first)
    small, used, large = delivery(link, 1, b""), delivery(link, 2, b"x"), delivery(link, 3, b"")
    kernel.equip(small, RETAINED_BYTES)
    kernel.equip(used, RETAINED_BYTES + 1)
    kernel.equip(large, RETAINED_BYTES + 1)
    assert capacity(small) <= RETAINED_BYTES
    assert content(used) == b"x"
    assert capacity(large) >= len(LARGE)
    again = delivery(link, 4, LARGE)
    assert lib.pn_delivery_pending(again) == len(LARGE)


def buffer_of(pn: Any) -> Any:
    return ffi.cast("uintptr_t *", pn)[BUFFER_PLACE]


def content(pn: Any) -> bytes:
    """What a buffer has from its beginning on."""
    buffer = buffer_of(pn)
    assert ffi.cast("uint32_t *", buffer)[START_PLACE] == 0
    return bytes(ffi.buffer(ffi.cast("char **", buffer)[0], lib.pn_delivery_pending(pn)))


@BOTH
@pytest.mark.parametrize("trimmed", [0, 2000])
@pytest.mark.parametrize(
    "more", [1000, 2000, 4000, 9000], ids=["fits behind", "fits", "does not fit", "is much more"]
)
def test_what_a_buffer_holds_is_at_its_beginning(link: Any, kernel: Any, trimmed: int, more: int) -> None:
    """Otherwise the engine turns the whole buffer around byte by byte."""
    data = random.Random(1).randbytes(3000 + more)
    pn = delivery(link, 0, data[:3000])
    _trim(buffer_of(pn), trimmed, 0)
    kernel.equip(pn, more)
    _append(buffer_of(pn), data[3000:], more)
    assert content(pn) == data[trimmed:]


@BOTH
def test_a_full_buffer_gets_more(link: Any, kernel: Any) -> None:
    """The engine, if it enlarged a full buffer, would move what it holds to the end."""
    data = random.Random(1).randbytes(20_000)
    pn = delivery(link, 0, data[:4096])
    assert capacity(pn) == 4096
    kernel.equip(pn, len(data) - 4096)
    _append(buffer_of(pn), data[4096:], len(data) - 4096)
    assert content(pn) == data


@BOTH
def test_what_a_write_has_left_is_moved_to_the_beginning(link: Any, kernel: Any) -> None:
    data = random.Random(1).randbytes(10 * RETAINED_BYTES)
    pn = delivery(link, 0, data)
    _trim(buffer_of(pn), RETAINED_BYTES, 0)
    key = pn if kernel is buffers else drain.key(pn)
    left = {key: None}
    kernel.written(left)
    assert left == {key: None}
    assert content(pn) == data[RETAINED_BYTES:]


@BOTH
def test_few_buffers_are_kept_as_spare_ones_and_none_that_is_very_large(link: Any, kernel: Any) -> None:
    sizes = [len(LARGE)] * (MOST_SPARES + 10) + [2 * LARGEST_SPARE]
    found = [delivery(link, number, bytes(size)) for number, size in enumerate(sizes)]
    for pn in found:
        empty(pn)
        kernel.release(pn)
    for pn in found:
        kernel.equip(pn, RETAINED_BYTES + 1)
    capacities = sorted(map(capacity, found), reverse=True)
    assert RETAINED_BYTES < capacities[0] <= LARGEST_SPARE
    assert sum(size > RETAINED_BYTES for size in capacities) == MOST_SPARES


@BOTH
def test_the_deliveries_that_were_read_last_retain_their_buffers(link: Any, kernel: Any) -> None:
    connection = object()
    found = [delivery(link, number, LARGE) for number in range(2 * MOST_RETAINED)]
    for pn in found:
        empty(pn)
        kernel.retain(connection, pn)
        kernel.retain(connection, pn)
    kernel.forget(connection)
    assert all(capacity(pn) == 0 for pn in found[:MOST_RETAINED])
    assert all(capacity(pn) >= len(LARGE) for pn in found[MOST_RETAINED:])


@BOTH
def test_a_very_large_buffer_is_not_retained(link: Any, kernel: Any) -> None:
    pn = delivery(link, 0, bytes(2 * LARGEST_SPARE))
    empty(pn)
    kernel.retain(object(), pn)
    assert capacity(pn) == 0


@BOTH
def test_what_waits_unread_in_a_very_large_buffer_gets_a_smaller_one(link: Any, kernel: Any) -> None:
    data = random.Random(3).randbytes(2 * LARGEST_SPARE)
    pn = delivery(link, 0, data)
    _trim(buffer_of(pn), len(data) - 1000, 0)
    kernel.retain(object(), pn)
    assert capacity(pn) < RETAINED_BYTES
    assert content(pn) == data[-1000:]


@BOTH
def test_deliveries_of_a_connection_that_has_ended_are_left_alone(link: Any, kernel: Any) -> None:
    ended, other = object(), object()
    found = [delivery(link, number, LARGE) for number in range(2 * MOST_RETAINED)]
    for pn in found:
        empty(pn)
    for pn in found[:MOST_RETAINED]:
        kernel.retain(ended, pn)
    kernel.forget(ended)
    for pn in found[MOST_RETAINED:]:
        kernel.retain(other, pn)
    kernel.forget(other)
    assert all(capacity(pn) >= len(LARGE) for pn in found)


def test_buffers_are_found_with_an_allocator_that_separates_sizes() -> None:
    command = ("gcc", "-print-file-name=libasan.so")
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no AddressSanitizer")
    environment = os.environ | {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}
    imported = [sys.executable, "-c", f"import {buffers.__name__}"]
    ended = subprocess.run(imported, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@BOTH
@pytest.mark.parametrize("left", [0, 1, 1000, len(LARGE) // 4 + 1])
def test_what_waits_unread_gets_a_smaller_buffer_when_others_are_read(
    link: Any, kernel: Any, left: int
) -> None:
    connection = object()
    data = random.Random(2).randbytes(len(LARGE))
    pn = delivery(link, 0, data)
    large = capacity(pn)
    buffer = ffi.cast("uintptr_t *", pn)[BUFFER_PLACE]
    _trim(buffer, len(data) - left, 0)
    _append(buffer, data, large - len(data))  # it goes around the end
    _trim(buffer, 0, large - len(data))
    kernel.retain(connection, pn)
    assert capacity(pn) == large
    for number in range(MOST_RETAINED):
        kernel.retain(connection, delivery(link, number + 1, LARGE))
    kernel.forget(connection)
    is_smaller = left * buffers.SHRINKING <= large
    assert (capacity(pn) < large) is is_smaller
    buffer, found = ffi.cast("uintptr_t *", pn)[BUFFER_PLACE], ctypes.create_string_buffer(max(left, 1))
    assert buffers._get(buffer, 0, left, found) == left
    assert found.raw[:left] == data[len(data) - left :]
