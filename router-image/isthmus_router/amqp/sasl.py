"""Proton's SASL layer, guarded against frames that come out of turn.

It is also where each login is held against the passwords that its host has tried before (`logins`).

Proton hands every SASL frame to Cyrus as it comes, and Cyrus crashes the process when a conversation is
continued that was never started. So such frames fail the authentication before Cyrus sees them. This works
below TLS, where the router could not see the frames itself.

Source: AMQP 1.0 part 5, 5.3.2 (order of the frames); proton's SASL plug-in interface (`sasl_plugin.h`).
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer, library
from isthmus_router.amqp.logins import LONGEST_READ, Login, Logins

log = logging.getLogger("SERVER")

_OPERATIONS = (
    "free",
    "list_mechs",
    "init_server",
    "init_client",
    "prepare",
    "process_init",
    "process_response",
    "process_mechanisms",
    "process_challenge",
    "process_outcome",
    "can_encrypt",
    "max_encrypt_size",
    "encode",
    "decode",
)
_RECEIVED_FAILURE, _POSTED_OUTCOME = 6, 7
_INIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_FRAME = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class _Implementation(ctypes.Structure):
    """`pnx_sasl_implementation`"""

    _fields_ = [(name, ctypes.c_void_p) for name in _OPERATIONS]


class _Bytes(ctypes.Structure):
    """`pn_bytes_t`"""

    _fields_ = [("size", ctypes.c_size_t), ("start", ctypes.c_void_p)]


_logins: dict[int, Login] = {}
"""By the address of the transport; of connections to listeners."""


def watch_login(transport: Pointer, logins: Logins, listener: str, peer: str) -> None:
    """Have a login from `peer` checked, logged and counted by `logins` until the transport is forgotten."""
    _logins[_address(transport)] = Login(logins, lib.pn_sasl(transport), listener, peer)


def forget_login(transport: Pointer) -> None:
    """The transport is about to be freed."""
    _logins.pop(_address(transport), None)


def _address(transport: Pointer) -> int:
    return int(ffi.cast("uintptr_t", transport))


def _content(received: int | None) -> bytes:
    if not received:
        return b""
    found = _Bytes.from_address(received)
    return ctypes.string_at(found.start, min(found.size, LONGEST_READ)) if found.start else b""


class _Guard:
    """A copy of proton's Cyrus implementation with checks in front of three of its operations."""

    def __init__(self, proton: ctypes.CDLL, original: _Implementation) -> None:
        self._set_failed = proton.pnx_sasl_set_failed
        self._set_failed.argtypes, self._set_failed.restype = [ctypes.c_void_p], None
        self._set_state = proton.pnx_sasl_set_desired_state
        self._set_state.argtypes, self._set_state.restype = [ctypes.c_void_p, ctypes.c_int], None
        self._mechanism = proton.pnx_sasl_get_selected_mechanism
        self._mechanism.argtypes, self._mechanism.restype = [ctypes.c_void_p], ctypes.c_char_p
        self._init = _INIT(original.process_init)
        self._response = _FRAME(original.process_response)
        self._challenge = _FRAME(original.process_challenge)
        self._callbacks = (
            _INIT(self._process_init),
            _FRAME(self._process_response),
            _FRAME(self._process_challenge),
        )
        self.implementation = _Implementation.from_buffer_copy(original)
        for name, callback in zip(
            ("process_init", "process_response", "process_challenge"), self._callbacks, strict=True
        ):
            setattr(self.implementation, name, ctypes.cast(callback, ctypes.c_void_p).value)

    def _process_init(self, transport: int, mechanism: bytes | None, received: int) -> None:
        login = _logins.get(transport)
        if mechanism is None or (
            login is not None and not login.begin(mechanism.decode("ascii", "replace"), _content(received))
        ):
            self._fail(transport, _POSTED_OUTCOME)
            return
        self._init(transport, mechanism, received)
        if login is not None:
            login.judge()

    def _process_response(self, transport: int, received: int) -> None:
        login = _logins.get(transport)
        if self._mechanism(transport) is None or (login is not None and not login.go_on(_content(received))):
            self._fail(transport, _POSTED_OUTCOME)
            return
        self._response(transport, received)
        if login is not None:
            login.judge()

    def _process_challenge(self, transport: int, received: int) -> None:
        if self._mechanism(transport) is None:
            self._fail(transport, _RECEIVED_FAILURE)
        else:
            self._challenge(transport, received)

    def _fail(self, transport: int, state: int) -> None:
        self._set_failed(transport)
        self._set_state(transport, state)


_installed: Any = None


def install_guard() -> None:
    """Guard the SASL of every transport made from now on; once per process, whatever the number of calls."""
    global _installed  # noqa: PLW0603
    if _installed is not None or not lib.pn_sasl_extended():
        return
    try:
        original = ctypes.POINTER(_Implementation).in_dll(library, "cyrus_sasl_impl").contents
        guard = _Guard(library, original)
        library.pnx_sasl_set_default_implementation(ctypes.byref(guard.implementation))
    except (ValueError, AttributeError) as error:  # a build of proton that hides its plug-in interface
        log.warning("SASL is not guarded: a client can crash the router", extra={"reason": str(error)})
    else:
        _installed = guard
