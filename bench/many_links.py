"""A client that attaches links by the ten thousand: connections stepped by `Clients.until`, on proton's engine."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from cproton_ffi import ffi, lib

LINKS_PER_SESSION = 100
"""The engine looks for a link of a session by walking over all of them."""
SESSIONS = 1000
"""As many as a router allows on one connection."""
STEP_SECONDS = 60.0
BUFFER_BYTES = 256 * 1024

Pointer = Any


class Link:
    """A link; `attached_at` and `credit_at` are times of `time.perf_counter`, None before."""

    __slots__ = ("attached_at", "client", "credit_at", "detached", "pn", "refused")

    def __init__(self, client: Client, pn: Pointer) -> None:
        self.client = client
        self.pn = pn
        self.attached_at: float | None = None
        self.credit_at: float | None = None
        self.refused = False
        self.detached = False

    def detach(self) -> None:
        """Close the link; `detached` once the router has answered."""
        lib.pn_link_close(self.pn)


class Client:
    """One connection; made by `Clients.connect`."""

    _buffer = ffi.new("char[]", BUFFER_BYTES)
    """Of all connections: nothing stays in it."""
    _view = memoryview(ffi.buffer(_buffer))

    def __init__(self, port: int, number: int) -> None:
        self.links: dict[Pointer, Link] = {}
        self.room = SESSIONS * LINKS_PER_SESSION
        self._in_session = LINKS_PER_SESSION
        self._session: Pointer = None
        self._names = 0
        self.pn: Pointer = lib.pn_connection()
        self._transport: Pointer = lib.pn_transport()
        self._collector: Pointer = lib.pn_collector()
        lib.pn_connection_collect(self.pn, self._collector)
        lib.pn_connection_set_container(self.pn, f"links-{number}".encode())
        lib.pn_transport_set_channel_max(self._transport, SESSIONS - 1)
        lib.pn_sasl_allowed_mechs(lib.pn_sasl(self._transport), b"ANONYMOUS")
        lib.pn_connection_open(self.pn)
        lib.pn_transport_bind(self._transport, self.pn)
        self.socket = socket.create_connection(("127.0.0.1", port), STEP_SECONDS)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def sender(self, address: str) -> Link:
        """Attach a link that sends to `address`."""
        return self._attach(lib.pn_sender, lib.pn_link_target, address)

    def receiver(self, address: str) -> Link:
        """Attach a link that receives from `address`, with credit."""
        link = self._attach(lib.pn_receiver, lib.pn_link_source, address)
        lib.pn_link_flow(link.pn, 10)
        return link

    def _attach(self, make: Any, terminus: Any, address: str) -> Link:
        if self._in_session == LINKS_PER_SESSION:
            self._session = lib.pn_session(self.pn)
            lib.pn_session_open(self._session)
            self._in_session = 0
        self._in_session += 1
        self._names += 1
        self.room -= 1
        pn = make(self._session, f"l{self._names}".encode())
        lib.pn_terminus_set_type(terminus(pn), lib.PN_TARGET if make is lib.pn_sender else lib.PN_SOURCE)
        lib.pn_terminus_set_address(terminus(pn), address.encode())
        lib.pn_link_open(pn)
        link = self.links[pn] = Link(self, pn)
        return link

    def close(self) -> None:
        """Close the socket, and give the engine's objects back."""
        self.socket.close()
        lib.pn_transport_unbind(self._transport)
        lib.pn_connection_collect(self.pn, ffi.NULL)
        lib.pn_connection_release(self.pn)
        lib.pn_decref(self.pn)
        lib.pn_decref(self._transport)
        lib.pn_collector_free(self._collector)

    def step(self) -> bool:
        """Write, read and look at what happened; whether anything was still to be written."""
        lib.pn_transport_tick(self._transport, int(time.monotonic() * 1000))
        blocked = self._write()
        try:
            size = self.socket.recv_into(self._view)
        except BlockingIOError:
            size = -1
        if size == 0:
            raise RuntimeError("the router has closed the connection")
        taken = 0
        while taken < size:
            count = lib.pn_transport_push(self._transport, self._buffer + taken, size - taken)
            if count <= 0:
                raise RuntimeError("the router has sent what cannot be read")
            taken += count
        self._look()
        return self._write() or blocked

    def _write(self) -> bool:
        while (pending := lib.pn_transport_pending(self._transport)) > 0:
            count = lib.pn_transport_peek(self._transport, self._buffer, min(pending, BUFFER_BYTES))
            try:
                sent = self.socket.send(self._view[:count])
            except BlockingIOError:
                return True
            lib.pn_transport_pop(self._transport, sent)
        return False

    def _look(self) -> None:
        now = time.perf_counter()
        while event := lib.pn_collector_peek(self._collector):
            kind = lib.pn_event_type(event)
            if kind in {lib.PN_LINK_FLOW, lib.PN_LINK_REMOTE_OPEN, lib.PN_LINK_REMOTE_CLOSE}:
                pn = lib.pn_event_link(event)
                link = self.links.get(pn)
                if link is None:
                    pass
                elif kind == lib.PN_LINK_REMOTE_CLOSE:
                    if not lib.pn_link_state(pn) & 4:  # PN_LOCAL_CLOSED
                        link.refused = True
                        lib.pn_link_close(pn)
                    link.detached = True
                    del self.links[pn]
                    lib.pn_link_free(pn)
                elif kind == lib.PN_LINK_REMOTE_OPEN:
                    link.attached_at = now
                elif link.credit_at is None and lib.pn_link_credit(pn) > 0:
                    link.credit_at = now
            lib.pn_collector_pop(self._collector)


class Clients:
    """All connections of the benchmark, stepped together."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._all: list[Client] = []

    def connect(self, port: int) -> Client:
        """A further connection."""
        client = Client(port, len(self._all))
        self._all.append(client)
        self._selector.register(client.socket, selectors.EVENT_READ, client)
        return client

    def until(self, condition: Callable[[], bool], what: str, timeout: float = STEP_SECONDS) -> None:
        """Step every connection until `condition` holds."""
        deadline = time.monotonic() + timeout
        busy = [client for client in self._all if client.step()]
        while not condition():
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {timeout:.0f} s: {what}")
            ready = self._selector.select(0 if busy else 0.01)
            turn = dict.fromkeys([*(key.data for key, _ in ready), *busy])
            busy = [client for client in turn if client.step()]

    def pause(self, seconds: float) -> None:
        """Write what was asked for, and take what comes within this time."""
        until = time.monotonic() + seconds
        for client in self._all:
            client.step()
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                key.data.step()

    def close(self) -> None:
        """Leave without a word."""
        for client in self._all:
            self._selector.unregister(client.socket)
            client.close()
        self._all.clear()
        self._selector.close()
