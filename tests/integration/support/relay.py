"""A relay between two routers: a test stops its connections, lets them go on, and cuts them."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Self

READ_BYTES = 64 * 1024
POLL_SECONDS = 0.005


class Way:
    """One direction of a connection. While it is `stopped`, nothing arrives of what was sent."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.stopped = False
        self.waiting = b""
        """Taken from the sender, not yet given to the receiver."""

    def take(self) -> bool:
        """Take what was sent, as far as there is room; False at its end."""
        if len(self.waiting) >= READ_BYTES:
            return True
        try:
            data = self.source.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.waiting += data
        return bool(data)

    def give(self) -> bool:
        """Give what was taken; False if nobody takes it."""
        try:
            while self.waiting and not self.stopped:
                self.waiting = self.waiting[self.target.send(self.waiting) :]
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


class Relayed:
    """One connection through the relay."""

    def __init__(self, relay: Relay, near: socket.socket, far: socket.socket) -> None:
        self._relay = relay
        self.sockets = near, far
        for sock in self.sockets:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.there = Way(near, far)
        """From the router that connected."""
        self.back = Way(far, near)

    def push(self) -> bool:
        """Move bytes in both directions; False at the end of the connection."""
        return all(way.take() & way.give() for way in (self.there, self.back))

    def cut(self) -> None:
        """End the connection; what has not arrived never will."""
        with self._relay.lock:
            self._relay.drop(self)


class Relay:
    """A port that leads to another one."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.lock = threading.Lock()
        """Held while bytes are moved."""
        self.connections: list[Relayed] = []
        """Those there ever were, in the order in which they were made."""
        self._open: list[Relayed] = []
        self._socket = socket.create_server(("localhost", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._ended = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()
        for connection in list(self._open):
            self.drop(connection)
        self._socket.close()
        self._selector.close()

    def stop(self, way: Way) -> None:
        """From now on nothing arrives in this direction."""
        with self.lock:
            way.stopped = True

    def go_on(self, way: Way) -> None:
        """What has waited arrives."""
        with self.lock:
            way.stopped = False

    def drop(self, connection: Relayed) -> None:
        """Forget a connection; both routers see its end."""
        if connection in self._open:
            self._open.remove(connection)
            for sock in connection.sockets:
                sock.close()

    def _run(self) -> None:
        while not self._ended:
            self._selector.select(POLL_SECONDS)
            with self.lock:
                self._accept()
                for connection in list(self._open):
                    if not connection.push():
                        self.drop(connection)

    def _accept(self) -> None:
        with suppress(OSError):
            near, _ = self._socket.accept()
            try:
                connection = Relayed(self, near, socket.create_connection(("localhost", self.target)))
            except OSError:
                near.close()
                raise
            self.connections.append(connection)
            self._open.append(connection)
