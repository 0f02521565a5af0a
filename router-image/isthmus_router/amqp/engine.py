"""The proton engine's C functions, and the few conversions the driver needs around them.

Everything that touches a `pn_*` object is in this package. The functions are those of python-qpid-proton's
low-level binding (`cproton_ffi`); pointers (`pn_link_t *` and so on) are opaque here.
"""

from __future__ import annotations

import ctypes
from typing import Any

import cproton_ffi
from cproton_ffi import ffi, lib

from isthmus_router.message.types import Array, Symbol, encode

NULL: Any = ffi.NULL
Pointer = Any
"""A `pn_*_t *`; hashable and comparable by address."""

library = ctypes.CDLL(cproton_ffi.__file__)
"""The engine that is loaded already, with functions that the binding leaves out."""
_set_context = library.pn_session_set_context
_set_context.argtypes, _set_context.restype = (ctypes.c_void_p, ctypes.c_void_p), None
_get_context = library.pn_session_get_context
_get_context.argtypes, _get_context.restype = (ctypes.c_void_p,), ctypes.c_void_p


def mark(session: Pointer) -> None:
    """Mark a `pn_session_t` for as long as it exists. Another one that has its address later is not marked."""
    _set_context(int(ffi.cast("uintptr_t", session)), 1)


def is_marked(session: Pointer) -> bool:
    """Whether a `pn_session_t` is marked."""
    return bool(_get_context(int(ffi.cast("uintptr_t", session))))


def require_features() -> list[str]:
    """What the installed proton lacks, as sentences for the log; empty when TLS and Cyrus SASL are there."""
    missing = []
    if not lib.pn_ssl_present():
        missing.append(
            "proton was built without OpenSSL: sslProfile cannot work (install libssl-dev, rebuild)"
        )
    if not lib.pn_sasl_extended():
        missing.append("proton was built without Cyrus SASL: only ANONYMOUS and EXTERNAL work (libsasl2-dev)")
    return missing


def text(pointer: Pointer) -> str | None:
    """A `const char *` as str."""
    return None if pointer == NULL else ffi.string(pointer).decode("utf-8", "replace")


def cstring(value: str) -> bytes:
    """A str as the `const char *` that cffi makes of bytes."""
    return value.encode()


def write_data(data: Pointer, value: Any) -> None:
    """Replace the contents of a `pn_data_t` with one value."""
    lib.pn_data_clear(data)
    if value is None:
        return
    encoded = encode(value)
    if lib.pn_data_decode(data, encoded, len(encoded)) < 0:
        raise ValueError(f"not encodable: {value!r}")


def set_condition(condition: Pointer, name: str, description: str = "", info: Any = None) -> None:
    """Fill a `pn_condition_t`."""
    lib.pn_condition_set_name(condition, cstring(name))
    if description:
        lib.pn_condition_set_description(condition, cstring(description))
    if info is not None:
        write_data(lib.pn_condition_info(condition), info)


def capability(*names: str) -> Any:
    """Capabilities as routers send them: a single symbol, or an array of several."""
    if len(names) == 1:
        return Symbol(names[0])
    return Array(Symbol, tuple(Symbol(name) for name in names))
