"""Listeners: accept sockets and run AMQP on them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from isthmus_router.amqp.connection import AmqpConnection
from isthmus_router.amqp.driver import Driver
from isthmus_router.amqp.events import refuse_peer
from isthmus_router.amqp.settings import ROUTER_SHARE, Settings
from isthmus_router.config.model import AddressFamily, ListenerConfig
from isthmus_router.core.roles import Role
from isthmus_router.descriptors import left_for_clients
from isthmus_router.handshakes import Handshakes

log = logging.getLogger("SERVER")

BACKLOG = 1024
ACCEPT_BATCH = 64
ACCEPT_SECONDS = 0.001
"""For which a listener accepts connections before other things get their turn."""
ACCEPT_PAUSE_SECONDS = 1.0
RETRY_SECONDS = 2.0

_FAMILIES = {
    None: socket.AF_UNSPEC,
    AddressFamily.IPV4: socket.AF_INET,
    AddressFamily.IPV6: socket.AF_INET6,
}


class Listener:
    """One `listener` section: a socket per local address, until it is closed."""

    def __init__(self, driver: Driver, config: ListenerConfig, settings: Settings) -> None:
        self.driver = driver
        self.config = config
        self.settings = settings
        """For connections accepted from now on; replaced when the TLS profile changes."""
        self.state = "opening"
        self.message = ""
        self.connections: set[AmqpConnection] = set()
        self._open: dict[AmqpConnection, str | None] = {}
        """Those that have opened and not been closed, with their clients."""
        self._by_client: Counter[str | None] = Counter()
        self.handshakes = Handshakes[AmqpConnection](config.max_handshakes, config.max_handshakes_per_host)
        self._sockets: list[socket.socket] = []
        self._highest = left_for_clients()
        self._retry: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Bind and listen. While that fails, `state` and `message` say why, and it is tried again."""
        config = self.config
        if self._retry is not None:
            self._retry.cancel()
        try:
            infos = await self.driver.host_names.look_up(
                config.host or None,
                config.port,
                config.host,
                family=_FAMILIES[config.socket_address_family],
                flags=socket.AI_PASSIVE,
            )
            if self.state == "closed":
                return
            for family, _, _, _, address in dict.fromkeys(infos):
                self._bind(family, address)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a host name at all
            if self.state == "closed":
                return
            reason = getattr(error, "strerror", None) or error
            self._failed(f"cannot listen on {config.host or '*'}:{config.port}: {reason}")
            return
        self.state, self.message = "listening", ""
        log.info(
            "listening",
            extra={
                "listener": config.name,
                "host": config.host,
                "port": config.port,
                "role": config.role.label,
            },
        )

    def rename_peers(self, config: ListenerConfig) -> None:
        """Nothing but `peerNames` has changed: connections whose certificates have none of them are closed."""
        self.config, self.settings = config, replace(self.settings, peer_names=config.peer_names)
        for connection in list(self.connections):
            connection.settings = replace(connection.settings, peer_names=config.peer_names)
            if connection.opened and (reason := connection.misnamed()):
                refuse_peer(connection, reason)
        self.driver.flush()

    def _failed(self, message: str) -> None:
        if message != self.message:
            log.error("listener failed", extra={"listener": self.config.name, "reason": message})
        self.state, self.message = "failed", message
        self._close_sockets()
        self._retry = self.driver.loop.call_later(RETRY_SECONDS, self._open_again)

    def unusable(self, reason: str) -> None:
        """There are no credentials to accept connections with; those that are open stay."""
        self.state, self.message = "failed", reason
        self._close_sockets()

    def _open_again(self) -> None:
        self._task = self.driver.loop.create_task(self.open())

    def _bind(self, family: int, address: Any) -> None:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            if error.errno == errno.EAFNOSUPPORT and self.config.host == "":
                return
            raise
        self._sockets.append(sock)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        self.driver.loop.add_reader(sock.fileno(), self._on_acceptable, sock)

    def _on_acceptable(self, sock: socket.socket) -> None:
        end = time.monotonic() + ACCEPT_SECONDS
        for _ in range(ACCEPT_BATCH):
            try:
                client, address = sock.accept()
                if client.fileno() >= self._highest:
                    client.close()
                    raise OSError(errno.EMFILE, "clients have all the file descriptors they may have")
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                # Out of file descriptors, usually: stop for a moment rather than spin on the readable socket.
                reason = error.strerror or str(error)
                log.error("accept failed", extra={"listener": self.config.name, "reason": reason})
                self.driver.loop.remove_reader(sock.fileno())
                self.driver.loop.call_later(ACCEPT_PAUSE_SECONDS, self._listen_again, sock)
                return
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host, port = address[0], address[1]
            peer = f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
            try:
                connection = self.driver.adopt(client, self.settings, self, incoming=True, peer=peer)
            except OSError as error:
                log.error("connection refused", extra={"listener": self.config.name, "reason": str(error)})
                client.close()
                continue
            self.connections.add(connection)
            victim = self.handshakes.begun(connection, str(host))
            if victim is not None:
                victim.abort("more connections than allowed are in their handshake")
            if time.monotonic() >= end:
                break
        self.driver.flush()

    def _listen_again(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self.driver.loop.add_reader(sock.fileno(), self._on_acceptable, sock)

    def excess(self, client: str | None) -> str | None:
        """Owner interface: the listener has as many as it may, or as many of one router for others to find places.

        A router opens one connection for control and some for data, and twice as many during a rotation.
        """
        name, most, count = self.settings.name, self.settings.max_connections, len(self._open)
        if 0 < most <= count:
            advice = "raise its maxConnections, or use another router"
            return f"no more than {most} connections of listener {name}: {advice}"
        own = self._by_client[client]
        if most and self.settings.role is Role.INTER_ROUTER and own >= max(ROUTER_SHARE, most - count):
            return (
                f"this user or host has {own} of the {most} connections of listener {name}, and the rest is for other "
                "routers: raise its maxConnections, or open fewer connections for data"
            )
        return None

    def opened(self, connection: AmqpConnection) -> None:
        """Owner interface: its handshake is over."""
        client = connection.core.client if connection.core is not None else None
        self._open[connection] = client
        self._by_client[client] += 1
        self.handshakes.ended(connection)

    def closed(self, connection: AmqpConnection, reason: str) -> None:
        """Owner interface: the connection is no longer ours."""
        self.connections.discard(connection)
        if connection in self._open:
            client = self._open.pop(connection)
            self._by_client[client] -= 1
            if not self._by_client[client]:
                del self._by_client[client]
        self.handshakes.ended(connection)

    def close(self) -> None:
        """Stop accepting; connections that are open stay."""
        if self._retry is not None:
            self._retry.cancel()
        self._close_sockets()
        self.state = "closed"

    def close_connections(self) -> None:
        """Close every connection that came in here."""
        for connection in list(self.connections):
            connection.close()

    def _close_sockets(self) -> None:
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self.driver.loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
