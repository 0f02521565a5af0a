"""The poller in pure Python, on one thread; `compiled.pyx` does the same faster."""

from __future__ import annotations

import errno
import math
import os
import select
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from cproton_ffi import ffi, lib

from isthmus_router.amqp.sockets import charges
from isthmus_router.amqp.sockets.charges import Charges, Rota
from isthmus_router.amqp.sockets.layers import NO_BYTES, Gate, place_for_gate
from isthmus_router.amqp.sockets.limits import MOST_OPENING, PART_OF_USUAL
from isthmus_router.amqp.sockets.outcome import BLOCKED, ENDED, REFUSED, UNREAD, WRITTEN
from isthmus_router.amqp.sockets.pieces import FEW_EVENTS, GATED_PIECE, READ_BYTES, Intake

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection
    from isthmus_router.amqp.kernel.forward import Forwarder

AT_ONCE = 1024


class Poller:
    """See `compiled.pyi`."""

    def __init__(self, forwarder: Forwarder, threads: int) -> None:
        self.threads = 1
        self._epoll = select.epoll()
        self._connections: dict[int, AmqpConnection] = {}
        self._watched: dict[int, int] = {}
        self._limits: dict[int, int] = {}
        self._round = 0
        self._opening: dict[int, int] = {}
        """Connections whose handshake is not over: the round in which each was read, or added."""
        self._intakes: dict[int, Intake] = {}
        self._gates: dict[int, Gate] = {}
        self._held: dict[int, None] = {}
        """Connections with frames that have not passed their gate."""
        self._ready = os.eventfd(1, os.EFD_CLOEXEC)
        """Readable; in `_epoll` while one of `_held` may be read."""
        self._woken = False
        self._heavy: set[int] = set()
        """Connections that have made many events in their last turn."""
        self._charges = Charges()
        self._clients: dict[int, Hashable] = {}
        """Whose the open connections are."""
        self._rota = Rota()
        self._left = False
        """In the last round not all were read."""
        self._due_since: dict[int, int] = {}
        """Connections that wait: the round since which each does."""
        self._buffer = ffi.new("char[]", READ_BYTES)
        self._view = memoryview(ffi.buffer(self._buffer))

    def fileno(self) -> int:
        return self._epoll.fileno()

    def add(self, connection: AmqpConnection) -> None:
        self._connections[connection.fd] = connection
        self._watched[connection.fd] = 0
        self._opening[connection.fd] = self._round
        self._limits[connection.fd] = READ_BYTES
        self._intakes[connection.fd] = Intake(
            connection.pn,
            connection.collector,
            between_routers=connection.settings.role.is_between_routers,
        )
        self.watch(connection, reading=True, writing=False)

    def limit(self, connection: AmqpConnection, size: int) -> None:
        if connection.fd in self._connections:
            self._limits[connection.fd] = min(size, READ_BYTES)

    def share(self, connection: AmqpConnection) -> None:
        if self._connections.get(connection.fd) is connection:
            self._opening.pop(connection.fd, None)
            self._clients[connection.fd] = charges.client_of(connection)

    def watch(self, connection: AmqpConnection, *, reading: bool, writing: bool) -> None:
        wanted = (select.EPOLLIN if reading else 0) | (select.EPOLLOUT if writing else 0)
        watched = self._watched[connection.fd]
        self._watched[connection.fd] = wanted
        if not wanted:
            if watched:
                self._epoll.unregister(connection.fd)
        elif watched:
            self._epoll.modify(connection.fd, wanted)
        else:
            self._epoll.register(connection.fd, wanted)
        if connection.fd in self._held:
            self._wake()

    def _wake(self) -> None:
        """Be readable while frames that have not passed may be read."""
        wanted = any(self._watched[fd] & select.EPOLLIN for fd in self._held)
        if wanted is not self._woken:
            self._woken = wanted
            if wanted:
                self._epoll.register(self._ready, select.EPOLLIN)
            else:
                self._epoll.unregister(self._ready)

    def remove(self, connection: AmqpConnection) -> None:
        if self._connections.get(connection.fd) is connection:
            self.watch(connection, reading=False, writing=False)
            self._held.pop(connection.fd, None)
            gate = self._gates.pop(connection.fd, None)
            if gate is not None:
                gate.remove()
            del self._connections[connection.fd], self._watched[connection.fd]
            self._opening.pop(connection.fd, None)
            del self._limits[connection.fd], self._intakes[connection.fd]
            self._heavy.discard(connection.fd)
            self._due_since.pop(connection.fd, None)
            self._clients.pop(connection.fd, None)

    def read(self, seconds: float = math.inf) -> int:
        usual, others = self._sort(self._choose(self._due()))
        begun = self._charges.clock()
        self._charges.begin_round()
        served = self._serve(usual, begun + seconds * PART_OF_USUAL)
        left = served < len(usual)
        some = self._serve(others, begun + seconds)
        self._left = left or some < len(others)
        return served + some

    def _sort(
        self, ready: list[tuple[int, int]]
    ) -> tuple[list[tuple[AmqpConnection, int]], list[tuple[AmqpConnection, int]]]:
        """Usual connections, and those that are costly or not open, in the order in which they have their turns."""
        for fd, _ in ready:
            self._due_since.setdefault(fd, self._round)
        if self._left:
            ready.sort(key=lambda found: self._due_since[found[0]])
            ready = self._rota.sort(ready, lambda found: self._clients.get(found[0]))
        else:
            self._rota.forget()
        usual: list[tuple[AmqpConnection, int]] = []
        others: list[tuple[AmqpConnection, int]] = []
        for fd, events in ready:
            connection = self._connections[fd]
            (others if connection.costly or fd in self._opening else usual).append((connection, events))
        return usual, others

    def _serve(self, order: list[tuple[AmqpConnection, int]], end: float) -> int:
        """Read one after the other and deal with its events, until `end`; how many have had their turn."""
        for served, (connection, events) in enumerate(order, 1):
            fd = connection.fd
            if self._connections.get(fd) is not connection:
                continue  # one of those before has ended it
            self._due_since.pop(fd, None)
            if self._left:
                self._rota.had_turn(self._clients.get(fd))
            if fd in self._opening:
                self._opening[fd] = self._round
            begun = self._charges.clock()
            outcome = -errno.EAGAIN
            if events & ~select.EPOLLOUT and self._watched[fd]:
                outcome = self._read(connection)
            if self._held or self._woken:
                self._wake()
            connection.has_read(outcome)
            if events & select.EPOLLOUT:
                connection.writable = True
                connection.driver.touch(connection)
            now = self._charges.clock()
            self._charges.charge(connection, now - begun)
            if now >= end:
                return served
        return len(order)

    def _due(self) -> list[tuple[int, int]]:
        """Connections with something to read, or that may be written again, and the kinds of events."""
        ready = self._epoll.poll(0, AT_ONCE)
        if not self._woken:
            return ready
        due = {fd: events for fd, events in ready if fd != self._ready}
        for fd in self._held:
            if self._watched[fd] & select.EPOLLIN:
                due[fd] = due.get(fd, 0) | select.EPOLLIN
        return list(due.items())

    def _choose(self, ready: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Without those whose handshakes have to wait."""
        self._round += 1
        opening = self._opening
        if not opening:
            return ready
        chosen = [found for found in ready if found[0] not in opening]
        waiting = [found for found in ready if found[0] in opening]
        if len(waiting) > MOST_OPENING:
            waiting.sort(key=lambda found: opening[found[0]])
        return chosen + waiting[:MOST_OPENING]

    def _read(self, connection: AmqpConnection) -> int:
        fd = connection.fd
        self._heavy.discard(fd)
        total = self._read_pieces(connection, fd)
        gate = self._gates.get(fd)
        if gate is not None and gate.held:
            self._held[fd] = None
        else:
            self._held.pop(fd, None)
        return total

    def _read_pieces(self, connection: AmqpConnection, fd: int) -> int:
        intake = self._intakes[fd]
        total, limit = 0, min(self._limits[fd], intake.most_read())
        while total < limit:
            piece = min(intake.piece(len(self._heavy)), limit)
            if piece < GATED_PIECE and fd not in self._gates and not self._install_gate(connection):
                return UNREAD
            gate = self._gates.get(fd)
            if gate is not None and piece >= GATED_PIECE and not gate.held:
                gate.remove()  # it costs a call of Python for each read
                del self._gates[fd]
                gate = None
            room = min(piece, limit - total)
            if gate is not None:
                gate.deliveries, gate.allowed = intake.deliveries, NO_BYTES
                if gate.decrypts:
                    gate.allowed, room = room, min(GATED_PIECE, limit - total)
            if gate is not None and gate.held:
                size = room
                total += gate.resume()
            else:
                try:
                    size = connection.socket.recv_into(self._view, room)
                except OSError as error:
                    return total or -(error.errno or errno.EIO)
                self._push(connection, size)
                total += size
                intake.passed(size)
            if gate is not None and gate.refused:
                gate.refused = False
                return REFUSED
            if intake.events() > FEW_EVENTS:
                self._heavy.add(fd)
                return total
            if size < room and not (gate is not None and gate.held):
                break
        return total

    def _install_gate(self, connection: AmqpConnection) -> bool:
        """Have frames pass a gate, once the protocol headers are exchanged.

        False if the peer has attached links and takes no bytes, so that they may never be.
        """
        place = place_for_gate(connection.transport)
        if place is None:
            return not (self._intakes[connection.fd].held_up and lib.pn_link_head(connection.pn, 0))
        self._gates[connection.fd] = Gate(connection.transport, place)
        return True

    def _push(self, connection: AmqpConnection, size: int) -> None:
        taken = 0
        while taken < size:
            # The transport takes what fits into its input buffer, then works it off.
            count = lib.pn_transport_push(connection.transport, self._buffer + taken, size - taken)
            if count <= 0:
                break  # the rest is read all the same: what is unread would reset the connection
            taken += count

    def write(self, connections: Sequence[AmqpConnection]) -> None:
        results = []
        for connection in connections:
            connection.dirty = False
            if connection.closed or (connection.write_blocked and not connection.writable):
                continue
            connection.writable = False
            connection.stirred = True
            connection.before_write()
            result = self._write(connection)
            self._intakes[connection.fd].held_up = result != WRITTEN
            results.append((connection, result))
        for connection, result in results:
            connection.written(result)

    def _write(self, connection: AmqpConnection) -> int:
        transport = connection.transport
        while (pending := lib.pn_transport_pending(transport)) > 0:
            try:
                count = lib.pn_transport_peek(transport, self._buffer, min(pending, READ_BYTES))
                sent = connection.socket.send(self._view[:count])
            except (BlockingIOError, InterruptedError):
                return BLOCKED
            except OSError as error:
                return -(error.errno or errno.EIO)
            lib.pn_transport_pop(transport, sent)
            self._intakes[connection.fd].passed(sent)
            if sent < count:
                return BLOCKED
        return WRITTEN if pending == 0 else ENDED

    def close(self) -> None:
        os.close(self._ready)
        self._epoll.close()
