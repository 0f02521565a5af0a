"""A gate in front of the frames of a connection: some do not pass, and what the engine decrypts passes in pieces.

A transport of the engine is a stack of layers: TLS, SASL, AMQP. The router replaces the one for AMQP by a gate, which
passes frames to it. A disposition that `dispositions.copies_too_much` finds does not pass.

The engine decrypts a TLS record, or a block of a SASL security layer, as a whole. It works off all frames of it before
it returns. So the gate passes a piece of this input, as `pieces.py` decides, and leaves the rest in the buffer of the
layer below. `Gate.resume` makes the layer below offer the rest again, also when no more bytes arrive.

Source: `core/engine-internal.h` (`pn_io_layer_t`, `pn_transport_t`), `ssl/openssl.c` and `sasl/sasl.c` of qpid-proton.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cproton_ffi import ffi, lib

from isthmus_router.amqp.engine import Pointer
from isthmus_router.amqp.sockets.dispositions import copies_too_much
from isthmus_router.engine_layers import COUNT, PLACE, PROCESS, Layer, layer

NO_BYTES = ctypes.c_size_t(-1).value
"""Size of an input of which TLS takes nothing, because it is negative for OpenSSL. TLS then passes what it has
decrypted before. An input of 0 bytes would be the end of the connection."""

_AMQP = layer("amqp_layer")
AMQP, PASSED, DECODING = (
    ctypes.addressof(found) for found in (_AMQP, layer("pni_passthru_layer"), layer("sasl_encrypt_layer"))
)
"""Addresses of layers: AMQP after the protocol headers, SASL that is over, and a SASL security layer."""


def place_for_gate(transport: Pointer) -> int | None:
    """The place of the AMQP layer; None while the protocol headers are not exchanged."""
    words = ffi.cast("uintptr_t *", transport) + PLACE
    return next((place for place in range(COUNT) if words[place] == AMQP), None)


_gates: dict[int, Gate] = {}
"""By the address of the transport."""


class Gate:
    """In the place of the AMQP layer of one transport. The compiled poller has gates of its own."""

    def __init__(self, transport: Pointer, place: int) -> None:
        self.allowed = 0
        """Bytes that may pass next. While there are any, a frame passes as a whole."""
        self.deliveries = 0
        """How many the connection has unsettled, or more."""
        self.refused = False
        """A frame may not pass at all. The engine reads no more."""
        self.held = False
        """The layer below has frames that may not pass yet."""
        self._transport = transport
        self._words = ffi.cast("uintptr_t *", transport) + PLACE
        self._place = place
        self.decrypts = any(self._words[below] != PASSED for below in range(place))
        _gates[int(ffi.cast("uintptr_t", transport))] = self
        self._words[place] = _ADDRESS

    def resume(self) -> int:
        """Pass what `allowed` allows of the frames that the layer below has; how many bytes passed, at least 1."""
        self.held = False
        if lib.pn_transport_capacity(self._transport) < 0:
            return 1  # nothing more is read
        before = self.allowed
        decoding = self._words[self._place - 1] == DECODING
        place, size = (self._place - 1, 0) if decoding else (0, NO_BYTES)
        below = Layer.from_address(self._words[place])
        address = int(ffi.cast("uintptr_t", self._transport))
        if PROCESS(below.process_input)(address, place, None, size) < 0:
            lib.pn_transport_close_tail(self._transport)
        return max(1, before - self.allowed)

    def remove(self) -> None:
        """Give the transport its own layer back."""
        if self._words[self._place] == _ADDRESS:
            self._words[self._place] = AMQP
        _gates.pop(int(ffi.cast("uintptr_t", self._transport)), None)


_process = PROCESS(_AMQP.process_input)


def admit(transport: int, place: int, data: int, size: int) -> int:
    """Have the engine's AMQP layer process what may pass of an input; how much of it was taken."""
    gate = _gates[transport]
    if size > gate.allowed:
        if gate.allowed == 0:
            gate.held = True
            return 0
        frame = int.from_bytes(ctypes.string_at(data, 4)) if size >= 4 else 0
        size = min(size, max(gate.allowed, frame))
    if copies_too_much(ctypes.string_at(data, size), gate.deliveries):
        gate.refused = True
        return int(lib.PN_EOS)
    taken: int = _process(transport, place, data, size)
    gate.allowed -= min(gate.allowed, max(0, taken))
    return taken


_callback: Any = PROCESS(admit)
_own = Layer.from_buffer_copy(_AMQP)
_own.process_input = ctypes.cast(_callback, ctypes.c_void_p).value
_ADDRESS = ctypes.addressof(_own)
