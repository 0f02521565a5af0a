"""Proton's SASL layer, guarded against frames that come out of turn.

It is also where each login is held against the passwords that its host has tried before (`logins`).

Proton hands every SASL frame to Cyrus as it comes, and Cyrus crashes the process when a conversation is
continued that was never started. So such frames fail the authentication before Cyrus sees them. This works
below TLS, where the router could not see the frames itself.

In SCRAM, the frame with the user's name has the server compute for milliseconds, and its answer the client. Such frames
wait for their turn (`costly`). A server chooses how much a client has to compute, within a bound.

Source: AMQP 1.0 part 5, 5.3.2 (order of the frames); proton's SASL plug-in interface (`sasl_plugin.h`); RFC 5802.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer, library
from isthmus_router.amqp.logins import LONGEST_READ, Login
from isthmus_router.scram import excess_of

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection

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


_SCRAM = "SCRAM-"


class Exchange:
    """The SASL exchange of one connection: its login if it is one to a listener, and the frame that waits, if any."""

    def __init__(self, connection: AmqpConnection) -> None:
        self.connection = connection
        self.login: Login | None = None
        if connection.incoming:
            name, peer = connection.settings.name, connection.peer
            sasl = lib.pn_sasl(connection.transport)
            self.login = Login(connection.driver.logins, sasl, name, peer)
        self._is_past_costs = False
        """The frame that costs much has come."""
        self._waits = False

    def has_costs(self, mechanism: str, data: bytes) -> bool:
        """Whether this frame makes the mechanism compute for long."""
        return bool(data) and not self._is_past_costs and mechanism.upper().startswith(_SCRAM)

    def is_out_of_turn(self) -> bool:
        """Whether a frame has come before there was an answer to the last one; then the exchange is over."""
        if self._waits:
            self.end()
            return True
        return False

    def end(self) -> None:
        """Nothing more comes of it."""
        self._waits = False
        if self.login is not None:
            self.login.end()
            self.connection.driver.costly_steps.go_on()

    def judge(self) -> None:
        """The mechanism has dealt with a frame."""
        if self.login is not None:
            self.login.judge()
            self.connection.driver.costly_steps.go_on()

    def do_later(self, step: Callable[[], None], refuse: Callable[[], None]) -> None:
        """Have the mechanism deal with the frame that costs much, when it is its turn; or refuse the login then."""
        self._is_past_costs = self._waits = True
        connection, login = self.connection, self.login

        def take_turn() -> bool:
            if not self._waits or lib.pn_sasl_outcome(lib.pn_sasl(connection.transport)) != lib.PN_SASL_NONE:
                return True
            try:
                if (may := True if login is None else login.may_cost_much()) is None:
                    return False
                self._waits = False
                if may:
                    step()
                    self.judge()
                else:
                    refuse()
                connection.go_on()
            except Exception as error:
                connection.broken(error)
            return True

        connection.driver.costly_steps.add(connection.peer if login is None else login.line, take_turn)


_exchanges: dict[int, Exchange] = {}
"""By the address of the transport."""


def watch_login(transport: Pointer, exchange: Exchange) -> None:
    """Have the login of a connection checked, logged and counted until the transport is forgotten."""
    _exchanges[_address(transport)] = exchange


def end_login(transport: Pointer) -> None:
    """The connection has ended."""
    if (exchange := _exchanges.get(_address(transport))) is not None:
        exchange.end()


def forget_login(transport: Pointer) -> None:
    """The transport is about to be freed."""
    _exchanges.pop(_address(transport), None)


def has_failed(transport: Pointer) -> bool:
    """Whether there is an outcome, and it is not success."""
    return lib.pn_sasl_outcome(lib.pn_sasl(transport)) not in (lib.PN_SASL_NONE, lib.PN_SASL_OK)


def _address(transport: Pointer) -> int:
    return int(ffi.cast("uintptr_t", transport))


def _content(received: int | None, most: int | None = LONGEST_READ) -> bytes:
    if not received:
        return b""
    found = _Bytes.from_address(received)
    size = found.size if most is None else min(found.size, most)
    return ctypes.string_at(found.start, size) if found.start else b""


def _give(data: bytes, step: Callable[[int], None]) -> None:
    """Do a step with a copy of what was received."""
    buffer = ctypes.create_string_buffer(data, len(data))
    received = _Bytes(len(data), ctypes.addressof(buffer))
    step(ctypes.addressof(received))


def _is_admitted(exchange: Exchange | None, received: int, mechanism: str | None = None) -> bool:
    """Whether the mechanism may have a frame from a client; `mechanism` begins it."""
    if exchange is None or exchange.login is None:
        return True
    if exchange.is_out_of_turn():
        return False
    data, login = _content(received), exchange.login
    if login.go_on(data) if mechanism is None else login.begin(mechanism, data):
        return True
    exchange.end()
    return False


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
        exchange = _exchanges.get(transport)
        name = (mechanism or b"").decode("ascii", "replace")
        if mechanism is None or not _is_admitted(exchange, received, name):
            self._fail(transport, _POSTED_OUTCOME)
            return
        self._deal_with(
            transport, exchange, received, name, lambda given: self._init(transport, mechanism, given)
        )

    def _process_response(self, transport: int, received: int) -> None:
        exchange, mechanism = _exchanges.get(transport), self._mechanism(transport)
        if mechanism is None or not _is_admitted(exchange, received):
            self._fail(transport, _POSTED_OUTCOME)
            return
        name = mechanism.decode("ascii", "replace")
        self._deal_with(transport, exchange, received, name, lambda given: self._response(transport, given))

    def _process_challenge(self, transport: int, received: int) -> None:
        exchange, mechanism = _exchanges.get(transport), self._mechanism(transport)
        if mechanism is None or (exchange is not None and exchange.is_out_of_turn()):
            self._fail(transport, _RECEIVED_FAILURE)
            return
        name = mechanism.decode("ascii", "replace")
        reason = excess_of(_content(received, None)) if name.upper().startswith(_SCRAM) else ""
        if reason:
            if exchange is not None:
                exchange.connection.close_reason = reason
            self._fail(transport, _RECEIVED_FAILURE)
            return
        self._deal_with(transport, exchange, received, name, lambda given: self._challenge(transport, given))

    def _deal_with(
        self,
        transport: int,
        exchange: Exchange | None,
        received: int,
        mechanism: str,
        step: Callable[[int], None],
    ) -> None:
        """Have the mechanism deal with a frame, at once or when it is its turn."""
        if exchange is None:
            step(received)
        elif exchange.has_costs(mechanism, data := _content(received, None)):
            exchange.do_later(
                lambda: _give(data, step),
                lambda: self._fail(transport, _POSTED_OUTCOME),
            )
        else:
            step(received)
            exchange.judge()

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
