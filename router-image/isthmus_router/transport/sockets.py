"""TCP sockets: listened on and dialled, with TLS if there are credentials."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable

from isthmus_router import tls_records
from isthmus_router.host_names import HostNames
from isthmus_router.transport.connection import FrameConnection

_BACKLOG = 1024
_ACCEPTED_AT_ONCE = 64
_IDLE_SECONDS = 5
"""Of a connection, before its system asks whether the peer's is there."""
_PAUSE_SECONDS = 0.1
"""Without accepting, when the system has no descriptors left."""


def tune(sock: socket.socket, user_timeout: float) -> None:
    """For frames that do not wait, and for a peer that is gone without a word."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(user_timeout * 1000))


async def dial(
    connection: FrameConnection,
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    *,
    names: HostNames,
    whose: str,
    connect_timeout: float,
    handshake_timeout: float,
    user_timeout: float,
    receive_bytes: int | None = None,
) -> None:
    """Connect to the first of the host's addresses that answers; `names` looks it up as one of `whose` names.
    `receive_bytes`: that the system receives and has not been asked for, at most; None: as many as it likes.

    Raises OSError (TimeoutError, ssl.SSLError); ConnectionRefusedError only if every address refused.
    """
    loop = asyncio.get_running_loop()
    errors: list[OSError] = []
    async with asyncio.timeout(connect_timeout):
        try:
            found = await names.look_up(host, port, whose)
        except ValueError as error:  # of IDNA; others may have announced anything
            raise OSError("not a host name") from error
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            tune(sock, user_timeout)
            if receive_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            async with asyncio.timeout(connect_timeout):
                await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            errors.append(error)
            continue
        except BaseException:
            sock.close()
            raise
        await _run(connection, sock, context, handshake_timeout, server_name=_server_name(host))
        return
    others = [error for error in errors if not isinstance(error, ConnectionRefusedError)]
    raise (others or errors or [OSError("no address")])[0]


async def adopt(
    connection: FrameConnection, sock: socket.socket, context: ssl.SSLContext | None, handshake_timeout: float
) -> None:
    """Run an accepted socket, which is the connection's from here. Raises OSError (TimeoutError, ssl.SSLError)."""
    await _run(connection, sock, context, handshake_timeout, server_name=None)


async def _run(
    connection: FrameConnection,
    sock: socket.socket,
    context: ssl.SSLContext | None,
    handshake_timeout: float,
    *,
    server_name: str | None,
) -> None:
    loop = asyncio.get_running_loop()
    timeout = handshake_timeout if context is not None else None
    try:
        if server_name is None:
            await tls_records.accept(connection, sock, context, handshake_timeout)
        else:
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=context,
                server_hostname=server_name if context is not None else None,
                ssl_handshake_timeout=timeout,
            )
    except BaseException:
        sock.close()
        raise


def peer_host(sock: socket.socket) -> str:
    """The peer's IP address, for people."""
    try:
        return str(sock.getpeername()[0]).removeprefix("::ffff:")
    except OSError:
        return "somebody who is gone"


def _server_name(host: str) -> str:
    """For the server to choose a certificate by, or a balancer the server; there is none for an IP address."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    return ""


def listening_socket(host: str, port: int) -> socket.socket:
    """A TCP socket that listens; an empty host is every local address. Raises OSError."""
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return socket.create_server(found[0][4][:2], family=found[0][0], backlog=_BACKLOG)


class Listener:
    """Accepts connections."""

    def __init__(self, listening: socket.socket, user_timeout: float) -> None:
        """`listening` is this object's from here. `user_timeout`: seconds without an answer of the peer's system after
        which a connection ends."""
        self._socket = listening
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._user_timeout = user_timeout
        self._loop = asyncio.get_running_loop()

    def start(self, accepted: Callable[[socket.socket], None]) -> None:
        """Give each connection's socket to `accepted`, tuned."""
        self._accepted = accepted
        self._listen()

    def _listen(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._socket.fileno())
                self._loop.call_later(_PAUSE_SECONDS, self._listen)
                return
            try:
                tune(sock, self._user_timeout)
            except OSError:
                sock.close()
                continue
            self._accepted(sock)

    def close(self) -> None:
        """Accept no more."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
