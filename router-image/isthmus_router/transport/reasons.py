"""Why a connection ended, or was not made, for people."""

from __future__ import annotations

import os
import socket
import ssl


def describe(error: Exception) -> str:
    """A reason that is never empty, without the addresses that asyncio puts into its texts: they would make each
    attempt's reason another one."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"certificate verify failed: {error.verify_message}"
        case TimeoutError():
            return "no answer in time"
        case OSError(errno=int(number)) if not isinstance(error, ssl.SSLError | socket.gaierror):
            return os.strerror(number)
    return str(error) if error.args and any(error.args) else type(error).__name__
