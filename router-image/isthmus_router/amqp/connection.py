"""One AMQP connection: a socket and proton's engine, and what is read, written and timed between them."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from cproton_ffi import ffi, lib

from isthmus_router.amqp.checked import condition_of
from isthmus_router.amqp.detached import Detached
from isthmus_router.amqp.engine import Pointer, cstring, set_condition
from isthmus_router.amqp.events import deal_with_events
from isthmus_router.amqp.freeing import Freeing
from isthmus_router.amqp.kernel.handles import forget, written
from isthmus_router.amqp.kernel.held import Held
from isthmus_router.amqp.kernel.outgoing import Outgoing
from isthmus_router.amqp.kernel.remains import Remains
from isthmus_router.amqp.kernel.state import ConnectionState
from isthmus_router.amqp.markers import Answers, Markers
from isthmus_router.amqp.memory import much_is_freed
from isthmus_router.amqp.opening import is_local, name_client, password_hint, prepare_transport, send_open
from isthmus_router.amqp.sasl import Exchange, end_login, forget_login, has_failed, watch_login
from isthmus_router.amqp.sessions import Sessions
from isthmus_router.amqp.settings import Settings
from isthmus_router.amqp.sockets.dispositions import COPIES_TOO_MUCH
from isthmus_router.amqp.sockets.outcome import BLOCKED, ENDED, REFUSED, UNREAD
from isthmus_router.amqp.terminus import size_of_link
from isthmus_router.amqp.tls import UNTRUSTED, explain_failure
from isthmus_router.core.access import UNAUTHORIZED
from isthmus_router.core.model import Connection, Link
from isthmus_router.core.terms import Condition
from isthmus_router.engine_log import transports_with_errors, watch_transport
from isthmus_router.groups.certificates import is_named
from isthmus_router.message.types import DecodeError

if TYPE_CHECKING:
    from isthmus_router.amqp.driver import Driver

log = logging.getLogger("SERVER")

CLOSE_TIMEOUT_SECONDS = 5.0
SHORTEST_TICK_SECONDS = 0.05
MOST_OWED = 1000
"""Answers that a client has not taken when the router stops reading from it."""
ROUTER_MOST_OWED, OWED_BYTES = 65_536, 256
"""Answers that another router has not taken when the router closes the connection. Each 256 bytes of the name and the
addresses of a link count as one more."""
NOT_READ = Condition("amqp:resource-limit-exceeded", "answers to detach and end frames are not read")
MOST_NAMES_SHOWN, LONGEST_NAMES_SHOWN = 8, 256
"""Of a certificate, in logs and answers."""
FEW_FRAMES = 1000
"""A connection with no more of them has few links and deliveries. A thread frees others, which may take 0.1 s."""
LARGE_BYTES = 64 * 1024
"""Of names, addresses and values of attaches: as many are as one more connection when its memory is given back."""
INTERNAL_ERROR = Condition("amqp:internal-error", "the router cannot deal with this connection")

_LOCAL_ACTIVE = 2
_LOCAL_CLOSED = 4
_REMOTE_CLOSED = 32


class Owner(Protocol):
    """The listener or connector a connection belongs to."""

    def excess(self, client: str | None) -> str | None:
        """Why a further connection of this client may not open; None if it may."""

    def opened(self, connection: AmqpConnection) -> None:
        """Both sides have opened."""

    def closed(self, connection: AmqpConnection, reason: str) -> None:
        """The connection is gone."""


class AmqpConnection(ConnectionState):
    """The driver of one connection; `core` is the core's view of it, from open to close."""

    def __init__(
        self,
        driver: Driver,
        sock: socket.socket,
        settings: Settings,
        owner: Owner,
        connection_id: int,
        *,
        incoming: bool,
        peer: str,
    ) -> None:
        super().__init__(sock.fileno(), lib.pn_transport(), lib.pn_collector())
        self._address = int(ffi.cast("intptr_t", self.transport))
        watch_transport(self._address)
        self.driver = driver
        self.socket = sock
        self.settings = settings
        self.owner = owner
        self.id = connection_id
        self.incoming = incoming
        self.peer = peer
        self.core: Connection | None = None
        self.remote_cost = 1
        self.detached = Detached(self)
        self.remains = Remains(self)
        self.freeing = Freeing(self)
        self.opened = False
        self.leaving = False
        """Its links are forgotten, one after the other; the engine must keep them until that is done."""
        self.waits_for_write = False
        """The event at the head is to be dealt with when everything has been written."""
        self.peer_left = False
        """Nothing more will arrive."""
        self.owed = 0
        """How many ends and detaches of the peer wait for their answers to be written."""
        self._frames_then = 0
        """Frames that the engine had made when the first of these came, between routers."""
        self.tls_protocol: str | None = None
        self.tls_cipher: str | None = None
        self.mechanism: str | None = None
        self.authenticated = False
        self.sessions = Sessions(self)
        self.outgoing = Outgoing(
            self,
            self.sessions.links_of,
            self.detached.have_unsent,
            lambda: driver.forwarder.settlement.now,
            between_routers=settings.role.is_between_routers,
        )
        self.held = Held(self)
        self.markers = Markers(self)
        self.answers = Answers(self)
        self._timers: list[asyncio.TimerHandle] = []
        self._task: asyncio.Task[None] | None = None
        """It frees what the engine has of many links."""
        self.close_reason = ""
        self._build()

    @property
    def local_name(self) -> str | None:
        """The own end of the socket, `<host>:<port>`; None when it is closed."""
        try:
            host, port, *_ = self.socket.getsockname()
        except OSError:
            return None
        return f"{host}:{port}"

    # Set-up

    def _build(self) -> None:
        self._local = self._peer_is_local()
        self.pn: Pointer = lib.pn_connection()
        lib.pn_connection_collect(self.pn, self.collector)
        lib.pn_connection_set_container(self.pn, cstring(self.driver.core.id))
        self._tls_session = prepare_transport(
            self.transport, self.settings, incoming=self.incoming, local=self._local
        )
        watch_login(self.transport, Exchange(self))
        if not self.incoming:
            name_client(self.pn, self.settings)
            send_open(self.pn, self.settings, self.id, self.driver.core)
        lib.pn_transport_bind(self.transport, self.pn)

    def _peer_is_local(self) -> bool:
        try:
            return is_local(self.socket.getpeername())
        except OSError:  # gone already
            return False

    def certificate_names(self) -> tuple[str, ...]:
        """Names of the peer's certificate, on connections of a listener with `peerNames`."""
        return self._tls_session.peer_names() if self._tls_session is not None else ()

    @property
    def is_revoked(self) -> bool:
        """Whether the peer's certificate, which the handshake has accepted, is revoked by now."""
        tls = self.settings.tls
        lists = self.driver.revocations.get(tls.profile) if tls is not None else None
        return lists is not None and self._tls_session is not None and lists.include_peer(self._tls_session)

    @property
    def login_has_failed(self) -> bool:
        """Whether the peer has refused the login, or this router has refused to go on with it."""
        return has_failed(self.transport)

    def misnamed(self) -> str:
        """Why the peer's certificate has none of the `peerNames`; empty when it has one, or any will do."""
        wanted = self.settings.peer_names
        if not self.incoming or not wanted or is_named(self.certificate_names(), wanted):
            return ""
        names = ", ".join(self.certificate_names()[:MOST_NAMES_SHOWN])[:LONGEST_NAMES_SHOWN]
        return f"the certificate is for {names or 'nobody'}, which peerNames does not have"

    def start(self) -> None:
        """Begin to read and write."""
        self.driver.poller.add(self)
        if self.settings.handshake_timeout_seconds:
            timeout = self.settings.handshake_timeout_seconds
            self._timers.append(self.driver.loop.call_later(timeout, self._handshake_timed_out))
        self.driver.poller.write([self])

    def _handshake_timed_out(self) -> None:
        if not self.opened:
            condition = lib.pn_transport_condition(self.transport)
            set_condition(condition, "amqp:not-allowed", "Timeout waiting for initial handshake")
            lib.pn_transport_close_tail(self.transport)
            self.driver.poller.write([self])
            self.abort("no handshake")  # whoever has not opened will not answer a close either
            self.driver.flush()

    # Reading and writing

    def has_read(self, outcome: int, found: int | None = None) -> None:
        """The engine has been given what arrived: `outcome` bytes, or less as the poller tells it.

        `found`: what the kernel has left to do, if it has dealt with events already.
        """
        if self.closed or self.peer_left or outcome == -errno.EAGAIN:
            return
        try:
            if outcome == UNREAD:
                self.abort("the peer does not read the answer to its open frame")
                return
            if outcome == REFUSED:
                self.close(COPIES_TOO_MUCH)
                self.pump(found)
                self.driver.touch(self)
                return
            if outcome < 0:
                self.abort(f"read failed: {os.strerror(-outcome)}")
                return
            if outcome == 0:
                self._has_read_all()
            elif lib.pn_transport_capacity(self.transport) < 0:
                self._input_ended()
            self.pump(found)
            # The engine may owe the peer something that no event tells of (SASL, heartbeats, window updates).
            self.driver.touch(self)
        except Exception as error:
            self.broken(error)

    def _has_read_all(self) -> None:
        """The peer says no more."""
        # What went wrong before, if anything did, says more than that the peer then left.
        self.note_transport_error()
        if not self.close_reason:
            self.close_reason = "the peer closed the socket" + (
                "" if self.opened else " during the handshake"
            )
        lib.pn_transport_close_tail(self.transport)
        self.peer_left = self.after_write = True
        self._watch()

    def _input_ended(self) -> None:
        """The engine reads no more: after a close, an error it reports itself, or a frame it cannot decode."""
        if lib.pn_connection_state(self.pn) & _REMOTE_CLOSED or condition_of(
            lib.pn_transport_condition(self.transport)
        ):
            return
        self.close(Condition("amqp:decode-error", "a frame could not be decoded"))

    def pump(self, found: int | None = None) -> None:
        """Deal with what the engine has to report; what cannot be dealt with ends this connection only."""
        if self.closed:
            return
        try:
            everything = deal_with_events(self, found)
        except Exception as error:
            self.failed(error)
            everything = False  # others have their turn before what comes next, which may fail as well
        if self.unfinished or not everything:
            self._dealt_with(everything=everything)

    def _dealt_with(self, *, everything: bool) -> None:
        if self.closed:
            return
        if everything is self.unfinished:
            self.unfinished = not everything
            self._watch()
        if not everything and not self.waits_for_write:
            self.driver.postpone(self)

    def go_on(self) -> None:
        """It is the connection's turn again to deal with events."""
        try:
            self.pump()
            # The engine may have something to send, or the connection may only have waited for this to end.
            self.driver.touch(self)
        except Exception as error:
            self.broken(error)

    def failed(self, error: Exception) -> None:
        """The event at the head cannot be dealt with: it is left behind, and the connection closed."""
        try:
            if isinstance(error, DecodeError):
                self.close(Condition("amqp:decode-error", str(error)))
            else:
                self._log_error(error)
                self.close(INTERNAL_ERROR)
        except Exception as another:
            self._log_error(another)
            self._drop()
        if not self.closed:
            lib.pn_collector_pop(self.collector)

    def broken(self, error: Exception) -> None:
        """Something else of this connection cannot be dealt with: it ends, and others have their turn."""
        self._log_error(error)
        if not self.close_reason:
            try:
                self.close(INTERNAL_ERROR)
                return
            except Exception as another:
                self._log_error(another)
        self._drop()

    def _drop(self) -> None:
        try:
            self.abort(INTERNAL_ERROR.description)
        except Exception as error:
            self._log_error(error)

    def _log_error(self, error: Exception) -> None:
        log.error("internal error", exc_info=error, extra={"connection": self.id, "peer": self.peer})

    def before_write(self) -> None:
        """The next bytes have all that the engine has to send so far."""
        while self.fresh_sessions:
            self.sessions.begun(self.fresh_sessions.pop())

    def written(self, result: int, found: int | None = None) -> None:
        """What the engine had to send was written; `result` is one of `sockets.outcome`.

        `found`: what the kernel has left to do of the events, if it has dealt with any.
        """
        if self.closed:
            return
        try:
            self._written(result, found)
        except Exception as error:
            self.broken(error)

    def _written(self, result: int, found: int | None) -> None:
        if result < 0:
            self.abort(f"write failed: {os.strerror(-result)}")
            return
        if (result == BLOCKED) is not self.write_blocked:
            self.write_blocked = result == BLOCKED
            self.owed = 0
            self._watch()
        if result == BLOCKED:
            return
        if self.waits_for_write:
            self.waits_for_write = False
            self.driver.postpone(self)
        if self.stalled:
            stalled, self.stalled = self.stalled, set()
            self.held.keep(stalled)
        if self.held:
            self.held.written()
            self.after_write = self.after_write or bool(self.held)
        if self.unwritten:
            written(self.unwritten)
        if self.after_write:
            self.detached.written()
            self.after_write = (
                self.markers.send()
                | self.answers.give()
                | self.sessions.written()
                | self.remains.written()
                | bool(self.held)
                | self.peer_left
            )
        if not self.unfinished and lib.pn_collector_peek(self.collector):
            self.pump(found)
        if not lib.pn_collector_peek(self.collector):
            self.sessions.dealt_with()
        if self.closed or self.dirty or self.unfinished:
            return
        if result != ENDED:
            if self.peer_left:  # the engine still waits for the rest of a frame
                self.abort(self.close_reason)
            return
        if lib.pn_transport_closed(self.transport):
            self.finish()
        elif lib.pn_connection_state(self.pn) & _LOCAL_ACTIVE and not condition_of(
            lib.pn_transport_condition(self.transport)
        ):
            self.abort("the engine cannot write on")

    def owes(self, pn: Pointer | None = None) -> None:
        """Count an answer that waits to be written; the engine keeps the session, or the link `pn`, until it is.

        The router stops reading from a client that takes no answers, because the client could make it keep any number
        of sessions and links. It reads on from other routers: two that stop reading would wait for each other. So it
        closes the connection of one that takes too few.
        """
        if not self.write_blocked:
            return
        if not self.settings.role.is_between_routers:
            self.owed += 1
            if self.owed == MOST_OWED:
                self._watch()
            return
        frames = lib.pn_transport_get_frames_output(self.transport)
        # If the engine has made frames since, the peer has read something, and earlier answers are no longer kept.
        if frames != self._frames_then:
            self._frames_then, self.owed = frames, 0
        self.owed += 1 + (0 if pn is None else size_of_link(pn) // OWED_BYTES)
        if self.owed >= ROUTER_MOST_OWED and self.core is not None:
            self.close(NOT_READ)
            self._watch()

    def _watch(self) -> None:
        most = ROUTER_MOST_OWED if self.settings.role.is_between_routers else MOST_OWED
        reading = not (self.peer_left or self.unfinished or self.owed >= most)
        self.driver.poller.watch(self, reading=reading, writing=self.write_blocked)

    def tick(self) -> None:
        """Heartbeats and the idle timeout; the engine knows of both once the peer has opened. A flush follows."""
        if self.closed:
            return
        now = int(time.monotonic() * 1000)
        deadline = lib.pn_transport_tick(self.transport, now)
        if deadline > 0:
            self.driver.heartbeats.plan(self, max(SHORTEST_TICK_SECONDS, (deadline - now) / 1000))
        if self.write_blocked:
            if condition_of(lib.pn_transport_condition(self.transport)):
                self.finish()  # a peer that is silent would not read why, either
        elif lib.pn_transport_pending(self.transport) != 0:
            self.driver.touch(self)

    # Closing

    def note_transport_error(self) -> None:
        """Keep what went wrong first as the reason of the close."""
        condition = condition_of(lib.pn_transport_condition(self.transport))
        if condition and not self.close_reason:
            self.close_reason = explain_failure(condition[0], condition[1])
            if UNTRUSTED in self.close_reason and (why := self._why_untrusted()):
                self.close_reason += f": {why}"
            if not self.incoming and condition[0] == UNAUTHORIZED:
                self.close_reason += password_hint(self.transport, self.settings, local=self._local)

    def _why_untrusted(self) -> str:
        """Proton does not tell."""
        tls, session = self.settings.tls, self._tls_session
        if tls is None or session is None:
            return ""
        return session.why_untrusted(tls.revocations, self.settings.hostname)

    def close(self, condition: Condition | None = None) -> None:
        """Send a close frame; the socket goes once the peer answers, or after a while."""
        if self.closed:
            return
        if condition is not None:
            self.close_reason = f"{condition.name}: {condition.description}"
            set_condition(
                lib.pn_connection_condition(self.pn), condition.name, condition.description, condition.info
            )
        was_closed = lib.pn_connection_state(self.pn) & _LOCAL_CLOSED
        if not lib.pn_connection_state(self.pn) & _LOCAL_ACTIVE:
            lib.pn_connection_open(self.pn)
        lib.pn_connection_close(self.pn)
        self.driver.touch(self)
        self.leave_core()
        if was_closed:
            return
        self._timers.append(
            self.driver.loop.call_later(CLOSE_TIMEOUT_SECONDS, self.abort, "peer did not answer the close")
        )

    def break_off(self, condition: Condition) -> None:
        """Send a close frame and read nothing more: what the peer has sent would corrupt the state of the engine."""
        if self.closed:
            return
        of_transport = lib.pn_transport_condition(self.transport)
        if self.peer_left:
            if condition_of(of_transport) is None:
                self.abort(f"{condition.name}: {condition.description}")
            return
        self.close_reason = f"{condition.name}: {condition.description}"
        set_condition(of_transport, condition.name, condition.description)
        lib.pn_transport_close_tail(self.transport)
        if condition_of(of_transport) == (condition.name, condition.description, None):
            # An engine that stops adds to the condition. This one waits for the rest of a frame: it would go on with
            # its deliveries, and send no close frame.
            self.finish()
            return
        self.leave_core()
        lib.pn_collector_release(self.collector)
        self.driver.touch(self)
        self._timers.append(
            self.driver.loop.call_later(CLOSE_TIMEOUT_SECONDS, self.abort, "the close could not be sent")
        )

    def end_if_engine_has_stopped(self) -> None:
        """Drop the socket if the engine writes nothing any more."""
        if self._address in transports_with_errors and not condition_of(
            lib.pn_transport_condition(self.transport)
        ):
            self.abort("the engine has stopped")

    def abort(self, reason: str) -> None:
        """Drop the socket without a close frame."""
        if not self.close_reason:
            self.close_reason = reason
        self.finish()

    def leave_core(self) -> None:
        """All links are gone. Where many go at a time, they go one after the other, between other things."""
        if self.core is None:
            return
        core, self.core = self.core, None
        if not self.driver.may_forget_at_once(len(self.links)):
            # The other router may be back before the last step, and others find another way: what they use goes first.
            self._forget(list(core.standing))
            self.driver.core.connection_lost(core)
            links = deque(self.links.values())
            self.links.clear()
            self.leaving = True
            self.driver.work(self._leave(core, links))
            return
        self._forget(list(self.links.values()))
        self._left(core)

    def _forget(self, links: list[Link]) -> None:
        for link in links:
            # What is read when a receiver is gone may be the end of its sender, on the same connection.
            if self.links.pop(link.io, None) is not None:
                self._forget_link(link)

    def _forget_link(self, link: Link) -> None:
        """The others are forgotten even if something is wrong with this one."""
        try:
            self.driver.forget_link(link)
        except Exception as error:
            self._log_error(error)

    def _leave(self, core: Connection, links: deque[Link]) -> Iterator[None]:
        while links:
            while links:
                self._forget_link(links.popleft())  # which frees it; all of them at once would take long
                yield
            links.extend(self.links.values())  # that this router has attached meanwhile
            self.links.clear()
        try:
            self._left(core)
        except Exception as error:  # what the engine has of it must go
            self._log_error(error)
        self.leaving = False
        if self.closed:
            yield from self._free()

    def _left(self, core: Connection) -> None:
        try:
            self.markers.end()
        finally:  # the core has no connection without its parts
            self.driver.core.connection_closed(core)
            self.driver.release(self)

    def finish(self) -> None:
        """The end of the connection, however it came about; only the first call counts."""
        if self.closed:
            return
        self.closed = True
        self.note_transport_error()
        self.driver.poller.remove(self)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.driver.heartbeats.forget(self)
        end_login(self.transport)
        try:
            self.leave_core()
        except Exception as error:  # the socket must go, and whoever dials it again has to know
            self._log_error(error)
        self.socket.close()
        self.driver.release(self)
        self.driver.connection_finished(self)
        reason = self.close_reason or "closed"
        log.log(
            logging.INFO if self.opened else logging.WARNING,
            "connection closed" if self.opened else "connection failed",
            extra={
                "connection": self.id,
                "peer": self.peer,
                "role": self.settings.role.label,
                "reason": reason,
            },
        )
        self.owner.closed(self, reason)
        if not self.leaving:
            # The engine's objects may still be in use further up the call stack.
            self.driver.work(self._free())

    def _free(self) -> Iterator[None]:
        self.links.clear()
        forget(self)
        forget_login(self.transport)
        if self._tls_session is not None:
            self._tls_session.release()
        frames = lib.pn_transport_get_frames_input(self.transport)
        frames += lib.pn_transport_get_frames_output(self.transport)
        if frames <= FEW_FRAMES:
            self._unbind()
            self._free_transport()
            _free_connection(self.pn)
            self._freed()
        else:
            self._task = self.driver.loop.create_task(self._free_in_a_thread())
        yield

    async def _free_in_a_thread(self) -> None:
        await asyncio.to_thread(self._unbind)
        self._free_transport()
        try:
            await asyncio.to_thread(_free_large_connection, self.pn)
        except RuntimeError:
            return  # the router stops, and the threads are gone
        self._freed()

    def _unbind(self) -> None:
        """Part the connection of the engine from its transport and its collector, link by link."""
        lib.pn_transport_unbind(self.transport)
        lib.pn_connection_collect(self.pn, ffi.NULL)
        lib.pn_collector_release(self.collector)

    def _free_transport(self) -> None:
        """To be called by the main thread, as connections share parts of their transports (TLS)."""
        self.sessions.release()
        self.driver.free_engine(self.transport, self.collector)

    def _freed(self) -> None:
        """The engine has nothing of the connection any more, and nobody asks for its parts.

        They refer to it, so that all would wait for a full collection of garbage.
        """
        self.remains.connection_freed()
        self.driver.freed += 1 + self.sessions.most_bytes_of_peer // LARGE_BYTES
        self.driver.flush()
        del (
            self.detached,
            self.remains,
            self.freeing,
            self.sessions,
            self.outgoing,
            self.held,
            self.markers,
            self.answers,
        )

    def session_answered(self, session: Pointer) -> None:
        """The peer has begun a session that this router began."""
        self.sessions.answered(session)
        self.markers.answered(session)

    def session_ended(self, session: Pointer) -> None:
        """The peer has ended a session, whoever began it."""
        self.sessions.ended(session)
        self.detached.session_ended(session)
        self.detached.session_freed(session)
        self.remains.session_ended(session)
        self.markers.answered(session)
        self.answers.forget(session)


def _free_connection(pn: Pointer) -> None:
    """Free what the engine has of a connection that has neither transport nor collector."""
    lib.pn_connection_release(pn)
    lib.pn_decref(pn)


def _free_large_connection(pn: Pointer) -> None:
    """As `_free_connection`, for one that has had many links or deliveries."""
    with much_is_freed():
        _free_connection(pn)
