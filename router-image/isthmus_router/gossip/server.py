"""The gossip router's process: the table, driven by asyncio, behind TLS whose files may change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
import ssl
from dataclasses import dataclass, replace

from isthmus_router import tls_records
from isthmus_router.credentials import CredentialsError, WatchedFiles
from isthmus_router.descriptors import left_for_clients
from isthmus_router.gossip.link import ServerLink
from isthmus_router.gossip.table import Limits, Table
from isthmus_router.handshakes import Handshakes
from isthmus_router.room import Room, Waiting
from isthmus_router.transport.sockets import Listener, peer_host
from isthmus_router.turns import Turns

log = logging.getLogger("GOSSIP")

LOOK_AT_FILES_SECONDS = 1.0
STOP_SECONDS = 2.0
TELL_SECONDS = 1.0
"""Between lines of the log about connections that are turned away."""
SERVED = 16
"""Connections that get room in a turn."""
UNSENT_BYTES = 1 << 16
"""That the system takes for a client, beside what is on its way. What it has taken cannot be overtaken by messages of
others."""
USER_TIMEOUT_SECONDS = 10.0
"""A client whose system does not acknowledge for this long is gone."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the process, beside those of its table."""

    most_queued: int = 1 << 25
    """Memory in bytes of what the router itself may have to say to one client. The router does not read a client on
    while half as many of its messages wait for others."""
    most_held: int = 1 << 28
    """Bytes of messages that wait or are incomplete, over all, and as many of answers."""


