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

_CRITICAL, _TRACE = 1, 32
"""Severities of the engine; those of frames and bytes are beyond that of traces."""
_Sink = ctypes.CFUNCTYPE(None, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_int, ctypes.c_char_p)


def _report(_context: int, _subsystem: int, severity: int, text: bytes) -> None:
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


@cache
def redirect_engine_log() -> None:
    """Have the engine report to the log of this process, for all transports made from now on: as critical what it says
    before it ends the process, and all else at the level `debug`. Traces, which only the environment turns on
    (`PN_LOG=frame`), go to stderr as they are."""
    proton = ctypes.CDLL(cproton_ffi.__file__)  # the one that is loaded already
    proton.pn_default_logger.restype = ctypes.c_void_p
    proton.pn_logger_set_log_sink(ctypes.c_void_p(proton.pn_default_logger()), _sink, ctypes.c_ssize_t(0))
