"""A TLS client that sends key updates (TLS 1.3), for which Python has no function."""

from __future__ import annotations

import contextlib
import ctypes
import ssl

import cproton_ffi

from isthmus_router import openssl

_REQUESTED = 1


class KeyUpdates:
    """One TLS session, without a socket."""

    def __init__(self, context: ssl.SSLContext, hostname: str = "localhost") -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with openssl.made_sessions() as made:
            self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=hostname)
        (self._session,) = made

    def shake_hands(self) -> bytes:
        """What is to be sent next; nothing when the handshake is over."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def update(self, times: int) -> bytes:
        """So many key updates, each of which asks the peer for one as well."""
        function = ctypes.CDLL(cproton_ffi.__file__).SSL_key_update
        function.argtypes = ctypes.c_void_p, ctypes.c_int
        for _ in range(times):
            assert function(self._session, _REQUESTED)
            self.tls.do_handshake()
        return self.outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        """A record with data."""
        self.tls.write(data)
        return self.outgoing.read()