class GossipServer:
    """From `start` to `stop`, on one event loop."""

    def __init__(
        self,
        listening: socket.socket,
        credentials: WatchedFiles | None = None,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """`listening` is the server's from here; without `credentials` connections are in the clear."""
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(listening, USER_TIMEOUT_SECONDS)
        self.credentials = credentials
        self._bounds = bounds or Bounds()
        limits = limits or Limits()
        self._most_connections = min(limits.most_connections, left_for_clients())
        limits = replace(limits, most_connections=self._most_connections)
        self.table = Table(self._loop.time(), os.urandom(16), limits)
        self._context: ssl.SSLContext | None = None
        """For new connections."""
        self._links: dict[ServerLink, None] = {}
        """The oldest first, those in their handshake included."""
        self._handshakes = Handshakes[ServerLink]()
        """Those that have not said HELLO."""
        self._touched: list[ServerLink] = []
        self.turns = Turns(self._loop)
        self.ready = self.turns.ready
        """Implements `link.Owner`."""
        self.table.on_work = lambda: self.turns.add(self.table)
        self._all_gone = asyncio.Event()
        self.stopping = False
        self.room = Room(self._bounds.most_held)
        self._wants_room = Waiting[ServerLink](self.room)
        self._hindered = self._wants_room.hindered()
        """When progress was last checked."""
        self._serving = False
        """Those that wait for room are looked at in a moment."""
        self._own = 0
        """Memory in bytes of what the router itself has to say."""
        self.slow = 0
        """Clients cut off because they took nothing, or because they, or all together, were too far behind."""
        self.dropped = 0
        """Messages for which there was no room."""
        self.turned_away = 0
        """Connections beyond what is allowed."""
        self._told_at = -math.inf
        """When the log was last told of one."""
        self.tls_loads = 0
        self.tls_failures = 0
        """Times that changed files could not be used."""
        self.certificates = ""
        """The digest of the files that serve new connections; empty without TLS."""
        self.tls_problem = ""
        """Why the files as they are now are not in use; empty: they are."""

    @property
    def held(self) -> int:
        """Bytes that all connections hold."""
        return self.room.held + self._own

    async def start(self) -> None:
        """Listens. Raises CredentialsError."""
        if self.credentials is not None:
            self._context = await asyncio.to_thread(self.credentials.load)
            self.certificates = self.credentials.digest
            _tell(self.credentials)
        self._listener.start(self._accepted)

    async def run(self) -> None:
        """Ends silent connections and looks at the certificate files until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_time())
            if self.credentials is not None:
                group.create_task(self._watch(self.credentials))

    async def stop(self) -> None:
        """Sends what waits, as far as clients take it soon, and closes all connections."""
        self.stopping = True
        self._listener.close()
        for link in list(self._links):
            link.finish()
        if self._links:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), STOP_SECONDS)

    def _accepted(self, sock: socket.socket) -> None:
        host = peer_host(sock)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        link = ServerLink(self, self._bounds.most_queued, host)
        if not self._admit(link):
            sock.close()
            return
        link.making = self._loop.create_task(self._make(link, sock))
        victim = self._handshakes.begun(link, host)
        if victim is not None:
            self._turn_away(victim)

    async def _make(self, link: ServerLink, sock: socket.socket) -> None:
        """Do the handshake of an accepted connection."""
        try:
            await tls_records.accept(link, sock, self._context, self.table.limits.greeting)
        except OSError as error:
            log.debug("handshake failed", extra={"peer": link.peer, "reason": str(error)})
            sock.close()
            self.gone(link)
        except BaseException:
            sock.close()
            self.gone(link)
            raise

    def _admit(self, link: ServerLink) -> bool:
        """Whether there is room for one more."""
        if not self._place():
            self._count_turned_away(link)
            return False
        self._links[link] = None
        return True

    def _place(self) -> bool:
        """Whether there is one; the oldest that has not said HELLO, or else has no member, has to leave its own."""
        if len(self._links) < self._most_connections:
            return True
        for useful in (self.table.greeted, self.table.registered):
            for link in self._links:
                if not link.ended and not useful(link):
                    self._turn_away(link)
                    return True
        return False

    def _turn_away(self, link: ServerLink) -> None:
        self._count_turned_away(link)
        self._handshakes.ended(link)
        link.finish()

    def _count_turned_away(self, link: ServerLink) -> None:
        self.turned_away += 1
        now = self._loop.time()
        if now >= self._told_at + TELL_SECONDS:
            self._told_at = now
            log.warning("connection turned away", extra={"peer": link.peer, "connections": len(self._links)})

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(self.table.deadline - self._loop.time())
            now = self._loop.time()
            self._hindered = self._wants_room.hindered()
            for link in list(self._links):
                try:
                    link.check_progress(now)
                except Exception as error:  # of this connection, which does not concern the others
                    link.broken(error)
            self.table.on_time(now)

    async def _watch(self, credentials: WatchedFiles) -> None:
        while True:
            await asyncio.sleep(LOOK_AT_FILES_SECONDS)
            try:
                context = await asyncio.to_thread(credentials.load)
            except CredentialsError as error:
                self.tls_failures += 1
                self.tls_problem = str(error)
                log.error("credentials not usable; those from before stay", extra={"reason": str(error)})
                continue
            if context is not None:
                self._context, self.certificates = context, credentials.digest
                self.tls_loads += 1
                self.tls_problem = ""
                log.info("credentials loaded; they serve new connections")
                _tell(credentials)
                for link in list(self._links):
                    if link in self._links:
                        link.end_if_revoked()
                    await asyncio.sleep(0)  # others are served between them

    # What links ask for (`link.Owner`)

    def greeted(self, link: ServerLink) -> None:
        """It has said HELLO."""
        self._handshakes.ended(link)

    def gone(self, link: ServerLink) -> None:
        """Its connection has ended."""
        self._links.pop(link, None)
        self.wants_none(link)
        self._handshakes.ended(link)
        if self.stopping and not self._links:
            self._all_gone.set()

    def touched(self, link: ServerLink) -> None:
        """It has something to write at the end of this turn."""
        if not self._touched:
            self._loop.call_soon(self._flush)
        self._touched.append(link)

    def holds(self, more: int) -> None:
        """Implements `link.Owner`."""
        self._own += more
        if more > 0 and self._own > self._bounds.most_held:
            most = max(self._links, key=lambda link: link.own)
            most.cut_off(f"all connections together have {self._own} bytes to read, this one {most.own}")

    def wants_room(self, link: ServerLink) -> None:
        """Implements `link.Owner`."""
        self._wants_room.add(link, link.wanted or 0)
        self.has_room()  # it may fit where those that came before do not
        if self.room.held > self.room.hard:
            most = max(self._links, key=lambda each: (self.room.of_identity(each.identity), each.input))
            most.cut_off(f"all connections together hold {self.room.held} bytes, this one {most.held}")

    def wants_none(self, link: ServerLink) -> None:
        """Implements `link.Owner`."""
        self._wants_room.discard(link)
        self.has_room()  # those behind it may fit

    def has_room(self) -> None:
        """Implements `link.Owner`."""
        if self._wants_room and not self._serving:
            self._serving = True
            self._loop.call_soon(self._serve)

    def crowded(self) -> bool:
        """Implements `link.Owner`."""
        return bool(self._wants_room)

    def hinders(self, link: ServerLink) -> bool:
        """Implements `link.Owner`."""
        return self._hindered.by(link)

    def _serve(self) -> None:
        """Read those that wait for room, as far as there is some."""
        self._serving = False
        if self._wants_room.serve(ServerLink.admit, SERVED):
            self.has_room()

    def _flush(self) -> None:
        touched, self._touched = self._touched, []
        for link in touched:
            if not link.ended:
                link.flush()


def _tell(credentials: WatchedFiles) -> None:
    if credentials.remark:
        log.warning("revocation lists incomplete", extra={"reason": credentials.remark})
