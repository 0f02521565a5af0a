"""The sessions of a connection: which links share one, how many there are, and how much each may hold unread."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from cproton_ffi import lib

from isthmus_router.amqp.client_sessions import ClientSessions, Sharer
from isthmus_router.amqp.engine import Pointer, is_marked, mark
from isthmus_router.amqp.handle_max import links_allowed
from isthmus_router.amqp.kernel.handles import is_shut_session
from isthmus_router.amqp.sockets.pieces import LEAST_READ_BYTES, READ_BYTES
from isthmus_router.amqp.terminus import name_size
from isthmus_router.core.model import Link
from isthmus_router.core.port import SessionClass
from isthmus_router.core.terms import Condition
from isthmus_router.policy.grant import RESOURCE_LIMIT

if TYPE_CHECKING:
    from isthmus_router.amqp.connection import AmqpConnection

CLIENT_SESSION_BYTES = 8 * 1024 * 1024
ROUTER_SESSION_BYTES = 128 * 1024 * 1024
LEAST_ROUTER_SESSION_BYTES = 4 * 1024 * 1024
"""The engine counts it in frames of the greatest size, however small the messages are: less would cost more CPU."""
STREAMS_BYTES = 64 * 1024 * 1024
"""That the sessions of all streams from another router may hold unread, beyond the least of each."""
PART_OF_STREAMS = 8
"""The next session gets such a part of what the others have left."""
LEAST_STREAM_BYTES = 128 * 1024
FEW_ROUTER_SESSIONS = 16
"""Of a connection between routers: these may hold a part of `ROUTER_SESSION_BYTES`, whatever they are used for."""
PROXIES_PER_SESSION = 256
"""The engine looks for a link, and for a free handle, by walking over all links of the session."""
STREAMING_SESSIONS = 2
"""One for the streams of each side, at least."""
STREAMS_OF_ROUTER = 7
"""As many times what is left a router may have for the streams of the clients behind it, before they share: it keeps
clients apart itself."""
SPARE_SESSIONS = 16
"""For other uses than streams."""
REFUSED_LINKS = 1000
"""So many links a peer may leave attached beyond its limits, each of them refused, before its connection is closed,
and as many again before it is dropped."""
MOST_BYTES_OF_CLIENT = 16 * 1024 * 1024
MOST_BYTES_BETWEEN_ROUTERS = 256 * 1024 * 1024
"""Of names, addresses and values of the links that the peer of a connection has attached. The engine and the core
retain up to six times as much. Further links are refused, and beyond twice as much the connection is closed."""
LONG_NAME, WEIGHT_OF_LONG_NAME = 128, 16
"""Beyond so many bytes, each byte of the name of a client's link counts so many times. The engine compares the name of
an attach with those names of its session that are as long: at most a megabyte then, in 0.2 ms."""
MOST_LATE_ANSWERS, LATE_ANSWERS_PER_SECOND = 1000, 10
"""Times that the router answers sessions which the peer has ended already: in all, and in each further second."""
MOST_WALKED = 32_768
"""Links that the engine walks over between two writes because of ends of sessions. That takes about a millisecond."""
DEAR_LINKS = 256
"""With more links in a session its peer's frames are read in smaller pieces. The engine walks over the links for an
attach, and for any frame if the peer has chosen handles that collide in its table."""
CHEAP_BYTES = 16 * 1024 * 1024
USUAL_LINKS = 256
"""The router assumes that a peer allows so many in a session, until the peer has begun its first session."""


class Sessions:
    """Those of one connection, begun by either end."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self.count = 0
        """Open ones, whoever began them, and ended ones that the engine still uses."""
        self._shared: dict[tuple[SessionClass, int], Pointer] = {}
        """Those this router began, by their use."""
        self._proxies: dict[Pointer, int] = {}
        """Those for proxy links, with the number of links in each."""
        self._streams = ClientSessions(
            self._begin,
            self._free_for_streams,
            lambda _: True,
            of_router=STREAMS_OF_ROUTER,
            waits=is_shut_session,
        )
        self._routed = ClientSessions(self._begin, lambda: self._free() - SPARE_SESSIONS, self._has_room)
        self._links: dict[Pointer, dict[Link, None]] = {}
        """Attached links by session."""
        self._of_peer: dict[Pointer, dict[Pointer, int]] = {}
        """Links by session that the peer has attached and not detached, refused ones included, with their sizes.

        Those of an ended session count until the engine is done with it.
        """
        self._receivers: dict[Pointer, dict[Pointer, None]] = {}
        """Links by session on which something can come, until the engine frees them."""
        self._with_many_links: set[Pointer] = set()
        """Sessions with more than `DEAR_LINKS` of these links."""
        self._links_of_peer = 0
        """All of them."""
        self._bytes_of_peer = 0
        """Their sizes together."""
        self.most_bytes_of_peer = 0
        """The most that they have been."""
        self._begun: set[Pointer] = set()
        """Those that the peer has begun, or answered, and not ended."""
        self._ended: set[Pointer] = set()
        """Those that the peer has ended, held here until the engine is done with them."""
        self._finished: dict[Pointer, bool] = {}
        """Those of them to which no channel leads, and whether the engine has written everything since then.

        The engine still reports a flow for a delivery that was aborted and could not be written. It would finalize
        the session with this event, and the link twice.
        """
        self._unwritten_ends: set[Pointer] = set()
        """Sessions whose ends by the router the engine has not written yet, so that they still have channels."""
        self._ends = 0
        """Ends by the router, answers included, that the engine has not written yet."""
        self._to_end: dict[Pointer, None] = {}
        """Sessions that the router will end after the next write."""
        self._without_channel: set[Pointer] = set()
        """Ended sessions whose ends are written, until the engine is done with them."""
        self._streams_of_peer: dict[Pointer, int] = {}
        """Sessions of another router's streams, with the part of `STREAMS_BYTES` that each has taken."""
        self._room_for_streams = STREAMS_BYTES
        self._idle: dict[Pointer, int] = {}
        """Sessions of another router's in which nothing can come yet, with what those may hold that are not for
        streams."""
        self._allowed: dict[Pointer, int] = {}
        """Links that the peer allows in the sessions that it has begun and not ended."""
        self._usual = USUAL_LINKS
        """Links that it allows in the one that it has begun last."""
        self._handles: dict[Pointer, int] = {}
        """How many links of each session the engine has a handle for. Either end has attached them."""
        self._late_answers = 0
        """Times that the peer had ended a session before the router could answer its begin. Between two of them, the
        router has written: all that come before it writes count once."""
        self._late_since_write = False
        """Whether there was such a session since the router last wrote."""
        self._returned: list[Pointer] = []
        """The session of each link that both ends have detached: its handle is free after the next write."""
        self._flow_waits: dict[Pointer, set[Link]] = {}
        """Links whose flow waits until the peer has answered the begin of their session."""

    def of_links(self, session_class: SessionClass, number: int, origin: Link | None = None) -> Pointer:
        """The session shared by links of a class (and number, for the per-priority ones); `origin` is where the stream
        comes in that is to be sent on a link for streams."""
        if session_class is SessionClass.PROXY:
            return self._for_proxy()
        if session_class is SessionClass.STREAMING and origin is not None:
            return self._for_stream(Sharer.of(origin))
        key = (session_class, number)
        session = self._shared.get(key)
        if session is None:
            session = self._any_session() if self._free() <= 0 else self._begin()
            self._shared[key] = session
        return session

    def _any_session(self) -> Pointer:
        """One that is there already, the peer's if need be: more are not allowed.

        For a peer that allows none and has none, the engine cannot begin what this returns, and gives the connection
        up when it writes.
        """
        there = next(iter(self._shared.values()), None) or next(iter(self._begun), None)
        return self._begin() if there is None else there

    def _free(self) -> int:
        """How many more sessions the two ends allow each other."""
        allowed: int = lib.pn_transport_get_channel_max(self._connection.transport) + 1
        return allowed - self.count

    def lacks_channel(self) -> bool:
        """Whether the router has no channel for one more session.

        The engine writes nothing any more when it finds none.
        """
        return self._free() + len(self._without_channel) <= 0

    def waits_for_channel(self) -> bool:
        """Whether a channel is free when everything has been written.

        A peer may begin a session on the channel of one that it has just ended (AMQP 1.0, 2.5.5), but the engine
        writes begins before ends.
        """
        return bool(self._unwritten_ends)

    @staticmethod
    def is_answerable(session: Pointer) -> bool:
        """Whether the router has begun a session, or can still answer the peer's begin."""
        state = lib.pn_session_state(session)
        return not (state & lib.PN_LOCAL_UNINIT and state & lib.PN_REMOTE_CLOSED)

    def may_answer(self, session: Pointer) -> bool:
        """Whether to answer the peer's begin of a session, which the peer may have ended already.

        In that case the engine has forgotten the channel of the peer, and its begin names none. The peer takes it for
        the begin of another session, and answers it. Two ends that both do so would go on without end. A peer that
        sends many begins and ends at once does not wait for these answers.
        """
        return self.is_answerable(session) or self._late_answers < MOST_LATE_ANSWERS

    def may_end(self) -> bool:
        """Whether another session may end before the next write: for each end that the engine writes, it walks over all
        links of the connection."""
        return not self._ends or (self._ends + 1) * len(self._connection.links) <= MOST_WALKED

    def _end_soon(self, session: Pointer) -> None:
        """End a session that the router has begun and needs no more."""
        if self.may_end():
            lib.pn_session_close(session)
            self._ends += 1
        else:
            self._to_end[session] = None
        self._connection.after_write = True
        self._connection.driver.touch(self._connection)

    def _end_some(self) -> Iterator[None]:
        """End as many of the sessions that wait for it as may end now. This is one step of work."""
        while self._to_end and self.may_end():
            session = next(iter(self._to_end))
            del self._to_end[session]
            self._end_soon(session)
        yield

    def end(self, session: Pointer) -> None:
        """Answer the end of a session, which is of no use any more."""
        self._to_end.pop(session, None)
        if self.is_answerable(session):
            lib.pn_session_close(session)
            self._ends += 1
            self._unwritten_ends.add(session)
        else:
            self._without_channel.add(session)
        lib.pn_session_free(session)
        self._connection.after_write = True
        self._connection.driver.touch(self._connection)

    def begin_another(self) -> Pointer | None:
        """A new session of its own; None when the two ends allow no more."""
        return self._begin() if self._free() > 0 else None

    def _begin(self) -> Pointer:
        session = lib.pn_session(self._connection.pn)
        self.bound(session)
        lib.pn_session_open(session)
        self._connection.fresh_sessions.append(session)
        self._connection.driver.touch(self._connection)
        return session

    def begun(self, session: Pointer) -> None:
        """The begin of a session of this router's is about to be written."""
        self._flow_waits[session] = set()

    def flow_waits(self, link: Link) -> bool:
        """Whether it is too early to tell the peer of the link's credit; then it is told when it is time.

        A flow frame that follows the begin at once is in order. A later one from before the peer's begin arrived
        cannot say how much of what the peer has sent meanwhile is included in its window (AMQP 1.0, 2.5.6); the
        peer then would take the window for empty again, and overrun it.
        """
        waiting = self._flow_waits.get(link.session)
        if waiting is not None:
            waiting.add(link)
        return waiting is not None

    def peer_began(self, session: Pointer) -> bool:
        """The peer has begun a session, whoever did so first: whether that was the first time.

        The peer can name a session that it has ended until the engine has written the router's end.
        """
        if session in self._begun or is_marked(session):
            return False
        if not self.is_answerable(session) and not self._late_since_write:
            self._late_since_write = True
            self._late_answers += 1
        self._begun.add(session)
        self._allowed[session] = self._usual = links_allowed(session)
        return True

    def has_begun(self, session: Pointer) -> bool:
        """Whether the peer has begun a session and not ended it."""
        return session in self._begun

    def answered(self, session: Pointer) -> None:
        """The peer has begun a session that this router began."""
        driver = self._connection.driver
        for link in self._flow_waits.pop(session, ()):
            if link in link.connection.links and link.routed:
                driver.forwarder.routed.granted(link)
            elif link in link.connection.links:
                (driver.top_up if link.capacity else driver.drain)(link)

    def peer_attached(self, session: Pointer, link: Pointer) -> tuple[Condition | None, int]:
        """The peer has attached a link: why it is one too many, and how many there are beyond the limit."""
        self._handles[session] = self._handles.get(session, 0) + 1
        links = self._of_peer.setdefault(session, {})
        links[link] = 0
        if lib.pn_link_is_receiver(link):
            self._receivers.setdefault(session, {})[link] = None
        if len(links) > DEAR_LINKS:
            self._with_many_links.add(session)
            self._limit_reads()
        self._links_of_peer += 1
        most = self._connection.settings.max_links
        excess = self._links_of_peer - most
        if not most or excess <= 0:
            return None, 0
        plural = "" if most == 1 else "s"
        return Condition(RESOURCE_LIMIT, f"no more than {most} link{plural} on a connection"), excess

    def attach_read(self, session: Pointer, link: Pointer, size: int) -> Condition | None:
        """Count the size of an attach: why the link is beyond the bound, if it is.

        The size of a refused link counts until the peer has detached it.
        """
        if not self._connection.settings.role.is_between_routers:
            size += (WEIGHT_OF_LONG_NAME - 1) * max(0, name_size(link) - LONG_NAME)
        self._of_peer[session][link] = size
        self._bytes_of_peer += size
        self.most_bytes_of_peer = max(self.most_bytes_of_peer, self._bytes_of_peer)
        most = self._bound_of_peer
        if self._bytes_of_peer <= most:
            return None
        reason = f"names, addresses and values of the links on a connection have at most {most} bytes"
        return Condition(RESOURCE_LIMIT, reason)

    def has_refused_too_much(self) -> bool:
        """Whether the peer has left attached what is far beyond the bound."""
        return self._bytes_of_peer > 2 * self._bound_of_peer

    @property
    def _bound_of_peer(self) -> int:
        between_routers = self._connection.settings.role.is_between_routers
        return MOST_BYTES_BETWEEN_ROUTERS if between_routers else MOST_BYTES_OF_CLIENT

    def peer_detached(self, session: Pointer, link: Pointer) -> None:
        """Both ends have detached a link, which either of them had attached."""
        self._returned.append(session)
        self._connection.after_write = True
        receivers = self._receivers.get(session)
        if receivers is not None:
            receivers.pop(link, None)
        links = self._of_peer.get(session)
        if links is not None and link in links:
            self._bytes_of_peer -= links.pop(link)
            self._links_of_peer -= 1
            if len(links) == DEAR_LINKS:
                self._with_many_links.discard(session)
                self._limit_reads()

    def _limit_reads(self) -> None:
        """Give the engine as much at a time as it deals with in a few milliseconds."""
        most = max((len(self._of_peer[session]) for session in self._with_many_links), default=0)
        size = max(LEAST_READ_BYTES, CHEAP_BYTES // most) if most else READ_BYTES
        if not self._connection.closed:
            self._connection.driver.poller.limit(self._connection, size)

    def ended(self, session: Pointer) -> None:
        """The peer has ended a session, whoever began it; to be called before the session is freed.

        The engine would finalize a freed session with the last event of a link in it, and the link twice. Nor does
        it count how many channels of the peer's lead to a session: one can be left after the end.
        """
        self._begun.discard(session)
        self._receivers.pop(session, None)
        self._idle.pop(session, None)
        lib.pn_incref(session)
        self._ended.add(session)
        mark(session)
        for key, known in list(self._shared.items()):
            if known == session:
                del self._shared[key]
        self._proxies.pop(session, None)
        self._streams.remove(session)
        self._routed.remove(session)
        self._flow_waits.pop(session, None)
        self._allowed.pop(session, None)
        self._handles.pop(session, None)

    def finished(self, session: Pointer) -> None:
        """No channel leads to an ended session any more.

        One that was begun and ended before the router's begin was written is finished before it and again after it.
        """
        if session not in self._ended:
            return
        self._ended.remove(session)
        self._finished[session] = False
        self._connection.after_write = True
        self._connection.driver.touch(self._connection)
        links = self._of_peer.pop(session, {})
        self._links_of_peer -= len(links)
        self._bytes_of_peer -= sum(links.values())
        if session in self._with_many_links:
            self._with_many_links.remove(session)
            self._limit_reads()
        self._room_for_streams += self._streams_of_peer.pop(session, 0)
        self._connection.outgoing.ended(session)

    def written(self) -> bool:
        """The engine has written everything, and reports nothing new of finished sessions; whether there are any."""
        if not self._connection.dirty:
            for session in self._returned:
                if session in self._handles:
                    self._handles[session] -= 1
            self._returned.clear()
            self._without_channel |= self._unwritten_ends
            self._unwritten_ends.clear()
            self._late_since_write = False
        self._ends = 0
        if self._to_end:
            self._connection.driver.work(self._end_some())
        self._finished = dict.fromkeys(self._finished, True)
        return bool(self._finished or self._returned or self._unwritten_ends or self._ends or self._to_end)

    def dealt_with(self) -> None:
        """All events have been dealt with: the engine may have the sessions that were finished before it wrote."""
        for session in [session for session, written in self._finished.items() if written]:
            del self._finished[session]
            self._without_channel.discard(session)
            lib.pn_decref(session)
            self.count -= 1

    def release(self) -> None:
        """The connection is over, and its events are gone: the engine may have what is held of it."""
        for session in (*self._ended, *self._finished):
            lib.pn_decref(session)
        self._ended.clear()
        self._finished.clear()
        self._to_end.clear()
        del self._routed, self._streams  # which refer to this object

    def link_here(self, link: Link) -> None:
        """A link has been attached, by either end."""
        if not link.by_peer:
            self._handles[link.session] = self._handles.get(link.session, 0) + 1
        if link.incoming:
            self._receivers.setdefault(link.session, {})[link.io] = None
            if link.session in self._idle:
                self._is_for(link.session, streams=link.by_peer and link.target.address is None)
        self._links.setdefault(link.session, {})[link] = None

    def links_of(self, session: Pointer) -> Collection[Link]:
        """Those that are attached in a session."""
        return self._links.get(session, ())

    def receivers(self, session: Pointer) -> Collection[Pointer]:
        """Links of a session on which something can come: also refused ones, and those that only one end has closed.

        To be asked of sessions only that the peer has not ended.
        """
        return self._receivers.get(session, ())

    def some_links(self, session: Pointer, most: int) -> list[Link]:
        """The first links that are attached in a session."""
        return list(islice(self._links.get(session, ()), most))

    def link_gone(self, link: Link) -> None:
        """One link less in its session."""
        session = link.session
        if not link.incoming:
            self._connection.outgoing.link_gone(link)
        attached = self._links.get(session)
        if attached is not None:
            attached.pop(link, None)
            if not attached:
                del self._links[session]
        if session in self._proxies:
            self._proxies[session] -= 1
        self._streams.link_gone(session)
        self._routed.link_gone(session)

    def _for_proxy(self) -> Pointer:
        """The emptiest one, or a new one when all are full; counts the link that is about to be opened."""
        session = min(self._proxies, key=self._proxies.__getitem__, default=None)
        if session is None or self._proxies[session] >= PROXIES_PER_SESSION:
            if self._free() > STREAMING_SESSIONS:
                session = self._begin()
                self._proxies[session] = 0
            elif session is None:
                return self.of_links(SessionClass.ENDPOINT, 0)
        self._proxies[session] += 1
        return session

    def _for_stream(self, sharer: Sharer) -> Pointer:
        """One for each stream while there are enough, then one of the same client; counts the link that is about to be
        opened.

        What has arrived of a stream that has to wait fills its session's window. In a session with others it would
        keep them from arriving, perhaps the very one that it waits for.
        """
        return self._streams.take(sharer) or self._any_session()

    def _free_for_streams(self) -> int:
        """How many more sessions may be begun for streams: the first one takes what is there."""
        free = self._free()
        return free - SPARE_SESSIONS if self._streams or free > SPARE_SESSIONS else min(free, 1)

    def may_carry(self, link: Link, origin: Link) -> bool:
        """Whether an idle link for streams may carry the one that comes in on `origin`: not where it could wait behind
        those of another client."""
        return self._streams.hand_over(link.session, Sharer.of(origin))

    def of_routed(self, sharer: Sharer) -> Pointer | None:
        """The session for another routed link, or None when the peer allows the client no more links."""
        if self._routed or self._free() > SPARE_SESSIONS:
            return self._routed.take(sharer)
        session = self.of_links(SessionClass.ENDPOINT, 0)
        return session if self._has_room(session) else None

    def _has_room(self, session: Pointer) -> bool:
        """Whether the peer allows another link; before it has begun the session, whether it will probably do so."""
        return self._handles.get(session, 0) < self._allowed.get(session, self._usual)

    def end_of_routed(self, session: Pointer) -> bool:
        """End a session that one routed link has for itself; whether it is one."""
        if self._routed.links(session) != 1:
            return False
        self._routed.remove(session)
        self._end_soon(session)
        return True

    def second_passed(self) -> None:
        """To be called every second."""
        self._late_answers = max(0, self._late_answers - LATE_ANSWERS_PER_SECOND)
        self._end_unused()

    def _end_unused(self) -> None:
        """End the sessions of streams and routed links whose links are gone."""
        for session in self._streams.unused() + self._routed.unused():
            self._streams.remove(session)
            self._routed.remove(session)
            self._end_soon(session)

    def bound(self, session: Pointer) -> None:
        """Limit what one session holds unread; sessions share, so that opening more gains a peer little.

        The n-th session gets an n-th of the whole, down to a least size. One of another router's gets more than the
        least when it is known what it is used for.
        """
        self.count += 1
        self._connection.outgoing.began(session)
        core, settings = self._connection.core, self._connection.settings
        frames = settings.max_session_frames
        window = core.grant.max_session_window if core is not None and core.grant else 0
        if window:
            capacity = max(window, 2 * self._most_frame_bytes)
        elif frames:
            capacity = frames * self._most_frame_bytes
        elif settings.role.is_between_routers:
            capacity = max(ROUTER_SESSION_BYTES // self.count, LEAST_ROUTER_SESSION_BYTES)
            if self.count > FEW_ROUTER_SESSIONS and session in self._begun:
                self._idle[session] = capacity
                capacity = self._least_of_streams
        else:
            capacity = max(CLIENT_SESSION_BYTES // self.count, 2 * self._most_frame_bytes)
        lib.pn_session_set_incoming_capacity(session, capacity)

    @property
    def _most_frame_bytes(self) -> int:
        """Of a frame of the peer. The engine gives up a connection whose sessions may hold less."""
        most: int = lib.pn_transport_get_max_frame(self._connection.transport)
        return most

    @property
    def _least_of_streams(self) -> int:
        return max(LEAST_STREAM_BYTES, 2 * self._most_frame_bytes)

    def _is_for(self, session: Pointer, *, streams: bool) -> None:
        """The first link is attached on which something can come in a session: what the session is for.

        Streams that wait for a receiver fill their sessions. So all of them share what is for streams; the window of
        a session that has been announced is never made smaller.
        """
        capacity = self._idle.pop(session)
        if streams:
            part = self._room_for_streams // PART_OF_STREAMS
            if part <= self._least_of_streams:
                return
            self._streams_of_peer[session] = capacity = part
            self._room_for_streams -= part
        lib.pn_session_set_incoming_capacity(session, capacity)
