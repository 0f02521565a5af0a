"""What people read of errors of connections."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from isthmus_router.transport.reasons import describe


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), "Connection reset by peer"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "('10.0.0.9', 7800)"), "Connection refused"),
        (TimeoutError(), "no answer in time"),
        (OSError("no address"), "no address"),
        (socket.gaierror(-2, "Name or service not known"), "[Errno -2] Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), "[SSL: WRONG_VERSION_NUMBER] wrong"),
        (ssl.SSLError(), "SSLError"),
        (ConnectionResetError(), "ConnectionResetError"),
        (ConnectionAbortedError(""), "ConnectionAbortedError"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_an_error_always_has_a_reason(error: Exception, reason: str) -> None:
    assert describe(error) == reason
