"""The layers of a transport of the proton engine, of which none is in its interface: TLS, SASL, AMQP.

What passes frames to the layer for AMQP, or stands in its place, sees each frame of a peer before the engine does,
decrypted.

Source: `core/engine-internal.h` (`pn_io_layer_t`, `pn_transport_t`) and `core/transport.c` of qpid-proton.
"""

from __future__ import annotations

import ctypes

import cproton_ffi
from cproton_ffi import ffi, lib

COUNT = 3
"""Layers of a transport."""

_TRANSPORT_WORDS = 48
"""Words of a transport that are searched for its layers; it has more."""
_HEADER = b"AMQP\x00\x01\x00\x00"
_library = ctypes.CDLL(cproton_ffi.__file__)  # the one that is loaded already
PROCESS = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t)
"""Functions of a layer for input and output: of a transport and a place, with bytes or room for them."""


class Layer(ctypes.Structure):
    """`pn_io_layer_t`"""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in ("process_input", "process_output", "handle_error", "process_tick", "buffered_output")
    ]


def layer(name: str) -> Layer:
    """One of the engine's layers; ImportError when the library hides it."""
    try:
        return Layer.in_dll(_library, name)
    except ValueError as error:
        raise ImportError(f"the engine has no {name}") from error


def _place() -> int:
    """Which word of a transport points to its first layer; ImportError when that cannot be found out."""
    transport = lib.pn_transport()
    lib.pn_transport_set_server(transport)
    words = ffi.cast("uintptr_t *", transport)
    stages = [
        layer("pni_setup_layer"),
        layer("pni_autodetect_layer"),
        layer("amqp_write_header_layer"),
        layer("amqp_layer"),
    ]
    places = set(range(_TRANSPORT_WORDS))
    for stage, data in zip(stages, (b"", _HEADER[:1], _HEADER[1:], None), strict=True):
        if data:
            lib.pn_transport_push(transport, data, len(data))
        elif data is None:
            lib.pn_transport_pending(transport)
        places = {place for place in places if words[place] == ctypes.addressof(stage)}
    lib.pn_decref(transport)
    if len(places) != 1:
        raise ImportError("the transports of the engine are laid out in another way than expected")
    return places.pop()


PLACE = _place()
"""Which word of a transport points to its first layer."""
