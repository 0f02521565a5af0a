"""Connections between the members of a group: by physical address, made when they are needed.

Two members use one connection both ways. Where they have two (both dialled, or one dialled anew), each sends on the
one that `MemberConnections._prefer` takes, says RETIRED on the other, and whoever has said and heard it closes. That
works as well if the two do not prefer the same one: what is sent on either arrives.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from isthmus_router.credentials import Credentials, certificate_names
from isthmus_router.groups.certificates import misnamed, not_of_member
from isthmus_router.groups.frames import HEADER_BYTES, FrameError, decode_header
from isthmus_router.groups.identity import ID_BYTES, NOBODY, MemberId, MemberInfo, PhysicalAddress
from isthmus_router.handshakes import Handshakes
from isthmus_router.host_names import HostNames, domain
from isthmus_router.places import Places
from isthmus_router.transport.connection import OTHERS_NEED_IT, FrameConnection, Turn
from isthmus_router.transport.hello import (
    LONGEST_HELLO_BYTES,
    REFUSED,
    RETIRED,
    Hello,
    decode_hello,
    encode_hello,
    encode_refused,
)
from isthmus_router.transport.problems import Problems
from isthmus_router.transport.reasons import describe
from isthmus_router.transport.settings import TransportSettings
from isthmus_router.transport.sockets import adopt, dial, peer_host
from isthmus_router.transport.tasks import Tasks

logger = logging.getLogger("TRANSPORT")

_MOST_FAILURES = 1024
"""Addresses that are remembered because they did not answer."""
_MOST_DIALLING = 256
_DESTINATION = slice(1 + ID_BYTES, 1 + 2 * ID_BYTES)
"""Of the member that a frame is for, in its header."""
MOST_NAMES = 4096
"""Members whose names are remembered. Beyond it the oldest of the certificate that has said HELLO for most of them is
forgotten, so that nobody has the names of others forgotten."""


class MemberEvents(Protocol):
    """Who hears of what happens."""

    def member_frame(self, source: PhysicalAddress, frame: bytes) -> None:
        """From a member whose HELLO was right; `source` is where it is reached."""

    def member_heard(self, member: MemberId) -> None:
        """Part of a frame of it has come."""

    def member_lost(self, address: PhysicalAddress, refused: bool) -> None:
        """A connection has ended, or could not be made: then `refused` tells that nobody listens there."""


class MemberConnection(FrameConnection):
    """One with another member."""

    def __init__(
        self, owner: MemberConnections, turn: Turn, settings: TransportSettings, to: PhysicalAddress | None
    ) -> None:
        super().__init__(owner, turn, LONGEST_HELLO_BYTES, settings.queue_bytes)
        self.dialled = to
        self.address = to or PhysicalAddress("", 0)
        """Where the peer is reached: where it was dialled, or what it was last sent to by."""
        self.used_for: set[PhysicalAddress] = set()
        """Addresses to which frames go by this connection."""
        self.remote = "" if to is None else str(to)
        self.credentials: Credentials | None = None
        """That it was made with."""
        self.peer: Hello | None = None
        """Set once its HELLO has come."""
        self.generation = 0
        """One more than that of the connection which it was made to replace."""
        self.since = 0.0
        """When that was."""
        self.hello_timer: asyncio.TimerHandle | None = None
        """Of its HELLO, which is to come by then."""
        self.refused = False
        """Nobody listens there."""
        self.waiting = False
        """It is not dialled before some time is over."""
        self.retired = False
        """RETIRED was said."""
        self.peer_retired = False
        self.held = True

    def is_for(self, member: MemberId) -> bool:
        """Whether it is with that member, or is made for what is to be sent to it alone."""
        if self.peer is not None:
            return self.peer.member.id == member
        return all(decode_header(bytes(frame[:HEADER_BYTES]))[2] in (member, NOBODY) for frame in self.queue)


class MemberConnections:
    """All of them."""

    def __init__(
        self,
        hello: Hello,
        settings: TransportSettings,
        credentials: Credentials | None,
        turn: Turn,
        events: MemberEvents,
        clock: Callable[[], float],
        problems: Problems,
    ) -> None:
        self.hello = hello
        self.credentials = credentials
        self._counts: Counter[str] = Counter(dropped=0, lost=0, refused=0)
        self._settings = settings
        self._turn = turn
        self._events = events
        self._clock = clock
        self._problems = problems
        self._loop = asyncio.get_running_loop()
        self._dials = Tasks()
        self._adoptions = Tasks()
        self._by_address: dict[PhysicalAddress, MemberConnection] = {}
        self._by_member: dict[MemberId, MemberConnection] = {}
        self._all: dict[MemberConnection, None] = {}
        """The oldest first."""
        self._incoming = 0
        self._host_names = HostNames()
        self._places = Places(settings.most_connections)
        self._handshakes = Handshakes[MemberConnection]()
        """Those of others that have not said who they are."""
        self._failures: OrderedDict[PhysicalAddress, tuple[float, float, str]] = OrderedDict()
        """Of addresses that did not answer: when they are dialled again at the earliest, the wait, and why."""
        self._names: OrderedDict[MemberId, tuple[str, str]] = OrderedDict()
        """What members were called by their first HELLO, and whose certificate came with it, the latest last: another
        one cannot take over their ids."""
        self._names_of: Counter[str] = Counter()
        """How many of these each certificate has."""
        self._closed = False

    # What the driver asks for

    @property
    def open(self) -> int:
        """Connections with a member at their other end."""
        return sum(connection.peer is not None for connection in self._all)

    def send(self, to: PhysicalAddress, frame: bytes) -> None:
        """As `NetworkPort.send`."""
        connection = self._by_address.get(to)
        if connection is None:
            if self._closed or len(self._dials) >= _MOST_DIALLING:
                self._counts["lost"] += 1
                return
            connection = self._dial(to)
            self._use_for(to, connection)
        else:
            connection = self._way(connection, to, MemberId(frame[_DESTINATION]))
        connection.address = to
        connection.send(frame)

    def backlog(self, to: PhysicalAddress, member: MemberId) -> int:
        """As `NetworkPort.backlog`."""
        connection = self._by_address.get(to)
        return 0 if connection is None else self._way(connection, to, member).backlog

    def _way(self, connection: MemberConnection, to: PhysicalAddress, member: MemberId) -> MemberConnection:
        """The connection by which frames for a member go to an address to which there is this one."""
        if connection.dialled == to or connection.peer is None:
            return connection
        # That the member of this connection is reached there is only what that member has said.
        return self._by_member.get(member, connection)

    def statistics(self) -> Counter[str]:
        """Frames `dropped`, as queues were full, and `lost` with a connection; connections `refused`."""
        counts = Counter(self._counts)
        counts["dropped"] += sum(connection.dropped for connection in self._all)
        return counts

    def drop(self, to: PhysicalAddress, member: MemberId) -> None:
        """As `NetworkPort.drop`: what is written arrives; no loss is told."""
        connection = self._by_address.get(to)
        if connection is not None and connection.is_for(member):
            self._forget(connection)
            connection.close("the member is gone")
            self._failures.pop(to, None)

    def renew(self, credentials: Credentials) -> None:
        """Connections are made anew with these; those that are open are used until then."""
        self.credentials = credentials
        for connection in list(self._all):
            connection.end_if_revoked(credentials)
        for connection in list(self._by_member.values()):
            to = connection.dialled or connection.address
            if not to.tunnelled:
                self._dial(to).generation = connection.generation + 1

    def retire(self, oldest: int) -> None:
        """Close connections whose credentials are older; what is sent on them gets time to move to newer ones."""
        for connection in self._all:
            if connection.credentials is not None and connection.credentials.ordinal < oldest:
                reason = f"credentials of ordinal {connection.credentials.ordinal} are no longer valid"
                self._loop.call_later(self._settings.connect_timeout, connection.close, reason)

    def accepted(self, sock: socket.socket) -> None:
        """Somebody has dialled this member."""
        if self._closed or not self._place():
            self._counts["refused"] += 1
            sock.close()
            return
        self._incoming += 1
        connection = MemberConnection(self, self._turn, self._settings, None)
        connection.remote = peer_host(sock)
        connection.credentials = self.credentials
        self._all[connection] = None
        context = self.credentials.server if self.credentials is not None else None
        connection.making = self._adoptions.start(self._adopt(connection, sock, context))
        victim = self._handshakes.begun(connection, connection.remote)
        if victim is not None:
            self._handshakes.ended(victim)
            victim.abort(OTHERS_NEED_IT)

    def _place(self) -> bool:
        """Whether there is one for another connection; the oldest that has not said who it is has to leave its own."""
        if self._incoming < self._settings.most_connections:
            return True
        for connection in self._all:
            if connection.dialled is None and connection.peer is None and not connection.ending:
                connection.abort(OTHERS_NEED_IT)
                return True
        return False

    def shut(self) -> list[MemberConnection]:
        """End all connections, after what was sent is written or `_LINGER_SECONDS` are over."""
        self._closed = True
        for connection in set(self._by_address.values()):
            self._forget(connection)
        self._by_member.clear()
        self._dials.cancel()
        self._adoptions.cancel()
        for connection in list(self._all):
            connection.close("the member leaves")
        return list(self._all)

    # Making connections

    def _dial(self, to: PhysicalAddress) -> MemberConnection:
        connection = MemberConnection(self, self._turn, self._settings, to)
        connection.credentials = self.credentials
        self._all[connection] = None
        context = self.credentials.client if self.credentials is not None else None
        not_before, *_ = self._failures.get(to, (0.0,))
        connection.making = self._dials.start(
            self._connect(connection, to, context, not_before - self._clock())
        )
        return connection

    async def _connect(
        self, connection: MemberConnection, to: PhysicalAddress, context: ssl.SSLContext | None, delay: float
    ) -> None:
        settings = self._settings
        try:
            if delay > 0:
                connection.waiting = True
                await asyncio.sleep(delay)
                connection.waiting = False
            if connection.over.is_set():
                return
            await dial(
                connection,
                to.host,
                to.port,
                context,
                names=self._host_names,
                whose=domain(to.host),  # others state the names of members
                connect_timeout=settings.connect_timeout,
                handshake_timeout=settings.handshake_timeout,
                user_timeout=settings.user_timeout,
            )
        except OSError as error:
            connection.refused = isinstance(error, ConnectionRefusedError)
            connection.failed(error, describe(error))

    async def _adopt(
        self, connection: MemberConnection, sock: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        try:
            await adopt(connection, sock, context, self._settings.handshake_timeout)
        except OSError as error:
            connection.failed(error, describe(error))

    def connected(self, connection: MemberConnection) -> None:
        """Implements Owner."""
        if problem := misnamed(certificate_names(connection.certificate), self._settings.peer_names):
            self._refuse(connection, problem)
            return
        if connection.dialled is None:
            identity = connection.identity
            if not self._places.take(identity):
                self._refuse(connection, f"too many connections of {identity}")
                return
            connection.place = identity
        connection.say(encode_hello(self.hello._replace(generation=connection.generation)))
        connection.hello_timer = self._loop.call_later(
            self._settings.handshake_timeout, self._expect_hello, connection
        )

    def _expect_hello(self, connection: MemberConnection) -> None:
        if connection.peer is None:
            connection.abort("no HELLO from the peer")

    def _refuse(self, connection: MemberConnection, reason: str, *, misfit: bool = True) -> None:
        self._counts["refused"] += 1
        connection.misfit = misfit
        connection.say(encode_refused(reason))
        connection.close(f"refused: {reason}")

    def _established(self, connection: MemberConnection, frame: bytes) -> bool:
        """The peer's HELLO has come; whether it belongs here."""
        try:
            peer = decode_hello(frame)
        except FrameError as error:
            self._refuse(connection, str(error))
            return False
        objection = self.hello.objection(peer)
        if objection is not None:
            # Members of other groups may listen where this one looks for its own.
            own, its = self.hello.group, peer.group
            collides = own.domain != its.domain and own._replace(domain=its.domain) == its
            connection.remote = f"{peer.member.name} ({connection.remote})"
            self._refuse(connection, objection, misfit=collides)
            return False
        if problem := self._imposture(connection, peer.member):
            connection.remote = f"{peer.member.name} ({connection.remote})"
            self._refuse(connection, problem)
            return False
        connection.peer = peer
        self._handshakes.ended(connection)
        connection.since = self._clock()
        connection.longest = self._settings.longest_frame
        if connection.dialled is not None:
            self._failures.pop(connection.dialled, None)
        else:
            connection.address = peer.member.addresses[0]
            connection.generation = peer.generation
        other = self._by_member.get(peer.member.id)
        if other is not None and not self._prefer(connection, other):
            connection, other = other, connection
        self._use(connection, peer)
        connection.release()
        if other is not None:
            self._retire(other, connection)
        return True

    def _imposture(self, connection: MemberConnection, member: MemberInfo) -> str:
        """Why the peer cannot be who it says that it is; empty: it can."""
        names = certificate_names(connection.certificate)
        if self._settings.bind_names and (problem := not_of_member(names, member.name)):
            return problem
        known, identity = self._names.pop(member.id, ("", ""))
        if not identity:
            known, identity = member.name, connection.identity
            self._names_of[identity] += 1
        self._names[member.id] = known, identity
        if len(self._names) > MOST_NAMES:
            self._forget_name()
        return "" if known == member.name else f"its id is that of member {known}"

    def _forget_name(self) -> None:
        most = max(self._names_of, key=self._names_of.__getitem__)
        del self._names[next(member for member, (_, identity) in self._names.items() if identity == most)]
        self._names_of[most] -= 1
        if not self._names_of[most]:
            del self._names_of[most]

    def _prefer(self, newer: MemberConnection, older: MemberConnection) -> bool:
        """The newer one. But where both members have just dialled, that of the later generation or the lower id."""
        if newer.generation > older.generation or (newer.dialled is None) is (older.dialled is None):
            return True
        if self._clock() - older.since > self._settings.connect_timeout:
            return True
        if newer.generation < older.generation:
            return False
        assert newer.peer is not None
        own_is_lower = self.hello.member.id < newer.peer.member.id
        return own_is_lower is (newer.dialled is not None)

    def _use(self, connection: MemberConnection, peer: Hello) -> None:
        """Send on it what is for that member, wherever it says that it is, and wherever it was dialled.

        Where another member is connected, one that says that it is there has to have the same name, as after a
        restart, or to be found there.
        """
        self._by_member[peer.member.id] = connection
        addresses = set(peer.member.addresses)
        if connection.dialled is not None:
            addresses.add(connection.dialled)
        for address in addresses:
            other = self._by_address.get(address)
            if other is connection:
                continue
            if other is not None and other.peer is None:
                # Still being made, but there is no need to wait for it.
                for frame in other.take_queue():
                    connection.send(frame)
                if other.waiting:
                    other.abort("the member has dialled")
            elif other is not None and other.peer is not None and other.peer.member.id != peer.member.id:
                if address != connection.dialled and other.peer.member.name != peer.member.name:
                    continue
                self._forget(other)
                other.close("another member is there now")
                self._events.member_lost(address, False)
            self._use_for(address, connection)

    def _use_for(self, address: PhysicalAddress, connection: MemberConnection) -> None:
        """Send on it what goes to that address."""
        before = self._by_address.get(address)
        if before is not None:
            before.used_for.discard(address)
        self._by_address[address] = connection
        connection.used_for.add(address)

    def _retire(self, connection: MemberConnection, successor: MemberConnection) -> None:
        for address in list(connection.used_for):
            self._use_for(address, successor)
        for frame in connection.take_queue():
            successor.send(frame)
        connection.retired = True
        connection.held = False
        connection.send(RETIRED)
        self._end_retired(connection)

    def _end_retired(self, connection: MemberConnection) -> None:
        if connection.retired and connection.peer_retired:
            connection.close("retired")

    # What happens on them

    def arrived(self, connection: MemberConnection, frames: list[bytes]) -> None:
        """Implements Owner. Raises FrameError: the peer has refused this member, whose HELLO came later."""
        first = 0
        if connection.peer is None:
            if not self._established(connection, frames[0]):
                return
            first = 1
        assert connection.peer is not None
        source, peer = connection.address, connection.peer.member.id
        for frame in frames[first:] if first else frames:
            if frame[1 : 1 + ID_BYTES] == peer:
                self._events.member_frame(source, frame)
            elif frame == RETIRED:
                connection.peer_retired = True
                self._end_retired(connection)
            elif frame[:1] == bytes((REFUSED,)):
                decode_hello(frame)
            else:
                raise FrameError("a frame in the name of another member")

    def heard(self, connection: MemberConnection) -> None:
        """Implements Owner."""
        if connection.peer is not None:
            self._events.member_heard(connection.peer.member.id)

    def drained(self, connection: MemberConnection) -> None:
        """Implements Owner; what waits is bounded, and not worth waiting for."""

    def ended(self, connection: MemberConnection, reason: str) -> None:
        """Implements Owner."""
        self._all.pop(connection, None)
        self._handshakes.ended(connection)
        if connection.hello_timer is not None:
            connection.hello_timer.cancel()
        if connection.dialled is None:
            self._incoming -= 1
        if connection.place:
            self._places.leave(connection.place)
        self._counts["dropped"] += connection.dropped
        self._counts["lost"] += len(connection.take_queue())
        if connection.misfit:
            name = connection.remote if connection.peer is None else connection.peer.member.name
            self._problems.tell(f"member {name}", reason)
        if connection.dialled is not None and connection.peer is None:
            self._failed(connection.dialled, reason)
        level = logging.DEBUG if connection.peer is None or connection.retired else logging.INFO
        logger.log(level, "connection ended", extra={"peer": str(connection.address), "reason": reason})
        if self._forget(connection) and not self._closed:
            self._events.member_lost(connection.address, connection.refused)

    def _forget(self, connection: MemberConnection) -> bool:
        """Nothing is sent on it any more. Returns whether anything was."""
        addresses, connection.used_for = connection.used_for, set()
        for address in addresses:
            del self._by_address[address]
        if connection.peer is not None and self._by_member.get(connection.peer.member.id) is connection:
            del self._by_member[connection.peer.member.id]
            return True
        return bool(addresses)

    def _failed(self, address: PhysicalAddress, reason: str) -> None:
        """Log why, if that is new and not only that nobody is there yet."""
        _, wait, before = self._failures.pop(address, (0.0, self._settings.backoff_least / 2, ""))
        if reason != before:
            logger.info("member not connected to", extra={"peer": str(address), "reason": reason})
        wait = min(2 * wait, self._settings.backoff_most)
        self._failures[address] = (self._clock() + wait, wait, reason)
        if len(self._failures) > _MOST_FAILURES:
            self._failures.popitem(last=False)
