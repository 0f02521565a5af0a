"""What the proton engine reports of itself.

The engine writes it to stderr, as lines that are no JSON and have no limit, and peers cause such lines: one that opens
a connection with a small `max-frame-size`, for example. What matters to people is in the log of the process already, as
the condition with which a connection ends.

Source: `pn_logger_set_log_sink`, header `proton/logger.h` of Apache Qpid Proton.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from functools import cache

import cproton_ffi

log = logging.getLogger("PROTOCOL")

_CRITICAL, _ERROR, _TRACE = 1, 2, 32
"""Severities of the engine; those of frames and bytes are beyond that of traces."""
_AMQP = 8
"""The part of the engine that reads and writes frames."""
_Sink = ctypes.CFUNCTYPE(None, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_int, ctypes.c_char_p)


transports_with_errors: set[int] = set()
"""Addresses of those for which the engine has reported an error since `watch_transport`."""


def _report(transport: int, subsystem: int, severity: int, text: bytes) -> None:
    if severity == _ERROR and subsystem == _AMQP and transport:
        transports_with_errors.add(transport)
    if severity >= _TRACE:
        print(text.decode(errors="replace"), file=sys.stderr)
        return
    level = logging.CRITICAL if severity == _CRITICAL else logging.DEBUG
    if log.isEnabledFor(level):
        log.log(
            level, "engine report", extra={"event": "engine.report", "reason": text.decode(errors="replace")}
        )


_sink = _Sink(_report)
"""The engine calls it as long as the process lives."""


_proton = ctypes.CDLL(cproton_ffi.__file__)  # the one that is loaded already
_default_logger = _proton.pn_default_logger
_default_logger.restype = ctypes.c_void_p
_logger_of = _proton.pn_transport_logger
_logger_of.argtypes, _logger_of.restype = (ctypes.c_void_p,), ctypes.c_void_p
_set_sink = _proton.pn_logger_set_log_sink
_set_sink.argtypes, _set_sink.restype = (ctypes.c_void_p, _Sink, ctypes.c_ssize_t), None


@cache
def redirect_engine_log() -> None:
    """Have the engine report to the log of this process, for all transports made from now on: as critical what it says
    before it ends the process, and all else at the level `debug`. Traces, which only the environment turns on
    (`PN_LOG=frame`), go to stderr as they are."""
    _set_sink(_default_logger(), _sink, 0)


def watch_transport(address: int) -> None:
    """Note in `transports_with_errors` that the engine has reported an error for the transport at an address.

    After some of them it writes nothing any more, and the transport has no condition.
    """
    transports_with_errors.discard(address)
    _set_sink(_logger_of(address), _sink, address)
