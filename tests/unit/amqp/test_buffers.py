"""Buffers of the engine's deliveries: large ones are given back when they are empty."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cproton_ffi
import pytest
from cproton_ffi import ffi, lib

from isthmus_router.amqp.kernel import buffers, drain
from isthmus_router.amqp.kernel.buffers import BUFFER_PLACE, RETAINED_BYTES, WRITTEN_AT_ONCE, capacity

BOTH = pytest.mark.parametrize("kernel", [buffers, drain], ids=["python", "compiled"])
_clear = ctypes.CDLL(cproton_ffi.__file__).pn_buffer_clear
_clear.restype, _clear.argtypes = None, [ctypes.c_void_p]
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
        lib.pn_link_advance(link)
    keys = found if kernel is buffers else [drain.key(pn) for pn in found]
    for pn in found[::2]:
        empty(pn)
    left = keys
    for _ in range(4):
        left = kernel.written(left)
    assert sorted(map(str, left)) == sorted(map(str, keys[1::2]))
    assert all(capacity(pn) <= RETAINED_BYTES for pn in found[::2])
    assert all(capacity(pn) >= len(LARGE) for pn in found[1::2])


@BOTH
def test_a_buffer_can_be_used_again(link: Any, kernel: Any) -> None:
    pn = delivery(link, 0, LARGE)
    lib.pn_link_advance(link)
    empty(pn)
    kernel.release(pn)
    assert capacity(pn) == 0
    again = delivery(link, 1, LARGE)
    assert lib.pn_delivery_pending(again) == len(LARGE)


def test_buffers_are_found_with_an_allocator_that_separates_sizes() -> None:
    command = ("gcc", "-print-file-name=libasan.so")
    library = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("gcc has no AddressSanitizer")
    environment = os.environ | {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}
    imported = [sys.executable, "-c", f"import {buffers.__name__}"]
    ended = subprocess.run(imported, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
